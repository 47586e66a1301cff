"""Content blocks: what a message is made of."""

from __future__ import annotations

from pigeon.wire.base import ABSENT, Absent, Json, Record


class TextContent(Record, tag_field="type", tag="text", kw_only=True):
    """Plain text; the signature is opaque replay data of the provider."""

    text: str
    text_signature: str | Absent = ABSENT


class ThinkingContent(Record, tag_field="type", tag="thinking", kw_only=True):
    """Reasoning text. A redacted block keeps its encrypted payload in the signature."""

    thinking: str
    thinking_signature: str | Absent = ABSENT
    redacted: bool | Absent = ABSENT


class ImageContent(Record, tag_field="type", tag="image", kw_only=True):
    """An image as base64 without a data-URL prefix."""

    data: str
    mime_type: str


class ToolCall(Record, tag_field="type", tag="toolCall", kw_only=True):
    """The model asks for one tool run."""

    id: str
    name: str
    arguments: dict[str, Json]
    thought_signature: str | Absent = ABSENT
    namespace: str | Absent = ABSENT


AssistantBlock = TextContent | ThinkingContent | ToolCall
UserBlock = TextContent | ImageContent


def text_of(blocks: str | list[UserBlock] | list[AssistantBlock]) -> str:
    """All text blocks, concatenated with nothing between."""
    if isinstance(blocks, str):
        return blocks
    return "".join(block.text for block in blocks if isinstance(block, TextContent))
