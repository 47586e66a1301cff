"""The event bus of a session: typed events, in order, in two stages.

Every recorder has seen an event before any announcer does, so a message is in the session file before the host or an
extension hears of it. `publish` waits while the host reads slowly; `post` is for the few small events that answer a
command and must not wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pigeon.wire.events import Outbound


class Bus:
    """The one way from the parts of a session to its listeners."""

    def __init__(self) -> None:
        self._recorders: list[Callable[[Outbound], None]] = []
        self._announcers: list[Callable[[Outbound], None]] = []
        self._waits: list[Callable[[], Awaitable[None] | None]] = []

    def record(self, recorder: Callable[[Outbound], None]) -> None:
        """Call this first, for every event."""
        self._recorders.append(recorder)

    def announce(
        self, announcer: Callable[[Outbound], None], wait: Callable[[], Awaitable[None] | None] | None = None
    ) -> None:
        """Call this second; `wait` gives something to await while the listener is behind."""
        self._announcers.append(announcer)
        if wait is not None:
            self._waits.append(wait)

    def post(self, event: Outbound) -> None:
        """Record and announce without waiting."""
        for recorder in self._recorders:
            recorder(event)
        for announcer in self._announcers:
            announcer(event)

    async def publish(self, event: Outbound) -> None:
        """Record, announce, and wait for a slow host."""
        self.post(event)
        for wait in self._waits:
            waiting = wait()
            if waiting is not None:
                await waiting
