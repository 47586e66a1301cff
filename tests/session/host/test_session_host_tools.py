"""Tools that the host runs: which definitions are taken, and how a call ends whatever the host does."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tool_run import FakeRun, PlainFitter, paths_in, text_of
from pigeon.agent.tool_calls import group_calls
from pigeon.session.host.host_tools import DISCONNECTED, MOST_UPDATES, HostTools
from pigeon.session.toolset import Toolset
from pigeon.tools.ls import LsTool
from pigeon.tools.read import ReadTool
from pigeon.wire import codec
from pigeon.wire.commands import HostTool, HostToolOutcome
from pigeon.wire.content import ImageContent, TextContent, ToolCall
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import HostToolCall, HostToolCancel, Outbound, ToolOutcome
from support.strategies import json_values

SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}}
ECHO = {"name": "echo", "description": "Says it again", "parameters": SCHEMA}


class HostToolsSetup:
    """A toolset with `read` active and `ls` not, and what was sent to the host."""

    def __init__(self, announces_ends: bool = False) -> None:
        self.toolset = Toolset({"read": ReadTool(paths_in("/"), PlainFitter()), "ls": LsTool(paths_in("/"))}, ["read"])
        self.sent: list[Outbound] = []
        self.tools = HostTools(self.toolset, self._on_event, announces_ends=announces_ends)
        self._news = asyncio.Event()

    def _on_event(self, event: Outbound) -> None:
        self.sent.append(event)
        self._news.set()

    def offer(self, *definitions: dict[str, Any]) -> list[str]:
        return self.tools.replace_tools(codec.convert(list(definitions), list[HostTool]))

    def call(self, run: FakeRun, name: str = "echo", **arguments: Any) -> asyncio.Task[ToolOutcome]:
        return asyncio.ensure_future(self.toolset.active_tools()[name].execute(arguments, run))

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
def setup() -> HostToolsSetup:
    return HostToolsSetup()


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
    setup: HostToolsSetup, definitions: list[dict[str, Any]], text: str
) -> None:
    setup.offer({**ECHO, "name": "before"})
    with pytest.raises(Refusal, match=f"^{re.escape(text)}$"):
        setup.offer(*definitions)
    assert list(setup.toolset.active_tools()) == ["read", "before"]


def test_names_come_back_trimmed_and_in_the_order_given(setup: HostToolsSetup) -> None:
    assert setup.offer({**ECHO, "name": " b "}, {**ECHO, "name": "a", "description": " d "}) == ["b", "a"]
    assert [(spec.name, spec.description) for spec in setup.toolset.specs()][1:] == [
        ("b", "Says it again"),
        ("a", "d"),
    ]


def test_a_label_is_trimmed_and_defaults_to_the_name(setup: HostToolsSetup) -> None:
    setup.offer({**ECHO, "label": " Echo "}, {**ECHO, "name": "other", "label": 7})
    active = setup.toolset.active_tools()
    assert [getattr(active[name], "label", None) for name in ("echo", "other")] == ["Echo", "other"]


def test_a_hidden_tool_is_there_but_not_offered(setup: HostToolsSetup) -> None:
    assert setup.offer({**ECHO, "hidden": True}, {**ECHO, "name": "seen", "hidden": "yes"}) == ["echo", "seen"]
    assert list(setup.toolset.active_tools()) == ["read", "seen"]
    setup.toolset.activate_tool("echo")
    assert list(setup.toolset.active_tools()) == ["read", "seen", "echo"]


def test_a_name_that_stays_keeps_its_state(setup: HostToolsSetup) -> None:
    setup.offer({**ECHO, "hidden": True}, {**ECHO, "name": "shown"})
    setup.offer(ECHO, {**ECHO, "name": "shown", "hidden": True}, {**ECHO, "name": "new"})
    assert list(setup.toolset.active_tools()) == ["read", "shown", "new"]


def test_an_empty_list_removes_them_all_and_gives_lent_names_back(setup: HostToolsSetup) -> None:
    setup.offer(ECHO, {**ECHO, "name": "ls"})
    assert setup.toolset.active_tools()["ls"].spec.description == "Says it again"
    assert setup.offer() == []
    assert list(setup.toolset.active_tools()) == ["read"]
    setup.toolset.activate_tool("ls")
    assert isinstance(setup.toolset.active_tools()["ls"], LsTool)


async def test_a_call_reaches_the_host_and_its_result_is_the_tools(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    task = setup.call(FakeRun(), message="hello")
    frame = await setup.frame()
    assert re.fullmatch("[0-9a-f]{16}", frame.id)
    assert (frame.tool_call_id, frame.tool_name, frame.arguments) == ("call-1", "echo", {"message": "hello"})
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    setup.tools.on_result(frame.id, says("done", picture, details={"n": 1}), is_error=False)
    outcome = await task
    assert outcome.details == {"n": 1}
    assert outcome.content == [TextContent(text="done"), ImageContent(data="iVBORw0KGgo=", mime_type="image/png")]
    assert len(setup.sent) == 1


async def test_progress_is_shown_before_the_result(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    run = FakeRun()
    task = setup.call(run)
    frame = await setup.frame()
    setup.tools.on_progress(frame.id, says("half"))
    setup.tools.on_progress(frame.id, says("most", details={"p": 90}))
    setup.tools.on_result(frame.id, says("all"), is_error=False)
    assert text_of(await task) == "all"
    assert [text_of(update) for update in run.updates] == ["half", "most"]
    assert run.updates[1].details == {"p": 90}


async def test_progress_that_nobody_can_see_in_time_does_not_pile_up(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    run = FakeRun()
    task = setup.call(run)
    frame = await setup.frame()
    for number in range(1000):
        setup.tools.on_progress(frame.id, says(str(number)))
    setup.tools.on_result(frame.id, says("all"), is_error=False)
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
async def test_an_error_keeps_its_texts_and_details(setup: HostToolsSetup, content: list[Any], text: str) -> None:
    setup.offer(ECHO)
    task = setup.call(FakeRun())
    setup.tools.on_result((await setup.frame()).id, says(*content, details={"kept": 1}), is_error=True)
    with pytest.raises(ToolFailed) as raised:
        await task
    assert raised.value.text == text
    assert raised.value.details == {"kept": 1}


async def test_abort_cancels_the_call_at_the_host(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    run = FakeRun()
    task = setup.call(run)
    frame = await setup.frame()
    run.scope.cancel()
    with pytest.raises(ToolFailed, match=r'^Host tool "echo" was aborted$'):
        await task
    cancel = setup.sent[1]
    assert isinstance(cancel, HostToolCancel)
    assert cancel.target_id == frame.id
    assert cancel.id != frame.id
    setup.tools.on_result(frame.id, says("too late"), is_error=False)


async def test_a_call_that_was_aborted_before_it_began_sends_nothing(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    run = FakeRun()
    run.scope.cancel()
    with pytest.raises(ToolFailed, match="was aborted"):
        await setup.call(run)
    assert setup.sent == []


async def test_a_result_in_the_same_moment_as_the_abort_counts(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    run = FakeRun()
    task = setup.call(run)
    frame = await setup.frame()
    setup.tools.on_result(frame.id, says("done"), is_error=False)
    run.scope.cancel()
    assert text_of(await task) == "done"
    assert len(setup.sent) == 1


async def test_a_host_that_goes_away_fails_open_and_later_calls(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    first = setup.call(FakeRun())
    await setup.frame()
    setup.tools.on_host_disconnected()
    for task in (first, setup.call(FakeRun())):
        with pytest.raises(ToolFailed, match=f"^{DISCONNECTED}$"):
            await task
    assert len(setup.sent) == 1


async def test_calls_are_told_apart_and_may_end_in_any_order(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    tasks = [setup.call(FakeRun(), message=str(number)) for number in range(5)]
    await setup.frame(4)
    frames = [frame for frame in setup.sent if isinstance(frame, HostToolCall)]
    assert len({frame.id for frame in frames}) == 5
    for frame in reversed(frames):
        setup.tools.on_result(frame.id, says(frame.arguments["message"]), is_error=False)
    assert [text_of(await task) for task in tasks] == ["0", "1", "2", "3", "4"]


async def test_a_call_outlives_the_definition(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    task = setup.call(FakeRun())
    frame = await setup.frame()
    setup.offer()
    setup.tools.on_result(frame.id, says("done"), is_error=False)
    assert text_of(await task) == "done"


@pytest.mark.parametrize("id", ["unknown", 5, None, ["x"], {}])
def test_reports_for_calls_that_are_not_open_are_ignored(setup: HostToolsSetup, id: Any) -> None:
    setup.tools.on_progress(id, says("x"))
    setup.tools.on_result(id, says("x"), is_error=False)
    assert setup.sent == []


def test_a_tool_that_only_reads_may_run_beside_others(setup: HostToolsSetup) -> None:
    setup.offer({**ECHO, "readOnly": True}, {**ECHO, "name": "writes"})
    calls = [ToolCall(id=str(at), name=name, arguments={}) for at, name in enumerate(["echo", "echo", "writes"])]
    groups = group_calls(calls, setup.toolset.active_tools(), "ordered")
    assert [[call.name for call in group] for group in groups] == [["echo", "echo"], ["writes"]]


VALUES = json_values(size=6)


@given(st.lists(VALUES, max_size=10))
def test_blocks_of_any_kind_reach_the_model_as_text(content: list[Any]) -> None:
    async def talk() -> ToolOutcome:
        setup = HostToolsSetup()
        setup.offer(ECHO)
        task = setup.call(FakeRun())
        setup.tools.on_result((await setup.frame()).id, HostToolOutcome(content=content), is_error=False)
        return await task

    outcome = asyncio.run(talk())
    assert len(outcome.content) == len(content)
    codec.encode(outcome)


async def test_a_block_that_is_not_what_it_says_is_shown_as_it_came(setup: HostToolsSetup) -> None:
    setup.offer(ECHO)
    task = setup.call(FakeRun())
    odd = [{"type": "text"}, {"type": "image", "data": "?"}, {"type": "resource", "uri": "x:y"}]
    setup.tools.on_result((await setup.frame()).id, says(*odd), is_error=False)
    texts = [block.text for block in (await task).content if isinstance(block, TextContent)]
    assert texts == ['{"type":"text"}', '{"type":"image","data":"?"}', '{"type":"resource","uri":"x:y"}']


async def test_among_several_clients_an_answered_call_is_cancelled_for_the_others() -> None:
    setup = HostToolsSetup(announces_ends=True)
    setup.offer(ECHO)
    work = setup.call(FakeRun(), message="hi")
    frame = await setup.frame()
    setup.tools.on_result(frame.id, says("hi"), False)
    await work
    (cancel,) = setup.sent[1:]
    assert isinstance(cancel, HostToolCancel)
    assert cancel.target_id == frame.id
