"""Events on their way to one reader that may be slow, or may have stopped reading.

Nothing ever waits for a reader: neither answers, nor other readers, nor the run. Unread events are kept small instead,
in three steps. Beyond `MOST_APART` events, a delta joins the delta of the same block before it, and the progress of a
tool replaces older progress of the same call, because it holds everything so far. Beyond `MOST_QUEUED` events, or
`MOST_BYTES` of them, events that a later event in the queue repeats are dropped: the deltas of a block that is
complete, the progress of a call that has ended, all but the newest list of the message queue. If that is not enough,
the queue is closed: its reader gets what is in it, and then `ReaderTooSlow`.

A reader that asked for `every_delta` gets each one as the model sent it. Its queue holds more, up to `MOST_DELTAS`
events, and is closed beyond that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from msgspec.structs import replace

from pigeon.sdk.errors import ReaderTooSlow
from pigeon.wire.base import Absent
from pigeon.wire.events import (
    AgentSettled,
    MessageEnd,
    QueueUpdate,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolcallDelta,
    ToolcallEnd,
    ToolExecutionEnd,
    ToolExecutionUpdate,
)
from pigeon.wire.messages import AssistantMessage

MOST_APART = 256
MOST_QUEUED = 10_000
MOST_DELTAS = 100_000
MOST_BYTES = 256 * 1024 * 1024
_GROWING = (TextDelta, ThinkingDelta, ToolcallDelta)
_COMPLETE: dict[type, type] = {TextEnd: TextDelta, ThinkingEnd: ThinkingDelta, ToolcallEnd: ToolcallDelta}


class _Place:
    """One place in the queue: an event, or the deltas of a block that will be merged; `size` is roughly its bytes."""

    __slots__ = ("event", "parts", "size")

    def __init__(self, event: Any, size: int) -> None:
        self.event = event
        self.parts: list[str] | None = None
        self.size = size

    def try_append(self, delta: TextDelta | ThinkingDelta | ToolcallDelta) -> bool:
        """Add a delta of the same block; returns False for a different block."""
        if type(delta) is not type(self.event) or delta.content_index != self.event.content_index:
            return False
        if self.parts is None:
            self.parts = [self.event.delta]
        self.parts.append(delta.delta)
        self.size += len(delta.delta)
        return True

    def to_event(self) -> Any:
        return self.event if self.parts is None else replace(self.event, delta="".join(self.parts))


class ReaderQueue:
    """The events that one reader has not read yet, in order.

    With a `run_id` events of other runs are left out. The end of another run then closes the queue with `missed`: runs
    do not overlap, so the awaited run has already ended. With `every_delta` no delta is merged or dropped.
    """

    def __init__(
        self, run_id: str | None = None, missed: Exception | None = None, *, every_delta: bool = False
    ) -> None:
        self._run_id = run_id
        self._missed = missed
        self._every_delta = every_delta
        self._most_queued = MOST_DELTAS if every_delta else MOST_QUEUED
        self._places: deque[_Place] = deque()
        self._progress: dict[str, _Place] = {}
        self._size = 0
        self._news = asyncio.Event()
        self._awaited = False
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._places)

    def put(self, event: Any, run_id: str | Absent | None = None, size: int = 0) -> None:
        """Add an event; never waits. `run_id` is its run, `size` its length as a line."""
        if self._closed:
            return
        if isinstance(run_id, str) and self._run_id not in (None, run_id):
            if isinstance(event, AgentSettled):
                self.close(self._missed)
            return
        if len(self._places) >= MOST_APART and self._try_merge(event, size):
            return
        if self._every_delta and not size and isinstance(event, _GROWING):
            size = len(event.delta)
        place = _Place(event, size)
        self._places.append(place)
        self._size += size
        if isinstance(event, ToolExecutionUpdate):
            self._progress[event.tool_call_id] = place
        self._news.set()
        self._enforce_limits()

    def _try_merge(self, event: Any, size: int) -> bool:
        if isinstance(event, _GROWING):
            if self._every_delta:
                return False
            # Only the newest delta may be merged: text must not move past the events in between.
            if not self._places[-1].try_append(event):
                return False
            return self._add_size(len(event.delta))
        if isinstance(event, ToolExecutionUpdate):
            place = self._progress.get(event.tool_call_id)
            if place is not None:
                grown = size - place.size
                place.event, place.size = event, size
                return self._add_size(grown)
        return False

    def _add_size(self, by: int) -> bool:
        self._size += by
        self._enforce_limits()
        return True

    def _enforce_limits(self) -> None:
        """Shrink the queue if it exceeds its limits; a waiting reader is not slow, however much comes at once before
        its turn."""
        if not self._awaited and (len(self._places) > self._most_queued or self._size > MOST_BYTES):
            self._drop_redundant_or_close()

    def _drop_redundant_or_close(self) -> None:
        """Drop events that are repeated later; close if the queue stays more than half full."""
        kept: deque[_Place] = deque()
        complete: set[tuple[type, int]] = set()
        ended: set[str] = set()
        queue_told = False
        for place in reversed(self._places):
            event = place.event
            is_repeated = isinstance(event, _GROWING) and (type(event), event.content_index) in complete
            if is_repeated and not self._every_delta:
                continue
            if isinstance(event, ToolExecutionUpdate) and event.tool_call_id in ended:
                continue
            if isinstance(event, QueueUpdate):
                if queue_told:
                    continue
                queue_told = True
            elif isinstance(event, ToolExecutionEnd):
                ended.add(event.tool_call_id)
            elif type(event) in _COMPLETE:
                complete.add((_COMPLETE[type(event)], event.content_index))
            elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
                # Blocks are numbered from the start in each answer.
                complete.clear()
            kept.appendleft(place)
        self._places = kept
        self._progress = {id: place for id, place in self._progress.items() if id not in ended}
        self._size = sum(place.size for place in kept)
        if len(kept) > self._most_queued // 2 or self._size > MOST_BYTES // 2:
            self.close(ReaderTooSlow(len(kept)))

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more comes; a reader that has read everything gets the error, if there is one."""
        if not self._closed:
            self._closed, self._error = True, error
            self._news.set()

    async def get(self) -> Any:
        """The next event; raises the error that closed the queue, or `StopAsyncIteration`."""
        while not self._places:
            if self._closed:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            self._awaited = True
            try:
                await self._news.wait()
            finally:
                self._awaited = False
        place = self._places.popleft()
        self._size -= place.size
        event = place.to_event()
        if isinstance(event, ToolExecutionUpdate) and self._progress.get(event.tool_call_id) is place:
            del self._progress[event.tool_call_id]
        return event
