"""Durations in words."""

from __future__ import annotations

import pytest

from pigeon.system.clock import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0 s"),
        (0.4, "0 s"),
        (9.6, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min 0 s"),
        (125.0, "2 min 5 s"),
        (3599.6, "1 h 0 min"),
        (15_000.0, "4 h 10 min"),
        (100_800.0, "28 h 0 min"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(-0.01, "0.0 s"), (3.21, "3.2 s"), (9.94, "9.9 s"), (9.97, "10 s")])
def test_short_durations_may_have_tenths(seconds: float, text: str) -> None:
    assert duration_text(seconds, tenths=True) == text
