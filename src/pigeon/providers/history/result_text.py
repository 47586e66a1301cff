"""What a tool said, for APIs that take it as one text, and the words for what is no text."""

from __future__ import annotations

from pigeon.wire.content import TextContent, UserBlock

NO_OUTPUT = "(no output)"
IMAGE_NOTE = "(see attached image)"
IMAGES_LEAD = "Images returned by the tools above:"


def result_text(blocks: list[UserBlock]) -> str:
    """The texts of a tool result, each on lines of its own."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent) and block.text)
