"""Figures with their uncertainty: rates by Wilson's interval, means by Student's, pairs by their differences.

All intervals are 95 %. They are computed here in a few lines each, without a library.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt

from msgspec import Struct

Z = 1.959964
# Student's t for 1 to 30 degrees of freedom, two-sided 95 %.
T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Estimate(Struct, frozen=True):
    """A value with its 95 % confidence interval; both ends equal the value if nothing is known about it."""

    value: float
    low: float
    high: float
    count: int

    @property
    def is_clear(self) -> bool:
        """Whether zero is outside the interval: the difference is probably not chance."""
        return self.count > 1 and (self.low > 0 or self.high < 0)


def success_rate(successes: int, count: int) -> Estimate:
    """The share of successes, with Wilson's interval, which holds for few tasks and for shares near 0 and 1, too."""
    if not count:
        return Estimate(0.0, 0.0, 1.0, 0)
    share, z2 = successes / count, Z * Z
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z / (1 + z2 / count) * sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half), count)


class Sample(Struct):
    """A sample of which only sums are kept, so that it may have any size."""

    count: int = 0
    total: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Add a value by Welford's method, which loses no precision for large values."""
        self.count += 1
        self.total += value
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)

    @property
    def estimate(self) -> Estimate:
        """The mean, with Student's interval."""
        if self.count < 2:
            return Estimate(self.mean, self.mean, self.mean, self.count)
        half = _student_t(self.count - 1) * sqrt(self.squares / (self.count - 1) / self.count)
        return Estimate(self.mean, self.mean - half, self.mean + half, self.count)


def _student_t(freedom: int) -> float:
    """Student's t for so many degrees of freedom, two-sided 95 %; beyond the table by its series in 1/freedom."""
    if freedom <= len(T):
        return T[freedom - 1]
    return Z + (Z**3 + Z) / (4 * freedom) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)


def paired_difference(both: int, better: int, worse: int, neither: int) -> Estimate:
    """How much higher the second success rate is than the first, over the same tasks.

    `better` succeeded only the second time, `worse` only the first. The interval is Newcombe's for pairs (his method
    10): it joins the intervals of Wilson, so that it has a width even if no task flipped.
    """
    count = both + better + worse + neither
    if not count:
        return Estimate(0.0, -1.0, 1.0, 0)
    first, second = success_rate(both + worse, count), success_rate(both + better, count)
    spread = sqrt(float((both + worse) * (better + neither) * (both + better) * (worse + neither)))
    product = float(both * neither - better * worse)
    if product > 0:
        product = max(product - count / 2, 0.0)
    together = product / spread if spread else 0.0

    def joint_width(one: float, other: float) -> float:
        return sqrt(max(0.0, one * one - 2 * together * one * other + other * other))

    change = second.value - first.value
    low = change - joint_width(second.value - second.low, first.high - first.value)
    high = change + joint_width(second.high - second.value, first.value - first.low)
    return Estimate(change, max(-1.0, low), min(1.0, high), count)


def median(values: Sequence[float]) -> float:
    """The value in the middle, or 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def flip_probability(better: int, worse: int) -> float:
    """The probability of flips at least as uneven as these if both batches are equally good.

    McNemar's exact test: of tasks that flipped, each would be as likely to flip one way as the other.
    """
    count = better + worse
    if not count:
        return 1.0
    if count > 1000:
        # The exact sums get long, and the normal distribution is as good.
        from statistics import NormalDist

        return 2 * (1 - NormalDist().cdf(max(0.0, abs(better - worse) - 1) / sqrt(count)))
    tail = sum(comb(count, k) for k in range(min(better, worse) + 1))
    return min(1.0, float(2 * tail / 2**count))
