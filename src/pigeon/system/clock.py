"""Time: the wall clock for timestamps, the monotonic clock for waiting, the pace of playbacks, and an event loop whose
time-outs count only the time in which the process could work."""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from datetime import UTC, datetime
from typing import Any

STANDSTILL = 1.0


def now_ms() -> int:
    """Milliseconds since the epoch by the system clock."""
    return time.time_ns() // 1_000_000


def to_iso(ms: int) -> str:
    """A time in UTC as text: `YYYY-MM-DDTHH:MM:SS.mmmZ`."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03d}Z"


def monotonic_ms() -> int:
    """Milliseconds of a clock that never jumps."""
    return time.monotonic_ns() // 1_000_000


async def sleep_ms(ms: float) -> None:
    await asyncio.sleep(ms / 1000)


def parse_speed(text: str) -> float | None:
    """The factor of the recorded speed, 0 for as fast as possible; None if it is not a speed."""
    if text == "max":
        return 0
    try:
        speed = float(text)
    except ValueError:
        return None
    return speed if 0 < speed < 1e9 else None


class PlaybackPace:
    """The pace of a playback: recorded times divided by a speed; no pauses with the speed 0."""

    def __init__(self, speed: float, longest_gap: float = math.inf) -> None:
        self._speed = speed
        self._longest = longest_gap

    async def pause(self, ms: float) -> None:
        """Wait for so much recorded time; not at all if it is unknown."""
        known = self._speed and 0 < ms < math.inf
        await asyncio.sleep(min(ms / 1000 / self._speed, self._longest) if known else 0)


def duration_text(seconds: float, tenths: bool = False) -> str:
    """A duration for people:  `3 s`, `2 min 5 s`, `4 h 10 min`.

    With `tenths`, durations below ten seconds have a decimal: `3.2 s`.
    """
    # Decided by the rounded value, so that nothing takes 60 seconds.
    if tenths and round(seconds, 1) < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class _WatchedSelector(selectors.DefaultSelector):
    """Adds up the time in which the process could not do anything, in `lost`."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0.0
        self._seen = time.monotonic()

    def read_time_noting_loss(self) -> float:
        """The time now; a long gap since the last look, without waiting for anything, counts as lost."""
        now = time.monotonic()
        if now - self._seen > STANDSTILL:
            self.lost += now - self._seen
        self._seen = now
        return now

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait; a wait much longer than requested counts as lost."""
        before = self.read_time_noting_loss()
        ready = super().select(timeout)
        self._seen = time.monotonic()
        waited = self._seen - before
        if timeout is not None and waited > max(timeout, 0.0) + STANDSTILL:
            self.lost += waited
        return ready


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stops while the process is stopped.

    A process that was stopped (SIGSTOP, a debugger, a frozen container) would find all its time-outs expired when it
    continues, although it could not have read the input that came meanwhile: a good answer of a model would count as
    silence.
    """

    def __init__(self) -> None:
        self._watched = _WatchedSelector()
        super().__init__(self._watched)

    def time(self) -> float:
        """Seconds in which the process could work."""
        return self._watched.read_time_noting_loss() - self._watched.lost
