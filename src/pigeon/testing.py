"""For the tests of programs that use Pigeon: models that say what a test wants, and a check of workspaces.

    with scripted(call("population", city="Bonn"), "About 340,000.") as model:
        async with pigeon.Agent(model=model, tools=[population]) as agent:
            ...

`scripted` writes the replies to a file and gives the name of a model that reads them, which works wherever a model is
named: `Agent(model=)`, `run_sync(model=)`, and `--model` of a `Client`'s command. A reply is a text, a dictionary in
the form of `docs/scripted-models.md`, or what the small functions here make.

`check_session_store` tests a session store of your own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pigeon.workspaces.workspace import Workspace

from pigeon.store.checks import check_session_store as check_session_store  # noqa: PLC0414 - exported

Reply = str | Mapping[str, Any]


@contextmanager
def scripted(
    *replies: Reply, rules: Sequence[Mapping[str, Any]] = (), default: Reply | None = None, **options: Any
) -> Iterator[str]:
    """Give the name of a model that answers with these replies, one per request, for as long as the block runs.

    Args:
        replies: what the model says, in order
        rules: replies to requests that look a certain way, tried before `replies`
        default: the reply when none is left; without it, such a request fails
        options: further keys of a script, such as `chunk` or `context_window`

    Raises `ScriptError` that names the field if a reply cannot be used.

    Example:
        import pigeon
        from pigeon.testing import call, scripted

        with scripted(call("bash", command="echo 5"), "It is 5.") as model:
            result = pigeon.run_sync("What is 2 + 3?", model=model)
        assert result.text == "It is 5."
    """
    from pigeon.providers.scripted.api import SCRIPTED
    from pigeon.providers.scripted.script import read_script
    from pigeon.wire import codec

    script: dict[str, Any] = {"replies": list(replies), "rules": list(rules), **_to_camel_case(options)}
    if default is not None:
        script["default"] = default
    with TemporaryDirectory(prefix="pigeon-script-") as folder:
        path = Path(folder, "script.json")
        path.write_bytes(codec.encode(script))
        read_script(str(path), str)
        yield f"{SCRIPTED.name}/{path}"


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """A reply that calls a tool with these arguments; the next reply responds to its result.

    Example:
        from pathlib import Path

        import pigeon
        from pigeon.testing import call, scripted

        with scripted(call("write", path="a.txt", content="hello"), "Written.") as model:
            pigeon.run_sync("Write a file", model=model)
        assert Path("a.txt").read_text() == "hello"
    """
    return {"toolCalls": [{"name": tool, "arguments": arguments}]}


def value(given: Any) -> dict[str, Any]:
    """A reply that ends a run with `output=`: this value, which may be anything that JSON can express.

    Example:
        import pigeon
        from pigeon.testing import scripted, value

        with scripted(value({"name": "Bonn"})) as model:
            result = pigeon.run_sync("Which city?", model=model, output=dict[str, str])
        assert result.output == {"name": "Bonn"}
    """
    from pigeon.wire import codec

    return {"text": codec.encode(given).decode()}


def failure(message: str, *, retryable: bool = False, status: int | None = None) -> dict[str, Any]:
    """An answer that fails, as when the model's server is overloaded; a `retryable` one is requested again.

    Example:
        import pigeon
        from pigeon.testing import failure, scripted

        with scripted(failure("no such model", status=404)) as model:
            result = pigeon.run_sync("Hello", model=model)
        assert (result.ended, result.error) == ("error", "no such model")
    """
    error: dict[str, Any] = {"message": message, "retryable": retryable}
    return {"error": error if status is None else {**error, "status": status}}


async def check_workspace(factory: Callable[[], Workspace | Awaitable[Workspace]]) -> list[str]:
    """Check an implementation of `pigeon.workspaces.Workspace`; returns the names of the rules that held.

    Args:
        factory: gives a fresh workspace on an empty folder; it is called for each rule

    Raises one `AssertionError` that lists the rules that do not hold, with the reasons.

    Example:
        import asyncio
        import tempfile

        from pigeon.testing import check_workspace
        from pigeon.workspaces import LocalWorkspace

        rules = asyncio.run(check_workspace(lambda: LocalWorkspace(tempfile.mkdtemp())))
        assert "a file has the bytes that were written" in rules
    """
    from pigeon.workspaces.checking import check_workspace

    return await check_workspace(factory)


def _to_camel_case(options: Mapping[str, Any]) -> dict[str, Any]:
    def to_camel(name: str) -> str:
        first, *others = name.split("_")
        return first + "".join(word.capitalize() for word in others)

    return {to_camel(name): value for name, value in options.items()}
