"""Pigeon's end of a fork server (`fork_server`), and the processes that are forked by one.

`ForkServer` is one running server: that of `pigeon serve` or `pigeon batch`, or the helper for commands (`pool`).
`ForkFamily` is a server that is started on demand and restarted if it has ended, with the exit codes of its processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pigeon.system.process.messages import (
    BeginPreparation,
    Ended,
    ForkDone,
    ForkRequest,
    KillChild,
    LinkMessage,
    NotForked,
    PreparationDone,
    ServerReady,
    receive,
    send,
)
from pigeon.system.process.python_programs import make_python_command
from pigeon.system.process.variables import ProgramEnvironment

READY_SECONDS = 30.0
SEND_PAUSE = 0.005
_LAST_BYTES = 4_000
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its `parent` ends, which may have happened already."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class ForkServer:
    """A running fork server; the descriptor of its control link is added to the arguments of its program.

    `on_ended` is called for each of its processes with the exit code, `on_lost` once if the server ends before `close`.
    Raises `OSError` if the program cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        variables: ProgramEnvironment,
        on_lost: Callable[[ForkServer], None],
        on_ended: Callable[[int, int], None] | None = None,
        stderr: int | None = None,
    ) -> None:
        self._on_lost = on_lost
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._forked: deque[asyncio.Future[int] | None] = deque()
        self._sending = asyncio.Lock()
        self._ready = asyncio.Event()
        self._prepared: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            self._program = subprocess.Popen(
                [*argv, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env=variables,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._control = ours
        self._loop.add_reader(ours.fileno(), self._on_readable)

    @property
    def pid(self) -> int:
        return self._program.pid

    @property
    def has_been_ready(self) -> bool:
        return self._ready.is_set()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or minus the number of a signal; None while it runs."""
        return self._program.returncode

    def is_running(self) -> bool:
        """False once it has ended; checks now."""
        if self._control.fileno() >= 0 and self._program.poll() is not None:
            self._on_connection_lost()
        return self._control.fileno() >= 0

    async def wait_until_ready(self) -> None:
        """Wait until it accepts requests; raises `OSError` if it ends, or takes too long."""
        ready: asyncio.Future[Any] = asyncio.ensure_future(self._ready.wait())
        either: set[asyncio.Future[Any]] = {ready, self.ended}
        try:
            await asyncio.wait(either, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self.ended.done():
            raise _ended_error()
        if not self._ready.is_set():
            self.kill_server()
            raise TimeoutError("the fork server does not become ready")

    def request_fork(
        self, request: bytes, descriptors: Sequence[int], answer: asyncio.Future[int] | None = None
    ) -> None:
        """Request a process, whose id becomes the result of `answer`; raises `OSError` if that is not possible now."""
        if self._control.fileno() < 0:
            raise _ended_error()
        send(self._control, ForkRequest(request), descriptors)
        self._forked.append(answer)

    async def fork(self, request: bytes, descriptors: Sequence[int]) -> int:
        """The id of a new process; raises `OSError` if none can be created.

        A process that appears after its caller has given up is killed.
        """
        answer: asyncio.Future[int] = self._loop.create_future()
        async with self._sending:
            while True:
                try:
                    self.request_fork(request, descriptors, answer)
                    break
                except BlockingIOError:
                    await asyncio.sleep(SEND_PAUSE)
        try:
            return await answer
        except asyncio.CancelledError:
            # The process may exist by now, although its caller has gone.
            if not answer.cancelled() and answer.exception() is None:
                self.kill_child(answer.result())
            raise

    def kill_child(self, pid: int) -> None:
        """Kill one of its processes, unless that has ended."""
        self.resume_if_stopped()
        self._send_record(KillChild(pid))

    def begin_preparation(self) -> None:
        """Let it do what makes later processes cheaper; requests are answered meanwhile."""
        self._send_record(BeginPreparation())

    @property
    def is_prepared(self) -> bool:
        return self._prepared.done()

    async def wait_until_prepared(self, seconds: float) -> None:
        """Wait until its preparation is complete or it has ended, for at most so long."""
        either: set[asyncio.Future[Any]] = {self._prepared, self.ended}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def resume_if_stopped(self) -> None:
        """Continue it, in case it was stopped. It is our child, so its pid is not reused before we have waited for
        it."""
        if self._program.returncode is None:
            os.kill(self._program.pid, signal.SIGCONT)

    def request_end(self) -> None:
        """Ask it to end; `wait_until_ended` returns when it has."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        self.resume_if_stopped()

    def kill_server(self) -> None:
        """Kill it; its processes stay, unless they die with it. It holds no data that could be lost."""
        self._try_disconnect()
        self._program.kill()
        self._program.wait()

    def wait(self, timeout: float) -> None:
        """Wait for its end without an event loop."""
        with suppress(subprocess.TimeoutExpired):
            self._program.wait(max(0.01, timeout))
        if self._program.returncode is not None:
            self._on_connection_lost()

    def _send_record(self, record: LinkMessage) -> None:
        with suppress(OSError):
            send(self._control, record)

    def _on_readable(self) -> None:
        try:
            record, _ = receive(self._control)
        except BlockingIOError:
            return
        if record is None:
            self._on_connection_lost()
        elif isinstance(record, ServerReady):
            self._ready.set()
        elif isinstance(record, PreparationDone):
            self._prepared.set_result(None)
        elif isinstance(record, Ended):
            if self._on_ended is not None:
                self._on_ended(record.pid, record.code)
        elif isinstance(record, ForkDone | NotForked):
            self._answer_fork(record)

    def _answer_fork(self, record: ForkDone | NotForked) -> None:
        answer = self._forked.popleft()
        if answer is None:
            return
        if isinstance(record, NotForked):
            if not answer.done():
                answer.set_exception(OSError(record.errno, os.strerror(record.errno)))
        elif answer.done():
            self.kill_child(record.pid)
        else:
            answer.set_result(record.pid)

    def _on_connection_lost(self) -> None:
        if not self._try_disconnect():
            return
        # Its end of the link closed with it, so it is a zombie or about to be one.
        with suppress(subprocess.TimeoutExpired):
            self._program.wait(1)
        self._on_lost(self)

    def _try_disconnect(self) -> bool:
        """Close the control link and fail open requests; returns False if that has happened before."""
        if self._control.fileno() < 0:
            return False
        closed = self._loop.is_closed()
        if not closed:
            self._loop.remove_reader(self._control.fileno())
        self._control.close()
        waiting = [] if closed else [answer for answer in self._forked if answer is not None and not answer.done()]
        self._forked.clear()
        for answer in waiting:
            answer.set_exception(_ended_error())
        if not closed and not self.ended.done():
            self.ended.set_result(None)
        return True


def _ended_error() -> ProcessLookupError:
    return ProcessLookupError("the fork server has ended")


class ForkedProcess:
    """One of its processes, or one of an earlier parent; held by a descriptor, so that signals reach no other."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def wait_until_ended(self, seconds: float) -> bool:
        """Wait for its end; returns False if that took too long."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        descriptor = self._descriptor
        if descriptor < 0:
            return True

        def on_readable() -> None:
            if not over.done():
                over.set_result(None)

        loop.add_reader(descriptor, on_readable)
        try:
            async with asyncio.timeout(seconds):
                await over
            return True
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(descriptor)

    def close_descriptor(self) -> None:
        """Close the descriptor through which the end of the process is noticed."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class ForkFamily:
    """A fork server that is started with the first process and restarted if it has ended, and the exit codes of its
    processes.

    `module` is the program of the server; `variables` are those of the server itself.
    """

    def __init__(self, module: str, variables: ProgramEnvironment) -> None:
        self._module = module
        self._variables = variables
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._codes: dict[int, asyncio.Future[int | None]] = {}

    @property
    def server(self) -> ForkServer | None:
        """The server, if it is running and ready."""
        return self._server

    @property
    def pid(self) -> int:
        """The process of the server; 0 if there is none."""
        return 0 if self._server is None else self._server.pid

    async def ensure_server(self) -> ForkServer:
        """The server, started unless it runs; raises `OSError`."""
        async with self._starting:
            if self._server is None:
                server = ForkServer(make_python_command(self._module), self._variables, self._on_lost, self._on_ended)
                try:
                    await server.wait_until_ready()
                except BaseException:
                    server.kill_server()
                    raise
                self._server = server
            return self._server

    async def fork(self, request: bytes, descriptors: Sequence[int], seconds: float | None = None) -> int:
        """The id of a new process, from a new server if the old one has ended or does not answer within `seconds`.

        Raises `OSError` if none can be created. Call `forget` when it has ended.
        """
        try:
            return await self._fork(request, descriptors, seconds)
        except ProcessLookupError:
            return await self._fork(request, descriptors, seconds)

    async def _fork(self, request: bytes, descriptors: Sequence[int], seconds: float | None) -> int:
        server = await self.ensure_server()
        try:
            async with asyncio.timeout(seconds):
                pid = await server.fork(request, descriptors)
        except (TimeoutError, ConnectionError):
            server.kill_server()
            if self._server is server:
                self._on_lost(server)
            raise ProcessLookupError("the fork server does not answer") from None
        self._codes[pid] = asyncio.get_running_loop().create_future()
        return pid

    async def wait_for_exit_code(self, pid: int, seconds: float) -> int | None:
        """The exit code of a process as soon as it has ended, or None after so long, or if its server has ended too."""
        ended = self._codes.get(pid)
        if ended is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await asyncio.shield(ended)
        return None

    def forget(self, pid: int) -> None:
        self._codes.pop(pid, None)

    def close(self, seconds: float = 0.0) -> None:
        """End the server; its processes stay, unless they die with it. It may finish a step for so many `seconds`."""
        server, self._server = self._server, None
        if server is not None:
            if seconds:
                server.request_end()
                server.wait(seconds)
            server.kill_server()

    def _on_ended(self, pid: int, code: int) -> None:
        # `_fork` has noted the process, because the answer to it came first. A forgotten process is not kept.
        ended = self._codes.get(pid)
        if ended is not None and not ended.done():
            ended.set_result(code)

    def _on_lost(self, server: ForkServer) -> None:
        """Fail the waits for exit codes: the server has ended, so they will never come."""
        self._server = None
        for ended in self._codes.values():
            if not ended.done():
                ended.set_result(None)


def describe_exit(code: int) -> str:
    """An exit code in words: `was killed by SIGKILL`, `ended with exit code 1`."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def read_last_line(path: str) -> str:
    """The last line in the stderr file of a process."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].removeprefix("Error: ") if lines else ""
