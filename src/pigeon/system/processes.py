"""Commands as child processes: streamed, killable with everything they started, and never outliving us.

On Linux a command is run by a keeper (see `nursery`), so killing it takes along what called setsid or forked twice, and
our own death, even by SIGKILL, ends it. Elsewhere, or when the nursery cannot be started, it is a direct child in a
process group of its own (see `direct`), which is as far as those systems go. A command gets `/dev/null` as input, one
pipe for both outputs, and no other descriptor of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import subprocess

PIPE_GRACE = 0.1
CHUNK = 256 * 1024
PIPE_SIZE = 256 * 1024
LOST = 137
_F_SETPIPE_SZ = 1031
_BOOT = "import sys; sys.path.append(sys.argv[1]); import nursery; nursery.main(int(sys.argv[2]))"


class Process(Protocol):
    """A running command."""

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; `b""` when there will be none, `None` when the time is over."""
        ...

    async def wait(self) -> int:
        """The exit code, 128 plus the signal's number for a death by signal; `OSError` if it could not be started."""
        ...

    def kill(self) -> None:
        """Kill it and everything it started; returns at once."""
        ...

    async def gone(self, timeout: float) -> bool:
        """Wait until nothing of it is left; false if that took too long."""
        ...

    def close(self) -> None:
        """No more output is wanted; what still runs in the background goes on."""
        ...


async def start(argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Process:
    """Run a program (an absolute path and its arguments) in `cwd` with exactly `env`."""
    if not sys.platform.startswith("linux"):
        from pigeon.system.direct import start_direct

        return await start_direct(argv, cwd=cwd, env=env)
    request = marshal.dumps((list(argv), cwd, dict(env)))
    for _ in range(2):
        nursery = _open_nursery()
        if nursery is None:
            break
        kept = Kept.start(nursery, request)
        if kept is not None:
            return kept
        nursery.discard()
    from pigeon.system.direct import start_direct

    return await start_direct(argv, cwd=cwd, env=env)


def warm_up() -> None:
    """Start the nursery now, so that the first command need not wait for it."""
    if sys.platform.startswith("linux"):
        _open_nursery()


async def kill_everything(timeout: float = 2.0) -> bool:
    """Kill every command and all that was left running in the background; true if nothing is left."""
    kept = list(_alive)
    for process in kept:
        process.kill()
    deadline = time.monotonic() + timeout
    results = [await process.gone(max(0.0, deadline - time.monotonic())) for process in kept]
    if _nursery is not None:
        _nursery.discard(max(0.05, deadline - time.monotonic()))
    from pigeon.system.direct import kill_direct

    return all(results) and kill_direct()


def kill_everything_now(timeout: float = 1.0) -> bool:
    """The same for a moment without an event loop: returns when nothing is left, or the time is over."""
    deadline = time.monotonic() + timeout
    for process in list(_alive):
        process.kill()
    done = all([process.gone_now(deadline) for process in list(_alive)])
    if _nursery is not None:
        _nursery.discard(max(0.05, deadline - time.monotonic()))
    if "pigeon.system.direct" in sys.modules:
        sys.modules["pigeon.system.direct"].kill_direct()
    return done


# --- the nursery, seen from here -------------------------------------------------------------------------------------


class Nursery:
    """Our end of the program that forks keepers."""

    def __init__(self, program: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._program = program
        self._control = control

    def fork_keeper(self, leash: socket.socket, output: int) -> bool:
        """Hand over the two descriptors of a command; false if the nursery is gone."""
        try:
            socket.send_fds(self._control, [b"k"], [leash.fileno(), output])
        except OSError:
            return False
        return True

    @property
    def alive(self) -> bool:
        """True while it runs."""
        return self._program.poll() is None

    def discard(self, timeout: float = 0.5) -> None:
        """Let it go, and take it off the process table if it ends in time."""
        global _nursery
        if _nursery is self:
            _nursery = None
        self._control.close()
        import subprocess

        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(timeout)


_nursery: Nursery | None = None
_unable = False
_alive: set[Kept] = set()


def _open_nursery() -> Nursery | None:
    global _nursery, _unable
    if _unable:
        return None
    if _nursery is None or not _nursery.alive:
        if _nursery is not None:
            _nursery.discard()
        _nursery = _start_nursery()
        _unable = _nursery is None
    return _nursery


def _start_nursery() -> Nursery | None:
    import subprocess

    if not sys.executable or not os.path.isfile(os.path.join(os.path.dirname(__file__), "nursery.py")):
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    library_path = os.environ.get("LD_LIBRARY_PATH")
    try:
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _BOOT, os.path.dirname(__file__), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            cwd="/",
            env={"LD_LIBRARY_PATH": library_path} if library_path else {},
        )
    except OSError:
        ours.close()
        return None
    finally:
        theirs.close()
    return Nursery(program, ours)


# --- one command ------------------------------------------------------------------------------------------------------


class Kept:
    """A command under a keeper."""

    def __init__(self, leash: socket.socket, output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._leash = leash
        self._output: int | None = output
        self._lines = bytearray()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._waiting: asyncio.Future[bool] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self.pid = 0
        _alive.add(self)
        self._loop.add_reader(leash.fileno(), self._heard)

    @classmethod
    def start(cls, nursery: Nursery, request: bytes) -> Kept | None:
        """Have a keeper forked and tell it what to run."""
        leash, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        _widen(write_end)
        try:
            if not nursery.fork_keeper(theirs, write_end):
                leash.close()
                os.close(read_end)
                return None
        finally:
            theirs.close()
            os.close(write_end)
        leash.settimeout(5)
        try:
            leash.sendall(len(request).to_bytes(4, "big") + request)
        except OSError:
            leash.close()
            os.close(read_end)
            return None
        leash.setblocking(False)
        os.set_blocking(read_end, False)
        return cls(leash, read_end)

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; after the exit, a silence of `PIPE_GRACE` counts as its end."""
        while self._output is not None:
            try:
                if await self._readable(timeout):
                    return os.read(self._output, CHUNK)
            except BlockingIOError:
                continue
            return b"" if self._exit.done() and timeout is None else None
        return b""

    async def _readable(self, timeout: float | None) -> bool:
        assert self._output is not None
        waiting = self._waiting = self._loop.create_future()
        self._loop.add_reader(self._output, _resolve, waiting, True)
        timer = self._loop.call_later(timeout, _resolve, waiting, False) if timeout is not None else None
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
            self._grace = self._loop.call_later(PIPE_GRACE, _resolve, self._waiting, False)
