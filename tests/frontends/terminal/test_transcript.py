"""Events of a conversation as blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pigeon.frontends.terminal.blocks import AnswerText, Notice, ThinkingText, ToolCard
from pigeon.frontends.terminal.transcript import SHOWN_CHARACTERS, SHOWN_LINES, ChatTranscript, shorten_message
from pigeon.wire.answers import QueueItem
from pigeon.wire.content import TextContent
from pigeon.wire.events import (
    AgentSettled,
    AgentStart,
    QueueUpdate,
    TextDelta,
    ThinkingDelta,
    ThinkingStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolOutcome,
)


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def outcome(text: str, **details: str) -> ToolOutcome:
    return ToolOutcome(content=[TextContent(text=text)], details=dict(details))


def test_what_the_agent_does_is_named_and_what_is_finished_is_given_once() -> None:
    clock = Clock()
    transcript = ChatTranscript(clock)
    assert transcript.activity == ""
    transcript.handle_event(AgentStart())
    assert transcript.activity == "Waiting"
    transcript.handle_event(ThinkingStart(content_index=0))
    transcript.handle_event(ThinkingDelta(content_index=0, delta="Hm. " * 100))
    assert transcript.activity == "Thinking"
    assert transcript.thinking_tail(6) == "m. Hm. "[-6:]
    clock.seconds += 2
    text = transcript.handle_event(TextDelta(content_index=1, delta="Hello"))
    assert text == []
    transcript.handle_event(ToolExecutionStart(tool_call_id="1", tool_name="bash", args={"command": "ls"}))
    (card,) = transcript.cards
    transcript.handle_event(
        ToolExecutionUpdate(tool_call_id="1", tool_name="bash", args={}, partial_result=outcome("half"))
    )
    assert card.output == "half"
    clock.seconds += 3
    end = ToolExecutionEnd(tool_call_id="1", tool_name="bash", result=outcome("whole", diff="+1 x"), is_error=False)
    assert transcript.handle_event(end) == [card]
    assert (card.seconds, card.output, card.diff) == (3, "whole", "+1 x")
    assert transcript.cards == []
    assert transcript.handle_event(AgentSettled(aborted=True, reason="aborted")) == [
        ThinkingText("Hm. " * 100, 5),
        AnswerText("Hello"),
        Notice("Stopped", "warning"),
    ]
    assert transcript.activity == ""


def test_an_agent_that_dies_leaves_what_it_had_said_and_no_queue() -> None:
    transcript = ChatTranscript(Clock())
    transcript.handle_event(AgentStart())
    transcript.handle_event(TextDelta(content_index=0, delta="Half of"))
    transcript.handle_event(ToolExecutionStart(tool_call_id="1", tool_name="bash", args=None))
    item = QueueItem(id="q1", queue="steering", text="left")
    transcript.handle_event(QueueUpdate(steering=["left"], follow_up=[], items=[item]))
    assert (transcript.queued, transcript.queued_items[-1:]) == (["left"], [item])
    said, card = transcript.finish_live_blocks()
    assert said == AnswerText("Half of")
    assert isinstance(card, ToolCard)
    assert card.failed
    assert (transcript.is_busy, transcript.queued, transcript.queued_items) == (False, [], [])


def test_a_command_of_the_person_is_live_until_it_ends_whatever_the_agent_does() -> None:
    clock = Clock()
    transcript = ChatTranscript(clock)
    card = transcript.add_shell_card("make all")
    clock.seconds += 4
    assert (transcript.activity, transcript.seconds, transcript.is_in_shell, transcript.is_busy) == (
        "Running",
        4,
        True,
        False,
    )
    transcript.handle_event(AgentStart())
    assert transcript.handle_event(AgentSettled()) == []
    assert transcript.cards == [card]
    transcript.finish_shell_card(card, "a.txt")
    assert (transcript.activity, transcript.last_output) == ("", "a.txt")


@given(st.text(alphabet="ab\n", max_size=3 * SHOWN_CHARACTERS) | st.lists(st.just("row"), max_size=200).map("\n".join))
def test_of_a_long_message_the_beginning_is_shown_and_how_much_follows(text: str) -> None:
    shown = shorten_message(text)
    assert len(shown) <= SHOWN_CHARACTERS + 40
    assert shown.count("\n") <= SHOWN_LINES
    assert shown == text or " more line" in shown.rpartition("\n")[2]
