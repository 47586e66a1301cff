"""The examples in the docstrings of what users import run as they are written; what is most used has one."""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pigeon
import pigeon.extensions
import pigeon.testing
from pigeon.extensions import Extension
from support.agent_folders import AgentFolders

# What a reader looks up first; other names may have an example, too.
NEEDED = (
    "pigeon.Agent",
    "pigeon.Client",
    "pigeon.Conversation",
    "pigeon.Limits",
    "pigeon.PermissionRequest",
    "pigeon.Result",
    "pigeon.SyncAgent",
    "pigeon.SyncClient",
    "pigeon.ToolContext",
    "pigeon.batch",
    "pigeon.run_sync",
    "pigeon.tool",
    "pigeon.testing.call",
    "pigeon.testing.failure",
    "pigeon.testing.scripted",
    "pigeon.testing.value",
    "pigeon.extensions.Extension",
    "pigeon.extensions.Extension.command",
    "pigeon.extensions.Extension.flag",
    "pigeon.extensions.Extension.on",
    "pigeon.extensions.Extension.provider",
    "pigeon.extensions.Extension.tool",
)


def _public() -> Iterator[tuple[str, Any]]:
    for module in (pigeon, pigeon.testing, pigeon.extensions):
        for name in getattr(module, "__all__", None) or dir(module):
            if not name.startswith("_"):
                yield f"{module.__name__}.{name}", getattr(module, name)
    for name, method in vars(Extension).items():
        if not name.startswith("_"):
            yield f"pigeon.extensions.Extension.{name}", method


def _example_of(thing: Any) -> str:
    _, _, code = inspect.cleandoc(getattr(thing, "__doc__", None) or "").partition("\n\nExample:\n")
    return textwrap.dedent(code)


EXAMPLES = {name: code for name, thing in _public() if (code := _example_of(thing))}
EXTENSIONS = [name for name in EXAMPLES if name.startswith("pigeon.extensions.")]
PROGRAMS = [name for name in EXAMPLES if name not in EXTENSIONS]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentFolders:
    made = AgentFolders(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
    monkeypatch.chdir(made.work)
    return made


def test_what_is_most_used_has_an_example() -> None:
    assert [name for name in NEEDED if name not in EXAMPLES] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_example_of_a_docstring_runs(name: str, folders: AgentFolders) -> None:
    exec(compile(EXAMPLES[name], f"<example of {name}>", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_extension_of_a_docstring_loads_and_its_handlers_run(name: str, folders: AgentFolders) -> None:
    path = folders.work / "extension.py"
    path.write_text(EXAMPLES[name])
    with (
        pigeon.testing.scripted(pigeon.testing.call("bash", command="git push"), "Done.") as model,
        pigeon.SyncAgent(model=model, extensions=[str(path)]) as agent,
    ):
        assert agent.warnings == []
        events = list(agent.prompt("Hello"))
    assert [one for one in events if isinstance(one, pigeon.ExtensionError)] == []
