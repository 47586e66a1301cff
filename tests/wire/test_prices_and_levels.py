"""What an answer costs, and which thinking levels a model has."""

from __future__ import annotations

import pytest

from pigeon.wire.model import (
    Cost,
    CostTier,
    Model,
    ModelCost,
    ThinkingLevel,
    Usage,
    clamp_level,
    levels_of,
    plain_number,
    price_usage,
    sum_usage,
    zero_usage,
)

PRICES = ModelCost(input=2, output=10, cache_read=0.5, cache_write=3)


def usage(**counts: int) -> Usage:
    """Counts without money."""
    return Usage(cost=zero_usage().cost, **counts)


def a_model(levels: dict[str, str | None] | None = None, reasoning: bool = True) -> Model:
    """A model that maps these levels."""
    return Model(
        id="m",
        name="M",
        api="a",
        provider="p",
        base_url="",
        reasoning=reasoning,
        input=["text"],
        cost=PRICES,
        context_window=1,
        max_tokens=1,
        **({} if levels is None else {"thinking_level_map": levels}),
    )


def test_each_kind_of_token_has_its_price_per_million() -> None:
    cost = price_usage(usage(input=1_000_000, output=500_000, cache_read=200_000, cache_write=100_000), PRICES).cost
    assert (cost.input, cost.output, cost.cache_read, cost.cache_write) == (2, 5, 0.1, pytest.approx(0.3))
    assert cost.total == pytest.approx(7.4)


def test_what_is_written_to_the_cache_for_an_hour_costs_twice_the_input() -> None:
    cost = price_usage(usage(cache_write=1_000_000, cache_write_1h=400_000), PRICES).cost
    assert cost.cache_write == pytest.approx(0.6 * 3 + 0.4 * 2 * 2)


def test_all_tokens_are_in_the_total_and_the_counts_stay() -> None:
    counted = price_usage(usage(input=1, output=2, cache_read=4, cache_write=8, reasoning=1, cache_write_1h=3), PRICES)
    assert counted.total_tokens == 15
    assert (counted.input, counted.output, counted.cache_read, counted.cache_write) == (1, 2, 4, 8)
    assert (counted.reasoning, counted.cache_write_1h) == (1, 3)


def test_a_service_tier_changes_every_price() -> None:
    cost = price_usage(usage(input=1_000_000, output=1_000_000), PRICES, rate=0.5).cost
    assert (cost.input, cost.output, cost.total) == (1, 5, 6)


@pytest.mark.parametrize(("tokens", "price"), [(1_000, 2), (100_000, 2), (100_001, 4), (200_000, 4), (200_001, 8)])
def test_the_highest_tier_below_the_prompt_holds_in_whatever_order_they_are_listed(tokens: int, price: int) -> None:
    tiers = [CostTier(input_tokens_above=200_000, input=8), CostTier(input_tokens_above=100_000, input=4)]
    for listed in (tiers, tiers[::-1]):
        cost = price_usage(usage(input=tokens), ModelCost(input=2, tiers=listed)).cost
        assert cost.input == pytest.approx(tokens * price / 1e6)


def test_the_cached_part_of_a_prompt_counts_for_its_tier() -> None:
    prices = ModelCost(input=2, tiers=[CostTier(input_tokens_above=10, input=4)])
    assert price_usage(usage(input=5, cache_read=3, cache_write=3), prices).cost.input == pytest.approx(20 / 1e6)
    assert price_usage(usage(input=5, output=50), prices).cost.input == pytest.approx(10 / 1e6)


@pytest.mark.parametrize(("number", "printed"), [(2.0, int), (2.5, float), (2, int), (2.0**53, float)])
def test_a_whole_number_is_printed_as_one(number: float, printed: type) -> None:
    assert type(plain_number(number)) is printed


def test_a_model_without_reasoning_and_no_model_are_off() -> None:
    assert levels_of(None) == levels_of(a_model(reasoning=False)) == ["off"]
    assert clamp_level("high", None) == "off"


@pytest.mark.parametrize(
    ("mapped", "levels"),
    [
        (None, ["off", "minimal", "low", "medium", "high"]),
        ({"xhigh": "x", "minimal": None}, ["off", "low", "medium", "high", "xhigh"]),
        ({"max": "m", "off": None}, ["minimal", "low", "medium", "high", "max"]),
        ({"xhigh": None, "high": "h"}, ["off", "minimal", "low", "medium", "high"]),
    ],
)
def test_the_highest_levels_need_to_be_named_and_null_takes_one_away(
    mapped: dict[str, str | None] | None, levels: list[str]
) -> None:
    assert levels_of(a_model(mapped)) == levels


@pytest.mark.parametrize(
    ("asked", "given"),
    [("off", "low"), ("minimal", "low"), ("low", "low"), ("medium", "high"), ("high", "high"), ("max", "high")],
)
def test_the_nearest_level_is_looked_for_upwards_first(asked: ThinkingLevel, given: str) -> None:
    assert clamp_level(asked, a_model({"off": None, "minimal": None, "medium": None})) == given


def test_a_model_is_named_with_its_provider() -> None:
    assert a_model().reference == "p/m"


def test_usages_are_summed_with_what_only_one_of_them_counts() -> None:
    one = Usage(input=1, output=2, cache_read=3, cache_write=4, total_tokens=5, reasoning=6,
                cost=Cost(input=6, output=7, cache_read=8, cache_write=9, total=10))  # fmt: skip
    other = Usage(input=10, output=20, cache_read=30, cache_write=40, total_tokens=50, cache_write_1h=7,
                  cost=Cost(input=60, output=70, cache_read=80, cache_write=90, total=100))  # fmt: skip
    assert sum_usage(one, other) == Usage(
        input=11, output=22, cache_read=33, cache_write=44, total_tokens=55, reasoning=6, cache_write_1h=7,
        cost=Cost(input=66, output=77, cache_read=88, cache_write=99, total=110))  # fmt: skip
    assert sum_usage(one, one).reasoning == 12
