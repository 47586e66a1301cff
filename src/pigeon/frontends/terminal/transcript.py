"""Turns the events of a conversation into blocks: `take` gives back those that are finished, the others are live.

Constant work for each delta: a delta is kept in a list, and only complete lines are looked at (`streaming_text.py`).
The screen asks for the live blocks when it draws, twenty times a second at most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from pigeon.frontends.terminal.blocks import AnswerText, Block, Notice, ThinkingText, ToolCard, UserText
from pigeon.frontends.terminal.streaming_text import StreamingText
from pigeon.wire.base import or_else

if TYPE_CHECKING:
    from pigeon.sdk.results import ConversationEvent
    from pigeon.wire import events
    from pigeon.wire.answers import QueueItem

ENDS = {"limit": "The run was stopped by a limit", "denied": "The run ended because what it needed was not allowed"}


# The name of the card of a command that the person runs.
SHELL_NAME = "!"
# How much of a message of the person is shown: a log that was pasted need not be read again.
SHOWN_LINES = 30
SHOWN_CHARACTERS = 6_000


def shortened(text: str) -> str:
    """The beginning of a message, with how much follows."""
    lines = text[:SHOWN_CHARACTERS].split("\n")
    if len(text) <= SHOWN_CHARACTERS and len(lines) <= SHOWN_LINES:
        return text
    shown = "\n".join(lines[:SHOWN_LINES])
    left = text[len(shown) :].strip("\n").count("\n") + 1
    return f"{shown}\n… {left:,} more {'line' if left == 1 else 'lines'}"


class ChatTranscript:
    """One conversation as it is shown. `now` is a steady clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._finished: list[Block] = []
        self._text = StreamingText()
        self._text_begun = False
        self._thinking: list[str] = []
        self._thinking_since: float | None = None
        self._calls: dict[str, ToolCard] = {}
        self._shells: list[ToolCard] = []
        self._shell_count = 0
        self._writing: str | None = None
        self._since: float | None = None
        self.running = False
        self.compacting = False
        self.retrying = ""
        self.queued: list[str] = []
        self.queued_items: list[QueueItem] = []
        self.last_output = ""

    # What the screen draws

    @property
    def text(self) -> StreamingText:
        """The part of the answer that may still change."""
        return self._text

    @property
    def cards(self) -> list[ToolCard]:
        """The tool calls and the person's own commands that run."""
        return [*self._calls.values(), *self._shells]

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        begun = self._shells[0].started if self._since is None and self._shells else self._since
        return 0.0 if begun is None else self._now() - begun

    @property
    def busy(self) -> bool:
        """Whether the agent itself does something, be it a run, a pause before a repetition, or a compaction."""
        return self.running or self.compacting or bool(self.retrying)

    @property
    def in_shell(self) -> bool:
        """Whether a command of the person runs."""
        return bool(self._shells)

    @property
    def activity(self) -> str:
        """What the agent is doing, in a word or two; empty while it is idle."""
        if self.retrying:
            return self.retrying
        if self.compacting:
            return "Compacting"
        if not self.running:
            return "Running" if self._shells else ""
        if self._thinking_since is not None:
            return "Thinking"
        if self._writing:
            return f"Preparing {self._writing}"
        if self._calls:
            return "Running"
        return "Writing" if self._text_begun or self._text.begun else "Waiting"

    def thinking_tail(self, most: int) -> str:
        """The last characters of the running thought."""
        pieces: list[str] = []
        length = 0
        for piece in reversed(self._thinking):
            pieces.append(piece)
            length += len(piece)
            if length >= most:
                break
        return "".join(reversed(pieces))[-most:]

    # What the person runs

    def begin_shell(self, command: str) -> ToolCard:
        """A command of the person begins; the card stands among the live ones until `end_shell`."""
        self._shell_count += 1
        card = ToolCard(f"!{self._shell_count}", SHELL_NAME, {"command": command}, self._now())
        self._shells.append(card)
        return card

    def end_shell(self, card: ToolCard, output: str) -> None:
        """It is over, and this is what it wrote; of one that has ended already, nothing."""
        if card in self._shells:
            self._shells.remove(card)
            card.end(self._now() - card.started, failed=False, output=output)
            self.last_output = output

    # Events

    def take(self, event: ConversationEvent) -> list[Block]:
        """Take the next event; returns the blocks that are finished by it."""
        handler = _handlers().get(type(event))
        if handler is None:
            return []
        handler(self, event)
        return self._given()

    def interrupt(self) -> list[Block]:
        """The agent is gone: whatever was live is finished as it is."""
        self._end_run()
        self.queued, self.queued_items = [], []
        return self._given()

    def _given(self) -> list[Block]:
        finished, self._finished = self._finished, []
        return finished

    def _show(self, block: Block) -> None:
        self._finished.append(block)

    def _end_run(self) -> None:
        self._end_thinking("")
        self._end_text()
        for card in list(self._calls.values()):
            card.end(self._now() - card.started, failed=True)
            self._finish(card)
        self.running = self.compacting = False
        self.retrying = ""
        self._since = None

    def _agent_start(self, event: events.AgentStart) -> None:
        if not self.running:
            self._since = self._now()
        self.running = True
        self.retrying = ""

    def _settled(self, event: events.AgentSettled) -> None:
        self._end_run()
        reason = ENDS.get(event.reason)
        limit = or_else(event.limit, None)
        if limit is not None:
            reason = f"{reason}: {limit.reached} of {limit.allowed} {limit.name}"
        if event.reason == "aborted" or event.aborted:
            self._show(Notice("Stopped", "warning"))
        elif reason:
            self._show(Notice(reason, "warning"))

    def _message_start(self, event: events.MessageStart) -> None:
        self._text_begun = False

    def _message_end(self, event: events.MessageEnd) -> None:
        from pigeon.sdk.results import CUT_OFF
        from pigeon.wire.content import ImageContent, text_of
        from pigeon.wire.messages import AssistantMessage, UserMessage

        message = event.message
        if isinstance(message, UserMessage):
            blocks = [] if isinstance(message.content, str) else message.content
            images = sum(isinstance(block, ImageContent) for block in blocks)
            self._show(UserText(shortened(text_of(message.content)), images))
        elif isinstance(message, AssistantMessage):
            self._end_thinking("")
            self._end_text()
            self._writing = None
            error = or_else(message.error_message, "")
            if message.stop_reason == "error" and error:
                self._show(Notice(error, "error"))
            elif message.stop_reason == "length":
                self._show(Notice(CUT_OFF, "warning"))

    def _thinking_start(self, event: events.ThinkingStart) -> None:
        self._thinking_since = self._now()
        self._thinking = []

    def _thinking_delta(self, event: events.ThinkingDelta) -> None:
        self._thinking.append(event.delta)

    def _thinking_end(self, event: events.ThinkingEnd) -> None:
        self._end_thinking(event.content)

    def _end_thinking(self, content: str) -> None:
        since, self._thinking_since = self._thinking_since, None
        text = content or "".join(self._thinking)
        self._thinking = []
        if since is not None and text.strip():
            self._show(ThinkingText(text, self._now() - since))

    def _text_delta(self, event: events.TextDelta) -> None:
        self._say(self._text.add(event.delta))

    def _text_end(self, event: events.TextEnd) -> None:
        self._end_text()

    def _end_text(self) -> None:
        self._say(self._text.end())

    def _say(self, finished: str) -> None:
        if finished.strip():
            self._show(AnswerText(finished, not self._text_begun))
            self._text_begun = True

    def _toolcall_start(self, event: events.ToolcallStart) -> None:
        self._writing = event.tool_name

    def _toolcall_end(self, event: events.ToolcallEnd) -> None:
        self._writing = None

    def _execution_start(self, event: events.ToolExecutionStart) -> None:
        args = event.args if isinstance(event.args, dict) else {}
        self._calls[event.tool_call_id] = ToolCard(event.tool_call_id, event.tool_name, args, self._now())

    def _execution_update(self, event: events.ToolExecutionUpdate) -> None:
        from pigeon.wire.content import text_of

        card = self._calls.get(event.tool_call_id)
        if card is not None:
            card.progress(text_of(event.partial_result.content))

    def _execution_end(self, event: events.ToolExecutionEnd) -> None:
        from pigeon.wire.content import text_of

        card = self._calls.get(event.tool_call_id)
        if card is None:
            return
        self.last_output = text_of(event.result.content)
        details: Any = event.result.details
        diff = details.get("diff") if isinstance(details, dict) else None
        card.end(self._now() - card.started, event.is_error, self.last_output, diff if isinstance(diff, str) else None)
        self._finish(card)

    def _finish(self, card: ToolCard) -> None:
        self._calls.pop(card.call_id, None)
        self._show(card)

    def _queue_update(self, event: events.QueueUpdate) -> None:
        self.queued = [*event.steering, *event.follow_up]
        self.queued_items = or_else(event.items, [])

    def _retry_start(self, event: events.AutoRetryStart) -> None:
        # What failed has been said with the answer that did.
        self.retrying = f"Retrying ({event.attempt} of {event.max_attempts})"

    def _retry_end(self, event: events.AutoRetryEnd) -> None:
        self.retrying = ""

    def _compaction_start(self, event: events.CompactionStart) -> None:
        self.compacting = True

    def _compaction_end(self, event: events.CompactionEnd) -> None:
        self.compacting = False
        result = or_else(event.result, None)
        if result is not None:
            self._show(Notice(f"Compacted: {result.tokens_before:,} tokens were replaced by a summary", "faint"))
        elif (error := or_else(event.error_message, "")) and event.reason != "manual":
            # One that was asked for is refused with the same words.
            self._show(Notice(error, "error"))

    def _extension_error(self, event: events.ExtensionError) -> None:
        self._show(Notice(f"{event.extension_path} ({event.event}): {event.error}", "error"))

    def _error(self, event: events.ErrorEvent) -> None:
        self._show(Notice(event.error, "error"))


@cache
def _handlers() -> dict[type, Callable[[ChatTranscript, Any], None]]:
    """What is done with each kind of event. The records are imported for the first one: the screen stands by then."""
    from pigeon.wire import events

    return {
        events.AgentStart: ChatTranscript._agent_start,
        events.AgentSettled: ChatTranscript._settled,
        events.MessageStart: ChatTranscript._message_start,
        events.MessageEnd: ChatTranscript._message_end,
        events.ThinkingStart: ChatTranscript._thinking_start,
        events.ThinkingDelta: ChatTranscript._thinking_delta,
        events.ThinkingEnd: ChatTranscript._thinking_end,
        events.TextDelta: ChatTranscript._text_delta,
        events.TextEnd: ChatTranscript._text_end,
        events.ToolcallStart: ChatTranscript._toolcall_start,
        events.ToolcallEnd: ChatTranscript._toolcall_end,
        events.ToolExecutionStart: ChatTranscript._execution_start,
        events.ToolExecutionUpdate: ChatTranscript._execution_update,
        events.ToolExecutionEnd: ChatTranscript._execution_end,
        events.QueueUpdate: ChatTranscript._queue_update,
        events.AutoRetryStart: ChatTranscript._retry_start,
        events.AutoRetryEnd: ChatTranscript._retry_end,
        events.CompactionStart: ChatTranscript._compaction_start,
        events.CompactionEnd: ChatTranscript._compaction_end,
        events.ExtensionError: ChatTranscript._extension_error,
        events.ErrorEvent: ChatTranscript._error,
    }
