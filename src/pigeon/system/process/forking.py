"""Processes that are forked from a parent which has imported everything already: the loop of that parent, and the
other end of its socket.

The parent has one thread, no event loop and no file but the socket. A request is a packet with descriptors, of which
the last is a file with its bytes (packets are short); answers are packets of JSON:

    `{"ready":P}`           once, when requests are accepted
    `{"forked":P}`          for each request, in their order
    `{"failed":E}`          instead of it, with the errno, if no process can be created
    `{"ended":P,"code":C}`  when a process has ended; the negative signal number if it was killed

When the socket closes, the parent ends but its processes stay: a later supervisor finds them by other means.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

MOST_DESCRIPTORS = 8
READY_SECONDS = 30.0
SEND_PAUSE = 0.005
_PACKET = 4096
_LAST_BYTES = 4_000
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its `parent` ends, which may have happened already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def serve_forks(descriptor: int, work: Callable[[bytes, list[int]], int]) -> NoReturn:
    """Fork a process for each request until the other end closes; it calls `work`, which returns its exit code.

    `work` gets the bytes and the descriptors of the request; all others but 0 to 2 are closed.
    """
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    # A Ctrl-C at the terminal is meant for the supervisor.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    _tell(control, {"ready": os.getpid()})
    poll = select.poll()
    poll.register(control, select.POLLIN)
    processes: dict[int, int] = {}
    while True:
        for ready, _ in poll.poll():
            if ready == control.fileno():
                request = _received(control)
                if request is None:
                    os._exit(0)
                try:
                    pid = _fork(request, work)
                    ended = os.pidfd_open(pid)
                except OSError as error:
                    _tell(control, {"failed": error.errno or 0})
                    continue
                _tell(control, {"forked": pid})
                processes[ended] = pid
                poll.register(ended, select.POLLIN)
            else:
                poll.unregister(ready)
                os.close(ready)
                pid = processes.pop(ready)
                _tell(control, {"ended": pid, "code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})


def _received(control: socket.socket) -> list[int] | None:
    try:
        _, descriptors, _, _ = socket.recv_fds(control, 1, MOST_DESCRIPTORS)
    except ConnectionError:
        return None
    return descriptors or None


def _tell(control: socket.socket, record: dict[str, int]) -> None:
    with suppress(OSError):
        control.send(msgspec.json.encode(record))


def _fork(request: list[int], work: Callable[[bytes, list[int]], int]) -> int:
    *given, file = request
    with open(file, "rb") as described:
        described.seek(0)
        data = described.read()
    try:
        pid = os.fork()
        if pid == 0:
            _work(data, given, work)
    finally:
        for descriptor in given:
            os.close(descriptor)
    return pid


def _work(data: bytes, given: list[int], work: Callable[[bytes, list[int]], int]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        before = 3
        for descriptor in [*sorted(given), os.sysconf("SC_OPEN_MAX")]:
            os.closerange(before, descriptor)
            before = descriptor + 1
        gc.disable()
        code = work(data, given)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


class ForkParent:
    """The other end of such a parent. `ended` is called for each of its processes, with the exit code."""

    def __init__(self, argv: Sequence[str], ended: Callable[[int, int], None], lost: Callable[[], None]) -> None:
        """`lost` is called if the parent ends on its own."""
        self._argv = list(argv)
        self._ended = ended
        self._lost = lost
        self._program: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready: asyncio.Future[None] | None = None
        self._forked: deque[asyncio.Future[int]] = deque()
        self._sending = asyncio.Lock()

    async def start(self, variables: dict[str, str]) -> None:
        """Start the program with these variables; raises `OSError`, also if it does not become ready."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._program = subprocess.Popen(  # noqa: ASYNC220 - it is spawned, which takes a millisecond
                [*self._argv, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env=variables,
                start_new_session=True,
            )
        ours.setblocking(False)
        self._control = ours
        self._ready = loop.create_future()
        loop.add_reader(ours.fileno(), self._read)
        try:
            async with asyncio.timeout(READY_SECONDS):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.close()
            raise

    async def fork(self, request: bytes, descriptors: Sequence[int]) -> int:
        """The id of a new process; raises `OSError` if none can be created.

        A process that appears after its caller has given up is killed.
        """
        if self._control is None:
            raise ProcessLookupError("the parent of the workers has ended")
        forked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        file = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            os.write(file, request)
            async with self._sending:
                await self._send([*descriptors, file])
                self._forked.append(forked)
        finally:
            os.close(file)
        try:
            return await forked
        except asyncio.CancelledError:
            # The process may exist by now, although its caller has gone.
            if not forked.cancelled() and forked.exception() is None:
                _kill(forked.result())
            raise

    async def _send(self, descriptors: list[int]) -> None:
        while True:
            if self._control is None:
                raise ProcessLookupError("the parent of the workers has ended")
            try:
                socket.send_fds(self._control, [b"+"], descriptors)
                return
            except BlockingIOError:
                await asyncio.sleep(SEND_PAUSE)

    @property
    def pid(self) -> int:
        """Its process; 0 if there is none."""
        return 0 if self._program is None else self._program.pid

    def close(self) -> None:
        """End the parent; its processes stay. It holds no data that could be lost."""
        self._hang_up()
        program, self._program = self._program, None
        if program is not None:
            program.kill()
            program.wait()

    def _read(self) -> None:
        assert self._control is not None
        try:
            packet = self._control.recv(_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._hang_up()
            if self._program is not None:
                self._program.wait()
            self._lost()
            return
        record: dict[str, Any] = msgspec.json.decode(packet)
        if "ready" in record and self._ready is not None:
            self._ready.set_result(None)
        elif "forked" in record:
            waiting = self._forked.popleft()
            if waiting.done():
                _kill(record["forked"])
            else:
                waiting.set_result(record["forked"])
        elif "failed" in record:
            waiting = self._forked.popleft()
            if not waiting.done():
                waiting.set_exception(OSError(record["failed"], os.strerror(record["failed"])))
        elif "ended" in record:
            self._ended(record["ended"], record["code"])

    def _hang_up(self) -> None:
        control, self._control = self._control, None
        if control is None:
            return
        asyncio.get_running_loop().remove_reader(control.fileno())
        control.close()
        gone = ProcessLookupError("the parent of the workers has ended")
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(gone)
        while self._forked:
            waiting = self._forked.popleft()
            if not waiting.done():
                waiting.set_exception(gone)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class ForkedProcess:
    """One of its processes, or one of an earlier parent; held by a descriptor, so that signals hit no other."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def ended(self, seconds: float) -> bool:
        """Wait for its end; false if that took too long."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        descriptor = self._descriptor
        if descriptor < 0:
            return True

        def tell() -> None:
            if not over.done():
                over.set_result(None)

        loop.add_reader(descriptor, tell)
        try:
            async with asyncio.timeout(seconds):
                await over
            return True
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(descriptor)

    def release(self) -> None:
        """Forget it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class ForkFamily:
    """A fork parent, which is started with the first process and again if it has ended, and how its processes end.

    `module` is the program of the parent; `variables` are those of the parent itself.
    """

    def __init__(self, module: str, variables: Mapping[str, str]) -> None:
        # Without the folder on the path: it may have a package of our name.
        self._argv = [sys.executable, "-P", "-m", module]
        self._variables = dict(variables)
        self._parent: ForkParent | None = None
        self._starting = asyncio.Lock()
        self._codes: dict[int, asyncio.Future[int | None]] = {}

    @property
    def pid(self) -> int:
        """The process of the parent; 0 if there is none."""
        return 0 if self._parent is None else self._parent.pid

    async def open(self) -> ForkParent:
        """The parent, started unless it runs; raises `OSError`."""
        async with self._starting:
            if self._parent is None:
                parent = ForkParent(self._argv, self._ended, self._lost)
                await parent.start(self._variables)
                self._parent = parent
            return self._parent

    async def fork(self, request: bytes, descriptors: Sequence[int], seconds: float | None = None) -> int:
        """The id of a new process, from a new parent if the old one has ended or does not answer for so long.

        Raises `OSError` if none can be created. `forget` it when it has ended.
        """
        try:
            return await self._forked(request, descriptors, seconds)
        except ProcessLookupError:
            return await self._forked(request, descriptors, seconds)

    async def _forked(self, request: bytes, descriptors: Sequence[int], seconds: float | None) -> int:
        parent = await self.open()
        try:
            async with asyncio.timeout(seconds):
                pid = await parent.fork(request, descriptors)
        except (TimeoutError, ConnectionError):
            parent.close()
            if self._parent is parent:
                self._lost()
            raise ProcessLookupError("the parent of the workers does not answer") from None
        self._codes[pid] = asyncio.get_running_loop().create_future()
        return pid

    async def code_of(self, pid: int, seconds: float) -> int | None:
        """The exit code of a process, as soon as it has ended; none after so long, or if its parent has ended, too."""
        ended = self._codes.get(pid)
        if ended is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await asyncio.shield(ended)
        return None

    def forget(self, pid: int) -> None:
        """Drop what is known of a process."""
        self._codes.pop(pid, None)

    def close(self) -> None:
        """End the parent; its processes stay, unless they die with it."""
        parent, self._parent = self._parent, None
        if parent is not None:
            parent.close()

    def _ended(self, pid: int, code: int) -> None:
        # `_forked` has noted the process: the answer to it came first. One that was forgotten meanwhile is not kept.
        ended = self._codes.get(pid)
        if ended is not None and not ended.done():
            ended.set_result(code)

    def _lost(self) -> None:
        """The parent has ended, so the exit codes of its processes will never come."""
        self._parent = None
        for ended in self._codes.values():
            if not ended.done():
                ended.set_result(None)


def how_it_ended(code: int) -> str:
    """An exit code in words: `was killed by SIGKILL`, `ended with exit code 1`."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def last_words(path: str) -> str:
    """The last line in the stderr file of a process."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].removeprefix("Error: ") if lines else ""
