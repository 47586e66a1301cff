"""What all tasks of a batch share: requests and tokens per minute of each provider, pauses after a refusal, and money.

One object in the driver, or in an actor on a cluster, decides for all tasks; their processes ask it over their link
(`task_link.py`). Requests are assigned times one after the other, spaced by the provider's rate, so that no minute has
more of them than allowed. A refusal for lack of capacity (429) pauses all requests to the provider, for as long as the
server asks, otherwise twice as long each time; after the pause they resume one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

MINUTE = 60.0
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
# Between requests that waited for the end of a pause.
AFTER_PAUSE = 0.05


class Rate(Struct, frozen=True, kw_only=True):
    """What a provider allows per minute; None for no limit.

    Attributes:
        requests: the most requests
        tokens: the most tokens, of prompts and answers together
    """

    requests: float | None = None
    tokens: float | None = None


class _ProviderTimes:
    """When the next request to a provider may be sent."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.next_request = 0.0
        self.next_token = 0.0
        self.paused_until = 0.0
        self.refusals = 0

    def assign_slot(self, now: float, tokens: int) -> float:
        """Assign the next free time to a request, and return it."""
        at = max(now, self.next_request, self.next_token, self.paused_until)
        gap = MINUTE / self.rate.requests if self.rate.requests else 0.0
        self.next_request = at + (max(gap, AFTER_PAUSE) if now < self.paused_until else gap)
        self.spend_tokens(at, tokens)
        return at

    def spend_tokens(self, at: float, tokens: float) -> None:
        """Delay the next request by what these tokens take; a negative number gives time back."""
        if self.rate.tokens:
            self.next_token = max(self.next_token, at) + tokens * MINUTE / self.rate.tokens

    def pause(self, now: float, seconds: float | None) -> None:
        """Send nothing for a while, because the provider refuses. Refusals during a pause belong to the same burst."""
        if seconds is None:
            if now < self.paused_until:
                return
            seconds = min(FIRST_PAUSE * 2**self.refusals, LONGEST_PAUSE)
            self.refusals += 1
        self.paused_until = max(self.paused_until, now + seconds)


class SharedLimits:
    """Decides about the requests and the money of a batch; `spent` is what was spent earlier.

    Each task has a share of the money: its own limit, or its expected cost. `reserve` sets a share aside before a task
    starts, so that the running tasks together stay within what is left.
    """

    def __init__(
        self,
        rates: Mapping[str, Rate],
        max_cost: float | None = None,
        spent: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates = dict(rates)
        self._max_cost = max_cost
        self._total = spent
        self._now = now
        self._providers: dict[str, _ProviderTimes] = {}
        self._shares: dict[str, float] = {}
        self._used: dict[str, float] = {}

    # Requests

    def reserve_turn(self, provider: str, tokens: int) -> float:
        """Assign a time to a request; returns the seconds until then; the caller then calls `remaining_wait`."""
        now = self._now()
        return self._ensure_provider_times(provider).assign_slot(now, tokens) - now

    def remaining_wait(self, provider: str) -> float:
        """How much longer a request must wait after its time: the provider may have refused others meanwhile."""
        times, now = self._ensure_provider_times(provider), self._now()
        if now >= times.paused_until:
            return 0.0
        return times.assign_slot(now, 0) - now

    def find_provider_pauses(self) -> dict[str, float]:
        """The providers to which nothing is sent now because they refuse, and for how many seconds."""
        now = self._now()
        found = {name: times.paused_until - now for name, times in self._providers.items()}
        return {name: seconds for name, seconds in found.items() if seconds > 0}

    def record_request_end(self, provider: str, more_tokens: int, is_refused: bool, seconds: float | None) -> None:
        """Record the end of a request: how many more tokens it used than expected, and whether it was refused."""
        times, now = self._ensure_provider_times(provider), self._now()
        if more_tokens:
            times.spend_tokens(now, more_tokens)
        if is_refused:
            times.pause(now, seconds)
        else:
            times.refusals = 0

    def _ensure_provider_times(self, provider: str) -> _ProviderTimes:
        times = self._providers.get(provider)
        if times is None:
            times = self._providers[provider] = _ProviderTimes(
                self._rates.get(provider) or self._rates.get("*", Rate())
            )
        return times

    # Money

    def reserve_money(self, task: str, share: float) -> bool:
        """Reserve money for a task; returns False if too little is left after what others may still use."""
        if self._max_cost is not None:
            open_shares = sum(max(0.0, kept - self._used[other]) for other, kept in self._shares.items())
            left = self._max_cost - self._total - open_shares
            if left <= 0 or share > left:
                return False
        self._shares[task] = share
        self._used[task] = 0.0
        return True

    def spend_and_check_exhausted(self, task: str, dollars: float) -> bool:
        """Counts what a task has spent; returns True if the batch has now reached its maximum."""
        self._total += dollars
        self._used[task] = self._used.get(task, 0.0) + dollars
        return self.is_exhausted

    def release_money(self, task: str) -> float:
        """Release a task's share and return what the task has spent."""
        self._shares.pop(task, None)
        return self._used.pop(task, 0.0)

    def raise_total_cost(self, at_least: float) -> None:
        """Raise the total to at least this, which the driver knows from before the actor was restarted."""
        self._total = max(self._total, at_least)

    @property
    def total_cost(self) -> float:
        return self._total

    @property
    def is_exhausted(self) -> bool:
        return self._max_cost is not None and self._total >= self._max_cost
