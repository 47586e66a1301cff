"""All loaded extensions together: who listens, asking them one after another, telling them without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pigeon.extensions.public.api import Handler
from pigeon.extensions.public.events import Event
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.runtime.event_queue import EventQueue
from pigeon.extensions.runtime.loaded_extension import LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import HANDLER_SECONDS, PausableTimeout
from pigeon.wire.events import ExtensionError, Outbound

CATCH_UP_SECONDS = 1.0
MOST_HELD_REPORTS = 200
TOLD_EACH_TIME = 10
Take = Callable[["Answer"], bool]


class Reports:
    """Tells the host what went wrong in an extension; held back until there is a host.

    What goes wrong again and again, as with every delta, is told ten times and then at each power of ten.
    """

    def __init__(self) -> None:
        self._held: list[ExtensionError] = []
        self._post: Callable[[Outbound], None] | None = None
        self._told: dict[tuple[str, str], int] = {}

    def __call__(self, path: str, event: str, error: str) -> None:
        """Tell it, or keep it for later."""
        count = self._told[path, event] = self._told.get((path, event), 0) + 1
        if count > TOLD_EACH_TIME:
            if str(count).strip("0") != "1":
                return
            error = f"{error} (for the {count}th time)"
        report = ExtensionError(extension_path=path, event=event, error=error)
        if self._post is not None:
            self._post(report)
        elif len(self._held) < MOST_HELD_REPORTS:
            self._held.append(report)

    def to(self, post: Callable[[Outbound], None]) -> None:
        """From here on there is somebody to tell."""
        self._post = post
        held, self._held = self._held, []
        for report in held:
            post(report)


class Answer:
    """What one handler came to: a value, or the text of a failure that was reported already."""

    __slots__ = ("event", "failure", "loaded", "value")

    def __init__(self, loaded: LoadedExtension, event: Any, value: Any, failure: str | None) -> None:
        self.loaded = loaded
        self.event = event
        self.value = value
        self.failure = failure


class Dispatcher:
    """The extensions in the order in which they are asked."""

    def __init__(self, reports: Reports) -> None:
        self.reports = reports
        self.extensions: list[LoadedExtension] = []
        self._queues: dict[int, EventQueue] = {}

    def join(self, loaded: LoadedExtension) -> None:
        """Take an extension in; those of a lower rank come first."""
        self.extensions.append(loaded)
        self.extensions.sort(key=lambda one: one.source.rank)

    def listens(self, kind: type[Event]) -> bool:
        """True if anybody has a handler for the event."""
        return any(loaded.handlers(kind) for loaded in self.extensions)

    async def ask(
        self,
        kind: type[Event],
        make: Callable[[], Event],
        take: Take,
        allowed: tuple[type, ...] = (),
        extensions: list[LoadedExtension] | None = None,
    ) -> None:
        """Ask each handler with a fresh event and hand over what it came to, until `take` says that it is enough."""
        for loaded in list(self.extensions) if extensions is None else extensions:
            for handler in list(loaded.handlers(kind)):
                event = make()
                if not handler.wants(event):
                    continue
                await self._queue_of(loaded).drained(CATCH_UP_SECONDS)
                if take(await self._asked(loaded, handler, event, allowed)):
                    return

    def tell(self, event: Event) -> None:
        """Let everybody who listens know, without waiting."""
        for loaded in self.extensions:
            if loaded.handlers(type(event)):
                self._queue_of(loaded).put(event)

    async def ask_all(self, event: Event, seconds: float) -> None:
        """Ask everybody at once, each for at most this long; what they return does not matter."""

        async def one(loaded: LoadedExtension) -> None:
            await self._queue_of(loaded).drained(seconds / 2)
            for handler in list(loaded.handlers(type(event))):
                await self._asked(loaded, handler, event, (), seconds)

        listening = [loaded for loaded in self.extensions if loaded.handlers(type(event))]
        await asyncio.gather(*(one(loaded) for loaded in listening))

    def close(self) -> None:
        """Deliver nothing more and let the threads end."""
        for queue in self._queues.values():
            queue.close()
        for loaded in self.extensions:
            loaded.thread.close()

    def _queue_of(self, loaded: LoadedExtension) -> EventQueue:
        queue = self._queues.get(id(loaded))
        if queue is None:

            async def deliver(event: Event, timeout: PausableTimeout) -> None:
                for handler in list(loaded.handlers(type(event))):
                    if handler.wants(event):
                        await self._one(loaded, handler, event, timeout)

            def lost(count: int) -> None:
                self.reports(loaded.source.path, "queue", f"it was too slow: {count} events were not delivered to it")

            queue = EventQueue(deliver, lost, HANDLER_SECONDS)
            self._queues[id(loaded)] = queue
        return queue

    async def _asked(
        self,
        loaded: LoadedExtension,
        handler: Handler,
        event: Event,
        allowed: tuple[type, ...],
        seconds: float | None = None,
    ) -> Answer:
        timeout = PausableTimeout(handler.timeout if seconds is None else seconds)
        answer = await self._one(loaded, handler, event, timeout)
        if answer.failure is None and answer.value is not None and allowed and not isinstance(answer.value, allowed):
            may = ", ".join(kind.__name__ for kind in allowed)
            text = f"a handler returned {type(answer.value).__name__}; it may return {may} or nothing"
            self.reports(loaded.source.path, event.name, text)
            answer.value, answer.failure = None, text
        return answer

    async def _one(self, loaded: LoadedExtension, handler: Handler, event: Event, timeout: PausableTimeout) -> Answer:
        try:
            return Answer(loaded, event, await loaded.ask(handler, event, timeout), None)
        except ExtensionFailed as error:
            text = text_of_error(error)
            self.reports(loaded.source.path, event.name, text)
            return Answer(loaded, event, None, text)
