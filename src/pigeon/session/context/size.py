"""How large the context is: the provider's count where there is one, an estimate for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.session.context.model_context import context_of, message_of
from pigeon.session.history.entry_line import EntryLine
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Usage
from pigeon.wire.tokens import message_tokens


def used_tokens(usage: Usage) -> int:
    """The size of a request and its answer."""
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def branch_tokens(branch: Sequence[EntryLine]) -> int:
    """The size of a path's context; counts from before the last compaction or edit are not trusted."""
    later = 0
    for line in reversed(branch):
        if line.type in ("compaction", "context_edit"):
            return sum(map(message_tokens, context_of(branch)))
        message = message_of(line)
        if isinstance(message, AssistantMessage) and _counts(message):
            return used_tokens(message.usage) + later
        later += message_tokens(message) if message is not None else 0
    return later


def _counts(message: AssistantMessage) -> bool:
    return message.stop_reason not in ("error", "aborted") and used_tokens(message.usage) > 0
