"""An event loop whose clock jumps: a wait costs no time, and everything happens in the order of its deadline."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


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
