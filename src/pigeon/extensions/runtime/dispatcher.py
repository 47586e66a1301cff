"""All loaded extensions of one agent: which of them listen, calling them one after another, notifying them without
waiting. `adapters/hooks.py`, `gate.py` and `event_forwarding.py` reach extensions only through this."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from pigeon.extensions.public.api import Handler
from pigeon.extensions.public.events import Event, SessionStart
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.runtime.event_queue import EventQueue
from pigeon.extensions.runtime.loaded_extension import LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.wire.events import ExtensionError, Outbound

CATCH_UP_SECONDS = 1.0
REPORTED_EACH_TIME = 10
Take = Callable[["Answer"], bool]


class FailureReports:
    """Reports failures of extensions as `extension_error`.

    A failure that repeats, such as with every delta, is reported ten times and then at each power of ten.
    """

    def __init__(self, post: Callable[[Outbound], None]) -> None:
        self._post = post
        self._counts: dict[tuple[str, str], int] = {}

    def __call__(self, path: str, event: str, error: str) -> None:
        """Report a failure of the extension at `path`."""
        count = self._counts[path, event] = self._counts.get((path, event), 0) + 1
        if count > REPORTED_EACH_TIME:
            if str(count).strip("0") != "1":
                return
            error = f"{error} (occurrence {count})"
        self._post(ExtensionError(extension_path=path, event=event, error=error))


class Answer:
    """The result of one handler: a value, or the text of a failure that was reported already."""

    __slots__ = ("event", "failure", "loaded", "value")

    def __init__(self, loaded: LoadedExtension, event: Any, value: Any, failure: str | None) -> None:
        self.loaded = loaded
        self.event = event
        self.value = value
        self.failure = failure


class Dispatcher:
    """The extensions in the order in which they are called. Used on the session's loop only."""

    def __init__(self, reports: FailureReports) -> None:
        self.reports = reports
        self.extensions: list[LoadedExtension] = []
        self._queues: dict[LoadedExtension, EventQueue] = {}
        # Running handlers of `session_start`, each with its event.
        self._starting: set[tuple[int, int]] = set()
        self._started = asyncio.Event()

    def add(self, loaded: LoadedExtension) -> None:
        """Add an extension; those of a lower rank come first."""
        self.extensions.append(loaded)
        self.extensions.sort(key=lambda one: one.source.rank)

        async def deliver(handler: Handler, event: Event, timeout: PausableTimeout) -> None:
            try:
                await self._call_handler(loaded, handler, event, timeout)
            finally:
                self._starting.discard((id(handler), id(event)))
                self._started.set()

        def on_lost(count: int) -> None:
            self.reports(loaded.source.path, "queue", f"it was too slow: {count} events were not delivered to it")

        self._queues[loaded] = EventQueue(loaded.handlers_for, deliver, on_lost)

    def has_listeners(self, kind: type[Event]) -> bool:
        """True if any extension has a handler for the event."""
        return any(loaded.handlers_for(kind) for loaded in self.extensions)

    async def ask_handlers(
        self,
        kind: type[Event],
        make: Callable[[], Event],
        take: Take,
        extensions: Sequence[LoadedExtension] | None = None,
    ) -> None:
        """Call each handler with a fresh event and pass its result to `take`, until that returns that it is enough."""
        for loaded in list(self.extensions) if extensions is None else extensions:
            for handler in list(loaded.handlers_for(kind)):
                event = make()
                if not handler.should_handle(event):
                    continue
                await self.wait_until_caught_up(loaded)
                answer = await self._call_handler(loaded, handler, event, PausableTimeout(handler.timeout))
                if take(self._validate_answer(answer)):
                    return

    async def wait_until_caught_up(self, loaded: LoadedExtension) -> None:
        """Wait until an extension has handled its earlier events, or, after a second, has begun to."""
        await self._queues[loaded].wait_until_caught_up(CATCH_UP_SECONDS)

    def post_event(self, event: Event) -> None:
        """Queue an event for every extension that listens, without waiting."""
        for loaded in self.extensions:
            if handlers := loaded.handlers_for(type(event)):
                if isinstance(event, SessionStart):
                    self._starting.update((id(handler), id(event)) for handler in handlers)
                self._queues[loaded].put(event)

    async def wait_until_started(self, seconds: float) -> None:
        """Wait until every handler of `session_start` has returned, since it may register others, or for so many
        seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._starting:
                    self._started.clear()
                    await self._started.wait()
        self._starting.clear()

    async def notify_all_and_wait(self, event: Event, seconds: float) -> None:
        """Call all extensions at once, each for at most this long; their return values do not matter."""

        async def ask_one(loaded: LoadedExtension) -> None:
            await self._queues[loaded].wait_until_caught_up(seconds / 2)
            for handler in list(loaded.handlers_for(type(event))):
                await self._call_handler(loaded, handler, event, PausableTimeout(seconds))

        listening = [loaded for loaded in self.extensions if loaded.handlers_for(type(event))]
        await asyncio.gather(*(ask_one(loaded) for loaded in listening))

    def close(self) -> None:
        """Deliver nothing more and let the threads end."""
        for queue in self._queues.values():
            queue.close()
        for loaded in self.extensions:
            loaded.close()

    def _validate_answer(self, answer: Answer) -> Answer:
        """The answer, or a failure if the event's declaration does not allow the value."""
        returns = answer.event.returns
        if answer.value is not None and returns and not isinstance(answer.value, returns):
            may = ", ".join(kind.__name__ for kind in returns)
            text = f"a handler returned {type(answer.value).__name__}; it may return {may} or nothing"
            self.reports(answer.loaded.source.path, answer.event.name, text)
            return Answer(answer.loaded, answer.event, None, text)
        return answer

    async def _call_handler(
        self, loaded: LoadedExtension, handler: Handler, event: Event, timeout: PausableTimeout
    ) -> Answer:
        try:
            return Answer(loaded, event, await loaded.call_handler(handler, event, timeout), None)
        except ExtensionFailed as error:
            text = text_of_error(error)
            self.reports(loaded.source.path, event.name, text)
            return Answer(loaded, event, None, text)
