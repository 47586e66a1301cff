"""The one way out: whole lines, in order, bounded.

Lines queue up in memory and a thread writes them with blocking calls, so a host that stops reading stops this thread
and not the event loop. The producer (`rpc/outbox`) checks `is_full` and waits for room, which pauses the agent. A short
line with nothing queued before it is written at once if the pipe has room for it; one that can wait is sent with the
next, or in the next iteration of the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from pigeon.transport.stdio import is_pipe

SOFT_LIMIT = 1024 * 1024
HARD_LIMIT = 16 * 1024 * 1024
BATCH_BYTES = 1024 * 1024
BATCH_BUFFERS = 512
DIRECT_LIMIT = select.PIPE_BUF
FULL_PAUSE_MS = 10
_TRY_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.EINTR)
_HUNG_UP = (errno.EPIPE, errno.ECONNRESET)


class LineSink(Protocol):
    """A destination for whole lines that reports when its queue is full."""

    def put(self, buffers: Sequence[bytes], apart: bool = False, can_wait: bool = False) -> None:
        """Send one line; one that can wait is sent with the next, or soon."""
        ...

    @property
    def is_full(self) -> bool:
        """True when producers of events should await `wait_for_room` first."""
        ...

    @property
    def is_overfull(self) -> bool:
        """True when not even commands should be read any more."""
        ...

    async def wait_for_room(self) -> None:
        """Wait until there is room again."""
        ...


class LineQueue:
    """Lines that wait for the thread, and how many bytes have not been written; `size` counts what is being written."""

    def __init__(self) -> None:
        self._lines: deque[tuple[Sequence[bytes], int, bool]] = deque()
        self.size = 0

    def __bool__(self) -> bool:
        """True while a line waits that no batch contains."""
        return bool(self._lines)

    def add(self, buffers: Sequence[bytes], size: int, apart: bool) -> None:
        """Add one line; one that is `apart` begins a batch."""
        self._lines.append((buffers, size, apart))
        self.size += size

    def pop_batch(self) -> tuple[list[bytes], int]:
        """The next lines as buffers for one write call, and their size, for `mark_written` afterwards."""
        batch: list[bytes] = []
        total = 0
        while self._lines and total < BATCH_BYTES and len(batch) < BATCH_BUFFERS:
            buffers, size, apart = self._lines[0]
            if apart and batch:
                break
            self._lines.popleft()
            batch.extend(buffers)
            total += size
        return batch, total

    def mark_written(self, size: int) -> None:
        self.size -= size

    def clear(self) -> None:
        self._lines.clear()
        self.size = 0


class OutputDescriptor:
    """A descriptor that lines are written to, at once if it is a pipe with room for them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poller = self._make_poller() if is_pipe(descriptor) else None

    def try_write_now(self, buffers: Sequence[bytes]) -> bool:
        """Write at most PIPE_BUF bytes without blocking; returns False if that is not possible, and then nothing was
        written.

        A pipe that polls ready accepts up to PIPE_BUF bytes without blocking, all of them or none.
        """
        if self._poller is None or not self._poller.poll(0):
            return False
        try:
            os.write(self._descriptor, b"".join(buffers))
        except OSError:
            return False
        return True

    def write_all(self, batch: list[bytes]) -> None:
        """Write these buffers, however long it takes; raises `OSError`."""
        pending: list[bytes | memoryview] = list(batch)
        while pending:
            try:
                written = os.writev(self._descriptor, pending[:BATCH_BUFFERS])
            except OSError as error:
                if error.errno not in _TRY_AGAIN:
                    raise
                # A pipe that the host made non-blocking is full; the pause ends in case the kernel is short of memory.
                self._make_poller().poll(FULL_PAUSE_MS)
                continue
            index = 0
            while index < len(pending) and written >= len(pending[index]):
                written -= len(pending[index])
                index += 1
            del pending[:index]
            if pending and written:
                pending[0] = memoryview(pending[0])[written:]

    def _make_poller(self) -> select.poll:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        return poller


class Writer:
    """Owns the protocol's output descriptor.

    Producers of events should wait while it `is_full`, and no command should be read while it `is_overfull`. Both are
    checked for every event, so they are attributes.
    """

    def __init__(
        self, descriptor: int, broken: Callable[[], None], show: Callable[[bytes], None] | None = None
    ) -> None:
        """`broken` is called when the host has gone; `show` with each line that is sent."""
        self._show = show
        self._output = OutputDescriptor(descriptor)
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._queue = LineQueue()
        self.is_full = False
        self.is_overfull = False
        self._held: list[bytes] = []
        self._held_size = 0
        self._writing = False
        self._closed = False
        self._failure: OSError | None = None
        self._changed = threading.Condition()
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()
        self._thread = threading.Thread(target=self._run_thread, name="pigeon-writer", daemon=True)
        self._thread.start()

    def put(self, buffers: Sequence[bytes], apart: bool = False, can_wait: bool = False) -> None:
        """Send one line; `apart` keeps it out of the previous line's write call."""
        size = sum(map(len, buffers))
        if self._show is not None:
            self._show(b"".join(buffers))
        with self._changed:
            if self._failure is not None or self._closed:
                return
            if self._held and (apart or self._held_size + size > DIRECT_LIMIT):
                self._flush_held()
            if self._queue or self._writing or size > DIRECT_LIMIT:
                self._enqueue(buffers, size, apart)
                return
            if can_wait and not self._held:
                self._loop.call_soon(self.flush)
            self._held.extend(buffers)
            self._held_size += size
            if not can_wait:
                self._flush_held()

    def flush(self) -> None:
        """Send the lines that could wait."""
        with self._changed:
            self._flush_held()

    def _flush_held(self) -> None:
        held, size = self._held, self._held_size
        if held:
            self._held, self._held_size = [], 0
            if not self._output.try_write_now(held):
                self._enqueue(held, size, False)

    def _enqueue(self, buffers: Sequence[bytes], size: int, apart: bool) -> None:
        self._queue.add(buffers, size, apart)
        self._update_fullness()
        if self.is_full:
            self._room.clear()
        if not self._writing:
            self._changed.notify()

    def _update_fullness(self) -> None:
        self.is_full = self._queue.size > SOFT_LIMIT
        self.is_overfull = self._queue.size > HARD_LIMIT

    @property
    def has_failed(self) -> bool:
        """True when nothing more can be written; `close` then raises the reason without waiting."""
        return self._failure is not None

    async def wait_for_room(self) -> None:
        """Wait until the queue is short again."""
        await self._room.wait()

    def close(self, timeout: float) -> bool:
        """Write what is queued, for at most this long; returns True if everything was written.

        Raises `OSError` if writing failed for any reason other than a host that has gone.
        """
        with self._changed:
            self._flush_held()
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)
        if self._failure is not None and self._failure.errno not in _HUNG_UP:
            raise OSError(self._failure.errno, self._failure.strerror, "stdout")
        return not self._thread.is_alive() and self._failure is None

    def _run_thread(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                self._writing = True
                batch, size = self._queue.pop_batch()
            try:
                self._output.write_all(batch)
            except OSError as error:
                self._discard_and_report_failure(error)
                return
            with self._changed:
                self._queue.mark_written(size)
                self._update_fullness()
                self._announce_room()

    def _announce_room(self) -> None:
        if self._queue.size <= SOFT_LIMIT // 2 and not self._room.is_set():
            self._call_in_loop(self._room.set)

    def _discard_and_report_failure(self, error: OSError) -> None:
        with self._changed:
            self._failure = error
            self._queue.clear()
            self._update_fullness()
        self._call_in_loop(self._room.set)
        self._call_in_loop(self._broken)

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return
