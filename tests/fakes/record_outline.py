"""Records in outline, as a test compares them: their types in order, whose messages, which texts."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
STREAM = "message_update"


def outline(records: list[Record], updates: bool = False) -> list[str]:
    """One word per record; updates only if asked for, with the kind of the delta."""
    return [_word(record) for record in records if updates or record["type"] != STREAM]


def _word(record: Record) -> str:
    kind = record["type"]
    if kind in ("message_start", "message_end"):
        return f"{kind}:{record['message']['role']}"
    if kind == STREAM:
        return str(record["assistantMessageEvent"]["type"])
    if kind == "response":
        return f"response:{record['command']}"
    return str(kind)


def text_of(message: Record) -> str:
    """The text of a message."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def answers(records: list[Record]) -> list[Record]:
    """The finished assistant messages."""
    return ended(records, "assistant")


def ended(records: list[Record], role: str) -> list[Record]:
    """The finished messages of one role."""
    found = [record["message"] for record in records if record["type"] == "message_end"]
    return [message for message in found if message["role"] == role]


def deltas(records: list[Record], kind: str) -> list[Record]:
    """The stream events of one kind."""
    found = [record["assistantMessageEvent"] for record in records if record["type"] == STREAM]
    return [event for event in found if event["type"] == kind]


def tool_texts(records: list[Record]) -> list[str]:
    """The texts of the tool results, in the order in which they were announced."""
    return [text_of(message) for message in ended(records, "toolResult")]
