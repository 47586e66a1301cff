"""What an agent asks of the program: tools, permissions and dialogs, the same in all three ways."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pigeon
from pigeon.wire.content import text_of
from support.processes import eventually
from support.sdk_agents import Conversations, call

ASK = {"ask": ["bash", "write"]}


class Town(msgspec.Struct):
    """A place."""

    name: str
    people: int


@pigeon.tool
async def population(city: str) -> int:
    """How many people live in a city."""
    return len(city) * 1000


@pigeon.tool
def town(name: str, people: int = 3) -> Town:
    """Make up a town.

    Args:
        name: what it is called
    """
    return Town(name, people)


def results(result: pigeon.Result[Any]) -> list[tuple[str, bool]]:
    found = [one for one in result.messages if isinstance(one, pigeon.ToolResultMessage)]
    return [(text_of(one.content), one.is_error) for one in found]


async def test_functions_are_tools_of_the_model(conversations: Conversations) -> None:
    conversations.script(call("population", city="Bern"), call("town", name="Thun"), "Done.")
    async with conversations.start(tools=[population, town]) as agent:
        result = await agent.run("count")
    assert results(result) == [("4000", False), ('{"name":"Thun","people":3}', False)]


def test_a_tool_can_still_be_called_and_says_its_schema() -> None:
    assert town("Chur").people == 3
    assert town.name == "town"
    assert town.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "what it is called"},
            "people": {"type": "integer", "default": 3},
        },
        "required": ["name"],
    }


async def test_what_a_tool_raises_is_an_error_result(conversations: Conversations) -> None:
    def broken(city: str) -> str:
        """Fails."""
        raise LookupError(f"no {city}")

    conversations.script(call("broken", city="Ur"), call("broken", city=5), "Done.")
    async with conversations.start(tools=[broken]) as agent:
        first, second = results(await agent.run("go"))
    assert first == ("LookupError: no Ur", True)
    assert second[1]


async def test_a_tool_shows_progress_and_returns_images(conversations: Conversations, tmp_path: Path) -> None:
    from PIL import Image

    @pigeon.tool
    def paint(ctx: pigeon.ToolContext, colour: str) -> Any:
        """Paint a picture."""
        ctx.update("mixing")
        ctx.update(f"mixing {colour}")
        return ["Here it is.", Image.new("RGB", (2, 2), colour)]

    conversations.script(call("paint", colour="red"), "Done.")
    progress = []
    async with conversations.start(tools=[paint]) as agent:
        async for event in agent.prompt("paint"):
            if isinstance(event, pigeon.ToolExecutionUpdate):
                progress += [part.text for part in event.partial_result.content if isinstance(part, pigeon.TextContent)]
            if isinstance(event, pigeon.ToolExecutionEnd):
                kinds = [type(part).__name__ for part in event.result.content]
    assert progress == ["mixing", "mixing red"]
    assert kinds == ["TextContent", "ImageContent"]


async def test_an_async_tool_is_cancelled_by_abort(conversations: Conversations) -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def endless(ctx: pigeon.ToolContext) -> str:
        """Never ends."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    conversations.script(call("endless"))
    async with conversations.start(tools=[endless]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await begun.wait()
        await agent.abort()
        assert (await running).ended == "aborted"
        await asyncio.wait_for(ended.wait(), 5)


async def test_a_plain_tool_can_see_that_it_is_cancelled(conversations: Conversations) -> None:
    begun, seen = threading.Event(), threading.Event()

    def endless(ctx: pigeon.ToolContext) -> str:
        """Ends when it is told to."""
        begun.set()
        if eventually(lambda: ctx.cancelled):
            seen.set()
        return "too late"

    conversations.script(call("endless"))
    async with conversations.start(tools=[endless]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        assert await asyncio.to_thread(begun.wait, 10)
        await agent.abort()
        assert (await running).ended == "aborted"
        assert await asyncio.to_thread(seen.wait, 10)


async def test_tools_can_be_replaced_and_a_refusal_changes_nothing(conversations: Conversations) -> None:
    @pigeon.tool
    def bash(command: str) -> str:
        """Has the name of another tool."""
        return command

    conversations.script(call("population", city="Bern"), call("town", name="Thun"), "Done.")
    async with conversations.start(tools=[town]) as agent:
        await agent.set_tools([population])
        with pytest.raises(pigeon.Refusal, match="conflicts"):
            await agent.set_tools([bash])
        first, second = results(await agent.run("count"))
    assert first == ("4000", False)
    assert second[1]


class Mute(Exception):
    """Cannot even say what is wrong."""

    def __str__(self) -> str:
        raise LookupError


def _raise_stop() -> str:
    """Takes the first of nothing."""
    return next(iter(()))


def _mute() -> str:
    """Fails without a word."""
    raise Mute


async def _await_cancelled() -> str:
    """Waits for something that was cancelled by others."""
    waits = asyncio.ensure_future(asyncio.Event().wait())
    waits.cancel()
    await waits
    return "never"


async def _exiting() -> str:
    """Wants the program to end."""
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_raise_stop, "StopIteration"),
        (_mute, "Mute"),
        (_await_cancelled, "CancelledError"),
        (_exiting, "SystemExit: 3"),
    ],
)
async def test_a_tool_that_fails_in_an_odd_way_is_answered_too(
    conversations: Conversations, function: Callable[..., Any], told: str
) -> None:
    conversations.script(call("odd"), "Done.")
    async with conversations.start(tools=[pigeon.tool(name="odd")(function)]) as agent:
        async with asyncio.timeout(10):
            ((text, failed),) = results(await agent.run("go"))
    assert failed
    assert text.startswith(told)


class Picture:
    """No value of JSON."""

    def __str__(self) -> str:
        return "a picture"


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "Done."), ("text", "text"), ({"a": 1}, '{"a":1}'), (Picture(), "a picture"), ({1: Picture()}, "a picture")],
    ids=["nothing", "text", "object", "no json", "no json inside"],
)
async def test_what_a_tool_returns_is_told_as_text_whatever_it_is(
    conversations: Conversations, value: Any, told: str
) -> None:
    def show() -> Any:
        """Shows it."""
        return value if not isinstance(value, dict) or 1 not in value else value[1]

    conversations.script(call("show"), "Done.")
    async with conversations.start(tools=[pigeon.tool(show)]) as agent:
        assert results(await agent.run("go")) == [(told, False)]


async def test_arguments_that_do_not_fit_a_function_are_an_error_that_says_which(conversations: Conversations) -> None:
    def add(count: int) -> int:
        """Counts."""
        return count

    function = pigeon.tool(add)
    conversations.script(call("add", count={"no": "number"}), "Done.")
    async with conversations.start(tools=[function]) as agent:
        ((text, failed),) = results(await agent.run("go"))
    assert failed
    assert "count" in text


async def test_a_permission_whose_callable_was_cancelled_by_others_is_a_no(conversations: Conversations) -> None:
    async def permit(request: pigeon.PermissionRequest) -> bool:
        return bool(await _await_cancelled())

    async with asyncio.timeout(10):
        assert await _is_denied(conversations, permit)


def test_partials_and_decorated_functions_are_tools() -> None:
    def add(one: int, two: Town) -> int:
        """Add up."""
        return one

    for function in (functools.partial(add, 1), functools.cache(add)):
        made = pigeon.tool(function)
        assert made.name == "add"
        assert made.definition().description == "Add up."
        properties: Any = made.schema["properties"]
        assert properties["two"]["required"] == ["name", "people"]


def test_what_cannot_be_called_by_names_or_returns_nothing_is_refused_at_once() -> None:
    def nameless(one: int, /) -> int:
        """Takes no names."""
        return one

    def pieces() -> Any:
        """Yields."""
        yield 1

    async def later() -> Any:
        """Yields later."""
        yield 1

    class Adder:
        """Adds."""

        def __call__(self, one: int) -> int:
            return one

    with pytest.raises(TypeError, match='"one" of the tool "nameless" cannot be passed by name'):
        pigeon.tool(nameless)
    for function in (pieces, later):
        with pytest.raises(TypeError, match="must return its result"):
            pigeon.tool(function)
    with pytest.raises(ValueError, match="give one with name="):
        pigeon.tool(Adder())
    assert pigeon.tool(name="add")(Adder()).schema["required"] == ["one"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        pigeon.Agent(tools=[town, town])


def test_a_function_without_a_docstring_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a docstring"):

        @pigeon.tool
        def silent() -> None: ...


# Permissions

YES: list[Any] = [True, "allow", "always"]
NO: list[Any] = [None, False, "deny", "yes", 1, "Allow once", object()]


@pytest.mark.parametrize("answer", YES)
async def test_a_permission_is_given_by_a_clear_yes(conversations: Conversations, answer: Any) -> None:
    asked: list[pigeon.PermissionRequest] = []

    async def permit(request: pigeon.PermissionRequest) -> Any:
        asked.append(request)
        return answer

    conversations.script(call("write", path="note.txt", content="new\n"), "Done.")
    async with conversations.start(on_permission=permit, permissions=ASK) as agent:
        await agent.run("write it")
    assert [(one.tool_name, one.arguments["path"]) for one in asked] == [("write", "note.txt")]
    assert "+1 new" in (asked[0].diff or "")
    assert "note.txt" in asked[0].text
    assert (conversations.work / "note.txt").read_text() == "new\n"


async def test_always_holds_for_the_session(conversations: Conversations) -> None:
    asked = []
    conversations.script(call("bash", command="echo x"), call("bash", command="echo x"), "Done.")
    async with conversations.start(on_permission=lambda one: asked.append(one) or "always", permissions=ASK) as agent:
        assert [text.strip() for text, _ in results(await agent.run("go"))] == ["x", "x"]
    assert len(asked) == 1


@pytest.mark.parametrize("answer", NO, ids=lambda answer: answer if isinstance(answer, str) else type(answer).__name__)
async def test_anything_else_is_a_no(conversations: Conversations, answer: Any) -> None:
    if conversations.kind != "agent" and answer is not None:
        pytest.skip("what an answer means is decided on this side of the wire")
    assert await _is_denied(conversations, lambda request: answer)


async def test_no_callable_is_a_no(conversations: Conversations) -> None:
    assert await _is_denied(conversations, None)


async def test_a_callable_that_raises_is_a_no(conversations: Conversations, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: pigeon.PermissionRequest) -> bool:
        raise LookupError("oops")

    assert await _is_denied(conversations, fail)
    assert "on_permission raised" in caplog.text


async def _is_denied(conversations: Conversations, permit: Callable[..., Any] | None) -> bool:
    conversations.script(call("bash", command="echo x > ran"), "Done.")
    async with conversations.start(on_permission=permit, permissions=ASK) as agent:
        result = await agent.run("go")
        ((text, is_error),) = results(result)
        assert (result.ended, result.text) == ("denied", "Done.")
    return is_error and "Permission denied" in text and not (conversations.work / "ran").exists()


async def test_a_run_that_found_another_way_after_a_denial_is_done(conversations: Conversations) -> None:
    conversations.script(call("bash", command="true"), call("read", path="note.txt"), "Done.")
    (conversations.work / "note.txt").write_text("x")
    async with conversations.start(permissions=ASK) as agent:
        assert (await agent.run("go")).ended == "done"


async def test_a_callable_that_blocks_keeps_no_abort_from_its_work(conversations: Conversations) -> None:
    asked, released = threading.Event(), threading.Event()

    def permit(request: pigeon.PermissionRequest) -> bool:
        asked.set()
        return released.wait(60)

    conversations.script(call("bash", command="echo x > ran"))
    async with conversations.start(on_permission=permit, permissions=ASK) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        assert await asyncio.to_thread(asked.wait, 30)
        await agent.abort()
        released.set()
        assert (await running).ended == "aborted"
    assert not (conversations.work / "ran").exists()


async def test_a_question_that_is_taken_back_cancels_the_callable(conversations: Conversations) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def permit(request: pigeon.PermissionRequest) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return True

    conversations.script(call("bash", command="true"))
    async with conversations.start(on_permission=permit, permissions=ASK) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await asked.wait()
        await agent.abort()
        assert (await running).ended == "aborted"
        await asyncio.wait_for(cancelled.wait(), 5)


# Dialogs

ASKING = """
from pigeon.extensions import Extension

ext = Extension("asking")

@ext.tool
async def ask(ctx) -> str:
    "Ask four things."
    one = await ctx.ui.select("Which?", ["a", "b"])
    two = await ctx.ui.confirm("Sure?", "Really?")
    three = await ctx.ui.input("Name?")
    return f"{one} {two} {three}"
"""


async def test_dialogs_are_answered_by_a_callable(conversations: Conversations, tmp_path: Path) -> None:
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(type(request).__name__)
        return {"SelectRequest": "b", "ConfirmRequest": True, "InputRequest": "Ada"}[asked[-1]]

    assert await _text_after_dialog(conversations, tmp_path, answer) == "b True Ada"
    assert asked == ["SelectRequest", "ConfirmRequest", "InputRequest"]


async def test_dialogs_without_a_callable_are_cancelled(conversations: Conversations, tmp_path: Path) -> None:
    assert await _text_after_dialog(conversations, tmp_path, None) == "None False None"


async def test_dialogs_whose_callable_raises_are_cancelled(
    conversations: Conversations, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await _text_after_dialog(conversations, tmp_path, lambda request: 1 / 0) == "None False None"
    assert "on_dialog raised" in caplog.text


async def _text_after_dialog(conversations: Conversations, folder: Path, answer: Callable[..., Any] | None) -> str:
    (folder / "asking.py").write_text(ASKING)
    conversations.settings(extensions=[str(folder / "asking.py")])
    conversations.script(call("ask"), "Done.")
    async with conversations.start(on_dialog=answer) as agent:
        ((text, _),) = results(await agent.run("go"))
    return text
