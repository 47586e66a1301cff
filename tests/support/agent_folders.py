"""The folders and files that an agent under test finds: a home, pi's configuration, extensions, projects, odd files.

`ODD` has what may be where a file of the user or of a project is expected: what blocks, never ends, or is no file.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]
KEPT = ("PATH", "LANG", "SYSTEMROOT", "NODE_PATH", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START")
HEAD = "from pigeon.extensions import *\nimport asyncio, os, sys, time\n\next = Extension('test')\n"
EXAMPLES = Path(__file__).parents[2] / "examples" / "extensions"


def model(model_id: str, **more: Any) -> Record:
    base: Record = {"id": model_id, "name": model_id, "reasoning": True, "input": ["text", "image"]}
    cost = {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1.25}
    return {**base, "contextWindow": 200_000, "maxTokens": 8_192, "cost": cost, **more}


def providers(url: str, models: Iterable[Record] | None = None) -> Record:
    """models.json for one provider that speaks Anthropic Messages at this address."""
    listed = [model("fake-1"), model("fake-2")] if models is None else list(models)
    provider = {"baseUrl": url, "api": "anthropic-messages", "apiKey": "dummy-key", "models": listed}
    return {"providers": {"fake": provider}}


class AgentFolders:
    """The folders that a process lives in."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.agent = self.home / ".pi" / "agent"
        self.work = root / "work"
        self.temp = root / "tmp"
        for folder in (self.agent, self.work, self.temp):
            folder.mkdir(parents=True, exist_ok=True)

    def configure(self, models: Record | None = None, settings: Record | None = None) -> None:
        """Write the two files that the agent reads at start."""
        if models is not None:
            (self.agent / "models.json").write_text(json.dumps(models))
        (self.agent / "settings.json").write_text(json.dumps({"quietStartup": True, **(settings or {})}))

    def environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """No key, no proxy, nothing of the developer's own configuration."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "PI_CODING_AGENT_DIR": str(self.agent),
            "PI_OFFLINE": "1",
            "NO_COLOR": "1",
            "TERM": "dumb",
            # A server of a few conversations for a few seconds: its start counts, not its memory.
            "PIGEON_SERVE_WARM_UP": "off",
        }
        return {**kept, **own, **(extra or {})}


def extension(folders: AgentFolders, text: str, name: str = "test_extension") -> list[str]:
    """Options that load an extension with this text; `ext` is there already."""
    path = folders.temp / f"{name}.py"
    path.write_text(HEAD + text)
    return ["--extension", str(path)]


def example(name: str) -> list[str]:
    """Options that load one of the examples."""
    return ["--extension", str(EXAMPLES / f"{name}.py")]


def make_project(folder: Path) -> Path:
    for name, content in {
        "README.md": "# Project\nuse foo\n",
        "src/a.py": "import foo\n\ndef bar():\n    return foo.Foo()\n",
        "src/deep/b.py": "foo = 1\n",
        "src/deep/c.ts": "const foo = 2;\n",
        "build/out.py": "foo\n",
        ".hidden/x.py": "foo\n",
        ".git/config": "foo\n",
        "secret.log": "foo\n",
        ".gitignore": "build/\n*.log\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def _folder(path: Path) -> None:
    path.mkdir()


def _nowhere(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def _circle(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    """Bound by a short relative name: the address of a socket has no room for a long path."""
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


ODD: dict[str, Callable[[Path], None]] = {
    "pipe": _pipe,
    "endless": _endless,
    "huge": _huge,
    "folder": _folder,
    "nowhere": _nowhere,
    "circle": _circle,
    "socket": _socket,
}
