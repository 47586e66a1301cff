"""Entries of a conversation in few words, for tests that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pigeon.export.html import SessionPage
from pigeon.export.markdown import TextFormatter
from pigeon.wire.answers import SessionStats, TokenTotals
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import AssistantBlock, ImageContent, TextContent
from pigeon.wire.entries import Entry, MessageEntry
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


class ItemLine:
    """An entry as the page gets it; its id is its number."""

    def __init__(self, item: Any, number: int, parent: int | None) -> None:
        self._item = item
        self.type = str(item.get("type", "")) if isinstance(item, dict) else str(item.__struct_config__.tag)
        self.id = f"id{number}"
        self.parent_id = None if parent is None else f"id{parent}"
        message = getattr(item, "message", None)
        self.role = "" if message is None else str(message.__struct_config__.tag)

    def read(self) -> Entry | None:
        return None if isinstance(self._item, dict) else self._item  # type: ignore[no-any-return]

    def plain(self) -> Any:
        return self._item


def page(header: Mapping[str, Any], items: Sequence[Any], stats: SessionStats, name: str | None = None) -> str:
    """The page of a session with one branch."""
    lines = [ItemLine(item, number, number - 1 if number else None) for number, item in enumerate(items)]
    return "".join(SessionPage(header, lines, [line.id for line in lines], stats, name).pieces(TextFormatter()))
