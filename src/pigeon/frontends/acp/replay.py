"""An earlier conversation as the updates that it would have sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from pigeon.frontends.acp.editions.edition import Edition, Update
from pigeon.frontends.acp.editions.tool_views import (
    CallStatus,
    DiffPiece,
    ToolPiece,
    ToolView,
    content_block,
    fence_text,
    outcome_pieces,
    raw_output_of,
    replacement_pieces,
    text_block,
    view_of_call,
)
from pigeon.frontends.acp.translation import MessageIds, user_updates
from pigeon.system.paths import absolute_path
from pigeon.tools.catalog import facts_of
from pigeon.wire.answers import Entries
from pigeon.wire.content import TextContent, ThinkingContent, ToolCall
from pigeon.wire.entries import BranchSummaryEntry, CompactionEntry, CustomMessageEntry, Entry, MessageEntry
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import AssistantMessage, BashExecutionMessage, Message, ToolResultMessage, UserMessage


def replay(
    entries: Entries, edition: Edition, cwd: str, home: str, status_of: Callable[[str], CallStatus | None]
) -> Iterator[list[Update]]:
    """The updates for each message of the active branch, in order, including messages that a compaction has replaced.

    `status_of` gives the status of calls that are running now.
    """
    past = _Past(edition, cwd, home)
    for entry in _active_branch(entries):
        if isinstance(entry, MessageEntry):
            yield past.convert_message(entry.message)
        elif isinstance(entry, CustomMessageEntry):
            yield past.convert_custom(entry)
        elif isinstance(entry, CompactionEntry | BranchSummaryEntry):
            yield edition.compaction_updates(f"compaction-{entry.id}", "completed", entry.summary, None)
    yield past.open_call_updates(status_of)


def _active_branch(entries: Entries) -> list[Entry]:
    """The entries from the root to the leaf."""
    known = {entry.id: entry for entry in entries.entries}
    branch: list[Entry] = []
    at = entries.leaf_id
    while at is not None and at in known and len(branch) < len(known):
        branch.append(known[at])
        at = known[at].parent_id
    return branch[::-1]


class _Past:
    def __init__(self, edition: Edition, cwd: str, home: str) -> None:
        self._edition = edition
        self._cwd = cwd
        self._home = home
        self._ids = MessageIds()
        self._open: dict[str, ToolCall] = {}

    def convert_message(self, message: Message) -> list[Update]:
        edition = self._edition
        if isinstance(message, UserMessage):
            return user_updates(edition, self._ids.next_id(message), message)
        if isinstance(message, AssistantMessage):
            return self._convert_answer(message)
        if isinstance(message, ToolResultMessage):
            return self._convert_result(message)
        if isinstance(message, BashExecutionMessage):
            text = fence_text(f"$ {message.command}\n{message.output}")
            return edition.chunk_updates("user", self._ids.next_id(message), text_block(text))
        return []

    def convert_custom(self, entry: CustomMessageEntry) -> list[Update]:
        if not entry.display:
            return []
        blocks = [TextContent(text=entry.content)] if isinstance(entry.content, str) else entry.content
        id = f"agent-{entry.id}"
        return [one for block in blocks for one in self._edition.chunk_updates("agent", id, content_block(block))]

    def _convert_answer(self, message: AssistantMessage) -> list[Update]:
        base = self._ids.next_id(message)
        updates: list[Update] = []
        for index, block in enumerate(message.content):
            if isinstance(block, TextContent):
                if block.text:
                    updates += self._edition.chunk_updates("agent", f"{base}.{index}", text_block(block.text))
            elif isinstance(block, ThinkingContent):
                if block.thinking:
                    updates += self._edition.chunk_updates("thought", f"{base}.{index}", text_block(block.thinking))
            else:
                self._open[block.id] = block
                view = view_of_call(block.id, block.name, block.arguments, self._cwd, self._home)
                updates += self._edition.tool_call_updates(replace(view, begun=True, status="pending"))
        return updates

    def _convert_result(self, message: ToolResultMessage) -> list[Update]:
        call = self._open.pop(message.tool_call_id, None)
        outcome = ToolOutcome(content=message.content, details=message.details)
        diffs = [] if call is None or message.is_error else _diff_pieces(call, outcome, self._cwd, self._home)
        content = [*diffs, *outcome_pieces(message.tool_name, outcome, message.is_error)]
        view = ToolView(
            call_id=message.tool_call_id,
            begun=call is None,
            name=message.tool_name if call is None else None,
            status="failed" if message.is_error else "completed",
            content=content or None,
            raw_output=raw_output_of(message.tool_name, outcome),
        )
        return self._edition.tool_call_updates(view)

    def open_call_updates(self, status_of: Callable[[str], CallStatus | None]) -> list[Update]:
        """Calls without a result: those that are running, and those that will never get one."""
        views = [ToolView(call_id=id, status=status_of(id) or "cancelled") for id in self._open]
        return [update for view in views for update in self._edition.tool_call_updates(view)]


def _diff_pieces(call: ToolCall, outcome: ToolOutcome, cwd: str, home: str) -> list[ToolPiece]:
    """The changes that a call made, as far as the conversation records them."""
    path = facts_of(call.name).find_changed_file(call.arguments)
    if path is None:
        return []
    place = absolute_path(path, cwd, home)
    content = call.arguments.get("content")
    return replacement_pieces(place, call.arguments) if content is None else [DiffPiece(place, None, str(content))]
