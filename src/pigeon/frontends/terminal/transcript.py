"""Turns the events of a conversation into blocks: `handle_event` returns the finished ones, the others are live.

The work for each delta is constant: a delta is kept in a list, and only complete lines are examined
(`streaming_text.py`). The screen requests the live blocks when it draws, at most twenty times a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from pigeon.frontends.terminal.agent_rows import AgentRows, describe_plan_decision, describe_started_work
from pigeon.frontends.terminal.blocks import AnswerText, Block, Notice, ToolCard, UserText
from pigeon.frontends.terminal.content.restored_files import describe_restored
from pigeon.frontends.terminal.live_parts import SHELL_NAME, RunningCards, StreamingThought
from pigeon.frontends.terminal.streaming_text import StreamingText
from pigeon.wire.base import value_or_default

if TYPE_CHECKING:
    from pigeon.sdk.results import ConversationEvent
    from pigeon.wire import events
    from pigeon.wire.answers import QueueItem
    from pigeon.wire.content import ToolCall

ENDS = {"limit": "The run was stopped by a limit", "denied": "The run ended because what it needed was not allowed"}

# How many lines of the person's message are shown: a pasted log need not be read again.
SHOWN_LINES = 30
SHOWN_CHARACTERS = 6_000


def shorten_message(text: str) -> str:
    """The beginning of a message, and how much follows."""
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
        self._thought = StreamingThought(now)
        self._cards = RunningCards(now)
        self.agents = AgentRows(now)
        self._writing: str | None = None
        self._since: float | None = None
        self._explained = ""
        self.running = False
        self.compacting = False
        self.retrying = ""
        self.queued: list[str] = []
        self.queued_items: list[QueueItem] = []

    def has_explained(self, refusal: str) -> bool:
        """True if a command is refused because of a failure that was just shown with its explanation."""
        explained, self._explained = self._explained, ""
        return bool(refusal) and explained.endswith(refusal)

    # Read by the screen

    @property
    def text(self) -> StreamingText:
        return self._text

    @property
    def cards(self) -> list[ToolCard]:
        """The running tool calls and shell commands."""
        return self._cards.all

    @property
    def running_command(self) -> ToolCard | None:
        """The command of the model that began last and could go on in the background."""
        from pigeon.tools.catalog import facts_of

        commands = [card for card in self.cards if card.name != SHELL_NAME and facts_of(card.name).kind == "execute"]
        return commands[-1] if commands else None

    @property
    def last_output(self) -> str:
        """The output of the tool call or command that ended last."""
        return self._cards.last_output

    @property
    def seconds(self) -> float:
        """The duration of the current activity so far."""
        begun = self._cards.shell_since if self._since is None else self._since
        return 0.0 if begun is None else self._now() - begun

    @property
    def is_busy(self) -> bool:
        """True during a run, a pause before a retry, or a compaction."""
        return self.running or self.compacting or bool(self.retrying)

    @property
    def is_in_shell(self) -> bool:
        return self._cards.shell_since is not None

    @property
    def activity(self) -> str:
        """The agent's activity in a word or two; empty while it is idle."""
        if self.retrying:
            return self.retrying
        if self.compacting:
            return "Compacting"
        if not self.running:
            return "Running" if self.is_in_shell else ""
        if self._thought.is_open:
            return "Thinking"
        if self._writing:
            return f"Preparing {self._writing}"
        if self._cards.has_calls:
            return "Running"
        return "Writing" if self._text_begun or self._text.has_unfinished else "Waiting"

    def thinking_tail(self, most: int) -> str:
        return self._thought.tail(most)

    # Shell commands of the person

    def add_shell_card(self, command: str) -> ToolCard:
        """Add a live card for a shell command; it stays until `finish_shell_card`."""
        return self._cards.begin_shell(command)

    def finish_shell_card(self, card: ToolCard, output: str) -> None:
        """Finish the card of a command with its output; does nothing if it has ended already."""
        self._cards.end_shell(card, output)

    # Events

    def handle_event(self, event: ConversationEvent) -> list[Block]:
        """Returns the blocks that the event finishes."""
        handler = _handlers_by_event().get(type(event))
        if handler is None:
            return []
        handler(self, event)
        return self._pop_finished()

    def join_run(self) -> None:
        """The run of another client is under way, whose beginning was not seen."""
        if not self.running:
            self._since, self.running = self._now(), True

    def add_open_call(self, call: ToolCall) -> None:
        """A call that has begun before the chat was there."""
        args: Any = call.arguments
        if self._cards.find_call(call.id) is None:
            self._cards.add_call(ToolCard(call.id, call.name, args if isinstance(args, dict) else {}, self._now()))

    def finish_live_blocks(self) -> list[Block]:
        """Finish and return everything that was live, because the agent is gone."""
        self._end_run()
        self.queued, self.queued_items = [], []
        self.agents.clear()
        return self._pop_finished()

    def _pop_finished(self) -> list[Block]:
        finished, self._finished = self._finished, []
        return finished

    def _add_finished(self, block: Block) -> None:
        self._finished.append(block)

    def _end_run(self) -> None:
        self._end_thinking()
        self._end_text()
        self._finished += self._cards.fail_calls()
        self.running = self.compacting = False
        self.retrying = ""
        self._since = None

    def _on_agent_start(self, event: events.AgentStart) -> None:
        if not self.running:
            self._since = self._now()
        self.running = True
        self.retrying = ""

    def _on_agent_settled(self, event: events.AgentSettled) -> None:
        self._end_run()
        reason = ENDS.get(event.reason)
        limit = value_or_default(event.limit, None)
        if limit is not None:
            reason = f"{reason}: {limit.reached} of {limit.allowed} {limit.name}"
        if event.reason == "aborted" or event.aborted:
            self._add_finished(Notice("Stopped", "warning"))
        elif reason:
            self._add_finished(Notice(reason, "warning"))

    def _on_message_start(self, event: events.MessageStart) -> None:
        self._text_begun = False

    def _on_message_end(self, event: events.MessageEnd) -> None:
        from pigeon.sdk.results import CUT_OFF
        from pigeon.wire.content import ImageContent, text_of
        from pigeon.wire.messages import AssistantMessage, UserMessage

        message = event.message
        if isinstance(message, UserMessage):
            blocks = [] if isinstance(message.content, str) else message.content
            images = sum(isinstance(block, ImageContent) for block in blocks)
            self._add_finished(UserText(shorten_message(text_of(message.content)), images))
        elif isinstance(message, AssistantMessage):
            self._end_thinking()
            self._end_text()
            self._writing = None
            error = value_or_default(event.explanation, "") or value_or_default(message.error_message, "")
            if message.stop_reason == "error" and error:
                self._add_finished(Notice(error, "error"))
            elif message.stop_reason == "length":
                self._add_finished(Notice(CUT_OFF, "warning"))

    def _on_thinking_start(self, event: events.ThinkingStart) -> None:
        self._thought.begin()

    def _on_thinking_delta(self, event: events.ThinkingDelta) -> None:
        self._thought.add(event.delta)

    def _on_thinking_end(self, event: events.ThinkingEnd) -> None:
        self._end_thinking(event.content)

    def _end_thinking(self, content: str = "") -> None:
        block = self._thought.end(content)
        if block is not None:
            self._add_finished(block)

    def _on_text_delta(self, event: events.TextDelta) -> None:
        self._show_answer(self._text.add_and_take_finished(event.delta))

    def _on_text_end(self, event: events.TextEnd) -> None:
        self._end_text()

    def _end_text(self) -> None:
        self._show_answer(self._text.flush())

    def _show_answer(self, finished: str) -> None:
        if finished.strip():
            self._add_finished(AnswerText(finished, not self._text_begun))
            self._text_begun = True

    def _on_toolcall_start(self, event: events.ToolcallStart) -> None:
        self._writing = event.tool_name

    def _on_toolcall_end(self, event: events.ToolcallEnd) -> None:
        self._writing = None

    def _on_execution_start(self, event: events.ToolExecutionStart) -> None:
        args = event.args if isinstance(event.args, dict) else {}
        self._cards.add_call(ToolCard(event.tool_call_id, event.tool_name, args, self._now()))

    def _on_execution_update(self, event: events.ToolExecutionUpdate) -> None:
        from pigeon.wire.content import text_of

        card = self._cards.find_call(event.tool_call_id)
        if card is not None:
            card.update_output(text_of(event.partial_result.content))

    def _on_execution_end(self, event: events.ToolExecutionEnd) -> None:
        from pigeon.wire.content import text_of

        details: Any = event.result.details
        diff = details.get("diff") if isinstance(details, dict) else None
        card = self._cards.end_call(
            event.tool_call_id,
            event.is_error,
            text_of(event.result.content),
            diff if isinstance(diff, str) else None,
            describe_started_work(details),
        )
        if card is not None:
            # The plan was shown with the question about it.
            decided = describe_plan_decision(details)
            self._add_finished(Notice(decided, "faint") if decided else card)

    def _on_agent_changed(self, event: events.AgentChanged) -> None:
        self.agents.update(event)

    def _on_job_changed(self, event: events.JobChanged) -> None:
        job = event.job
        if text := self.agents.update_job(job):
            self._add_finished(Notice(text, "warning" if job.status == "failed" else "faint"))

    def _on_queue_update(self, event: events.QueueUpdate) -> None:
        self.queued = [*event.steering, *event.follow_up]
        self.queued_items = value_or_default(event.items, [])

    def _on_retry_start(self, event: events.AutoRetryStart) -> None:
        # The failure was shown with the answer that failed.
        self.retrying = f"Retrying ({event.attempt} of {event.max_attempts})"

    def _on_retry_end(self, event: events.AutoRetryEnd) -> None:
        self.retrying = ""

    def _on_compaction_start(self, event: events.CompactionStart) -> None:
        self.compacting = True

    def _on_compaction_end(self, event: events.CompactionEnd) -> None:
        self.compacting = False
        result = value_or_default(event.result, None)
        if result is not None:
            self._add_finished(
                Notice(f"Compacted: {result.tokens_before:,} tokens were replaced by a summary", "faint")
            )
            return
        explanation, error = value_or_default(event.explanation, ""), value_or_default(event.error_message, "")
        if explanation:
            self._explained = error
        # A requested compaction is refused with the same words.
        if explanation or (error and event.reason != "manual"):
            self._add_finished(Notice(explanation or error, "error"))

    def _on_extension_error(self, event: events.ExtensionError) -> None:
        self._add_finished(Notice(f"{event.extension_path} ({event.event}): {event.error}", "error"))

    def _on_files_restored(self, event: events.FilesRestored) -> None:
        self._add_finished(Notice(describe_restored([one.path for one in event.files])))

    def _on_error(self, event: events.ErrorEvent) -> None:
        self._add_finished(Notice(event.error, "error"))


@cache
def _handlers_by_event() -> dict[type, Callable[[ChatTranscript, Any], None]]:
    """The handler of each kind of event. The records are imported at the first event, when the screen is already up."""
    from pigeon.wire import events

    return {
        events.AgentStart: ChatTranscript._on_agent_start,
        events.AgentSettled: ChatTranscript._on_agent_settled,
        events.MessageStart: ChatTranscript._on_message_start,
        events.MessageEnd: ChatTranscript._on_message_end,
        events.ThinkingStart: ChatTranscript._on_thinking_start,
        events.ThinkingDelta: ChatTranscript._on_thinking_delta,
        events.ThinkingEnd: ChatTranscript._on_thinking_end,
        events.TextDelta: ChatTranscript._on_text_delta,
        events.TextEnd: ChatTranscript._on_text_end,
        events.ToolcallStart: ChatTranscript._on_toolcall_start,
        events.ToolcallEnd: ChatTranscript._on_toolcall_end,
        events.ToolExecutionStart: ChatTranscript._on_execution_start,
        events.ToolExecutionUpdate: ChatTranscript._on_execution_update,
        events.ToolExecutionEnd: ChatTranscript._on_execution_end,
        events.AgentChanged: ChatTranscript._on_agent_changed,
        events.JobChanged: ChatTranscript._on_job_changed,
        events.QueueUpdate: ChatTranscript._on_queue_update,
        events.AutoRetryStart: ChatTranscript._on_retry_start,
        events.AutoRetryEnd: ChatTranscript._on_retry_end,
        events.CompactionStart: ChatTranscript._on_compaction_start,
        events.CompactionEnd: ChatTranscript._on_compaction_end,
        events.ExtensionError: ChatTranscript._on_extension_error,
        events.FilesRestored: ChatTranscript._on_files_restored,
        events.ErrorEvent: ChatTranscript._on_error,
    }
