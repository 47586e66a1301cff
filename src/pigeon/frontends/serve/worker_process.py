"""The supervisor's side of one worker: its process, and the connection to it (`rpc/worker_link.py`)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from pigeon.frontends.serve.worker_request import JoinRequest, WorkerRequest, encode_request
from pigeon.rpc.worker_records import Alive, Logged, Needed, WorkerAnswer, decode_notice
from pigeon.system.append_file import make_private_folder
from pigeon.system.process.forking import ForkedProcess, ForkFamily, ForkServer, describe_exit
from pigeon.system.process.messages import send
from pigeon.system.process.variables import own_environment
from pigeon.transport.event_log import log_owner
from pigeon.transport.reader import Frame, Framing
from pigeon.wire.errors import StartupError

STOP_SECONDS = 5.0
# `off` starts the server a few seconds sooner, and its workers are slower at first and larger.
WARM_UP = "PIGEON_SERVE_WARM_UP"
# How long to wait for the exit code of a worker after its connection is lost.
CODE_SECONDS = 1.0
LONGEST_LINE = sys.maxsize
FORK_SECONDS = 10.0
# How many workers are forked from a parent that is not warm, and how long others wait for it.
MOST_COLD = 2
PREPARATION_SECONDS = 5.0
# How long the parent may take to finish a step of its warm-up when it shall end.
STEP_SECONDS = 1.0
# Crashes within this time count; after too many of them, no worker is started for a while.
RESTART_SECONDS = 60.0
RESTART_PAUSE = 15.0
SOCKET = "socket"


class WorkerProcess:
    """A process with the worker of one conversation, or with those of several (`is_shared`).

    `link` is where further conversations are sent to a shared one; one that an earlier supervisor has started takes no
    more of them. Signals reach all conversations of a process.
    """

    def __init__(self, process: ForkedProcess, is_shared: bool = False, link: socket.socket | None = None) -> None:
        self._process = process
        self._link = link
        self.is_shared = is_shared
        self.members = 1
        # Why it was killed; empty if it was not.
        self.kill_reason = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(number)

    def kill(self, why: str) -> None:
        """Kill it, with all its conversations."""
        self.kill_reason = why
        self.send_signal(signal.SIGKILL)

    async def wait_until_ended(self, seconds: float) -> bool:
        """Wait for its end; returns False if that took too long."""
        return await self._process.wait_until_ended(seconds)

    def join(self, request: bytes, listener: socket.socket, stderr: int) -> bool:
        """Have it serve one more conversation; returns False if it does not take it."""
        if self._link is None:
            return False
        try:
            send(self._link, JoinRequest(request), [listener.fileno(), stderr])
        except OSError:
            return False
        self.members += 1
        return True

    async def leave(self) -> bool:
        """Count one conversation less; returns True for the last, after which the process has ended."""
        self.members -= 1
        if self.members > 0:
            return False
        # What an earlier supervisor has shared may have conversations that are not known here: it ends with the last.
        is_all_known = not self.is_shared or self._link is not None
        self.disconnect()
        if is_all_known:
            await stop_worker(self._process)
        self._process.close_descriptor()
        return True

    def disconnect(self) -> None:
        """Send it no further conversation; it ends with the last one."""
        if self._link is not None:
            self._link.close()
            self._link = None


class Workers:
    """Starts workers from a warm parent; the parent starts with the first worker, and again if it has died.

    With `shared` above 1, up to so many conversations with the same key are in one process.
    """

    def __init__(self, variables: Mapping[str, str], folder: str, shared: int = 1) -> None:
        """`variables` are those of the parent itself; no worker inherits them. The `folder` is for sockets."""
        self.sockets = SocketFolder(folder)
        self._shared = shared
        self._family = ForkFamily("pigeon.frontends.serve.workers.warm_parent", own_environment(variables, WARM_UP))
        # The parent that was told to warm up, and how many workers were forked from which parent before it was warm.
        self._prepared: ForkServer | None = None
        self._cold_parent: ForkServer | None = None
        self._cold_forks = 0
        self._preparation: asyncio.TimerHandle | None = None
        # The shared processes by their keys, and those that an earlier supervisor has started.
        self._open: dict[bytes, list[WorkerProcess]] = {}
        self._adopted: dict[int, WorkerProcess] = {}
        # Held while one is started, so that conversations that start at once get into the same one.
        self._sharing = asyncio.Lock()

    async def ensure_parent(self) -> None:
        await self._family.ensure_server()

    @property
    def is_sharing(self) -> bool:
        """Whether conversations with the same key may share a process."""
        return self._shared > 1

    @property
    def is_parent_warm(self) -> bool:
        server = self._family.server
        return server is not None and server.is_prepared

    def prepare_parent_in(self, seconds: float) -> None:
        self._preparation = asyncio.get_running_loop().call_later(seconds, self.prepare_parent)

    def prepare_parent(self) -> None:
        """Let the parent warm up, unless it has been told before; it forks meanwhile, more slowly."""
        server = self._family.server
        if server is not None and server is not self._prepared:
            self._prepared = server
            server.begin_preparation()

    async def start(
        self, request: WorkerRequest, listener: socket.socket, stderr: int, key: bytes | None
    ) -> WorkerProcess:
        """Start a worker, from a new parent if the old one no longer works; raises `OSError`.

        Conversations with the same `key` may share a process; one without a key shares none.
        """
        encoded = encode_request(request)
        if key is None:
            return WorkerProcess(ForkedProcess(await self._fork(encoded, [listener.fileno(), stderr])))
        async with self._sharing:
            for one in self._open.get(key, ()):
                if one.members < self._shared and one.join(encoded, listener, stderr):
                    return one
            made = await self._start_shared(encoded, listener, stderr)
            self._open.setdefault(key, []).append(made)
            return made

    async def _start_shared(self, request: bytes, listener: socket.socket, stderr: int) -> WorkerProcess:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            pid = await self._fork(request, [listener.fileno(), stderr, theirs.fileno()])
            return WorkerProcess(ForkedProcess(pid), is_shared=True, link=ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def adopt(self, pid: int, is_shared: bool) -> WorkerProcess:
        """The process of a worker that an earlier supervisor has started; raises `OSError`."""
        if not is_shared:
            return WorkerProcess(ForkedProcess(pid))
        found = self._adopted.get(pid)
        if found is None:
            found = self._adopted[pid] = WorkerProcess(ForkedProcess(pid), is_shared=True)
        else:
            found.members += 1
        return found

    async def wait_for_exit_code(self, process: WorkerProcess) -> int | None:
        """The exit code of a worker, or None if it is unknown, as for workers of an earlier parent."""
        return await self._family.wait_for_exit_code(process.pid, CODE_SECONDS)

    async def leave(self, process: WorkerProcess) -> None:
        """Take a conversation out of its process, which ends with the last one, by force if necessary."""
        if process.members == 1:
            kept = {key: [one for one in open if one is not process] for key, open in self._open.items()}
            self._open = {key: open for key, open in kept.items() if open}
            self._adopted.pop(process.pid, None)
        if await process.leave():
            self._family.forget(process.pid)

    @property
    def parent_pid(self) -> int:
        """The process that workers are forked from; 0 if there is none."""
        return self._family.pid

    def hand_over_processes(self) -> None:
        """Leave the shared processes to the next supervisor: none takes a further conversation."""
        if self._preparation is not None:
            self._preparation.cancel()
        for process in (one for processes in self._open.values() for one in processes):
            process.disconnect()
        self._open.clear()
        self._adopted.clear()

    def end_parent(self) -> None:
        """End the parent; workers stay."""
        self._family.close(STEP_SECONDS)
        self.sockets.close()

    async def _fork(self, request: bytes, descriptors: list[int]) -> int:
        """A new process. The first ones do not wait until the parent has warmed up, but many would be large for as long
        as they live."""
        server = await self._family.ensure_server()
        if not self.is_parent_warm:
            if server is not self._cold_parent:
                self._cold_parent, self._cold_forks = server, 0
            self._cold_forks += 1
            if self._cold_forks > MOST_COLD:
                self.prepare_parent()
                await server.wait_until_prepared(PREPARATION_SECONDS)
        return await self._family.fork(request, descriptors, FORK_SECONDS)


class WorkerConnection(asyncio.Protocol):
    """The connection to a worker: commands go to it; answers and notices about its log come back, in order."""

    def __init__(
        self,
        on_logged: Callable[[Logged], None],
        on_answer: Callable[[WorkerAnswer], None],
        on_needed: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._on_logged = on_logged
        self._on_answer = on_answer
        self._on_needed = on_needed
        self._on_lost = on_lost
        self._framing = Framing(LONGEST_LINE)
        self._transport: asyncio.WriteTransport | None = None
        # None if the worker has never reported that it is alive: workers of earlier releases do not.
        self._silent: int | None = None

    @property
    def unread_bytes(self) -> int:
        """The bytes that were sent and that the worker has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def increment_silence(self) -> int:
        """Called once a second: returns for how many calls in a row the worker has been silent.

        Calls are counted, not seconds, so that a supervisor that was suspended does not blame its workers.
        """
        if self._silent is None:
            return 0
        self._silent += 1
        return self._silent - 1

    def send(self, line: bytes) -> None:
        """Send a command; ignored once the worker has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(line + b"\n")

    def close(self) -> None:
        """Disconnect without notifying the worker."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._silent is not None:
            self._silent = 0
        for frame in self._framing.feed(data):
            self._handle_frame(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the worker has ended, unless `close` was called."""
        if self._transport is not None:
            self._transport = None
            self._on_lost()

    def _handle_frame(self, frame: Frame) -> None:
        assert isinstance(frame, bytes)
        notice = decode_notice(frame)
        if isinstance(notice, Logged):
            self._on_logged(notice)
        elif isinstance(notice, WorkerAnswer):
            self._on_answer(notice)
        elif isinstance(notice, Needed):
            self._on_needed()
        elif isinstance(notice, Alive):
            self._silent = 0


class SocketFolder:
    """The workers' sockets, each in a folder named after its conversation.

    They are opened through descriptors of these folders, because the system limits socket paths to a short length.
    """

    def __init__(self, path: str) -> None:
        make_private_folder(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def listen(self, name: str) -> socket.socket:
        """A new listening socket, which replaces one of the same name; raises `OSError`."""
        self.remove(name)
        os.mkdir(name, 0o700, dir_fd=self._descriptor)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._open_socket_path(name) as path:
                listener.bind(path)
            os.chmod(f"{name}/{SOCKET}", 0o600, dir_fd=self._descriptor)
            listener.listen(4)
        except OSError:
            listener.close()
            raise
        return listener

    async def connect(self, name: str, connection: WorkerConnection) -> None:
        """Connect to the worker that listens there; raises `OSError`."""
        with self._open_socket_path(name) as path:
            await asyncio.get_running_loop().create_unix_connection(lambda: connection, path)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(f"{name}/{SOCKET}", dir_fd=self._descriptor)
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    @contextmanager
    def _open_socket_path(self, name: str) -> Iterator[str]:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            yield f"/proc/self/fd/{folder}/{SOCKET}"
        finally:
            os.close(folder)


class WorkerStarts:
    """Decides whether a conversation's worker may be started. `may_start` raises `PigeonError` if no worker may start
    any more.

    After `most` crashes within a minute, none is started for a while.
    """

    def __init__(self, most: int, now: Callable[[], float], may_start: Callable[[], None]) -> None:
        self._most = most
        self._now = now
        self._may_start = may_start
        self._crashes: list[float] = []
        self._forbidden = ""
        # How the last worker ended; empty if that interrupted nothing, and while a worker is awake.
        self.last_ending = ""

    @property
    def has_failed_often(self) -> bool:
        """True after too many recent crashes."""
        now = self._now()
        self._crashes = [at for at in self._crashes if now - at < RESTART_SECONDS]
        return len(self._crashes) >= self._most

    @property
    def has_failed_lately(self) -> bool:
        """True after a recent crash, of whichever conversation of the process."""
        now = self._now()
        return any(now - at < RESTART_SECONDS for at in self._crashes)

    @property
    def is_forbidden(self) -> bool:
        return bool(self._forbidden)

    def forbid(self, why: str) -> None:
        self._forbidden = why

    def note_ending(self, why: str) -> None:
        """Remember how the worker ended; an empty text clears it."""
        self.last_ending = why

    def count_crash(self) -> None:
        self._crashes.append(self._now())

    def check_may_start(self) -> None:
        """Raise `PigeonError` if no worker may be started now, with the reason and how the last one ended."""
        if self._forbidden:
            raise StartupError(self._forbidden)
        self._may_start()
        if not self.has_failed_often or not self._crashes:
            return
        wait = self._crashes[-1] + RESTART_PAUSE - self._now()
        because = f", the last time because {self.last_ending}" if self.last_ending else ""
        said = f"The agent of this conversation has ended {len(self._crashes)} times within a minute{because}"
        if wait > 0:
            raise StartupError(f"{said}. It can be started again in {wait:.0f} seconds")


async def end_log_owner(log_folder: str) -> None:
    """End the worker that appends to a log, if there is one."""
    owner = log_owner(log_folder)
    if owner is None:
        return
    with suppress(ProcessLookupError):
        process = ForkedProcess(owner)
        try:
            # The pid cannot be reused any more: either this process still has the lock, or none has.
            if log_owner(log_folder) == owner:
                await stop_worker(process)
        finally:
            process.close_descriptor()


async def stop_worker(process: ForkedProcess) -> None:
    """End a worker with SIGTERM, and with SIGKILL if it does not end in time."""
    process.send_signal(signal.SIGTERM)
    if not await process.wait_until_ended(STOP_SECONDS):
        process.send_signal(signal.SIGKILL)
        await process.wait_until_ended(STOP_SECONDS)


def describe_ending(code: int | None) -> str:
    """How a worker ended, by its exit code if known."""
    return "it ended without a message" if code is None else f"it {describe_exit(code)}"


def open_stderr(path: str) -> int:
    """Open the stderr file of a worker, emptied."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
