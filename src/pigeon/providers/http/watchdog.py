"""Notices silence: a wait that brings no content for too long is broken off.

Pings and comments are not content. Only waiting counts: while the consumer is slow, the clock stands. One lazy timer
serves a whole stream, so a chunk costs two assignments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


class Stalled(Exception):
    """Nothing came within the allowed time."""


class Watchdog:
    """Guards the waits of one stream; a limit of 0 never bites."""

    def __init__(self, limit_s: float) -> None:
        self._limit = limit_s
        self._loop = asyncio.get_running_loop()
        self._left = limit_s
        self._began = 0.0
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._bitten = False

    def fed(self) -> None:
        """Content came: the full time is there again."""
        self._left = self._limit

    async def wait(self, awaitable: Awaitable[_T]) -> _T:
        """Await the next piece; raises `Stalled` when the time without content is used up."""
        if self._limit <= 0:
            return await awaitable
        loop = self._loop
        self._task = asyncio.current_task()
        self._began = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._left, self._look)
        try:
            return await awaitable
        except asyncio.CancelledError:
            task = self._task
            if self._bitten and task is not None and task.uncancel() == 0:
                raise Stalled from None
            raise
        finally:
            self._task = None
            self._left -= loop.time() - self._began

    def stop(self) -> None:
        """The stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._task is None:
            return
        left = self._left - (self._loop.time() - self._began)
        if left <= 0:
            self._bitten = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_later(left, self._look)
