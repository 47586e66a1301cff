"""What hosts and models are told of a limit that ended a run."""

from __future__ import annotations

import pytest

from pigeon.wire.steering import LimitReached, describe_limit


@pytest.mark.parametrize(
    ("name", "allowed", "reached", "text"),
    [
        ("turns", 3, 3, "Limit reached: 3 turns are allowed, 3 are used"),
        ("tokens", 100, 120, "Limit reached: 100 tokens are allowed, 120 are used"),
        (
            "cost",
            0.5,
            0.25,
            "Limit reached: 0.25 of 0.5 US dollars are used, and the next request needs more than is left",
        ),
        ("seconds", 10, 9.5, "Limit reached: 10 seconds are allowed, 9.5 are used"),
        (
            "repeated_calls",
            3,
            4,
            "Stopped by the loop guard: the same tool calls were made 4 times in a row, and at most 3 are allowed "
            "(setting loopGuard)",
        ),
    ],
)
def test_the_text_says_which_limit_and_how_much_of_it_is_used(
    name: str, allowed: float, reached: float, text: str
) -> None:
    assert describe_limit(LimitReached(name=name, allowed=allowed, reached=reached)) == text
