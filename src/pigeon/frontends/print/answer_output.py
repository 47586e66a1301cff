"""The forms in which `-p` prints an answer, and the progress that a person at the terminal sees meanwhile.

A terminal shows the text of every turn as it arrives. A pipe or a file gets only the final answer when it is complete:
earlier text would only disturb the program that reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TextIO

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.printing import colour_text, print_to_stderr
from pigeon.sdk.results import ConversationEvent, Result
from pigeon.wire import codec
from pigeon.wire.base import Json, value_or_default
from pigeon.wire.content import text_of
from pigeon.wire.events import (
    AutoRetryStart,
    CompactionStart,
    MessageEnd,
    StreamEvent,
    TextDelta,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import zero_usage

LONGEST_SUBJECT = 100
SUBJECTS = ("command", "path", "pattern", "query", "url", "title", "description", "name", "prompt")


class AnswerOutput(Protocol):
    """Prints the events and the result of a run in one format."""

    def on_event(self, event: ConversationEvent) -> None: ...

    def on_result(self, result: Result[Any]) -> None: ...

    def on_failure(self, reason: str) -> None:
        """Called when there was no run."""
        ...


class ProgressLines:
    """Lines about tools and retries on stderr, where that is a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None

    def line_for(self, event: ConversationEvent) -> str:
        """The line to show for an event; empty for most events."""
        if isinstance(event, ToolExecutionStart):
            return f"{event.tool_name} {_call_subject(event.args)}".rstrip()
        if isinstance(event, ToolExecutionEnd) and event.is_error:
            return f"{event.tool_name} failed"
        if isinstance(event, AutoRetryStart):
            pause = f"{round(event.delay_ms / 1000, 1):g} s"
            why = value_or_default(event.explanation, event.error_message)
            return f"retrying in {pause} ({event.attempt} of {event.max_attempts}): {why}"
        return "summarizing older messages to free context" if isinstance(event, CompactionStart) else ""

    def show_line(self, text: str) -> None:
        if self._stream is not None and text:
            self._stream.write(colour_text(f"• {text}", "dim", self._stream) + "\n")
            self._stream.flush()


class TextOutput:
    """The text of the last answer, or the requested data."""

    def __init__(self, put: Callable[[bytes], None], progress: ProgressLines) -> None:
        self._put = put
        self._progress = progress
        self._said = ""

    def on_event(self, event: ConversationEvent) -> None:
        self._progress.show_line(self._progress.line_for(event))
        if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._said = text_of(event.message.content).strip() or self._said

    def on_result(self, result: Result[Any]) -> None:
        """Print the answer, or the last text of a run that was cut short."""
        text = (result.text.strip() or self._said) if result.output is None else _to_pretty_json(result.output)
        if text.strip():
            self._put(f"{text.rstrip()}\n".encode("utf-8", "replace"))

    def on_failure(self, reason: str) -> None:
        """Print only the reason, on stderr."""
        print_to_stderr(f"Error: {reason}")


class TerminalOutput:
    """The text of every turn as it arrives, for a person who reads along.

    `mask` masks a stream: it receives pieces, with `True` for the last one of a text, and returns what can be shown.
    """

    def __init__(
        self, put: Callable[[bytes], None], progress: ProgressLines, mask: Callable[[bytes, bool], bytes]
    ) -> None:
        self._put = put
        self._progress = progress
        self._mask = mask
        self._said = False
        self._at_start = True

    def on_event(self, event: ConversationEvent) -> None:
        """Show text, with progress lines in between."""
        if isinstance(event, TextDelta):
            self._show(event.delta)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._end_line()
        elif line := self._progress.line_for(event):
            self._end_line()
            self._progress.show_line(line)

    def on_result(self, result: Result[Any]) -> None:
        """End the last line, and print the requested data."""
        self._end_line()
        if result.output is not None:
            self._show(_to_pretty_json(result.output))
            self._end_line()

    def on_failure(self, reason: str) -> None:
        self._end_line()
        print_to_stderr(f"Error: {reason}")

    def _show(self, text: str) -> None:
        if self._at_start:
            text = text.lstrip("\n")
            if text and self._said:
                self._put(b"\n")
        if text:
            self._put(self._mask(clean_text(text).encode("utf-8", "replace"), False))
            self._said, self._at_start = True, False

    def _end_line(self) -> None:
        if not self._at_start:
            self._put(self._mask(b"", True) + b"\n")
            self._at_start = True


class JsonOutput:
    """One object when the run is over, however it ended."""

    def __init__(self, put: Callable[[bytes], None], progress: ProgressLines) -> None:
        self._put = put
        self._progress = progress

    def on_event(self, event: ConversationEvent) -> None:
        self._progress.show_line(self._progress.line_for(event))

    def on_result(self, result: Result[Any]) -> None:
        self._put(codec.encode(result_object(result)) + b"\n")

    def on_failure(self, reason: str) -> None:
        """Print the object of a run that never started, and the reason on stderr."""
        empty: Result[Any] = Result(
            text="",
            output=None,
            messages=[],
            usage=zero_usage(),
            ended="error",
            error=reason,
            session_id="",
            session_file=None,
        )
        self.on_result(empty)
        print_to_stderr(f"Error: {reason}")


class StreamOutput:
    """Every event of the run as a line of the protocol, and last the object of `JsonOutput` as `result`."""

    def __init__(self, put: Callable[[bytes], None], progress: ProgressLines) -> None:
        self._put = put

    def on_event(self, event: ConversationEvent) -> None:
        self._put(event_line(event) + b"\n")

    def on_result(self, result: Result[Any]) -> None:
        self._put(codec.encode({"type": "result", **result_object(result)}) + b"\n")

    def on_failure(self, reason: str) -> None:
        JsonOutput(self._print_result, ProgressLines(None)).on_failure(reason)

    def _print_result(self, line: bytes) -> None:
        self._put(b'{"type":"result",' + line[1:])


class TracedOutput:
    """Wraps another output and also writes its events to the trace."""

    def __init__(self, output: AnswerOutput, show: Callable[[str, bytes], None]) -> None:
        self._output = output
        self._show = show

    def on_event(self, event: ConversationEvent) -> None:
        self._show("out", event_line(event))
        self._output.on_event(event)

    def on_result(self, result: Result[Any]) -> None:
        self._output.on_result(result)

    def on_failure(self, reason: str) -> None:
        self._output.on_failure(reason)


def event_line(event: ConversationEvent) -> bytes:
    """An event as the protocol writes it, without LF; the parts of a `message_update` become one again."""
    if isinstance(event, StreamEvent):
        return codec.encode({"type": "message_update", "assistantMessageEvent": event})
    return codec.encode(event)


def result_object(result: Result[Any]) -> dict[str, Json]:
    """A result under its names in the protocol."""
    return {
        "text": result.text,
        "output": result.output,
        "usage": codec.to_plain(result.usage),
        "ended": result.ended,
        "error": result.error,
        "sessionId": result.session_id,
        "sessionFile": result.session_file,
    }


def _call_subject(arguments: Json) -> str:
    """What a call is about, in a few words."""
    if not isinstance(arguments, dict):
        return ""
    found = next((arguments[key] for key in SUBJECTS if isinstance(arguments.get(key), str)), "")
    first, _, more = str(found).strip().partition("\n")
    return first[:LONGEST_SUBJECT] + (" …" if more or len(first) > LONGEST_SUBJECT else "")


def _to_pretty_json(output: Json) -> str:
    import json

    return json.dumps(output, indent=2, ensure_ascii=False)
