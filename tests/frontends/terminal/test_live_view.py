"""The part of the screen that changes while the agent works."""

from __future__ import annotations

from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.live_view import LiveView
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.wire import events
from pigeon.wire.content import TextContent


def working() -> tuple[ChatTranscript, LiveView]:
    """A run that says something while a command works and two messages wait."""
    transcript = ChatTranscript(lambda: 2.0)
    transcript.handle_event(events.AgentStart())
    transcript.handle_event(events.TextDelta(content_index=0, delta="I am **about** to"))
    transcript.handle_event(events.ToolExecutionStart(tool_call_id="1", tool_name="bash", args={"command": "make"}))
    written = "".join(f"step {number}\n" for number in range(9))
    partial = events.ToolOutcome(content=[TextContent(text=written)])
    transcript.handle_event(
        events.ToolExecutionUpdate(tool_call_id="1", tool_name="bash", args={}, partial_result=partial)
    )
    transcript.handle_event(events.QueueUpdate(steering=["and then\nthis"], follow_up=["later"]))
    return transcript, LiveView(transcript, Painter(None), lambda: 2.0)


def test_what_goes_on_stands_in_parts_with_a_blank_line_between_them() -> None:
    *lines, status = working()[1].draw_or_reuse_lines(60, 30)
    assert lines == [
        *("I am about to", ""),
        *("◌ bash make  0.0 s", *(f"  │ step {number}" for number in range(5, 9)), ""),
        *("Next: and then this", "Next: later", ""),
    ]
    assert status.endswith("Running · 0.0 s · Esc stops it")


def test_of_few_rows_the_newest_are_shown() -> None:
    view = working()[1]
    assert view.draw_or_reuse_lines(60, 3)[:2] == ["Next: later", ""]


def test_of_few_rows_what_runs_is_shown_rather_than_what_it_writes() -> None:
    lines = working()[1].draw_or_reuse_lines(60, 8)
    assert "◌ bash make  0.0 s" in lines
    assert not any("step" in line for line in lines)
    assert lines[-1].endswith("Esc stops it")


def test_while_a_question_stands_nothing_is_said_to_be_going_on() -> None:
    text = "\n".join(working()[1].draw_or_reuse_lines(60, 30, asking=True))
    assert "Esc" not in text
    assert "bash" not in text
    assert text.endswith("Next: later\n")
