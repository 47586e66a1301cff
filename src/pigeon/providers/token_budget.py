"""Shared arithmetic of requests: how much context there is, how long an answer may be, how much of it is thinking."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from pigeon.agent.inference import ModelMessage, ModelRequest
from pigeon.wire import codec
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Model
from pigeon.wire.tokens import characters_of, estimated_tokens

SAFETY_TOKENS = 4096
ANSWER_TOKENS = 1024
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}


def estimated_context(request: ModelRequest) -> int:
    """Tokens of the prompt: what the last answer was billed for, and a quarter of the characters since."""
    billed = _last_billed(request.messages)
    chars = sum(map(characters_of, request.messages[billed + 1 :]))
    if billed >= 0:
        answer = request.messages[billed]
        assert isinstance(answer, AssistantMessage)
        return answer.usage.total_tokens + estimated_tokens(chars, round_up=False)
    chars += len(request.system_prompt)
    chars += sum(len(tool.name) + len(tool.description) + len(codec.encode(tool.parameters)) for tool in request.tools)
    return estimated_tokens(chars, round_up=False)


def _last_billed(messages: list[ModelMessage]) -> int:
    """The last answer with counts that still hold: none after which older history was replaced by something newer."""
    newest = [0, *accumulate((message.timestamp for message in messages), max)]
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        counted = isinstance(message, AssistantMessage) and _counts(message)
        if counted and message.timestamp >= newest[index]:
            return index
    return -1


def _counts(message: AssistantMessage) -> bool:
    return message.stop_reason not in ("error", "aborted") and message.usage.total_tokens > 0


def output_cap(request: ModelRequest) -> int:
    """The longest answer to ask for, at least 1; 0 when neither the request nor the model names one."""
    wanted = request.max_tokens or request.model.max_tokens
    if wanted <= 0:
        return 0
    return within_window(wanted, request)


def within_window(tokens: int, request: ModelRequest) -> int:
    """As many tokens as fit behind the prompt."""
    window = request.model.context_window
    if window <= 0:
        return tokens
    safety = min(SAFETY_TOKENS, window // 10)
    return max(1, min(tokens, window - estimated_context(request) - safety))


def thinking_budget(level: str, own: Mapping[str, int]) -> int:
    """Tokens for thinking at a level; the highest levels use those of `high`."""
    if level in own:
        return own[level]
    if level in BUDGETS:
        return BUDGETS[level]
    return own.get("high", BUDGETS["high"])


def thinking_share(level: str, own: Mapping[str, int], cap: int) -> int:
    """Tokens for thinking out of an answer of at most `cap` tokens, 0 for any length; 0 if there is room for none."""
    budget = thinking_budget(level, own)
    return min(budget, max(0, cap - ANSWER_TOKENS)) if cap else budget


def split_budget(request: ModelRequest, own: Mapping[str, int]) -> tuple[int, int]:
    """(output tokens, thinking tokens of them) for providers that count both together."""
    model: Model = request.model
    budget = thinking_budget(request.thinking, own)
    base = request.max_tokens or model.max_tokens or budget + ANSWER_TOKENS
    ceiling = model.max_tokens or base + budget
    total = min(base + budget, ceiling)
    if total <= budget:
        budget = max(0, total - ANSWER_TOKENS)
    total = within_window(total, request)
    return total, max(0, min(budget, total - ANSWER_TOKENS))
