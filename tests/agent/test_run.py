from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from fakes.agent_loop import AnyTool, EventLog, Owner, Queues, ScriptedProvider, calls, fails, outcome, says
from pigeon.agent.answer import ABORT_TEXT, CUT_TEXT
from pigeon.agent.inference import BlockClosed, BlockGrew, BlockOpened, Finished
from pigeon.agent.interfaces import ToolRun
from pigeon.agent.run import Run, RunResult
from pigeon.agent.scope import Scope
from pigeon.agent.tool_calls import UNREADABLE
from pigeon.wire.content import text_of
from pigeon.wire.errors import UNEXPECTED
from pigeon.wire.events import (
    AgentEnd,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    StreamEvent,
    TextDelta,
    TextEnd,
    ToolExecutionEnd,
    ToolOutcome,
    TtsrTriggered,
    TurnEnd,
)
from pigeon.wire.messages import AssistantMessage, UserMessage
from pigeon.wire.partial_json import INCOMPLETE

TOOL_TURN = calls(("tool", {}))


class Stage:
    """One run with stand-ins for everything around it."""

    def __init__(self, *scripts: Any, owner: Owner | None = None, queues: Queues | None = None) -> None:
        self.provider = ScriptedProvider(*scripts)
        self.owner = owner or Owner(AnyTool("tool"))
        self.queues = queues or Queues()
        self.heard = EventLog()
        self.scope = Scope()

    async def run(self, *opening: str, resumes: bool = False) -> RunResult:
        run = Run(self.provider, self.owner, self.queues, self.heard, self.scope, lambda: 1)
        return await run.run([UserMessage(content=text, timestamp=1) for text in opening], resumes)

    def message_texts(self) -> list[str]:
        """Who said what, in the order of the record."""
        return [_text_with_role(event.message) for event in self.heard.of(MessageEnd)]


def _text_with_role(message: Any) -> str:
    return f"{message.__struct_config__.tag}: {text_of(message.content)}"


async def test_a_plain_answer_has_its_canonical_order() -> None:
    stage = Stage(says("Hel", "lo"))
    result = await stage.run("hi")
    assert stage.heard.outline() == [
        "agent_start",
        "turn_start",
        "message_start user",
        "message_end user",
        "message_start assistant",
        "message_end assistant",
        "turn_end",
        "agent_end",
    ]
    updates = [event.assistant_message_event for event in stage.heard.of(MessageUpdate)]
    assert [event.delta for event in updates if isinstance(event, TextDelta)] == ["Hel", "lo"]
    assert result.answer is not None
    assert (text_of(result.answer.content), result.failure, result.will_retry) == ("Hello", None, False)


async def test_tools_lead_to_another_turn_and_the_end_lists_all_messages() -> None:
    stage = Stage(TOOL_TURN, says("ready"))
    await stage.run("go")
    assert stage.message_texts() == ["user: go", "assistant: ", "toolResult: done", "assistant: ready"]
    assert [_text_with_role(message) for message in stage.heard.of(AgentEnd)[0].messages] == stage.message_texts()
    assert [len(event.tool_results) for event in stage.heard.of(TurnEnd)] == [1, 0]


async def test_a_tool_may_end_the_run() -> None:
    async def final(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        return outcome("the end", terminate=True)

    stage = Stage(TOOL_TURN, owner=Owner(AnyTool("tool", final)))
    await stage.run("go")
    assert stage.message_texts()[-1] == "toolResult: the end"


async def test_steering_comes_after_the_turn_and_follow_ups_when_the_agent_would_stop() -> None:
    def steer() -> None:
        if stage.owner.breaks == 1:
            stage.queues.steering.extend(Queues(["steer"]).steering)

    scripts = (TOOL_TURN, TOOL_TURN, says("a"), says("b"), says("c"))
    stage = Stage(*scripts, queues=Queues(follow_ups=["f1", "f2"]))
    stage.owner.at_break = steer
    await stage.run("go")
    assert stage.message_texts() == [
        "user: go",
        "assistant: ",
        "toolResult: done",
        "user: steer",
        "assistant: ",
        "toolResult: done",
        "assistant: a",
        "user: f1",
        "assistant: b",
        "user: f2",
        "assistant: c",
    ]


async def test_steering_that_waits_at_the_start_is_said_after_the_opening() -> None:
    stage = Stage(says("x"), queues=Queues(steering=["also"]))
    await stage.run("go")
    assert stage.message_texts() == ["user: go", "user: also", "assistant: x"]


async def test_only_one_steering_message_is_delivered_per_turn() -> None:
    stage = Stage(says("x"), says("y"), says("z"), queues=Queues(steering=["1", "2"], follow_ups=["3"]))
    await stage.run()
    assert stage.message_texts() == ["user: 1", "assistant: x", "user: 2", "assistant: y", "user: 3", "assistant: z"]


async def test_a_resumed_run_begins_with_what_waits() -> None:
    stage = Stage(says("x"), queues=Queues(follow_ups=["next"]))
    await stage.run(resumes=True)
    assert stage.message_texts() == ["user: next", "assistant: x"]


async def test_a_run_that_does_not_resume_leaves_follow_ups_for_later() -> None:
    stage = Stage(says("x"), says("y"), queues=Queues(follow_ups=["next"]))
    await stage.run("go")
    assert stage.message_texts() == ["user: go", "assistant: x", "user: next", "assistant: y"]


async def test_the_owner_is_asked_before_the_run_ends_and_may_go_on() -> None:
    stage = Stage(says("x"), says("y"))
    stage.owner.said = [[UserMessage(content="open tasks", timestamp=1)]]
    await stage.run("go")
    assert stage.owner.asked == [("x", True), ("y", True)]
    assert stage.message_texts() == ["user: go", "assistant: x", "user: open tasks", "assistant: y"]


@pytest.mark.parametrize("retries", [True, False])
async def test_an_error_ends_the_run_at_once_and_leaves_the_queues(retries: bool) -> None:
    stage = Stage(fails("overloaded", retryable=True), queues=Queues(follow_ups=["next"]))
    stage.owner.retries = retries
    result = await stage.run("go")
    assert result.answer is not None
    assert (result.answer.stop_reason, result.answer.error_message) == ("error", "overloaded")
    assert result.failure is not None
    assert (result.failure.retryable, result.will_retry) == (True, retries)
    assert stage.heard.of(AgentEnd)[0].will_retry is retries
    assert [item.message.content for item in stage.queues.follow_ups] == ["next"]
    assert stage.owner.failures == [result.failure]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ([ValueError("bad stream")], UNEXPECTED),
        ([BlockOpened(index=0, kind="text")], "The provider's stream ended without a final event"),
        ([BlockOpened(index=3, kind="text")], UNEXPECTED),
    ],
)
async def test_a_provider_that_breaks_its_promise_is_an_error_answer(script: Any, text: str) -> None:
    stage = Stage(script)
    result = await stage.run("go")
    assert result.answer is not None
    assert (result.answer.stop_reason, result.answer.error_message) == ("error", text)
    assert stage.heard.outline()[-3:] == ["message_end assistant", "turn_end", "agent_end"]


async def test_an_abort_keeps_what_was_said_and_lets_go_of_the_provider() -> None:
    async def cancel_run() -> None:
        stage.scope.cancel()
        await asyncio.Event().wait()

    stage = Stage([BlockOpened(index=0, kind="text"), BlockGrew(index=0, text="Hal"), cancel_run])
    stage.queues = Queues(follow_ups=["next"])
    result = await stage.run("go")
    assert result.answer is not None
    assert (result.answer.stop_reason, result.answer.error_message) == ("aborted", ABORT_TEXT)
    assert text_of(result.answer.content) == "Hal"
    last = stage.heard.of(MessageUpdate)[-1].assistant_message_event
    assert last == TextEnd(content_index=0, content="Hal")
    assert stage.provider.dropped == 1
    assert len(stage.queues.follow_ups) == 1
    assert stage.heard.outline()[-2:] == ["turn_end", "agent_end"]


async def test_an_abort_during_tools_begins_no_further_turn() -> None:
    async def cancel_run(arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        stage.scope.cancel()
        return outcome("written")

    stage = Stage(TOOL_TURN, owner=Owner(AnyTool("tool", cancel_run)), queues=Queues(follow_ups=["next"]))
    await stage.run("go")
    assert stage.message_texts() == ["user: go", "assistant: ", "toolResult: written"]
    assert stage.heard.outline().count("turn_start") == 1
    assert len(stage.queues.follow_ups) == 1


async def test_a_run_that_was_stopped_before_it_began_still_ends() -> None:
    stage = Stage(says("never"), queues=Queues(steering=["kept"]))
    stage.scope.cancel()
    result = await stage.run("go")
    assert result.answer is not None
    assert result.answer.stop_reason == "aborted"
    assert stage.message_texts() == ["user: go", "assistant: "]
    assert len(stage.queues.steering) == 1


async def test_an_abort_between_turns_asks_for_no_further_answer() -> None:
    stage = Stage(TOOL_TURN)
    stage.owner.at_break = stage.scope.cancel
    await stage.run("go")
    assert stage.heard.outline()[-1] == "agent_end"
    assert stage.heard.outline().count("turn_start") == 1


async def test_a_defect_still_ends_the_run_and_says_why() -> None:
    def fail() -> None:
        raise RuntimeError("oops")

    stage = Stage(TOOL_TURN)
    stage.owner.at_break = fail
    result = await stage.run("go")
    assert result.answer is not None
    assert result.answer.error_message == UNEXPECTED
    assert stage.heard.outline()[-4:] == ["message_start assistant", "message_end assistant", "turn_end", "agent_end"]
    assert [_text_with_role(message) for message in stage.heard.of(AgentEnd)[0].messages] == stage.message_texts()


async def test_a_request_that_cannot_be_built_still_ends_the_run() -> None:
    stage = Stage()
    stage.owner.crashes = [RuntimeError("again"), RuntimeError("oops")]
    with contextlib.suppress(RuntimeError):
        await stage.run("go")
    assert stage.heard.outline()[-1] == "agent_end"


class Scissors:
    """Cuts an answer at a word."""

    def __init__(self, word: str) -> None:
        self._word = word

    def check_for_cut(self, event: StreamEvent) -> TtsrTriggered | None:
        found = isinstance(event, TextDelta) and self._word in event.delta
        return TtsrTriggered(rules=[]) if found else None


async def test_a_watch_cuts_an_answer_and_the_run_goes_on_with_what_the_owner_says() -> None:
    scripts = (says("I will ", "forbidden", " thing"), says("Better."), says("last"))
    stage = Stage(*scripts, queues=Queues(follow_ups=["next"]))
    stage.owner.next_watches = [Scissors("forbidden")]
    stage.owner.said = [[UserMessage(content="the rule", timestamp=1)]]
    await stage.run("go")
    assert stage.message_texts() == [
        "user: go",
        "assistant: I will forbidden",
        "user: the rule",
        "assistant: Better.",
        "user: next",
        "assistant: last",
    ]
    cut = next(event.message for event in stage.heard.of(MessageEnd) if isinstance(event.message, AssistantMessage))
    assert (cut.stop_reason, cut.error_message) == ("aborted", CUT_TEXT)
    assert stage.heard.outline().index("ttsr_triggered") < stage.heard.outline().index("message_end assistant")
    assert stage.provider.dropped == 1


async def test_a_cut_without_a_word_of_the_owner_ends_the_run() -> None:
    stage = Stage(says("forbidden"))
    stage.owner.next_watches = [Scissors("forbidden")]
    await stage.run("go")
    assert stage.heard.outline()[-2:] == ["turn_end", "agent_end"]


async def test_an_answer_without_content_still_begins_and_ends() -> None:
    stage = Stage([Finished(stop="stop")])
    await stage.run("go")
    assert len(stage.heard.of(AgentStart)) == 1
    assert [type(event) for event in stage.heard.of(MessageStart, MessageEnd)] == [MessageStart, MessageEnd] * 2


@pytest.mark.parametrize("half", ['{"path": "/etc/pas', '{"path": "a", "con', '{"a": [1, 2', "{"])
async def test_half_a_json_as_arguments_is_not_run(half: str) -> None:
    tool = AnyTool("tool")
    whole = calls(("tool", {"path": "a"}))
    cut: Any = [
        BlockOpened(index=0, kind="toolCall", call_id="1", name="tool"),
        BlockGrew(index=0, text=half),
        BlockClosed(index=0),
        Finished(stop="toolUse"),
    ]
    stage = Stage(cut, whole, says("ready"), owner=Owner(tool))
    await stage.run("go")
    assert tool.seen == [{"path": "a"}]
    first, second = [event for event in stage.heard.of(ToolExecutionEnd)]
    assert first.is_error
    assert text_of(first.result.content).startswith(UNREADABLE.format(name="tool", problem=INCOMPLETE))
    assert text_of(first.result.content).endswith(f"\n\nReceived arguments:\n{half}")
    assert not second.is_error
    assert stage.message_texts()[-1] == "assistant: ready"


async def test_a_stream_that_ends_within_arguments_runs_nothing() -> None:
    tool = AnyTool("tool")
    cut: Any = [
        BlockOpened(index=0, kind="toolCall", call_id="1", name="tool"),
        BlockGrew(index=0, text='{"path": "a'),
        Finished(stop="toolUse"),
    ]
    stage = Stage(cut, says("ready"), owner=Owner(tool))
    await stage.run("go")
    assert tool.seen == []
    assert stage.heard.of(ToolExecutionEnd)[0].is_error
