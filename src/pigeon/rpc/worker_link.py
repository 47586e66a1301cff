"""A worker of `pigeon serve` and its supervisor: commands come over a socket, events go into a log on disk.

The supervisor may die and come back at any time; the worker continues meanwhile. Every event is in the log before the
supervisor is notified; answers are only sent to a connected supervisor, because no other can use them. What they
exchange besides commands is declared in `rpc/worker_records.py`.

An answer follows the notice of all earlier events (`Logged`), so the supervisor can keep the order. A supervisor that
wants to put a worker to sleep asks it with `Sleep`, because only the worker knows everything in progress. `Alive` comes
from the worker's event loop, so a worker that hangs falls silent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from socket import socket
from typing import Any, cast

from pigeon.rpc.worker_records import END, SLEEP, Alive, Logged, Needed, WorkerNotice
from pigeon.transport import exit_codes
from pigeon.transport.event_log import EventLog, LogEnd
from pigeon.transport.reader import Frame, Framing
from pigeon.transport.writer import HARD_LIMIT, SOFT_LIMIT
from pigeon.wire import codec

# How long to wait before retrying on a full disk.
PAUSE_SECONDS = 1.0
# How long a worker without a supervisor lives: while idle, and in any case.
LINGER_SECONDS = 600.0
LONGEST_LINGER = 24 * 3600.0
ALIVE_SECONDS = 5.0


class LogWriter:
    """Appends events to the log; those of one iteration of the event loop are one write.

    While the disk is full they wait here, and `full` makes their producers wait. `note` is called before each write,
    except for deltas, and before each answer: it stores the state that must be on disk before anything that depends on
    it is announced.
    """

    is_overfull = False

    def __init__(self, log: EventLog, written: Callable[[LogEnd], None], note: Callable[[], None]) -> None:
        self._log = log
        self._written = written
        self._note = note
        self._waiting: list[bytes] = []
        self._has_state = self._closed = False
        self._due: asyncio.TimerHandle | asyncio.Handle | None = None
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        return not self._room.is_set()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def put(self, buffers: Sequence[bytes], apart: bool = False, can_wait: bool = False) -> None:
        """Append one line soon; growing text, which cannot wait, changes no state."""
        if self._closed:
            return
        self._waiting.append(b"".join(buffers))
        self._has_state |= can_wait
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Append what is waiting, now or, if the disk is full, later."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._closed:
            return
        try:
            if self._has_state or not self._waiting:
                self._note()
            if not self._waiting:
                self._room.set()
                return
            end = self._log.append(b"".join(self._waiting), len(self._waiting))
        except OSError:
            self._room.clear()
            self._due = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self.flush)
            return
        self._waiting.clear()
        self._has_state = False
        self._room.set()
        self._written(end)

    def close(self) -> None:
        """Append what is waiting, if the disk has room; nothing is written afterwards."""
        self.flush()
        self._closed = True
        if self._due is not None:
            self._due.cancel()
            self._due = None


class AnswerWriter:
    """Sends answers to the connected supervisor, after the events that came before them."""

    def __init__(self, events: LogWriter) -> None:
        self._events = events
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        """True while the supervisor is behind."""
        return self._size() > SOFT_LIMIT

    @property
    def is_overfull(self) -> bool:
        return self._size() > HARD_LIMIT

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def put(self, buffers: Sequence[bytes], apart: bool = False, can_wait: bool = False) -> None:
        """Send one line; without a supervisor it is dropped. Does not wait for a full disk."""
        self._events.flush()
        self.send(b"".join(buffers))

    def send(self, line: bytes) -> None:
        """Send a line at once, without flushing the events before it."""
        if self._transport is not None:
            self._transport.write(line)

    def set_transport(self, transport: asyncio.Transport | None) -> None:
        """Use this connection from now on; None disconnects."""
        self._transport = transport
        self._room.set()

    def set_paused(self, paused: bool) -> None:
        """Make producers wait while the connection is full."""
        if paused:
            self._room.clear()
        else:
            self._room.set()

    def _size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()


class SupervisorWatch:
    """What a worker does by the clock: it tells a supervisor that it is alive, and ends if none returns.

    `say_alive` is called every few seconds while one is connected, `is_needed` and `leave` when there has been none for
    long.
    """

    def __init__(self, say_alive: Callable[[], None], is_needed: Callable[[], bool], leave: Callable[[], None]) -> None:
        self._say_alive = say_alive
        self._is_needed = is_needed
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._alone_since: float | None = None
        self._saying: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to count the time without a supervisor."""
        self._alone_since = self._loop.time()
        self._watching = self._loop.call_later(LINGER_SECONDS, self._exit_if_abandoned)

    def on_connected(self) -> None:
        """Tell the supervisor at once, and every few seconds from then on, that the worker is alive."""
        self._alone_since = None
        if self._saying is not None:
            self._saying.cancel()
        self._send_heartbeat()

    def on_disconnected(self) -> None:
        """Remember when the supervisor was lost, to end some time later if none returns."""
        self._alone_since = self._loop.time()

    def stop(self) -> None:
        """Cancel the timers, because the worker ends."""
        for timer in (self._watching, self._saying):
            if timer is not None:
                timer.cancel()

    def _send_heartbeat(self) -> None:
        if self._alone_since is None:
            self._say_alive()
            self._saying = self._loop.call_later(ALIVE_SECONDS, self._send_heartbeat)

    def _exit_if_abandoned(self) -> None:
        """End the worker if no supervisor returns."""
        alone = 0.0 if self._alone_since is None else self._loop.time() - self._alone_since
        if alone >= LONGEST_LINGER or (alone >= LINGER_SECONDS and not self._is_needed()):
            self._leave()
        else:
            self._watching = self._loop.call_later(LINGER_SECONDS, self._exit_if_abandoned)


class WorkerLink:
    """The channel between a worker and its supervisor. `busy` returns whether anything must not be interrupted.

    A process that is `shared` has a channel for each of its conversations.
    """

    def __init__(
        self,
        listener: socket,
        log: EventLog,
        busy: Callable[[], bool],
        note: Callable[[], None],
        record_cap: int,
        shared: bool = False,
    ) -> None:
        self._listener = listener
        self._shared = shared
        self._log = log
        self._busy = busy
        self._record_cap = record_cap
        self.last_event_number = self._heard = log.next_number - 1
        self.events = LogWriter(log, self._on_log_written, note)
        self.answers = AnswerWriter(self.events)
        self._connection: SupervisorConnection | None = None
        self._leave: Callable[[int], None] = lambda code: None
        self._take: Callable[[list[Frame]], Awaitable[None] | None] = lambda frames: None
        self._serving: asyncio.Future[asyncio.Server] | None = None
        self._watch = SupervisorWatch(lambda: self._notify(Alive()), self._flush_and_check_needed, self._end)

    def open(self, leave: Callable[[int], None]) -> None:
        """Store the callback; no supervisor is accepted before `start`."""
        self._leave = leave

    def start(self, take: Callable[[list[Frame]], Awaitable[None] | None], ended: Callable[[], None]) -> None:
        """Accept supervisors; the disconnection of one does not end the input."""
        self._take = take
        self._watch.start()
        loop = asyncio.get_running_loop()
        # The path under which the socket was bound means nothing here, so Python must not look for it.
        more: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        self._serving = asyncio.ensure_future(
            loop.create_unix_server(
                lambda: SupervisorConnection(self, Framing(self._record_cap)), sock=self._listener, **more
            )
        )

    def close(self, seconds: float) -> None:
        """Append what is waiting, disconnect, and accept no further supervisor; answers have been sent.

        The supervisor takes the end of the connection for the end of the worker, so the log is closed before.
        """
        self._watch.stop()
        if self._serving is not None and self._serving.done():
            self._serving.result().close()
        elif self._serving is not None:
            self._serving.cancel()
            self._listener.close()
        self.events.close()
        self._log.close()
        self.answers.set_transport(None)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def on_connected(self, connection: SupervisorConnection, transport: asyncio.Transport) -> None:
        """Use the connection of a new supervisor; the earlier one hangs or is gone."""
        before, self._connection = self._connection, connection
        if before is not None:
            before.abort()
        self.answers.set_transport(transport)
        self.events.flush()
        self._notify(Logged(*self._log.end, os.getpid(), self._heard, self._shared))
        self._watch.on_connected()

    def on_disconnected(self, connection: SupervisorConnection) -> None:
        """Drop answers from now on, and measure how long no supervisor is connected."""
        if connection is self._connection:
            self._connection = None
            self._heard = self._log.next_number - 1
            self.answers.set_transport(None)
            self._watch.on_disconnected()

    def handle_frames(self, frames: list[Frame]) -> Awaitable[None] | None:
        """Pass commands on, and handle a request to sleep or to end."""
        commands = [frame for frame in frames if frame not in (SLEEP, END)]
        waiting = self._take(commands) if commands else None
        if END in frames:
            self._end()
        elif len(commands) < len(frames):
            if waiting is not None or self._flush_and_check_needed():
                self._notify(Needed())
            else:
                self._end()
        return waiting

    def _flush_and_check_needed(self) -> bool:
        self.events.flush()
        return self._busy() or not self.events.is_empty

    def _on_log_written(self, end: LogEnd) -> None:
        self._notify(Logged(*end, os.getpid()))

    def _notify(self, notice: WorkerNotice) -> None:
        self.answers.send(codec.encode(notice) + b"\n")

    def _end(self) -> None:
        self._leave(exit_codes.BY_SIGNAL[signal.SIGTERM])


class SupervisorConnection(asyncio.Protocol):
    """One connection of a supervisor."""

    def __init__(self, link: WorkerLink, framing: Framing) -> None:
        self._link = link
        self._framing = framing
        self._transport: asyncio.Transport | None = None
        self._taking: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._link.on_connected(self, self._transport)

    def data_received(self, data: bytes) -> None:
        """Receive commands; reading continues once they are accepted."""
        waiting = self._link.handle_frames(self._framing.feed(data))
        if waiting is not None and self._transport is not None:
            self._transport.pause_reading()
            self._taking = asyncio.ensure_future(self._resume_reading_after(waiting, self._transport))

    def pause_writing(self) -> None:
        self._link.answers.set_paused(True)

    def resume_writing(self) -> None:
        self._link.answers.set_paused(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._link.on_disconnected(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Disconnect when everything that was written has been sent."""
        if self._transport is not None:
            self._transport.close()

    async def _resume_reading_after(self, waiting: Awaitable[None], transport: asyncio.Transport) -> None:
        await waiting
        if not transport.is_closing():
            transport.resume_reading()
