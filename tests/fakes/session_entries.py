"""Entries of a conversation in few words, for tests that read them."""

from __future__ import annotations

from typing import Any

from pigeon.wire.answers import SessionStats, TokenTotals
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import AssistantBlock, ImageContent, TextContent
from pigeon.wire.entries import MessageEntry
from pigeon.wire.messages import AssistantMessage, Message, StopReason, ToolResultMessage, UserMessage
from pigeon.wire.model import Cost, Usage

BEGAN = "2026-11-01T10:00:00.000Z"
AT = 1_793_527_200_000
HEADER = {"type": "session", "version": 3, "id": "0193-aa", "timestamp": BEGAN, "cwd": "/home/ada/project"}


def entry(message: Message) -> MessageEntry:
    """A message on record."""
    return MessageEntry(id="0000aaaa", parent_id=None, timestamp=BEGAN, message=message)


def said(text: str, *pictures: ImageContent) -> MessageEntry:
    """What the user said."""
    return entry(UserMessage(content=[TextContent(text=text), *pictures], timestamp=AT))


def answered(
    *blocks: AssistantBlock | str, stop: StopReason = "stop", error: str | Absent = ABSENT, model: str = "fake-1"
) -> MessageEntry:
    """What the model answered."""
    content = [TextContent(text=block) if isinstance(block, str) else block for block in blocks]
    usage = Usage(input=10, output=1_220, cost=Cost(total=0.01))
    return entry(
        AssistantMessage(
            content=list(content), api="fake", provider="lab", model=model, usage=usage, stop_reason=stop,
            error_message=error, timestamp=AT,
        )
    )  # fmt: skip


def resulted(call_id: str, text: str, failed: bool = False, details: Any = ABSENT) -> MessageEntry:
    """What a tool gave back."""
    return entry(
        ToolResultMessage(
            tool_call_id=call_id, tool_name="bash", content=[TextContent(text=text)], is_error=failed, timestamp=AT,
            details=details,
        )
    )  # fmt: skip


def stats() -> SessionStats:
    """Figures that are easy to find again."""
    tokens = TokenTotals(input=12_000, output=3_400, cache_read=50_001, cache_write=102, total=65_503)
    return SessionStats(
        session_id="0193-aa", user_messages=2, assistant_messages=3, tool_calls=7, tool_results=7, total_messages=19,
        tokens=tokens, cost=0.1234,
    )  # fmt: skip
