"""Extensions for the real program: written to a file, named on its command line."""

from __future__ import annotations

from pathlib import Path

from fakes.agent_folders import AgentFolders

HEAD = "from pigeon.extensions import *\nimport asyncio, os, sys, time\n\next = Extension('test')\n"
EXAMPLES = Path(__file__).parents[2] / "examples" / "extensions"


def extension(folders: AgentFolders, text: str, name: str = "test_extension") -> list[str]:
    """Options that load an extension with this text; `ext` is there already."""
    path = folders.temp / f"{name}.py"
    path.write_text(HEAD + text)
    return ["--extension", str(path)]


def example(name: str) -> list[str]:
    """Options that load one of the examples."""
    return ["--extension", str(EXAMPLES / f"{name}.py")]
