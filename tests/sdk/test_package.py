"""What `import pigeon` gives: every name, none of its cost, and methods that are those of the wire."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from sdk_commands import exported_records, files

import pigeon
from pigeon.sdk import commands
from pigeon.sdk.command_methods import BY_HAND
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
    # Tools that measure coverage have loaded the first one already.
    assert set(eval(done.stdout)) - {"__future__"} == {"pigeon"}


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


def test_a_method_reads_like_one_that_was_written_by_hand() -> None:
    method = pigeon.Conversation.set_model
    assert method.__name__ == "set_model"
    assert inspect.iscoroutinefunction(method)
    assert not inspect.iscoroutinefunction(pigeon.SyncAgent.set_model)
    assert str(inspect.signature(method)) == "(self, provider: 'str', model_id: 'str') -> 'Model'"
    assert method is pigeon.Agent.set_model
    assert "model" in inspect.getdoc(method).lower()


@pytest.mark.parametrize(
    ("given", "named", "wrong"),
    [
        ((), {}, r"set_model\(\) missing a required argument: 'provider'"),
        (("a", "b", "c"), {}, r"set_model\(\) too many positional arguments"),
        (("a",), {"modle": "b"}, r"set_model\(\) .*'model"),
    ],
)
async def test_wrong_arguments_are_refused_as_by_any_function(
    given: tuple[str, ...], named: dict[str, str], wrong: str
) -> None:
    agent = pigeon.Agent(model="demo")
    with pytest.raises(TypeError, match=wrong):
        await agent.set_model(*given, **named)


def test_the_stub_shows_what_the_classes_have() -> None:
    stub = ast.parse(Path(commands.__file__).with_suffix(".pyi").read_text("utf-8"))
    for shown in (one for one in stub.body if isinstance(one, ast.ClassDef)):
        kind = getattr(commands, shown.name)
        methods = {one.name: one for one in shown.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert set(methods) == {name for name in dir(kind) if not name.startswith("_")}
        for name, method in methods.items():
            parameters = inspect.signature(getattr(kind, name)).parameters
            assert [one.arg for one in (*method.args.args, *method.args.kwonlyargs)] == list(parameters)
            assert isinstance(method, ast.AsyncFunctionDef) is inspect.iscoroutinefunction(getattr(kind, name))


def test_required_members_are_positional_and_the_others_keywords() -> None:
    parameters = inspect.signature(pigeon.Conversation.navigate_tree).parameters
    assert [(one.name, one.kind.name) for one in parameters.values()][:3] == [
        ("self", "POSITIONAL_OR_KEYWORD"),
        ("entry_id", "POSITIONAL_OR_KEYWORD"),
        ("summarize", "KEYWORD_ONLY"),
    ]
