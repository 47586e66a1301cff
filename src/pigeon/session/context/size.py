"""How large the context is: the provider's count where there is one, an estimate for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.session.context.model_context import context_of, message_of
from pigeon.session.history.entry_line import EntryLine
from pigeon.wire import codec
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall
from pigeon.wire.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Message,
)
from pigeon.wire.model import Usage

CHARS_PER_TOKEN = 4
IMAGE_CHARS = 4800


def estimated_tokens(message: Message) -> int:
    """Characters divided by four, rounded up."""
    return -(-_characters(message) // CHARS_PER_TOKEN)


def size_of(text: str) -> int:
    """The same for a text."""
    return -(-len(text) // CHARS_PER_TOKEN)


def _characters(message: Message) -> int:
    if isinstance(message, BashExecutionMessage):
        return len(message.command) + len(message.output)
    if isinstance(message, (BranchSummaryMessage, CompactionSummaryMessage)):
        return len(message.summary)
    if isinstance(message.content, str):
        return len(message.content)
    return sum(_block_characters(block) for block in message.content)


def _block_characters(block: object) -> int:
    if isinstance(block, TextContent):
        return len(block.text)
    if isinstance(block, ThinkingContent):
        return len(block.thinking)
    if isinstance(block, ToolCall):
        return len(block.name) + len(codec.encode(block.arguments))
    return IMAGE_CHARS if isinstance(block, ImageContent) else 0


def used_tokens(usage: Usage) -> int:
    """The size of a request and its answer."""
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def branch_tokens(branch: Sequence[EntryLine]) -> int:
    """The size of a path's context; counts from before the last compaction or edit are not trusted."""
    later = 0
    for line in reversed(branch):
        if line.type in ("compaction", "context_edit"):
            return sum(map(estimated_tokens, context_of(branch)))
        message = message_of(line)
        if isinstance(message, AssistantMessage) and _counts(message):
            return used_tokens(message.usage) + later
        later += estimated_tokens(message) if message is not None else 0
    return later


def _counts(message: AssistantMessage) -> bool:
    return message.stop_reason not in ("error", "aborted") and used_tokens(message.usage) > 0
