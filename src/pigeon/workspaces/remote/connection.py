"""The connection to a helper: frames in both directions, many calls at once, and what happens when it breaks.

    state        what happens                                                         next state
    ---------    ------------------------------------------------------------------   -----------------
    closed       a call needs it: `connect` starts the transport and the helper       connected, closed
    connected    the transport ends, or nothing is heard for `SILENT` seconds         broken
    broken       another transport reaches the same helper: frames are repeated       connected
    broken       the helper is gone, or not reached within `GRACE` seconds: the       connected, closed
                 calls under way end with `HelperGone`

A call that was under way when the connection broke does not notice a reconnection to the same helper.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Callable

from msgspec import DecodeError, ValidationError

from pigeon.system.process.start import ProcessOwner
from pigeon.workspaces.errors import WorkspaceUnusable
from pigeon.workspaces.remote.bundle import make_first_line
from pigeon.workspaces.remote.frames import HEADER, FrameSequence
from pigeon.workspaces.remote.messages import (
    FRAME_HEADER_SIZE,
    LONGEST_BODY,
    LONGEST_RECORD,
    PART,
    Answer,
    Goodbye,
    HelperHello,
    HelperWelcome,
    Ping,
    Pong,
    Received,
    Request,
    Resume,
    decode_received,
)
from pigeon.workspaces.remote.transport import Link, MachineTransport, start_transport

CONNECT_WITHIN = 18.0
PING_EVERY = 1.0
# The helper ends itself 9.5 s after it last heard from us: a broken connection must be replaced before that.
SILENT = 4.0
GRACE = 10.0
MOST_NOISE = 64 * 1024
FAREWELL_WITHIN = 1.0


class HelperGone(Exception):
    """The helper ended, or could not be reached again in time: what it did is not known."""

    def __init__(self, is_certain: bool) -> None:
        super().__init__("the helper is gone")
        self.is_certain = is_certain


class NoPython(Exception):
    """There is a shell on the machine, but no Python for the helper."""


class Answers:
    """What the helper answers to one request, in order; ends with `HelperGone` if it is gone."""

    def __init__(self, connection: HelperConnection, number: int) -> None:
        self.number = number
        self._connection = connection
        self._waiting: deque[tuple[Answer, bytes]] = deque()
        self._arrived = asyncio.Event()
        self._failure: HelperGone | None = None

    def put(self, record: Answer, body: bytes) -> None:
        self._waiting.append((record, body))
        self._arrived.set()

    def fail(self, failure: HelperGone) -> None:
        self._failure = failure
        self._arrived.set()

    async def next(self) -> tuple[Answer, bytes]:
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()

    def close(self) -> None:
        self._connection.forget(self)


class HelperConnection:
    """One helper at a time, reached through one transport at a time."""

    def __init__(self, transport: MachineTransport, processes: ProcessOwner, cwd: str) -> None:
        self._transport = transport
        self._processes = processes
        self._cwd = cwd
        self._link: Link | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: asyncio.Task[None] | None = None
        self._answers: dict[int, Answers] = {}
        self._last_id = 0
        self._heard = 0.0
        self._broken_since: float | None = None
        self._is_closed = False
        self._secret = os.urandom(16).hex()
        self._frames = FrameSequence()
        self.welcome = HelperWelcome(resumed=False)

    def _forget_helper(self) -> None:
        """Later calls are those of another helper, in frames of their own."""
        self._frames.give_up()
        self._frames = FrameSequence()
        self.welcome = HelperWelcome(resumed=False)

    # --- calls

    async def start_call(self, make: Callable[[int], Request], body: bytes = b"") -> Answers:
        """Send a request; raises `WorkspaceUnusable` if there is no connection and none can be made."""
        await self.ensure_connected()
        self._last_id += 1
        answers = self._answers[self._last_id] = Answers(self, self._last_id)
        try:
            await self.send(make(answers.number), body)
        except BaseException:
            self.forget(answers)
            raise
        return answers

    async def send(self, record: Request, body: bytes = b"") -> None:
        """Send a frame, when there is room for it; its body may not be longer than `PART`."""
        assert len(body) <= PART
        while not self._frames.has_room:
            if record.id not in self._answers:
                return
            await self._frames.wait_for_room()
        self.send_at_once(record, body)

    def send_at_once(self, record: Request, body: bytes = b"") -> None:
        """The same for what is small, or must not wait. A request that was lost with its helper is not sent."""
        if record.id in self._answers:
            self._write(self._frames.make_frame(record, body))

    def forget(self, answers: Answers) -> None:
        self._answers.pop(answers.number, None)

    @property
    def is_connected(self) -> bool:
        return self._link is not None

    # --- frames

    def _write(self, frame: bytes) -> None:
        if self._link is not None:
            self._link.writer.write(frame)

    async def _read_frames(self, link: Link) -> None:
        """Read until the connection ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, DecodeError, ValidationError, ValueError):
            while link is self._link:
                number, received, size, body_size = HEADER.unpack(await link.reader.readexactly(FRAME_HEADER_SIZE))
                if size > LONGEST_RECORD or body_size > LONGEST_BODY:
                    break
                record = decode_received(await link.reader.readexactly(size))
                body = await link.reader.readexactly(body_size) if body_size else b""
                self._heard = time.monotonic()
                self._on_frame(number, received, record, body)
        self._on_broken(link)

    def _on_frame(
        self, number: int, received: int, record: HelperWelcome | Pong | Received | Answer, body: bytes
    ) -> None:
        self._frames.confirm(received)
        if number == 0 or isinstance(record, HelperWelcome | Pong | Received):
            return
        if not self._frames.admit(number, len(body)):
            return
        answers = self._answers.get(record.id)
        if answers is not None:
            answers.put(record, body)
        if self._frames.must_confirm:
            self._write(self._frames.make_unnumbered(Received()))

    async def _ping(self, link: Link) -> None:
        """Keep the helper alive, and notice a connection that has gone silent."""
        while link is self._link:
            self._write(self._frames.make_unnumbered(Ping()))
            await asyncio.sleep(PING_EVERY)
            if time.monotonic() - self._heard > SILENT:
                # If this process was stopped for a while, what arrived meanwhile is read first.
                await asyncio.sleep(PING_EVERY / 2)
                if time.monotonic() - self._heard > SILENT:
                    self._on_broken(link)

    # --- connecting

    async def ensure_connected(self) -> None:
        """Return when there is a connection; raises `WorkspaceUnusable`, or `NoPython`."""
        if self._link is not None:
            return
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(self._on_connecting_done)
        await asyncio.shield(self._connecting)

    def _on_connecting_done(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()

    async def _connect(self) -> None:
        if self._is_closed:
            raise WorkspaceUnusable(f"The workspace on {self._transport.name} is closed.")
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                link = await self._start_link()
        except TimeoutError:
            raise WorkspaceUnusable(
                f"Cannot open the workspace on {self._transport.name}: no answer within {CONNECT_WITHIN:g} seconds."
            ) from None
        except OSError as error:
            program = self._transport.argv[0]
            raise WorkspaceUnusable(
                f"Cannot open the workspace on {self._transport.name}: cannot run {program}: {error.strerror or error}."
            ) from None
        self._broken_since = None
        self._link = link
        self._heard = time.monotonic()
        for frame in self._frames.list_unreceived():
            self._write(frame)
        for work in (self._read_frames(link), self._ping(link)):
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _start_link(self) -> Link:
        link = await start_transport(self._transport, self._processes, self._cwd)
        try:
            await self._greet(link)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            noise = error.partial if isinstance(error, asyncio.IncompleteReadError) else b""
            code = await link.wait_for_end(2.0)
            said = link.said or noise.decode("utf-8", "replace").strip()
            reason = self._transport.explain(said, -1 if code is None else code)
            link.close()
            raise WorkspaceUnusable(f"Cannot open the workspace on {self._transport.name}: {reason}") from None
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(self, link: Link) -> None:
        """Start the helper in the shell at the other end, and take up what the last one was doing, if it is alive."""
        nonce = os.urandom(12).hex()
        link.writer.write(make_first_line(nonce))
        if not await read_to_mark(link, nonce):
            raise NoPython
        frames, address = self._frames, self.welcome.address
        resume = Resume(address, frames.received) if address else None
        link.writer.write(frames.make_unnumbered(HelperHello(self._secret, resume)))
        _, _, size, _ = HEADER.unpack(await link.reader.readexactly(FRAME_HEADER_SIZE))
        welcome = decode_received(await link.reader.readexactly(min(size, LONGEST_BODY)))
        assert isinstance(welcome, HelperWelcome)
        if welcome.resumed:
            if frames is not self._frames:
                raise ConnectionError("the calls of the earlier helper were given up")
            frames.confirm(welcome.received)
            return
        self._lose_calls(is_certain=bool(address))
        self._forget_helper()
        self.welcome = welcome

    # --- breaking

    def _on_broken(self, link: Link) -> None:
        link.close()
        if link is not self._link:
            return
        self._link = None
        if self._is_closed:
            return
        self._broken_since = time.monotonic()
        if self._answers:
            task = asyncio.ensure_future(self._reconnect())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reconnect(self) -> None:
        """Find the helper again for the calls under way, or end them."""
        since = self._broken_since
        assert since is not None
        pause = 0.1
        while self._link is None and self._answers and not self._is_closed:
            left = since + GRACE - time.monotonic()
            if left <= 0:
                self._lose_calls(is_certain=False)
                self._forget_helper()
                # What is connecting now must not take up what was given up: it sees that these are other frames.
                return
            with contextlib.suppress(TimeoutError, WorkspaceUnusable, NoPython):
                await asyncio.wait_for(self.ensure_connected(), left)
                return
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, 1.0)

    def _lose_calls(self, is_certain: bool) -> None:
        lost, self._answers = self._answers, {}
        for answers in lost.values():
            answers.fail(HelperGone(is_certain))

    async def close(self) -> None:
        """End the helper, everything that it has started, and the connection."""
        self._is_closed = True
        link, self._link = self._link, None
        if link is not None:
            link.writer.write(self._frames.make_unnumbered(Goodbye()))
            await link.close_when_written(FAREWELL_WITHIN)
        self._lose_calls(is_certain=link is not None)
        if self._connecting is not None:
            self._connecting.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def read_to_mark(link: Link, nonce: str) -> bool:
    """Skip what the login shell prints of its own, up to the line that says what runs now; returns True for the
    helper, False for a shell."""
    noise = b""
    while len(noise) < MOST_NOISE:
        line = await link.reader.readline()
        if not line.endswith(b"\n"):
            raise asyncio.IncompleteReadError(noise + line, None)
        if line.endswith(f"pigeon-{nonce} python\n".encode()):
            return True
        if line.endswith(f"pigeon-{nonce} sh\n".encode()):
            return False
        noise += line
    raise asyncio.IncompleteReadError(noise[:1000], None)
