"""Events for one extension: bounded, in order, and without delaying the session.

Handlers *begin* in the order of the events, always, and also before a handler that is called later begins. Usually they
run one after another as well: the next begins when the previous one has returned. Two things make the queue continue
without that: a handler that waits for a person (its dialog may be open for hours), and a caller that has waited long
enough for the extension to catch up. The earlier handlers then run in parallel with the later ones.

For a slow extension deltas are merged, then dropped; a very slow one loses other events too, which is reported.
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
        # A future among the events marks the place of a caller in `wait_until_caught_up`.
        self._waiting: deque[Event | asyncio.Future[None]] = deque()
        self._events = 0
        self._updates = 0
        self._dropped = 0
        self._hurried: set[asyncio.Future[None]] = set()
        self._hurry = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Future[Any]] = set()

    def put(self, event: Event) -> None:
        """Add an event; returns at once."""
        if isinstance(event, MessageUpdate):
            if self._try_merge(event) or self._updates >= MOST_UPDATES:
                return
            self._updates += 1
        elif self._events + len(self._beside) >= MOST_EVENTS:
            self._dropped += 1
            return
        else:
            self._events += 1
        self._enqueue(event)

    async def wait_until_caught_up(self, seconds: float) -> None:
        """Wait until all events so far were handled; after so many seconds, until their handlers have at least
        begun."""
        if self._worker is None or self._worker.done():
            return
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, self._stop_waiting_before, place)
        self._enqueue(place)
        try:
            await place
        finally:
            timer.cancel()
            place.cancel()
            self._hurried.discard(place)
            if not self._hurried:
                self._hurry.clear()

    def close(self) -> None:
        """Drop waiting events and cancel deliveries."""
        for item in self._waiting:
            if isinstance(item, asyncio.Future) and not item.done():
                item.set_result(None)
        self._waiting.clear()
        for task in (self._worker, *self._beside):
            if task is not None:
                task.cancel()

    def _stop_waiting_before(self, place: asyncio.Future[None]) -> None:
        """Let the worker begin everything before this place without waiting for it."""
        self._hurried.add(place)
        self._hurry.set()

    def _enqueue(self, item: Event | asyncio.Future[None]) -> None:
        self._waiting.append(item)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._deliver_events())

    def _try_merge(self, event: MessageUpdate) -> bool:
        """Merge this delta with the previous one, if both extend the same block."""
        last = self._waiting[-1] if self._waiting else None
        if not isinstance(last, MessageUpdate) or not event.kind.endswith("_delta"):
            return False
        if (last.kind, last.index) != (event.kind, event.index) or len(last.delta) > LONGEST_DELTA:
            return False
        self._waiting[-1] = replace(last, delta=last.delta + event.delta)
        return True

    async def _deliver_events(self) -> None:
        while self._waiting:
            item = self._waiting.popleft()
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
                await asyncio.sleep(0)  # the caller's handler begins before those of the events behind its place
                continue
            if isinstance(item, MessageUpdate):
                self._updates -= 1
            else:
                self._events -= 1
            for handler in list(self._handlers(type(item))):
                if handler.should_handle(item):
                    await self._call_handler(handler, item)
            if self._dropped and not self._waiting:
                dropped, self._dropped = self._dropped, 0
                self._lost(dropped)

    async def _call_handler(self, handler: Handler, event: Event) -> None:
        """Call a handler, and wait for it as long as there is reason to."""
        timeout = PausableTimeout(HANDLER_SECONDS)
        delivery: asyncio.Future[Any] = asyncio.ensure_future(self._deliver(handler, event, timeout))
        reasons: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(one.wait()) for one in (timeout.in_dialog, self._hurry)
        ]
        try:
            await asyncio.wait([delivery, *reasons], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            delivery.cancel()
            raise
        finally:
            for reason in reasons:
                reason.cancel()
        if not delivery.done():
            self._beside.add(delivery)
            delivery.add_done_callback(self._beside.discard)
