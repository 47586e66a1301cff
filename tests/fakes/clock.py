"""Clocks of tests: event loops whose clock jumps, and a limit of time that holds on a busy machine.

The clock of a virtual loop jumps by itself from one deadline to the next, or when a test moves it (`LoopClock`).
`within` does not count what processes wait for a processor: the kernel counts that for the whole machine
(`/proc/pressure/cpu`, in microseconds); where it does not, the limit is for the wall clock.
"""

from __future__ import annotations

import asyncio
import re
import selectors
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
TURNS = 20
PRESSURE = Path("/proc/pressure/cpu")


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.skipped += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.skipped


def virtually(work: Coroutine[Any, Any, _T]) -> _T:
    """Run work that only waits for time, without waiting."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(work)


class LoopClock:
    """The clock of the running event loop, an ordinary one, that a test moves; made before what is to be hurried."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        self._ahead = 0.0
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    async def advance(self, seconds: float) -> None:
        """Let time pass: what was to happen meanwhile has happened then."""
        self._ahead += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What happens inside takes less than this, given the processors that it asks for."""
    began, stalled = time.monotonic(), _stalled_seconds()
    yield
    took = time.monotonic() - began - (_stalled_seconds() - stalled)
    assert took < seconds, f"it took {took:.2f} seconds"


def _stalled_seconds() -> float:
    """Seconds since the machine started in which something that could run did not."""
    try:
        found = re.search(r"some .*total=(\d+)", PRESSURE.read_text())
    except OSError:
        found = None
    return int(found[1]) / 1e6 if found else 0.0
