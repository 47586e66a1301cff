"""The same calls of tools give the same bytes here and on every kind of other machine, paths aside."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import pigeon
from fakes.machines import PodmanMachine, SshMachine
from pigeon.testing import call, scripted

pytestmark = pytest.mark.timeout(180)
CALLS = [
    call("write", path="src/a.py", content="def a():\n    return 1\n"),
    call("write", path="src/ünï cödé.txt", content="née\n"),
    call("edit", path="src/a.py", edits=[{"oldText": "return 1", "newText": "return 2"}]),
    call("edit", path="src/a.py", edits=[{"oldText": "no such text", "newText": "x"}]),
    call("read", path="src/a.py"),
    call("read", path="long.txt", offset=100, limit=3),
    call("read", path="long.txt"),
    call("read", path="nothing.txt"),
    call("read", path="src"),
    call("ls"),
    call("ls", path="src"),
    call("ls", path="nothing"),
    call("grep", pattern="return"),
    call("grep", pattern="LINE 10", ignoreCase=True, limit=3),
    call("grep", pattern="a(b"),
    call("grep", pattern="line", path="nothing"),
    call("find", pattern="*.py"),
    call("find", pattern="**/*", limit=2),
    call("bash", command="echo out; echo err >&2; printf '\\033[31mred\\033[0m\\n'"),
    call("bash", command="cat nothing.txt"),
    call("bash", command="seq 1 5000"),
    call("bash", command="echo before; exit 3"),
    call("bash", command="sleep 100", timeout=1),
    call("bash", command="kill -9 $$"),
]


async def results_of(folder: Path, agent_dir: Path, there: str, url: str | None, env: dict[str, str]) -> list[str]:
    """What each call returned, with the names of folders and machines left out."""
    (folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 3001)))
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "a.log").write_text("return\n")
    with scripted(*CALLS, "Done.") as model:
        agent = pigeon.Agent(
            model=model, cwd=folder, agent_dir=agent_dir, env=env, workspace=url,
            builtin_tools=["read", "write", "edit", "bash", "ls", "grep", "find"],
        )  # fmt: skip
        async with agent:
            result = await agent.run("Work")
            name = None if url is None else (await agent.get_state()).workspace.name
    texts = [
        "".join(getattr(block, "text", "") for block in message.content)
        for message in result.messages
        if isinstance(message, pigeon.ToolResultMessage)
    ]
    assert len(texts) == len(CALLS)
    return [leave_out_names(text, there, str(agent_dir), name) for text in texts]


def leave_out_names(text: str, there: str, agent_dir: str, name: str | None) -> str:
    text = text.replace(there, "FOLDER")
    text = re.sub(rf"{re.escape(agent_dir)}\S*", "KEPT", text)
    return text if name is None else re.sub(rf"\s*[\[(]?(?:on |at )?{re.escape(name)}[\])]?:?", "", text)


async def test_tools_give_the_same_results_everywhere(
    ssh: SshMachine, podman: PodmanMachine, container: str, tmp_path: Path
) -> None:
    folders = {kind: tmp_path / kind for kind in ("local", "ssh", "exec")}
    folders["podman"] = podman.folder / container / "work" / "same"
    for folder in folders.values():
        folder.mkdir()
    places = {
        "local": (str(folders["local"]), None, dict(os.environ)),
        "ssh": (str(folders["ssh"]), ssh.url(folders["ssh"]), ssh.variables()),
        "exec": (str(folders["exec"]), f"exec:sh#{folders['exec']}", dict(os.environ)),
        "podman": ("/work/same", f"podman://{container}/work/same", podman.variables()),
    }
    found = {
        kind: await results_of(folders[kind], tmp_path / f"agent-{kind}", there, url, env)
        for kind, (there, url, env) in places.items()
    }
    for kind, texts in found.items():
        for made, here, text in zip(CALLS, found["local"], texts, strict=True):
            assert text == here, (kind, made)
