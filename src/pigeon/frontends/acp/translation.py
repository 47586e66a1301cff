"""From the events of a conversation to updates of a session, in order and with constant work for each delta.

Messages have ids that come out the same when the session is loaded again: those of the user are the ids that the prompt
was sent with, those of answers follow from the time at which they began (`MessageIds`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from msgspec.structs import replace

from pigeon.frontends.acp.editions.edition import Edition, Update
from pigeon.frontends.acp.editions.tool_views import (
    CallStatus,
    DiffPiece,
    TerminalPiece,
    ToolPiece,
    ToolView,
    content_block,
    git_patch,
    kind_of_tool,
    outcome_pieces,
    parse_command_end,
    progress_pieces,
    raw_output_of,
    text_block,
    view_of_call,
)
from pigeon.tools.catalog import SHELL, facts_of
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.content import TextContent, UserBlock, text_of
from pigeon.wire.errors import to_printable
from pigeon.wire.events import (
    AutoRetryStart,
    CompactionEnd,
    CompactionStart,
    ExtensionError,
    FileChanged,
    MessageEnd,
    MessageStart,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolcallEnd,
    ToolcallStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from pigeon.wire.messages import AssistantMessage, CustomMessage, Message, UserMessage

# The shortest time between two updates about the output of a command.
OUTPUT_SECONDS = 0.25


class MessageIds:
    """Assigns ids to messages in their order; the same conversation always gets the same ids."""

    def __init__(self) -> None:
        self._last = ""
        self._same = 0

    def next_id(self, message: Message) -> str:
        """Returns the id for the next message of this kind."""
        if isinstance(message, UserMessage) and not isinstance(message.client_message_id, Absent):
            return message.client_message_id
        base = f"{'user' if isinstance(message, UserMessage) else 'agent'}-{message.timestamp}"
        self._same = self._same + 1 if base == self._last else 0
        self._last = base
        return f"{base}-{self._same}" if self._same else base


def user_updates(edition: Edition, message_id: str, message: UserMessage) -> list[Update]:
    """The updates for a message that did not come from this client just now."""
    content = message.content
    blocks = [TextContent(text=content)] if isinstance(content, str) else content
    shown = [content_block(block) for block in blocks]
    return edition.user_message_updates(message_id, shown) or [
        one for block in shown for one in edition.chunk_updates("user", message_id, block)
    ]


class ShownCall:
    """A tool call that the client knows, and how much of its output was shown."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: object = None
        self.runs = False
        self.output = ""
        self.shown_output = ""
        self.terminal: str | None = None
        self.has_output = False
        self.diffs: list[ToolPiece] = []
        self._shown_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def set_arguments(self, arguments: object) -> None:
        self.arguments = arguments

    def use_terminal(self, terminal_id: str) -> None:
        self.terminal = terminal_id

    def mark_running(self) -> None:
        self.runs = True

    def set_output(self, text: str) -> None:
        self.output = text

    def mark_output_shown(self) -> None:
        self.shown_output, self.has_output, self._shown_at = self.output, True, time.monotonic()

    def show_soon(self, show: Callable[[], None]) -> None:
        """Show the output now, or when the last update is long enough ago: there may be no further output to trigger
        it."""
        if self._timer is None:
            pause = max(0.0, self._shown_at + OUTPUT_SECONDS - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause, show)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def command(self) -> str:
        command = self.arguments.get("command") if isinstance(self.arguments, dict) else None
        return command if isinstance(command, str) else ""


class EventTranslator:
    """The updates of one session; `send` is called with each."""

    def __init__(self, edition: Edition, cwd: str, home: str, send: Callable[[Update], None]) -> None:
        self._edition = edition
        self._cwd = cwd
        self._home = home
        self._send = send
        self.ids = MessageIds()
        self._message = ""
        # How much of each block of the answer was sent.
        self._sent: dict[int, int] = {}
        self._calls: dict[str, ShownCall] = {}
        self._compactions = 0

    def translate_and_send(self, event: object) -> None:
        """Send the updates for an event; events that editors do not show are skipped."""
        if isinstance(event, TextDelta | ThinkingDelta):
            self._send_delta(event.content_index, event.delta, isinstance(event, ThinkingDelta))
        elif isinstance(event, TextEnd | ThinkingEnd):
            # Deltas may have been left out for a client that reads slowly.
            rest = event.content[self._sent.get(event.content_index, 0) :]
            self._send_delta(event.content_index, rest, isinstance(event, ThinkingEnd))
        elif isinstance(event, ToolcallStart):
            self._ensure_call_shown(event.id, event.tool_name)
        elif isinstance(event, ToolcallEnd):
            self._show_call_arguments(event.tool_call.id, event.tool_call.name, event.tool_call.arguments)
        elif isinstance(event, ToolExecutionStart):
            self._on_tool_start(event)
        elif isinstance(event, ToolExecutionUpdate):
            self._on_tool_progress(event)
        elif isinstance(event, ToolExecutionEnd):
            self._on_tool_end(event)
        elif isinstance(event, FileChanged):
            self._on_file_changed(event)
        elif isinstance(event, MessageStart | MessageEnd):
            self._translate_message(event)
        else:
            self._translate_other(event)

    def _translate_message(self, event: MessageStart | MessageEnd) -> None:
        message = event.message
        if isinstance(event, MessageStart):
            if isinstance(message, AssistantMessage):
                self._message, self._sent = self.ids.next_id(message), {}
            elif isinstance(message, UserMessage) and isinstance(message.client_message_id, Absent):
                # Messages of extensions; those of the client's own prompts are sent with the prompt.
                self._send_updates(user_updates(self._edition, self.ids.next_id(message), message))
        elif isinstance(message, CustomMessage) and message.display:
            self._send_content(self.ids.next_id(message), message.content)

    def _translate_other(self, event: object) -> None:
        if isinstance(event, CompactionStart):
            self._compactions += 1
            self._send_updates(self._edition.compaction_updates(self._compaction_id(), "in_progress", None, None))
        elif isinstance(event, CompactionEnd):
            status = "cancelled" if event.aborted else "failed" if event.error_message else "completed"
            summary = None if isinstance(event.result, Absent) else event.result.summary
            error = value_or_default(event.explanation, value_or_default(event.error_message, None))
            self._send_updates(self._edition.compaction_updates(self._compaction_id(), status, summary, error))
        elif isinstance(event, AutoRetryStart):
            seconds = round(event.delay_ms / 1000, 1)
            why = value_or_default(event.explanation, event.error_message)
            text = f"{why}. Trying again in {seconds:g} s ({event.attempt} of {event.max_attempts})"
            self.send_notice("warning", text)
        elif isinstance(event, ExtensionError):
            self.send_notice("error", f"{event.extension_path}: {event.error}")

    def send_notice(self, severity: str, title: str) -> None:
        """Send a notice; goes to the editor's log if the client does not show notices."""
        updates = self._edition.notice_updates(severity, title)
        self._send_updates(updates)
        if not updates:
            print(f"pigeon acp: {to_printable(title)}", file=sys.stderr)  # noqa: T201

    def _compaction_id(self) -> str:
        return f"compaction-{self._compactions}"

    def _send_updates(self, updates: list[Update]) -> None:
        for update in updates:
            self._send(update)

    # Messages

    def _send_delta(self, index: int, text: str, thinking: bool) -> None:
        if text:
            self._sent[index] = self._sent.get(index, 0) + len(text)
            speaker = "thought" if thinking else "agent"
            self._send_updates(self._edition.chunk_updates(speaker, f"{self._message}.{index}", text_block(text)))  # type: ignore[arg-type]

    def _send_content(self, message_id: str, content: str | list[UserBlock]) -> None:
        blocks = [TextContent(text=content)] if isinstance(content, str) else content
        for block in blocks:
            self._send_updates(self._edition.chunk_updates("agent", message_id, content_block(block)))

    # Tool calls

    def find_call(self, call_id: str) -> ShownCall | None:
        return self._calls.get(call_id)

    def find_running_call(self, argument: str, value: str) -> str | None:
        """The id of the newest running call with this argument."""
        for call_id, call in reversed(self._calls.items()):
            if call.runs and isinstance(call.arguments, dict) and call.arguments.get(argument) == value:
                return call_id
        return None

    def status_of(self, call_id: str) -> CallStatus | None:
        call = self._calls.get(call_id)
        return None if call is None else "in_progress" if call.runs else "pending"

    def show_terminal(self, call_id: str, terminal_id: str) -> None:
        call = self._ensure_call_shown(call_id, SHELL)
        call.use_terminal(terminal_id)
        self._send_updates(
            self._edition.tool_call_updates(ToolView(call_id=call_id, content=[TerminalPiece(terminal_id)]))
        )

    def _on_file_changed(self, event: FileChanged) -> None:
        """Show the change that a call made to a file, unless its text is too long."""
        call = self._calls.get(event.tool_call_id)
        if call is None or isinstance(event.new_text, Absent):
            return
        old = None if event.created else value_or_default(event.old_text, "")
        call.diffs.append(DiffPiece(event.path, old, event.new_text, git_patch(event.path, old, event.new_text)))
        self._send_updates(
            self._edition.tool_call_updates(ToolView(call_id=event.tool_call_id, content=list(call.diffs)))
        )

    def _ensure_call_shown(self, call_id: str, name: str) -> ShownCall:
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = ShownCall(name)
            kind = kind_of_tool(name)
            view = ToolView(call_id=call_id, begun=True, name=name, title=name, kind=kind, status="pending")
            self._send_updates(self._edition.tool_call_updates(view))
        return call

    def _show_call_arguments(self, call_id: str, name: str, arguments: object) -> ShownCall:
        known = call_id in self._calls
        call = self._calls.setdefault(call_id, ShownCall(name))
        call.set_arguments(arguments)
        view = view_of_call(call_id, name, arguments, self._cwd, self._home)
        if not known:
            view = replace(view, begun=True, status="pending")
        self._send_updates(self._edition.tool_call_updates(view))
        return call

    def _on_tool_start(self, event: ToolExecutionStart) -> None:
        call = self._calls.get(event.tool_call_id)
        if call is None or call.arguments is None:
            call = self._show_call_arguments(event.tool_call_id, event.tool_name, event.args)
        call.mark_running()
        self._send_updates(self._edition.tool_call_updates(ToolView(call_id=event.tool_call_id, status="in_progress")))

    def _on_tool_progress(self, event: ToolExecutionUpdate) -> None:
        call = self._ensure_call_shown(event.tool_call_id, event.tool_name)
        if call.terminal is not None:
            return
        if facts_of(event.tool_name).command:
            call.set_output(text_of(event.partial_result.content))
            call.show_soon(lambda: self._show_output(event.tool_call_id, call))
        else:
            pieces = progress_pieces(event.tool_name, event.partial_result)
            if pieces:
                self._send_updates(
                    self._edition.tool_call_updates(ToolView(call_id=event.tool_call_id, content=pieces))
                )

    def _show_output(self, call_id: str, call: ShownCall) -> None:
        call.stop_timer()
        if call.output == call.shown_output and (call.has_output or not self._edition.has_terminals):
            return
        command = None if call.has_output else call.command
        updates = self._edition.command_output_updates(call_id, command, self._cwd, call.output, call.shown_output)
        call.mark_output_shown()
        self._send_updates(updates)

    def _on_tool_end(self, event: ToolExecutionEnd) -> None:
        call = self._ensure_call_shown(event.tool_call_id, event.tool_name)
        call.stop_timer()
        content: list[ToolPiece] = []
        if (
            facts_of(event.tool_name).command
            and call.terminal is None
            and call.has_output
            and self._edition.has_terminals
        ):
            # The terminal already shows the output and that the command failed.
            text, code = parse_command_end(event.result, event.is_error)
            call.set_output(text)
            self._show_output(event.tool_call_id, call)
            self._send_updates(self._edition.command_end_updates(event.tool_call_id, code))
        elif call.terminal is None:
            content = [*call.diffs, *outcome_pieces(event.tool_name, event.result, event.is_error)]
        view = ToolView(
            call_id=event.tool_call_id,
            status="failed" if event.is_error else "completed",
            content=content or None,
            raw_output=raw_output_of(event.tool_name, event.result),
        )
        self._send_updates(self._edition.tool_call_updates(view))
        del self._calls[event.tool_call_id]

    def end_unfinished_calls(self) -> None:
        """Mark calls that never ran as over, because the run has ended."""
        for call_id, call in self._calls.items():
            call.stop_timer()
            self._send_updates(self._edition.tool_call_updates(ToolView(call_id=call_id, status="cancelled")))
        self._calls.clear()
