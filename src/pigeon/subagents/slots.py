"""How many agents of a tree run at once: the others wait for their turn, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """So many places. An agent that only waits for agents of its own gives its place up meanwhile, so that a tree can
    never block itself."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for a place; `release` must follow, unless this is cancelled."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # its turn had come already
            else:
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        """Give up a place, to the one that has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Place:
    """The place of one running agent, which it gives up while it waits for agents of its own."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waits = 0
        self._holds = False

    async def acquire(self) -> None:
        await self._slots.acquire()
        self._holds = True

    def release(self) -> None:
        if self._holds:
            self._holds = False
            self._slots.release()

    def begin_waiting(self) -> None:
        """The agent waits for one of its own; it may wait for several at once."""
        self._waits += 1
        self.release()

    async def end_waiting(self) -> None:
        """One of them has ended; after the last one, wait for a place again."""
        self._waits -= 1
        if not self._waits and not self._holds:
            await self.acquire()


class NoPlace:
    """The place of the conversation itself, which counts as none of its agents."""

    def begin_waiting(self) -> None: ...

    async def end_waiting(self) -> None: ...

    def release(self) -> None: ...
