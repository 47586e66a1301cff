"""Commands under keepers: our end of the program in `nursery`, and of the leash that each command hangs on."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import marshal
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from pigeon.system.secrecy import close_to_others

PIPE_GRACE = 0.1
CHUNK = 256 * 1024
SIGNALLED = 128
LOST = 137
_F_SETPIPE_SZ = 1031
# The folder is not among the arguments, so that looking for our name in the process table does not find the nursery.
_BOOT = "import os, sys; sys.path.append(os.environ.pop('WHERE')); import nursery; nursery.main(int(sys.argv[1]))"
_Wake = Literal["ready", "late", "silent"]


class Nursery:
    """The program that forks keepers."""

    def __init__(self, program: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._program = program
        self._control = control
        self.pid = program.pid
        self._watch()
        _nurseries.add(self)

    @property
    def alive(self) -> bool:
        """True while it runs; asking takes it off the process table when it has ended."""
        if self._program.poll() is None:
            return True
        _nurseries.discard(self)
        return False

    def fork_keeper(self, leash: socket.socket, output: int) -> bool:
        """Hand over the two descriptors of a command; false if the nursery is gone."""
        try:
            socket.send_fds(self._control, [b"k"], [leash.fileno(), output])
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Hang up; it ends by itself once no keeper is left."""
        global _nursery
        if _nursery is self:
            _nursery = None
        self._control.close()

    def wait_now(self, deadline: float) -> None:
        """Block until it has ended or the time is over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(max(0.01, deadline - time.monotonic()))
            _nurseries.discard(self)

    async def wait(self, deadline: float) -> None:
        """The same without blocking the event loop."""
        if self.alive:
            await asyncio.to_thread(self.wait_now, deadline)

    def _watch(self) -> None:
        """Have the event loop notice its end, so that no zombie is left."""
        try:
            loop = asyncio.get_running_loop()
            descriptor = os.pidfd_open(self._program.pid)
        except (RuntimeError, OSError, AttributeError):
            return

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            _ = self.alive

        loop.add_reader(descriptor, ended)


_nursery: Nursery | None = None
_unable = False
_registered = False
_nurseries: set[Nursery] = set()
_alive: set[Kept] = set()


def open_nursery() -> Nursery | None:
    """The nursery, started if need be; nothing where it cannot be started."""
    global _nursery, _unable, _registered
    if _nursery is not None and not _nursery.alive:
        _nursery.release()
    if _nursery is None and not _unable:
        if not _registered:
            atexit.register(kill_kept_now, 1.0)
            _registered = True
        close_to_others()
        _nursery = _start_nursery()
        _unable = _nursery is None
    return _nursery


def _start_nursery() -> Nursery | None:
    folder = os.path.dirname(__file__)
    if not sys.executable or not os.path.isfile(os.path.join(folder, "nursery.py")):
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    library_path = os.environ.get("LD_LIBRARY_PATH")
    try:
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _BOOT, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            cwd="/",
            env={"WHERE": folder} | ({"LD_LIBRARY_PATH": library_path} if library_path else {}),
        )
    except OSError:
        ours.close()
        return None
    finally:
        theirs.close()
    return Nursery(program, ours)


def children_left() -> list[int]:
    """The pid of the nursery while there is one: our only child on account of commands."""
    return [nursery.pid for nursery in list(_nurseries) if nursery.alive]


def start_kept(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Kept | None:
    """Run a command under a new keeper; nothing if there is no nursery to be had."""
    request = _request(argv, cwd, env)
    for _ in range(2):
        nursery = open_nursery()
        if nursery is None:
            return None
        kept = _forked(nursery, request)
        if kept is not None:
            return kept
        nursery.release()
    return None


def _request(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> bytes:
    """What the keeper reads, as the system will see it; `ValueError` for text that no argument can hold."""
    arguments = [os.fsencode(argument) for argument in argv]
    if any(b"\0" in argument for argument in arguments):
        raise ValueError("a command cannot contain a NUL character")
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    return marshal.dumps((arguments, os.fsencode(cwd), variables))


def _forked(nursery: Nursery, request: bytes) -> Kept | None:
    read_end, write_end = os.pipe()
    try:
        leash, theirs = socket.socketpair()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        raise
    _widen(write_end)
    asked = nursery.fork_keeper(theirs, write_end)
    theirs.close()
    os.close(write_end)
    try:
        leash.settimeout(5)
        leash.sendall(len(request).to_bytes(4, "big") + request)
        leash.setblocking(False)
    except OSError:
        asked = False
    if not asked:
        leash.close()
        os.close(read_end)
        return None
    os.set_blocking(read_end, False)
    return Kept(leash, read_end)


def _widen(pipe: int) -> None:
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, CHUNK)


class Kept:
    """A command under a keeper."""

    def __init__(self, leash: socket.socket, output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._leash = leash
        self._output: int | None = output
        self._heard_so_far = bytearray()
        self._error: OSError | None = None
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._last_one = False
        self._waiting: asyncio.Future[_Wake] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self.pid = 0
        _alive.add(self)
        self._loop.add_reader(leash.fileno(), self._heard)

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; after the exit, a silence of `PIPE_GRACE` counts as its end."""
        while self._output is not None:
            woken = await self._wake(timeout)
            if woken != "ready":
                return b"" if woken == "silent" else None
            try:
                return os.read(self._output, CHUNK)
            except BlockingIOError:
                continue
        return b""

    async def _wake(self, timeout: float | None) -> _Wake:
        assert self._output is not None
        waiting: asyncio.Future[_Wake] = self._loop.create_future()
        self._waiting = waiting
        self._loop.add_reader(self._output, _resolve, waiting, "ready")
        timer = None if timeout is None else self._loop.call_later(timeout, _resolve, waiting, "late")
        self._arm_grace()
        try:
            return await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()
            if self._grace is not None:
                self._grace.cancel()
                self._grace = None
            if self._output is not None:
                self._loop.remove_reader(self._output)

    def _arm_grace(self) -> None:
        if self._exit.done() and self._waiting is not None and self._grace is None:
            self._grace = self._loop.call_later(PIPE_GRACE, _resolve, self._waiting, "silent")

    async def wait(self) -> int:
        """The exit code; 128 plus the signal's number for a death by signal."""
        code = await asyncio.shield(self._exit)
        if self._error is not None:
            raise self._error
        return code

    def kill(self, tidy: bool = True) -> None:
        """Have the keeper kill everything; the leash closes when that is done. Tidy: the nursery goes too if unused."""
        self._last_one = tidy
        with contextlib.suppress(OSError):
            self._leash.send(b"k")

    async def gone(self, timeout: float) -> bool:
        """True once the keeper has hung up, which it does when nothing is left."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), timeout)
        return self._gone.is_set()

    def gone_now(self, deadline: float) -> bool:
        """The same, blocking."""
        while not self._gone.is_set():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._leash], [], [], left)[0]:
                return False
            self._heard()
        return True

    def close(self) -> None:
        """Close the pipe; a background process that still writes to it gets SIGPIPE, as with any closed reader."""
        if self._output is not None:
            os.close(self._output)
            self._output = None

    def _heard(self) -> None:
        try:
            data = self._leash.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard_so_far += data
        *lines, rest = bytes(self._heard_so_far).split(b"\n")
        self._heard_so_far = bytearray(rest)
        for line in lines:
            self._understand(line[:1], int(line[1:]))
        if not data:
            self._hung_up()

    def _understand(self, what: bytes, number: int) -> None:
        if what == b"p":
            self.pid = number
        elif what == b"e":
            self._error = OSError(number, os.strerror(number))
        elif what == b"x":
            self._ended(number if number >= 0 else SIGNALLED - number)

    def _ended(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code)
            self._arm_grace()

    def _hung_up(self) -> None:
        self._ended(LOST)
        self._gone.set()
        _alive.discard(self)
        with contextlib.suppress(RuntimeError):
            self._loop.remove_reader(self._leash.fileno())
        self._leash.close()
        if self._last_one and not _alive and _nursery is not None:
            _nursery.release()


def _resolve(future: asyncio.Future[_Wake], how: _Wake) -> None:
    if not future.done():
        future.set_result(how)


async def kill_kept(timeout: float) -> bool:
    """Kill all commands and what they left behind, then the nursery."""
    deadline = time.monotonic() + timeout
    kept = list(_alive)
    for process in kept:
        process.kill()
    results = [await process.gone(max(0.0, deadline - time.monotonic())) for process in kept]
    for nursery in list(_nurseries):
        nursery.release()
        await nursery.wait(deadline)
    return all(results)


def kill_kept_now(timeout: float) -> bool:
    """The same, blocking."""
    deadline = time.monotonic() + timeout
    kept = list(_alive)
    for process in kept:
        process.kill()
    results = [process.gone_now(deadline) for process in kept]
    for nursery in list(_nurseries):
        nursery.release()
        nursery.wait_now(deadline)
    return all(results)
