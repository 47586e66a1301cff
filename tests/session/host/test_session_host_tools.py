"""Tools that the host runs: which definitions are taken, and how a call ends whatever the host does."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tool_runs import FakeRun, paths_in, text_of
from pigeon.agent.tool_calls import grouped
from pigeon.session.host.host_tools import DISCONNECTED, MOST_UPDATES, HostTools
from pigeon.session.toolset import Toolset
from pigeon.tools.ls import LsTool
from pigeon.tools.read import ReadTool
from pigeon.wire import codec
from pigeon.wire.commands import HostTool, HostToolOutcome
from pigeon.wire.content import ImageContent, TextContent, ToolCall
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import HostToolCall, HostToolCancel, Outbound, ToolOutcome

SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}}
ECHO = {"name": "echo", "description": "Says it again", "parameters": SCHEMA}


class Desk:
    """A toolset with `read` active and `ls` not, and what was sent to the host."""

    def __init__(self) -> None:
        self.toolset = Toolset({"read": ReadTool(paths_in("/")), "ls": LsTool(paths_in("/"))}, ["read"])
        self.sent: list[Outbound] = []
        self.tools = HostTools(self.toolset, self._take)
        self._news = asyncio.Event()

    def _take(self, event: Outbound) -> None:
        self.sent.append(event)
        self._news.set()

    def offer(self, *definitions: dict[str, Any]) -> list[str]:
        return self.tools.set(codec.convert(list(definitions), list[HostTool]))

    def call(self, run: FakeRun, name: str = "echo", **arguments: Any) -> asyncio.Task[ToolOutcome]:
        return asyncio.ensure_future(self.toolset.active()[name].execute(arguments, run))

    async def frame(self, at: int = 0) -> HostToolCall:
        while len(self.sent) <= at:
            self._news.clear()
            await self._news.wait()
        frame = self.sent[at]
        assert isinstance(frame, HostToolCall)
        return frame


def says(*content: Any, **more: Any) -> HostToolOutcome:
    blocks = [{"type": "text", "text": item} if isinstance(item, str) else item for item in content]
    return codec.convert({"content": blocks, **more}, HostToolOutcome)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize(
    ("definitions", "text"),
    [
        ([ECHO, {**ECHO, "name": "  "}], "Host tool at index 1 must provide a non-empty name"),
        ([{**ECHO, "name": None}], "Host tool at index 0 must provide a non-empty name"),
        ([{"description": "d", "parameters": {}}], "Host tool at index 0 must provide a non-empty name"),
        ([{**ECHO, "name": 5}], "Host tool at index 0 must provide a non-empty name"),
        ([{**ECHO, "description": " "}], 'Host tool "echo" must provide a non-empty description'),
        ([{"name": "echo", "parameters": {}}], 'Host tool "echo" must provide a non-empty description'),
        ([{"name": "echo", "description": "d"}], 'Host tool "echo" must provide a JSON Schema object'),
        ([{**ECHO, "parameters": [1]}], 'Host tool "echo" must provide a JSON Schema object'),
        ([{**ECHO, "parameters": "{}"}], 'Host tool "echo" must provide a JSON Schema object'),
        ([{**ECHO, "parameters": None}], 'Host tool "echo" must provide a JSON Schema object'),
        ([ECHO, {**ECHO, "name": " echo "}], "RPC host tool names must be unique"),
        ([{**ECHO, "name": "read"}], 'RPC host tool "read" conflicts with an existing tool'),
    ],
)
def test_a_definition_that_does_not_fit_is_refused_and_changes_nothing(
    desk: Desk, definitions: list[dict[str, Any]], text: str
) -> None:
    desk.offer({**ECHO, "name": "before"})
    with pytest.raises(Refusal, match=f"^{re.escape(text)}$"):
        desk.offer(*definitions)
    assert list(desk.toolset.active()) == ["read", "before"]


def test_names_come_back_trimmed_and_in_the_order_given(desk: Desk) -> None:
    assert desk.offer({**ECHO, "name": " b "}, {**ECHO, "name": "a", "description": " d "}) == ["b", "a"]
    assert [(spec.name, spec.description) for spec in desk.toolset.specs()][1:] == [("b", "Says it again"), ("a", "d")]


def test_a_label_is_trimmed_and_defaults_to_the_name(desk: Desk) -> None:
    desk.offer({**ECHO, "label": " Echo "}, {**ECHO, "name": "other", "label": 7})
    active = desk.toolset.active()
    assert [getattr(active[name], "label", None) for name in ("echo", "other")] == ["Echo", "other"]


def test_a_hidden_tool_is_there_but_not_offered(desk: Desk) -> None:
    assert desk.offer({**ECHO, "hidden": True}, {**ECHO, "name": "seen", "hidden": "yes"}) == ["echo", "seen"]
    assert list(desk.toolset.active()) == ["read", "seen"]
    desk.toolset.offer("echo")
    assert list(desk.toolset.active()) == ["read", "seen", "echo"]


def test_a_name_that_stays_keeps_its_state(desk: Desk) -> None:
    desk.offer({**ECHO, "hidden": True}, {**ECHO, "name": "shown"})
    desk.offer(ECHO, {**ECHO, "name": "shown", "hidden": True}, {**ECHO, "name": "new"})
    assert list(desk.toolset.active()) == ["read", "shown", "new"]


def test_an_empty_list_removes_them_all_and_gives_lent_names_back(desk: Desk) -> None:
    desk.offer(ECHO, {**ECHO, "name": "ls"})
    assert desk.toolset.active()["ls"].spec.description == "Says it again"
    assert desk.offer() == []
    assert list(desk.toolset.active()) == ["read"]
    desk.toolset.offer("ls")
    assert isinstance(desk.toolset.active()["ls"], LsTool)


async def test_a_call_reaches_the_host_and_its_result_is_the_tools(desk: Desk) -> None:
    desk.offer(ECHO)
    task = desk.call(FakeRun(), message="hello")
    frame = await desk.frame()
    assert re.fullmatch("[0-9a-f]{16}", frame.id)
    assert (frame.tool_call_id, frame.tool_name, frame.arguments) == ("call-1", "echo", {"message": "hello"})
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    desk.tools.finish(frame.id, says("done", picture, details={"n": 1}), is_error=False)
    outcome = await task
    assert outcome.details == {"n": 1}
    assert outcome.content == [TextContent(text="done"), ImageContent(data="iVBORw0KGgo=", mime_type="image/png")]
    assert len(desk.sent) == 1


async def test_progress_is_shown_before_the_result(desk: Desk) -> None:
    desk.offer(ECHO)
    run = FakeRun()
    task = desk.call(run)
    frame = await desk.frame()
    desk.tools.update(frame.id, says("half"))
    desk.tools.update(frame.id, says("most", details={"p": 90}))
    desk.tools.finish(frame.id, says("all"), is_error=False)
    assert text_of(await task) == "all"
    assert [text_of(update) for update in run.updates] == ["half", "most"]
    assert run.updates[1].details == {"p": 90}


async def test_progress_that_nobody_can_see_in_time_does_not_pile_up(desk: Desk) -> None:
    desk.offer(ECHO)
    run = FakeRun()
    task = desk.call(run)
    frame = await desk.frame()
    for number in range(1000):
        desk.tools.update(frame.id, says(str(number)))
    desk.tools.finish(frame.id, says("all"), is_error=False)
    await task
    assert len(run.updates) <= MOST_UPDATES
    assert text_of(run.updates[-1]) == "999"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([" a ", {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}, "b "], "a \nb"),
        ([], "Host tool execution failed"),
        (["  "], "Host tool execution failed"),
    ],
)
async def test_an_error_keeps_its_texts_and_details(desk: Desk, content: list[Any], text: str) -> None:
    desk.offer(ECHO)
    task = desk.call(FakeRun())
    desk.tools.finish((await desk.frame()).id, says(*content, details={"kept": 1}), is_error=True)
    with pytest.raises(ToolFailed) as raised:
        await task
    assert raised.value.text == text
    assert raised.value.details == {"kept": 1}


async def test_abort_cancels_the_call_at_the_host(desk: Desk) -> None:
    desk.offer(ECHO)
    run = FakeRun()
    task = desk.call(run)
    frame = await desk.frame()
    run.scope.cancel()
    with pytest.raises(ToolFailed, match=r'^Host tool "echo" was aborted$'):
        await task
    cancel = desk.sent[1]
    assert isinstance(cancel, HostToolCancel)
    assert cancel.target_id == frame.id
    assert cancel.id != frame.id
    desk.tools.finish(frame.id, says("too late"), is_error=False)


async def test_a_call_that_was_aborted_before_it_began_sends_nothing(desk: Desk) -> None:
    desk.offer(ECHO)
    run = FakeRun()
    run.scope.cancel()
    with pytest.raises(ToolFailed, match="was aborted"):
        await desk.call(run)
    assert desk.sent == []


async def test_a_result_in_the_same_moment_as_the_abort_counts(desk: Desk) -> None:
    desk.offer(ECHO)
    run = FakeRun()
    task = desk.call(run)
    frame = await desk.frame()
    desk.tools.finish(frame.id, says("done"), is_error=False)
    run.scope.cancel()
    assert text_of(await task) == "done"
    assert len(desk.sent) == 1


async def test_a_host_that_goes_away_fails_open_and_later_calls(desk: Desk) -> None:
    desk.offer(ECHO)
    first = desk.call(FakeRun())
    await desk.frame()
    desk.tools.disconnect()
    for task in (first, desk.call(FakeRun())):
        with pytest.raises(ToolFailed, match=f"^{DISCONNECTED}$"):
            await task
    assert len(desk.sent) == 1


async def test_calls_are_told_apart_and_may_end_in_any_order(desk: Desk) -> None:
    desk.offer(ECHO)
    tasks = [desk.call(FakeRun(), message=str(number)) for number in range(5)]
    await desk.frame(4)
    frames = [frame for frame in desk.sent if isinstance(frame, HostToolCall)]
    assert len({frame.id for frame in frames}) == 5
    for frame in reversed(frames):
        desk.tools.finish(frame.id, says(frame.arguments["message"]), is_error=False)
    assert [text_of(await task) for task in tasks] == ["0", "1", "2", "3", "4"]


async def test_a_call_outlives_the_definition(desk: Desk) -> None:
    desk.offer(ECHO)
    task = desk.call(FakeRun())
    frame = await desk.frame()
    desk.offer()
    desk.tools.finish(frame.id, says("done"), is_error=False)
    assert text_of(await task) == "done"


@pytest.mark.parametrize("id", ["unknown", 5, None, ["x"], {}])
def test_reports_for_calls_that_are_not_open_are_ignored(desk: Desk, id: Any) -> None:
    desk.tools.update(id, says("x"))
    desk.tools.finish(id, says("x"), is_error=False)
    assert desk.sent == []


def test_a_tool_that_only_reads_may_run_beside_others(desk: Desk) -> None:
    desk.offer({**ECHO, "readOnly": True}, {**ECHO, "name": "writes"})
    calls = [ToolCall(id=str(at), name=name, arguments={}) for at, name in enumerate(["echo", "echo", "writes"])]
    groups = grouped(calls, desk.toolset.active(), "ordered")
    assert [[call.name for call in group] for group in groups] == [["echo", "echo"], ["writes"]]


@given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_blocks_of_any_kind_reach_the_model_as_text(content: list[Any]) -> None:
    async def talk() -> ToolOutcome:
        desk = Desk()
        desk.offer(ECHO)
        task = desk.call(FakeRun())
        desk.tools.finish((await desk.frame()).id, HostToolOutcome(content=content), is_error=False)
        return await task

    outcome = asyncio.run(talk())
    assert len(outcome.content) == len(content)
    codec.encode(outcome)


async def test_a_block_that_is_not_what_it_says_is_shown_as_it_came(desk: Desk) -> None:
    desk.offer(ECHO)
    task = desk.call(FakeRun())
    odd = [{"type": "text"}, {"type": "image", "data": "?"}, {"type": "resource", "uri": "x:y"}]
    desk.tools.finish((await desk.frame()).id, says(*odd), is_error=False)
    texts = [block.text for block in (await task).content if isinstance(block, TextContent)]
    assert texts == ['{"type":"text"}', '{"type":"image","data":"?"}', '{"type":"resource","uri":"x:y"}']
