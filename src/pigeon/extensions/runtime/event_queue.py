"""Events that wait for one extension: bounded, in order, and never in anybody's way.

A slow extension gets deltas put together, then loses them; a very slow one loses other events too, and that is told.
While a handler waits for a person, the events behind it are handled beside it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from pigeon.extensions.public.events import Event, MessageUpdate
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout

MOST_EVENTS = 1000
MOST_UPDATES = 200
LONGEST_DELTA = 16 * 1024
Deliver = Callable[[Event, PausableTimeout], Awaitable[None]]


class EventQueue:
    """The events of one extension. Used on the protocol's loop only."""

    def __init__(self, deliver: Deliver, lost: Callable[[int], None], seconds: float) -> None:
        self._deliver = deliver
        self._lost = lost
        self._seconds = seconds
        self._waiting: deque[Event] = deque()
        self._updates = 0
        self._dropped = 0
        self._worker: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()

    def put(self, event: Event) -> None:
        """Take an event; returns at once."""
        if isinstance(event, MessageUpdate):
            if self._merged(event):
                return
            if self._updates >= MOST_UPDATES:
                return
            self._updates += 1
        elif len(self._waiting) - self._updates >= MOST_EVENTS:
            self._dropped += 1
            return
        self._waiting.append(event)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def drained(self, seconds: float) -> None:
        """Wait until everything so far was delivered, but no longer than this."""
        if self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker}, timeout=seconds)

    def close(self) -> None:
        """Deliver nothing more."""
        self._waiting.clear()
        for task in (self._worker, *self._beside):
            if task is not None:
                task.cancel()

    def _merged(self, event: MessageUpdate) -> bool:
        """Make one of this delta and the one before, if both are more of the same block."""
        last = self._waiting[-1] if self._waiting else None
        if not isinstance(last, MessageUpdate) or not event.kind.endswith("_delta"):
            return False
        if (last.kind, last.index) != (event.kind, event.index) or len(last.delta) > LONGEST_DELTA:
            return False
        last.delta += event.delta
        return True

    async def _work(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            if isinstance(event, MessageUpdate):
                self._updates -= 1
            await self._one(event)
            if self._dropped and not self._waiting:
                dropped, self._dropped = self._dropped, 0
                self._lost(dropped)

    async def _one(self, event: Event) -> None:
        timeout = PausableTimeout(self._seconds)
        delivery = asyncio.ensure_future(self._delivered(event, timeout))
        asks = asyncio.ensure_future(timeout.in_dialog.wait())
        try:
            await asyncio.wait({delivery, asks}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            delivery.cancel()
            raise
        finally:
            asks.cancel()
        if not delivery.done():
            self._beside.add(delivery)
            delivery.add_done_callback(self._beside.discard)

    async def _delivered(self, event: Event, timeout: PausableTimeout) -> None:
        await self._deliver(event, timeout)
