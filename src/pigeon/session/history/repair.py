"""What a crash left open: tool calls without a result get one, on record, and are not run again."""

from __future__ import annotations

from pigeon.session.history.entry_line import Kept
from pigeon.session.history.journal import Journal
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.entries import ContextEdit
from pigeon.wire.messages import AssistantMessage, ToolResultMessage

INTERRUPTED = "The tool call was interrupted before it finished. It was not run again."


def answer_dangling_calls(journal: Journal, now_ms: int) -> int:
    """Append a result for every open call of the last answer; returns how many there were."""
    calls = dangling_calls(journal.branch)
    for call in calls:
        journal.append_message(
            ToolResultMessage(
                tool_call_id=call.id,
                tool_name=call.name,
                content=[TextContent(text=INTERRUPTED)],
                details={},
                is_error=True,
                timestamp=now_ms,
            )
        )
    return len(calls)


def dangling_calls(branch: list[Kept]) -> list[ToolCall]:
    """The calls of the last answer that have no result after it; an answer that was taken back asks for none."""
    answered: set[str] = set()
    taken_back: dict[str, bool] = {}
    for line in reversed(branch):
        if line.role == "user":
            return []
        if line.type == "context_edit":
            edit = line.entry
            if isinstance(edit, ContextEdit):
                taken_back.setdefault(edit.target_id, edit.replacement is None)
        message = None if taken_back.get(line.id) else line.message
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            if message.stop_reason in ("error", "aborted"):
                return []
            calls = [block for block in message.content if isinstance(block, ToolCall)]
            return [call for call in calls if call.id not in answered]
    return []
