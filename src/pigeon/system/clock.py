"""Time: the wall clock for what is written down, the monotonic clock for what is waited for, the pace of
what is played again, and an event loop whose time-outs count only the time in which the process could work."""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from datetime import UTC, datetime
from typing import Any

STANDSTILL = 1.0


def now_ms() -> int:
    """Returns the milliseconds since the epoch, by the clock of the system."""
    return time.time_ns() // 1_000_000


def to_iso(ms: int) -> str:
    """Returns a time in UTC as text: `YYYY-MM-DDTHH:MM:SS.mmmZ`."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03d}Z"


def monotonic_ms() -> int:
    """Milliseconds of a clock that never jumps."""
    return time.monotonic_ns() // 1_000_000


async def sleep_ms(ms: float) -> None:
    """Let so many milliseconds pass."""
    await asyncio.sleep(ms / 1000)


def speed_of(text: str) -> float | None:
    """Times the recorded speed, 0 for as fast as possible; None if it is no speed."""
    if text == "max":
        return 0
    try:
        speed = float(text)
    except ValueError:
        return None
    return speed if 0 < speed < 1e9 else None


class PlaybackPace:
    """How long things take that are played again: as long as they did, divided by a speed; no time with the speed 0."""

    def __init__(self, speed: float, longest_gap: float = math.inf) -> None:
        self._speed = speed
        self._longest = longest_gap

    async def pause(self, ms: float) -> None:
        """Wait for so much recorded time; for none if it is not known how long it was."""
        known = self._speed and 0 < ms < math.inf
        await asyncio.sleep(min(ms / 1000 / self._speed, self._longest) if known else 0)


def duration_text(seconds: float, tenths: bool = False) -> str:
    """How long something takes, as a person reads it: `3 s`, `2 min 5 s`, `4 h 10 min`.

    With `tenths`, what is shorter than ten seconds has a decimal: `3.2 s`.
    """
    # What is rounded decides, so that nothing takes 60 seconds.
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

    def observe(self) -> float:
        """The time now; a long while since the last look, without waiting for anything, was lost."""
        now = time.monotonic()
        if now - self._seen > STANDSTILL:
            self.lost += now - self._seen
        self._seen = now
        return now

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait; a wait much longer than was asked for was lost."""
        before = self.observe()
        ready = super().select(timeout)
        self._seen = time.monotonic()
        waited = self._seen - before
        if timeout is not None and waited > max(timeout, 0.0) + STANDSTILL:
            self.lost += waited
        return ready


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands while the process stands still.

    A process that was stopped (SIGSTOP, a debugger, a frozen container) finds all its time-outs over when it goes on,
    though it could not have read what came meanwhile: a good answer of a model would count as silence.
    """

    def __init__(self) -> None:
        self._watched = _WatchedSelector()
        super().__init__(self._watched)

    def time(self) -> float:
        """Seconds in which the process could work."""
        return self._watched.observe() - self._watched.lost
