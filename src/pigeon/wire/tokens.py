"""The one estimate of how many tokens a text or a message takes: characters divided by four.

Compaction, branch summaries and the models without a network use it if no provider has counted. Where it decides how
much of the window is left for an answer, `prompt_tokens` counts more cautiously. An image counts like a text of fixed
length, because its size in bytes says nothing about its tokens.
"""

from __future__ import annotations

from pigeon.wire import codec
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall
from pigeon.wire.messages import BashExecutionMessage, BranchSummaryMessage, CompactionSummaryMessage, Message

CHARACTERS_PER_TOKEN = 4
CHARACTERS_PER_PROMPT_TOKEN = 3.5
IMAGE_CHARACTERS = 4_800


def estimated_tokens(characters: int, *, round_up: bool = True) -> int:
    """The tokens of so many characters; rounded down where they are subtracted from the available room."""
    return -(-characters // CHARACTERS_PER_TOKEN) if round_up else characters // CHARACTERS_PER_TOKEN


def prompt_tokens(characters: int) -> int:
    """The tokens of so many characters of a prompt, rather too many than too few, because the rest is promised to the
    answer."""
    return -int(-characters // CHARACTERS_PER_PROMPT_TOKEN)


def message_tokens(message: Message) -> int:
    """Tokens of one message, rounded up."""
    return estimated_tokens(characters_of(message))


def characters_of(message: Message) -> int:
    """The characters that a model sees of a message: texts, thinking, calls with their arguments as JSON, images."""
    if isinstance(message, BashExecutionMessage):
        return len(message.command) + len(message.output)
    if isinstance(message, BranchSummaryMessage | CompactionSummaryMessage):
        return len(message.summary)
    if isinstance(message.content, str):
        return len(message.content)
    return sum(_block_characters(block) for block in message.content)


def _block_characters(block: TextContent | ThinkingContent | ToolCall | ImageContent) -> int:
    if isinstance(block, TextContent):
        return len(block.text)
    if isinstance(block, ThinkingContent):
        return len(block.thinking)
    if isinstance(block, ToolCall):
        return len(block.name) + len(codec.encode(block.arguments))
    return IMAGE_CHARACTERS
