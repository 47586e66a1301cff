"""Event loops whose clock jumps: by themselves from one deadline to the next, or when a test says so."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
TURNS = 20


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
