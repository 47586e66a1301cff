"""Events that one extension is told of: bounded, in order, and without delaying the session.

While a handler waits for a person, the events behind it are handled beside it.

A slow extension gets deltas put together, then loses them; a very slow one loses other events too, and that is
reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from pigeon.extensions.public.api import Handler
from pigeon.extensions.public.events import Event, MessageUpdate
from pigeon.extensions.runtime.pausable_timeout import HANDLER_SECONDS, PausableTimeout

MOST_EVENTS = 1000
MOST_UPDATES = 200
LONGEST_DELTA = 16 * 1024
Deliver = Callable[[Handler, Event, PausableTimeout], Coroutine[Any, Any, None]]


class EventQueue:
    """The events of one extension. Used on the session's loop only."""

    def __init__(
        self,
        handlers: Callable[[type[Event]], Sequence[Handler]],
        deliver: Deliver,
        lost: Callable[[int], None],
    ) -> None:
        self._handlers = handlers
        self._deliver = deliver
        self._lost = lost
        self._waiting: deque[Event] = deque()
        self._events = 0
        self._updates = 0
        self._dropped = 0
        self._worker: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Future[Any]] = set()

    def put(self, event: Event) -> None:
        """Take an event; returns at once."""
        if isinstance(event, MessageUpdate):
            if self._merged(event) or self._updates >= MOST_UPDATES:
                return
            self._updates += 1
        elif self._events + len(self._beside) >= MOST_EVENTS:
            self._dropped += 1
            return
        else:
            self._events += 1
        self._add(event)

    async def caught_up(self, seconds: float) -> None:
        """Wait until everything was handled, but no longer than this."""
        if self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker}, timeout=seconds)

    def close(self) -> None:
        """Deliver nothing more."""
        self._waiting.clear()
        for task in (self._worker, *self._beside):
            if task is not None:
                task.cancel()

    def _add(self, item: Event) -> None:
        self._waiting.append(item)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def _merged(self, event: MessageUpdate) -> bool:
        """Make one of this delta and the one before, if both are more of the same block."""
        last = self._waiting[-1] if self._waiting else None
        if not isinstance(last, MessageUpdate) or not event.kind.endswith("_delta"):
            return False
        if (last.kind, last.index) != (event.kind, event.index) or len(last.delta) > LONGEST_DELTA:
            return False
        self._waiting[-1] = replace(last, delta=last.delta + event.delta)
        return True

    async def _work(self) -> None:
        while self._waiting:
            item = self._waiting.popleft()
            if isinstance(item, MessageUpdate):
                self._updates -= 1
            else:
                self._events -= 1
            for handler in list(self._handlers(type(item))):
                if handler.wants(item):
                    await self._begin(handler, item)
            if self._dropped and not self._waiting:
                dropped, self._dropped = self._dropped, 0
                self._lost(dropped)

    async def _begin(self, handler: Handler, event: Event) -> None:
        """Call a handler, and wait for it as long as there is reason to."""
        timeout = PausableTimeout(HANDLER_SECONDS)
        delivery: asyncio.Future[Any] = asyncio.ensure_future(self._deliver(handler, event, timeout))
        asks: asyncio.Future[Any] = asyncio.ensure_future(timeout.in_dialog.wait())
        try:
            await asyncio.wait([delivery, asks], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            delivery.cancel()
            raise
        finally:
            asks.cancel()
        if not delivery.done():
            self._beside.add(delivery)
            delivery.add_done_callback(self._beside.discard)
