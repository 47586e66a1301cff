"""The event bus of a session: typed events, in order, in two stages.

Every recorder has seen an event before any announcer does, so a message is in the session file before the host or an
extension hears of it. `publish` waits while the host reads slowly; `post` is for the few small events that answer a
command and must not wait.

A conversation in a store is announced only as far as the store has confirmed it: events and answers are held back, in
their order, while `is_pending` is true (`hold_until_saved`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.errors import Refusal
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    ErrorEvent,
    MessageStart,
    Outbound,
    PromptResult,
    SessionSettled,
    ToolsDeclared,
    TurnStart,
)

# What is still announced of a conversation that another process has taken over: that its runs have ended here.
ENDS = (AgentSettled, PromptResult, SessionSettled, ErrorEvent)
BEGINNINGS = (AgentStart, TurnStart, MessageStart, ToolsDeclared)
Wait = Callable[[], Awaitable[None] | None]


class Bus:
    """Passes events from the parts of a session to its listeners."""

    def __init__(self) -> None:
        self._recorders: list[Callable[[Outbound], None]] = []
        self._announcers: list[tuple[type, Callable[[Outbound], bool | None], Wait]] = []
        self._is_pending: Callable[[], bool] | None = None
        self._held: deque[Callable[[], None]] = deque()
        self._waiting: set[asyncio.Future[list[Wait]]] = set()
        self._lost: str | None = None

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

    def hold_until_saved(self, is_pending: Callable[[], bool] | None) -> None:
        """Hold back what comes while this is true, until `release_held` is called; None holds nothing back."""
        self._is_pending, self._lost = is_pending, None
        self.release_held()

    def release_held(self) -> None:
        """Announce what was held back, as far as nothing is pending any more."""
        while self._held and not self._must_hold():
            self._held.popleft()()

    def drop_held(self, problem: str) -> None:
        """Another process has the conversation: nothing of it is announced any more, only that its runs have ended.
        Answers that were held back are sent, because their commands have had their effect here."""
        self._lost = problem
        held, self._held = self._held, deque()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(Refusal(problem))
        for announce in held:
            announce()

    def call_when_saved(self, callback: Callable[[], None]) -> None:
        """Call a function behind everything that is held back; at once if that is nothing."""
        if self._held or self._must_hold():
            self._held.append(callback)
        else:
            callback()

    def _must_hold(self) -> bool:
        return self._is_pending is not None and self._lost is None and self._is_pending()

    def post(self, event: Outbound) -> None:
        """Record and announce without waiting."""
        self._record(event)
        if isinstance(event, NotifyRequest):
            self.announce(event)
        else:
            self.call_when_saved(lambda: self._announce_posted(event))

    async def publish(self, event: Outbound) -> None:
        """Record, announce, and wait for a slow host, and for the store."""
        self._record(event)
        is_held = bool(self._held) or self._must_hold()
        if is_held and isinstance(event, BEGINNINGS):
            # What only opens a turn changes nothing outside: the entry that follows is stored with those before it.
            self._held.append(lambda: self._announce_posted(event))
            return
        if is_held:
            released: asyncio.Future[list[Wait]] = asyncio.get_running_loop().create_future()
            self._waiting.add(released)
            released.add_done_callback(self._waiting.discard)
            self._held.append(lambda: self._release_published(event, released))
            waits = await released
        else:
            waits = self._announce_unless_lost(event)
        for wait in waits:
            waiting = wait()
            if waiting is not None:
                await waiting

    def announce(self, event: Outbound) -> list[Wait]:
        """Announce without recording: an event of another session. Returns the waits of the listeners that are
        behind."""
        return [wait for kind, announcer, wait in self._announcers if isinstance(event, kind) and announcer(event)]

    def _record(self, event: Outbound) -> None:
        if self._lost is None:
            for recorder in self._recorders:
                recorder(event)

    def _announce_posted(self, event: Outbound) -> None:
        self._announce_unless_lost(event)

    def _release_published(self, event: Outbound, released: asyncio.Future[list[Wait]]) -> None:
        waits = self._announce_unless_lost(event)
        if not released.done():
            released.set_result(waits)

    def _announce_unless_lost(self, event: Outbound) -> list[Wait]:
        if self._lost is not None:
            if isinstance(event, AgentEnd):
                event = AgentEnd(messages=[], will_retry=False)
            elif not isinstance(event, ENDS):
                return []
        return self.announce(event)
