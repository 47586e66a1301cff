"""The journal in use and the conversation it holds: what is on record, and what a model sees of it.

`Transcript` records every complete message and caches what it derives from the active branch. Above it are pure
functions: from the path of entries to the conversation, from the conversation to what a model sees, and how large that
is. Branch summaries, compaction and the host's lists of messages use them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pigeon.agent.inference import ModelMessage
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.journal import Journal
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.content import ImageContent, TextContent, UserBlock
from pigeon.wire.entries import (
    CALL_ENTRY,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEdit,
    CustomEntry,
    CustomMessageEntry,
)
from pigeon.wire.errors import BadRecord
from pigeon.wire.events import MessageEnd, Outbound, ToolCallStarted, ToolsDeclared
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
)
from pigeon.wire.model import Usage
from pigeon.wire.tokens import message_tokens

COMPACTED = "The conversation up to this point was compacted. This is the summary of what came before:"
NO_IMAGES = "Image reading is disabled."
CAME_BACK = "The conversation returned here from another branch. This is the summary of that branch:"
_SPEAKERS = ("custom_message", "branch_summary", "compaction")
_ROLES = {"user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary", "compactionSummary"}


class VisibleEntries(Struct):
    """The entries that are part of a conversation, in the order it has them, and what replaces their content."""

    lines: list[EntryLine]
    edits: dict[str, Any]

    def messages(self, start: int = 0, end: int | None = None) -> list[Message]:
        """The messages of entries in a range; an entry of an unknown shape has none."""
        return [message for line in self.lines[start:end] if (message := self.message_of(line)) is not None]

    def message_of(self, line: EntryLine) -> Message | None:
        said = message_of(line)
        return _apply_edit(said, self.edits[line.id]) if said is not None and line.id in self.edits else said

    def to_host_message(self, line: EntryLine) -> Any:
        """The message of one entry for a host, as stored in the file wherever possible."""
        if line.type != "message" or line.id in self.edits:
            return self.message_of(line)
        return line.message_to_host_json()


def visible_entries(branch: Sequence[EntryLine]) -> VisibleEntries:
    """The conversation of a path, without parsing any message."""
    lines = _entries_after_compaction(branch)
    edits = _find_edits(lines)
    said = [line for line in lines if line.role in _ROLES or has_message_content(line)]
    omitted = {name for name, replacement in edits.items() if replacement is None}
    return VisibleEntries([line for line in said if line.id not in omitted] if omitted else said, edits)


def context_of(branch: Sequence[EntryLine]) -> list[Message]:
    """The messages of the conversation, oldest first."""
    return visible_entries(branch).messages()


def _entries_after_compaction(branch: Sequence[EntryLine]) -> list[EntryLine]:
    """The last compaction, what it kept, and what followed; all entries if there is none."""
    at = next((index for index in range(len(branch) - 1, -1, -1) if branch[index].type == "compaction"), None)
    if at is None:
        return list(branch)
    entry = branch[at].entry
    first = entry.first_kept_entry_id if isinstance(entry, CompactionEntry) else ""
    start = next((index for index in range(at) if branch[index].id == first), at)
    kept = [line for line in branch[start:at] if line.type != "compaction"]
    return [branch[at], *kept, *branch[at + 1 :]]


def _find_edits(lines: Iterable[EntryLine]) -> dict[str, Any]:
    """The last edit of each entry: None to leave it out, else its new content."""
    entries = [line.entry for line in lines if line.type == "context_edit"]
    return {entry.target_id: entry.replacement for entry in entries if isinstance(entry, ContextEdit)}


def has_message_content(line: EntryLine) -> bool:
    if line.type == "message":
        return line.role in _ROLES
    return line.type in _SPEAKERS and message_of(line) is not None


def message_of(line: EntryLine) -> Message | None:
    """The message of an entry, or None if it has none."""
    if line.type == "message":
        return line.message
    entry = line.entry
    at = _to_milliseconds(line.timestamp)
    if isinstance(entry, CustomMessageEntry):
        return CustomMessage(
            custom_type=entry.custom_type,
            content=entry.content,
            display=entry.display,
            details=entry.details,
            timestamp=at,
        )
    if isinstance(entry, BranchSummaryEntry) and entry.summary:
        return BranchSummaryMessage(summary=entry.summary, from_id=entry.from_id, timestamp=at)
    if isinstance(entry, CompactionEntry):
        return CompactionSummaryMessage(summary=entry.summary, tokens_before=entry.tokens_before, timestamp=at)
    return None


def _apply_edit(message: Message, replacement: Any) -> Message:
    content = replacement.get("content") if isinstance(replacement, dict) else None
    if isinstance(content, str) and isinstance(message, (AssistantMessage, ToolResultMessage)):
        content = [{"type": "text", "text": content}]
    try:
        if isinstance(message, (UserMessage, CustomMessage)):
            return replace(
                message, content=content if isinstance(content, str) else codec.convert(content, list[UserBlock])
            )
        if isinstance(message, ToolResultMessage):
            return replace(message, content=codec.convert(content, list[UserBlock]))
        if isinstance(message, AssistantMessage):
            return replace(message, content=codec.convert(content, list[TextContent]))
    except BadRecord:
        return message
    return message


def _to_milliseconds(timestamp: str) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:
        return 0


def to_model_messages(messages: Iterable[Message]) -> list[ModelMessage]:
    """The same conversation in the three roles that models know."""
    converted: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage)):
            converted.append(message)
        elif isinstance(message, BashExecutionMessage):
            if message.exclude_from_context is not True:
                converted.append(
                    _make_user_message([TextContent(text=format_bash_execution(message))], message.timestamp)
                )
        elif isinstance(message, CustomMessage):
            said = [TextContent(text=message.content)] if isinstance(message.content, str) else message.content
            converted.append(_make_user_message(said, message.timestamp))
        elif isinstance(message, CompactionSummaryMessage):
            converted.append(_make_summary_message(COMPACTED, message.summary, message.timestamp))
        elif isinstance(message, BranchSummaryMessage):
            converted.append(_make_summary_message(CAME_BACK, message.summary, message.timestamp))
    return converted


def strip_images(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """The same conversation with a line of text in place of each image, for the setting `images.blockImages`."""
    return [
        message
        if isinstance(message, AssistantMessage)
        else replace(message, content=_strip_image_blocks(message.content))
        for message in messages
    ]


def _strip_image_blocks(content: str | list[UserBlock]) -> str | list[UserBlock]:
    if isinstance(content, str):
        return content
    shown: list[UserBlock] = []
    for block in content:
        note = TextContent(text=NO_IMAGES)
        if not isinstance(block, ImageContent):
            shown.append(block)
        elif not shown or shown[-1] != note:
            shown.append(note)
    return shown


def format_bash_execution(message: BashExecutionMessage) -> str:
    """A shell command and its output as the model reads them."""
    shown = f"```\n{message.output}\n```" if message.output else "(no output)"
    text = f"Ran `{message.command}`\n{shown}"
    if message.cancelled:
        text += "\n\n(command cancelled)"
    elif not isinstance(message.exit_code, Absent) and message.exit_code != 0:
        text += f"\n\nCommand exited with code {message.exit_code}"
    if message.truncated and not isinstance(message.full_output_path, Absent):
        text += f"\n\n[Output truncated. Full output: {message.full_output_path}]"
    return text


def _make_user_message(content: Sequence[UserBlock], timestamp: int) -> UserMessage:
    return UserMessage(content=list(content), timestamp=timestamp)


def _make_summary_message(lead: str, summary: str, timestamp: int) -> UserMessage:
    return _make_user_message([TextContent(text=f"{lead}\n\n<summary>\n{summary}\n</summary>")], timestamp)


def used_tokens(usage: Usage) -> int:
    """The size of a request and its answer."""
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def estimate_branch_tokens(branch: Sequence[EntryLine]) -> int:
    """The size of a path's context in tokens: the provider's last count plus an estimate of what came after it.

    Counts from before the last compaction or edit are not used: then everything is estimated.
    """
    later = 0
    for line in reversed(branch):
        if line.type in ("compaction", "context_edit"):
            return sum(map(_count_sent_tokens, context_of(branch)))
        message = message_of(line)
        if isinstance(message, AssistantMessage) and _has_usage(message):
            return used_tokens(message.usage) + later
        later += _count_sent_tokens(message) if message is not None else 0
    return later


def _has_usage(message: AssistantMessage) -> bool:
    return not _has_failed(message) and used_tokens(message.usage) > 0


def _has_failed(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted")


def _count_sent_tokens(message: Message) -> int:
    """Failed answers count as 0, because they are never sent to a model."""
    return 0 if _has_failed(message) else message_tokens(message)


_CHANGES_WHAT_WAS = ("compaction", "context_edit")


class Transcript:
    """Holds one journal at a time; the parts of a session share it, so that all of them follow a change of session.

    `record_event` is the bus's first recorder: a message is in the file before it is announced. While a conversation
    only grows, the derived lists are only extended, so that a turn costs no more in a long one. Entries are parsed when
    their messages are read for the first time.
    """

    def __init__(self, journal: Journal, notes_calls: bool = False) -> None:
        """With `notes_calls`, the start of each tool call is recorded, as always in a store."""
        self._notes_calls = notes_calls
        self._journal = journal
        self._visible = VisibleEntries([], {})
        self._named: tuple[list[EntryLine], EntryLine | None, int] = ([], None, 0)
        self._parsed = 0
        self._context: list[Message] = []
        self._model_messages: list[ModelMessage] = []
        self._known: tuple[Journal | None, tuple[int, int], int] = (None, (0, 0), 0)

    @property
    def journal(self) -> Journal:
        return self._journal

    def folder(self) -> str:
        """The working directory of the conversation."""
        return self._journal.cwd

    @property
    def visible_entries(self) -> VisibleEntries:
        """The entries of the conversation."""
        journal, branch = self._journal, self._journal.branch
        of, version, length = self._known
        if of is journal and version == journal.version:
            return self._visible
        # `version[1]` counts moves of the leaf: while it stays the same, the branch has only been appended to.
        fresh = branch[length:] if of is journal and version[1] == journal.version[1] else None
        if fresh is None or any(line.type in _CHANGES_WHAT_WAS for line in fresh):
            self._visible, self._context, self._model_messages, self._parsed = visible_entries(branch), [], [], 0
        else:
            self._visible.lines.extend(line for line in fresh if has_message_content(line))
        self._known = (journal, journal.version, len(branch))
        return self._visible

    @property
    def context(self) -> list[Message]:
        """The messages that the model would see now; do not change the list."""
        self._parse_until(len(self.visible_entries.lines))
        return self._context

    def parse_more_ahead(self, most: int) -> bool:
        """Parses some more entries before their messages are needed; returns False once all are parsed."""
        self._parse_until(min(self._parsed + most, len(self.visible_entries.lines)))
        return self._parsed < len(self._visible.lines)

    @property
    def model_messages(self) -> list[ModelMessage]:
        """The same in the three roles that models know, in a new list of the same objects each time.

        `providers/history/cache` compares these messages by identity to find earlier translations: never copy them.
        """
        _ = self.context
        return list(self._model_messages)

    def _parse_until(self, end: int) -> None:
        if self._parsed < end:
            fresh = self._visible.messages(self._parsed, end)
            self._context.extend(fresh)
            self._model_messages.extend(to_model_messages(fresh))
            self._parsed = end

    @property
    def info_entry(self) -> EntryLine | None:
        """The last entry that names the session; only entries that are new since the last call are looked at."""
        lines = self._journal.lines
        info, looked_at = self._named[1:] if self._named[0] is lines else (None, 0)
        info = next((line for line in reversed(lines[looked_at:]) if line.type == "session_info"), info)
        self._named = (lines, info, len(lines))
        return info

    def find_last_user_entry(self) -> str | None:
        """The id of the user's last message on the branch, by which things are counted per user message."""
        return next((line.id for line in reversed(self._journal.branch) if line.role == "user"), None)

    def switch_journal(self, journal: Journal) -> None:
        self._journal.close()
        self._journal = journal

    def record_event(self, event: Outbound) -> None:
        """Record the message of a `message_end`, and a declaration of tools, and maybe the start of a call."""
        if not isinstance(event, (MessageEnd, ToolsDeclared)):
            if isinstance(event, ToolCallStarted) and (self._notes_calls or self._journal.rows is not None):
                call = {"toolCallId": event.tool_call_id, "toolName": event.tool_name}
                self._journal.append(CustomEntry, custom_type=CALL_ENTRY, data=call)
            return
        message = event.message
        if isinstance(message, CustomMessage):
            self._journal.append(
                CustomMessageEntry,
                custom_type=message.custom_type,
                content=message.content,
                display=message.display,
                details=message.details,
            )
        else:
            self._journal.append_message(message)
