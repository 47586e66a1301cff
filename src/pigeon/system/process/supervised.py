"""A command under a keeper: its output as it comes, its exit code, and the end of all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Mapping, Sequence

from pigeon.system.process.pool import Job, drop, open_nursery
from pigeon.system.process.reaper import Command, Keeper

PIPE_GRACE = 0.1
LONGEST_ARGUMENT = 128 * 1024
PIPE = 64 * 1024
WIDE_PIPE = 256 * 1024
_F_SETPIPE_SZ = 1031
_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()


def start_kept(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> KeptProcess | None:
    """Run a command under a keeper; nothing if there is no nursery to be had."""
    command = _command(argv, cwd, env)
    nursery = open_nursery()
    if nursery is None:
        return None
    read_end, write_end = os.pipe()
    keeper = nursery.run(command, write_end)
    process = KeptProcess(read_end, write_end)
    if keeper is not None:
        keeper.ward = process
        process.begun(keeper)
    else:
        nursery.queue(Job(command, write_end, process))
    return process


def _command(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Command:
    arguments = [_bytes(argument) for argument in argv]
    if b"\0" in b"".join(arguments):
        raise ValueError("a command cannot contain a NUL character")
    if any(len(argument) >= LONGEST_ARGUMENT for argument in arguments):
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    return Command(arguments, _bytes(cwd), _encoded(env))


def _bytes(text: str) -> bytes:
    return text.encode(_ENCODING, _ERRORS)


_last_env: dict[str, str] = {}
_last_encoded: dict[bytes, bytes] = {}


def _encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """The environment as the system has it; the same object as long as it stays the same."""
    global _last_env, _last_encoded
    if env != _last_env:
        # Names that nobody can set may still be inherited; no program is started with them.
        _last_encoded = {_bytes(name): _bytes(value) for name, value in env.items() if name and "=" not in name}
        _last_env = dict(env)
    return _last_encoded


class KeptProcess:
    """A command under a keeper.

    We hold both ends of its pipe until it has ended, so that the end of its output, which is of no use before, does
    not wake us.
    """

    def __init__(self, output: int, write_end: int) -> None:
        self._keeper: Keeper | None = None
        os.set_blocking(output, False)
        self._loop = asyncio.get_running_loop()
        self._output: int | None = output
        self._write_end = write_end
        self._watched = False
        self._chunk = PIPE
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._error: OSError | None = None
        self._gone = asyncio.Event()
        self._waiting: asyncio.Future[bytes | None] | None = None
        self._grace: asyncio.TimerHandle | None = None

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; its end is told after the exit, when a silence of `PIPE_GRACE` counts as the end too."""
        if self._output is None:
            return b""
        waiting: asyncio.Future[bytes | None] = self._loop.create_future()
        self._waiting = waiting
        if not self._watched:
            self._loop.add_reader(self._output, self._readable)
            self._watched = True
        timer = None if timeout is None else self._loop.call_later(timeout, _resolve, waiting, None)
        if self._exit.done():
            self._grace = self._loop.call_later(PIPE_GRACE, _resolve, waiting, b"")
        try:
            return await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()
            if self._grace is not None:
                self._grace.cancel()
                self._grace = None

    async def wait(self) -> int:
        """The exit code; 128 plus the signal's number for a death by signal."""
        code = self._exit.result() if self._exit.done() else await asyncio.shield(self._exit)
        if self._error is not None:
            raise self._error
        return code

    def kill(self, tidy: bool = True) -> None:
        """Have the keeper kill everything. Tidy: the nursery goes too if no other command is left."""
        if self._keeper is not None:
            self._keeper.kill(self, tidy)
        elif not self._gone.is_set():
            drop(self, tidy)

    async def gone(self, timeout: float) -> bool:
        """True once the keeper has said that nothing is left."""
        if not self._gone.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), timeout)
        return self._gone.is_set()

    def close(self) -> None:
        """Close the pipe; a background process that still writes to it gets SIGPIPE, as with any closed reader."""
        if self._output is not None:
            self._unwatch()
            os.close(self._output)
            self._output = None

    def begun(self, keeper: Keeper) -> None:
        """A keeper has taken it."""
        self._keeper = keeper

    def ended(self, code: int, error: OSError | None = None) -> None:
        """The keeper says how it ended."""
        if self._exit.done():
            return
        os.close(self._write_end)
        self._error = error
        self._exit.set_result(code)
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            self._readable()
            if not waiting.done():
                self._grace = self._loop.call_later(PIPE_GRACE, _resolve, waiting, b"")

    def left_nothing(self) -> None:
        """The keeper says that nothing is left, and serves others from now on."""
        self._keeper = None
        self._gone.set()

    def _readable(self) -> None:
        if self._waiting is None or self._waiting.done() or self._output is None:
            # Nobody asks for more now; the pipe holds it back.
            self._unwatch()
            return
        try:
            data = os.read(self._output, self._chunk)
        except BlockingIOError:
            return
        if len(data) == PIPE:
            self._widen()
        self._waiting.set_result(data)

    def _widen(self) -> None:
        import fcntl

        self._chunk = WIDE_PIPE
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._output or 0, _F_SETPIPE_SZ, WIDE_PIPE)

    def _unwatch(self) -> None:
        if self._watched and self._output is not None:
            self._loop.remove_reader(self._output)
            self._watched = False


def _resolve(waiting: asyncio.Future[bytes | None], how: bytes | None) -> None:
    if not waiting.done():
        waiting.set_result(how)
