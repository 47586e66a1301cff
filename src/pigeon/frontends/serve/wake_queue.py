"""Which conversations of `pigeon serve` may have a worker when more are wanted than may be awake at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from pigeon.frontends.serve.conversation import ServedConversation
from pigeon.wire.errors import Refusal

# How long a conversation may wait to be woken, and how many may wait.
WAKE_SECONDS = 3.0
MOST_WAITING = 100
ASLEEP_AT_ONCE = 8
# How long a conversation is left alone after its worker has replied that it is needed.
NEEDED_SECONDS = 1.0
BUSY = "All conversations that may be awake are busy (--max-awake {}). Try again later"
CROWDED = "Too many conversations were to be woken at once (--max-awake {}). Try again later"


class TooMany(Refusal):
    """The limit of awake conversations is reached and none can sleep, or the limit of kept conversations is reached."""


class Stopping(TooMany): ...


class WakeRequest(Struct, frozen=True, eq=False):
    """A conversation that waits to be woken, with its deadline."""

    one: ServedConversation
    until: float
    admission: asyncio.Future[None]


class WakeQueue:
    """Lets at most `most` conversations be awake; waiting ones are woken in the order of their requests.

    To make room, idle conversations are put to sleep, starting with the one that has been idle longest. Requests are
    refused when all awake conversations are busy, and after some seconds.
    """

    def __init__(
        self,
        most: int,
        awake: Callable[[], list[ServedConversation]],
        now: Callable[[], float],
        on_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_waiting` is called when a request has to wait."""
        self._on_waiting = on_waiting
        self._most = most
        self._awake = awake
        self._now = now
        self._waiting: deque[WakeRequest] = deque()
        # Conversations that were admitted and have not begun to wake, and those that are being put to sleep.
        self._admitted: set[ServedConversation] = set()
        self._leaving: dict[ServedConversation, asyncio.Task[None]] = {}
        self._needed: dict[ServedConversation, float] = {}

    @property
    def has_requests(self) -> bool:
        return bool(self._waiting)

    async def wait_for_admission(self, one: ServedConversation) -> None:
        """Return when the conversation may be woken; the caller then does so at once. Raises `TooMany`."""
        if not self._waiting and self._has_room():
            return
        if len(self._waiting) >= MOST_WAITING:
            raise TooMany(CROWDED.format(self._most))
        loop = asyncio.get_running_loop()
        request = WakeRequest(one, self._now() + WAKE_SECONDS, loop.create_future())
        self._waiting.append(request)
        self.process_requests()
        self._on_waiting()
        try:
            await request.admission
        finally:
            with suppress(ValueError):
                self._waiting.remove(request)
            self._admitted.discard(one)
            # The caller may be gone by then, or may not wake the conversation after all.
            loop.call_soon(self.process_requests)

    def process_requests(self) -> None:
        """Admit requests while there is room, make room for others, and refuse those that would wait in vain.

        Called when a conversation may have become busy, idle or asleep, and once a second.
        """
        if not self._waiting:
            return
        self._admit_waiting()
        now = self._now()
        self._needed = {one: until for one, until in self._needed.items() if until > now}
        self._put_idle_to_sleep()
        under_way = self._leaving or self._admitted
        if not under_way and all(_is_busy(one) or one in self._needed for one in self._awake()):
            self.refuse_all(TooMany, BUSY.format(self._most))
        while self._waiting and self._waiting[0].until <= now:
            _resolve_request(self._waiting.popleft(), TooMany(CROWDED.format(self._most)))

    def refuse_all(self, kind: type[TooMany], why: str) -> None:
        while self._waiting:
            _resolve_request(self._waiting.popleft(), kind(why))

    def _has_room(self) -> bool:
        return len({*self._awake(), *self._admitted}) < self._most

    def _admit_waiting(self) -> None:
        for request in list(self._waiting):
            # Another client may have asked for the same one.
            if has_usable_worker(request.one) or request.one in self._admitted or self._has_room():
                self._waiting.remove(request)
                self._admitted.add(request.one)
                _resolve_request(request)

    def _put_idle_to_sleep(self) -> None:
        wanted = min(len(self._waiting), ASLEEP_AT_ONCE) - len(self._leaving)
        idle = [one for one in self._awake() if one.is_idle and one not in self._leaving and one not in self._needed]
        for one in sorted(idle, key=lambda one: one.used)[: max(0, wanted)]:
            self._leaving[one] = asyncio.ensure_future(self._put_to_sleep(one))

    async def _put_to_sleep(self, one: ServedConversation) -> None:
        try:
            # A conversation that is still idle then has work that only its worker knows about.
            if not await one.try_sleep() and one.is_idle:
                self._needed[one] = self._now() + NEEDED_SECONDS
        finally:
            del self._leaving[one]
            self.process_requests()


def has_usable_worker(one: ServedConversation) -> bool:
    """True if it has a worker, or is about to, that is not being stopped."""
    return one.has_worker and one.state != "stopping"


def _is_busy(one: ServedConversation) -> bool:
    """True if there is a run or a question, which may take long to end."""
    return one.is_running or one.work.is_busy


def _resolve_request(request: WakeRequest, why: Refusal | None = None) -> None:
    if request.admission.done():
        # Its client has gone.
        return
    if why is None:
        request.admission.set_result(None)
    else:
        request.admission.set_exception(why)
