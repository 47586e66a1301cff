"""The model record and the arithmetic of thinking levels."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.usage import ModelCost

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
NEEDS_EXPLICIT_SUPPORT = ("xhigh", "max")


class Model(Record, kw_only=True):
    """What a host may know of a model; keys and headers never travel in it."""

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

    @property
    def reference(self) -> str:
        """`provider/id`, as people write it."""
        return f"{self.provider}/{self.id}"


def levels_of(model: Model | None) -> list[ThinkingLevel]:
    """The thinking levels that the model supports, ascending."""
    if model is None or not model.reasoning:
        return ["off"]
    mapped = {} if isinstance(model.thinking_level_map, Absent) else model.thinking_level_map
    return [level for level in LEVELS if _supports(level, mapped)]


def _supports(level: ThinkingLevel, mapped: dict[str, str | None]) -> bool:
    if level in NEEDS_EXPLICIT_SUPPORT:
        return mapped.get(level) is not None
    return mapped.get(level, "") is not None


def clamped(level: ThinkingLevel, model: Model | None) -> ThinkingLevel:
    """The nearest supported level: upwards first, then downwards."""
    supported = levels_of(model)
    if level in supported:
        return level
    rank = LEVELS.index(level)
    above = [candidate for candidate in supported if LEVELS.index(candidate) > rank]
    return above[0] if above else supported[-1]
