"""Events on their way to one reader that may be slow.

Nothing waits for a reader until very much has piled up, so that answers and other readers are never held back by it.
Long before that, growing text is put together: beyond `MOST_APART` events, a delta joins the delta of the same block
before it, and the progress of a tool replaces older progress of the same call, because it holds everything so far.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from msgspec.structs import replace

from pigeon.wire.events import TextDelta, ThinkingDelta, ToolcallDelta, ToolExecutionUpdate

MOST_APART = 256
MOST_QUEUED = 10_000
_GROWING = (TextDelta, ThinkingDelta, ToolcallDelta)


class _Place:
    """One place in the queue: an event, or the deltas of a block that will be one."""

    __slots__ = ("event", "parts")

    def __init__(self, event: Any) -> None:
        self.event = event
        self.parts: list[str] | None = None

    def takes(self, delta: TextDelta | ThinkingDelta | ToolcallDelta) -> bool:
        """Add a delta of the same block; false if it is another one."""
        if type(delta) is not type(self.event) or delta.content_index != self.event.content_index:
            return False
        if self.parts is None:
            self.parts = [self.event.delta]
        self.parts.append(delta.delta)
        return True

    def taken(self) -> Any:
        return self.event if self.parts is None else replace(self.event, delta="".join(self.parts))


class ReaderQueue:
    """The events that one reader has not read yet, in order."""

    def __init__(self) -> None:
        self._places: deque[_Place] = deque()
        self._progress: dict[str, _Place] = {}
        self._news = asyncio.Event()
        self._room: asyncio.Event | None = None
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._places)

    @property
    def full(self) -> bool:
        """True when so much has piled up that the agent should wait."""
        return len(self._places) >= MOST_QUEUED and not self._closed

    def put(self, event: Any) -> None:
        """Add an event; never waits."""
        if self._closed:
            return
        if len(self._places) >= MOST_APART and self._merged(event):
            return
        place = _Place(event)
        self._places.append(place)
        if isinstance(event, ToolExecutionUpdate):
            self._progress[event.tool_call_id] = place
        self._news.set()

    def _merged(self, event: Any) -> bool:
        if isinstance(event, _GROWING):
            return self._places[-1].takes(event)
        if isinstance(event, ToolExecutionUpdate):
            place = self._progress.get(event.tool_call_id)
            if place is not None:
                place.event = event
                return True
        return False

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more comes; a reader that has read everything gets the error, if there is one."""
        if not self._closed:
            self._closed, self._error = True, error
            self._news.set()
            self._give_room()

    async def get(self) -> Any:
        """The next event; raises the error that closed the queue, or `StopAsyncIteration`."""
        while not self._places:
            if self._closed:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        place = self._places.popleft()
        event = place.taken()
        if isinstance(event, ToolExecutionUpdate) and self._progress.get(event.tool_call_id) is place:
            del self._progress[event.tool_call_id]
        if len(self._places) < MOST_QUEUED // 2:
            self._give_room()
        return event

    async def until_room(self) -> None:
        """Wait while the queue is full."""
        while self.full:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def _give_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()
