"""The event bus of a session: typed events, in order, in two stages.

Every recorder has seen an event before any announcer does, so a message is in the session file before the host or an
extension hears of it. `publish` waits while the host reads slowly; `post` is for the few small events that answer a
command and must not wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pigeon.wire.events import Outbound

Wait = Callable[[], Awaitable[None] | None]


class Bus:
    """Passes events from the parts of a session to its listeners."""

    def __init__(self) -> None:
        self._recorders: list[Callable[[Outbound], None]] = []
        self._announcers: list[tuple[type, Callable[[Outbound], bool | None], Wait]] = []

    def add_recorder(self, recorder: Callable[[Outbound], None]) -> None:
        """Add a function that is called first, for every event."""
        self._recorders.append(recorder)

    def add_announcer(
        self, announcer: Callable[[Outbound], bool | None], wait: Wait = lambda: None, kind: type = object
    ) -> None:
        """Add a function that is called after all recorders, for events of one kind or for all.

        It returns True when the listener is behind; `wait` then returns an awaitable, or None.
        """
        self._announcers.append((kind, announcer, wait))

    def post(self, event: Outbound) -> None:
        """Record and announce without waiting."""
        self._record_and_announce(event)

    async def publish(self, event: Outbound) -> None:
        """Record, announce, and wait for a slow host."""
        for wait in self._record_and_announce(event):
            waiting = wait()
            if waiting is not None:
                await waiting

    def announce(self, event: Outbound) -> list[Wait]:
        """Announce without recording: an event of another session. Returns the waits of the listeners that are
        behind."""
        return [wait for kind, announcer, wait in self._announcers if isinstance(event, kind) and announcer(event)]

    def _record_and_announce(self, event: Outbound) -> list[Wait]:
        """Returns the waits of the listeners that are behind."""
        for recorder in self._recorders:
            recorder(event)
        return self.announce(event)
