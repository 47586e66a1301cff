"""What `import pigeon` gives: every name, none of its cost, and methods that are those of the wire."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from sdk_commands import BY_HAND, exported_records, files

import pigeon
from pigeon.wire.commands import ALL, NAMES


def test_the_generated_files_are_in_step_with_the_wire() -> None:
    stale = [path.name for path, text in files().items() if path.read_text("utf-8") != text]
    assert not stale, "run `make sdk`"


def test_every_exported_name_is_there() -> None:
    assert [name for name in pigeon.__all__ if getattr(pigeon, name, None) is None] == []
    assert set(exported_records()) <= set(pigeon.__all__) <= set(dir(pigeon))
    with pytest.raises(AttributeError, match="no_such"):
        _ = pigeon.no_such  # type: ignore[attr-defined]


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import asyncio, json, sys; old = set(sys.modules); import pigeon; print(sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['__future__', 'pigeon']\n"


def test_a_client_needs_nothing_of_the_agent() -> None:
    code = "import sys, pigeon; pigeon.Client; print([name for name in sys.modules if name.startswith('pigeon.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in eval(done.stdout)}
    assert loaded <= {"sdk", "wire", "transport", "system"}


@pytest.mark.parametrize("kind", [pigeon.Conversation, pigeon.SyncAgent])
def test_every_command_is_a_method(kind: type) -> None:
    by_hand = {NAMES[one] for one in BY_HAND} - {"prompt", "steer", "follow_up"}
    assert [name for name in NAMES.values() if name not in by_hand and not hasattr(kind, name)] == []
    assert len(ALL) > 50


def test_required_members_are_positional_and_the_others_keywords() -> None:
    parameters = inspect.signature(pigeon.Conversation.navigate_tree).parameters
    assert [(one.name, one.kind.name) for one in parameters.values()][:3] == [
        ("self", "POSITIONAL_OR_KEYWORD"),
        ("entry_id", "POSITIONAL_OR_KEYWORD"),
        ("summarize", "KEYWORD_ONLY"),
    ]
