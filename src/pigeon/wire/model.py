"""Facts of a model: its record, prices and thinking levels, and the cost of an answer.

`price_usage` fills in the cost of counted tokens, `clamp_level` finds the thinking level that a model supports.
Providers, session and rpc use both, so that a figure is the same in an answer, in the statistics and in the session
file.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from pigeon.wire.base import ABSENT, Absent, Json, Record

Number = int | float


class Cost(Record, kw_only=True):
    """Costs in US dollars, by kind of token and in total."""

    input: Number = 0
    output: Number = 0
    cache_read: Number = 0
    cache_write: Number = 0
    total: Number = 0


class Usage(Record, kw_only=True):
    """Token counts; `input` excludes cached and cache-written tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost
    cache_write_1h: int | Absent = field(default=ABSENT, name="cacheWrite1h")
    reasoning: int | Absent = ABSENT


class CostTier(Record, kw_only=True):
    """Prices that apply to the whole request once its prompt is larger than `inputTokensAbove`."""

    input_tokens_above: int
    input: Number = 0
    output: Number = 0
    cache_read: Number = 0
    cache_write: Number = 0


class ModelCost(Record, kw_only=True):
    """US dollars per million tokens."""

    input: Number = 0
    output: Number = 0
    cache_read: Number = 0
    cache_write: Number = 0
    tiers: list[CostTier] | Absent = ABSENT


def plain_number(value: Number) -> Number:
    """The number as JSON prints it: an integral float becomes an int."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def zero_usage() -> Usage:
    """Usage before the provider has reported any."""
    return Usage(cost=Cost())


def sum_usage(one: Usage, other: Usage) -> Usage:
    """The sum of both; optional counts that only one of them has are kept."""
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        total_tokens=one.total_tokens + other.total_tokens,
        cost=Cost(
            input=one.cost.input + other.cost.input,
            output=one.cost.output + other.cost.output,
            cache_read=one.cost.cache_read + other.cost.cache_read,
            cache_write=one.cost.cache_write + other.cost.cache_write,
            total=one.cost.total + other.cost.total,
        ),
        cache_write_1h=_add_counts(one.cache_write_1h, other.cache_write_1h),
        reasoning=_add_counts(one.reasoning, other.reasoning),
    )


def subtract_usage(whole: Usage, part: Usage) -> Usage:
    """What is left of the whole, without the optional counts."""
    return Usage(
        input=whole.input - part.input,
        output=whole.output - part.output,
        cache_read=whole.cache_read - part.cache_read,
        cache_write=whole.cache_write - part.cache_write,
        total_tokens=whole.total_tokens - part.total_tokens,
        cost=Cost(
            input=whole.cost.input - part.cost.input,
            output=whole.cost.output - part.cost.output,
            cache_read=whole.cost.cache_read - part.cost.cache_read,
            cache_write=whole.cost.cache_write - part.cost.cache_write,
            total=whole.cost.total - part.cost.total,
        ),
    )


def _add_counts(one: int | Absent, other: int | Absent) -> int | Absent:
    if isinstance(one, Absent):
        return other
    return one if isinstance(other, Absent) else one + other


def price_usage(usage: Usage, prices: ModelCost, rate: float = 1) -> Usage:
    """The same counts with `totalTokens` and cost filled in; `rate` is the factor of a service tier for all prices."""
    prompt = usage.input + usage.cache_read + usage.cache_write
    rates: ModelCost | CostTier = prices
    if not isinstance(prices.tiers, Absent):
        for tier in sorted(prices.tiers, key=lambda t: t.input_tokens_above):
            if prompt > tier.input_tokens_above:
                rates = tier
    long_writes = 0 if isinstance(usage.cache_write_1h, Absent) else usage.cache_write_1h
    parts = (
        usage.input * rates.input / 1e6 * rate,
        usage.output * rates.output / 1e6 * rate,
        usage.cache_read * rates.cache_read / 1e6 * rate,
        ((usage.cache_write - long_writes) * rates.cache_write + long_writes * rates.input * 2) / 1e6 * rate,
    )
    cost = Cost(
        input=plain_number(parts[0]),
        output=plain_number(parts[1]),
        cache_read=plain_number(parts[2]),
        cache_write=plain_number(parts[3]),
        total=plain_number(sum(parts)),
    )
    return Usage(
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        total_tokens=prompt + usage.output,
        cost=cost,
        cache_write_1h=usage.cache_write_1h,
        reasoning=usage.reasoning,
    )


ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
NEEDS_EXPLICIT_SUPPORT = ("xhigh", "max")


class Model(Record, kw_only=True):
    """What a host may know of a model; it never has keys or headers."""

    id: str
    name: str
    api: str
    provider: str
    base_url: str
    reasoning: bool
    input: list[str]
    cost: ModelCost
    context_window: int
    max_tokens: int
    thinking_level_map: dict[str, str | None] | Absent = ABSENT
    compat: dict[str, Json] | Absent = ABSENT
    input_limits: dict[str, Json] | Absent = ABSENT
    prompt_cache: dict[str, Json] | Absent = ABSENT
    sampling_params: dict[str, Json] | Absent = ABSENT
    sampling_params_by_thinking_level: dict[str, dict[str, Json]] | Absent = ABSENT

    @property
    def reference(self) -> str:
        return f"{self.provider}/{self.id}"


def levels_of(model: Model | None) -> list[ThinkingLevel]:
    """The thinking levels that the model supports, ascending."""
    if model is None or not model.reasoning:
        return ["off"]
    mapped = {} if isinstance(model.thinking_level_map, Absent) else model.thinking_level_map
    return [level for level in LEVELS if _is_supported(level, mapped)]


def _is_supported(level: ThinkingLevel, mapped: dict[str, str | None]) -> bool:
    if level in NEEDS_EXPLICIT_SUPPORT:
        return mapped.get(level) is not None
    return mapped.get(level, "") is not None


def clamp_level(level: ThinkingLevel, model: Model | None) -> ThinkingLevel:
    """The nearest supported level: upwards first, then downwards."""
    supported = levels_of(model)
    if level in supported:
        return level
    rank = LEVELS.index(level)
    above = [candidate for candidate in supported if LEVELS.index(candidate) > rank]
    return above[0] if above else supported[-1]
