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


def start_kept(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], program: str, *, apart: bool, stdin: bytes | None
) -> KeptProcess | None:
    """Run a command under a keeper; nothing if there is no nursery. Apart: errors have their own pipe."""
    command = _command(program, argv, cwd, env)
    nursery = open_nursery()
    if nursery is None:
        return None
    process = KeptProcess(apart, stdin)
    keeper = nursery.run(command, process.descriptors)
    if keeper is not None:
        keeper.ward = process
        process.begun(keeper)
    else:
        nursery.queue(Job(command, process.descriptors, process))
    return process


def _command(program: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Command:
    arguments = [_bytes(argument) for argument in argv]
    if b"\0" in b"".join([*arguments, _bytes(program), _bytes(cwd)]):
        raise ValueError("a command cannot contain a NUL character")
    if any(len(argument) >= LONGEST_ARGUMENT for argument in arguments):
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    return Command(_bytes(program), arguments, _bytes(cwd), _encoded(env))


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


class OutputPipe:
    """What a command writes, read as it comes.

    We hold both ends of the pipe until the command has ended, so that the end of its output, which is of no use
    before, does not wake us.
    """

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        os.set_blocking(read_end, False)
        self._loop = asyncio.get_running_loop()
        self._read_end: int | None = read_end
        self._ended = False
        self._watched = False
        self._chunk = PIPE
        self._waiting: asyncio.Future[bytes | None] | None = None
        self._grace: asyncio.TimerHandle | None = None

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; its end is told after the exit, when a silence of `PIPE_GRACE` counts as the end too."""
        if self._read_end is None:
            return b""
        waiting: asyncio.Future[bytes | None] = self._loop.create_future()
        self._waiting = waiting
        if not self._watched:
            self._loop.add_reader(self._read_end, self._readable)
            self._watched = True
        timer = None if timeout is None else self._loop.call_later(timeout, _resolve, waiting, None)
        if self._ended:
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

    def command_ended(self) -> None:
        """Let go of the writing end; from now on the output can end."""
        os.close(self.write_end)
        self._ended = True
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            self._readable()
            if not waiting.done():
                self._grace = self._loop.call_later(PIPE_GRACE, _resolve, waiting, b"")

    def close(self) -> None:
        """Close the reading end; a process that still writes gets SIGPIPE, as with any closed reader."""
        if self._read_end is not None:
            self._unwatch()
            os.close(self._read_end)
            self._read_end = None

    def _readable(self) -> None:
        if self._waiting is None or self._waiting.done() or self._read_end is None:
            # No read is under way; the pipe holds back what comes now.
            self._unwatch()
            return
        try:
            data = os.read(self._read_end, self._chunk)
        except BlockingIOError:
            return
        if len(data) == PIPE:
            self._widen()
        self._waiting.set_result(data)

    def _widen(self) -> None:
        import fcntl

        self._chunk = WIDE_PIPE
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._read_end or 0, _F_SETPIPE_SZ, WIDE_PIPE)

    def _unwatch(self) -> None:
        if self._watched and self._read_end is not None:
            self._loop.remove_reader(self._read_end)
            self._watched = False


def _resolve(waiting: asyncio.Future[bytes | None], how: bytes | None) -> None:
    if not waiting.done():
        waiting.set_result(how)


class KeptProcess:
    """A command under a keeper."""

    def __init__(self, apart: bool = False, stdin: bytes | None = None) -> None:
        self._keeper: Keeper | None = None
        self._pipes = [OutputPipe() for _ in range(2 if apart else 1)]
        self._input = None if stdin is None else _file_with(stdin)
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._error: OSError | None = None
        self._gone = asyncio.Event()

    @property
    def descriptors(self) -> list[int]:
        """What the command gets as output, errors (if apart) and input (if given)."""
        ends = [pipe.write_end for pipe in self._pipes]
        return ends if self._input is None else [ends[0], ends[-1], self._input]

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output."""
        return await self._pipes[0].read(timeout)

    async def read_errors(self) -> bytes | None:
        """More of what it wrote to its error output, which is apart."""
        return await self._pipes[1].read()

    async def wait(self) -> int:
        """The exit code; 128 plus the signal's number for a death by signal."""
        code = self._exit.result() if self._exit.done() else await asyncio.shield(self._exit)
        if self._error is not None:
            raise self._error
        return code

    def ask_to_end(self) -> None:
        """Have the keeper send SIGTERM to its process group; one that did not begin yet never does."""
        if self._keeper is not None:
            self._keeper.ask_to_end(self)
        else:
            self.kill()

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
        """No more output is wanted; what runs in the background goes on."""
        for pipe in self._pipes:
            pipe.close()

    def begun(self, keeper: Keeper) -> None:
        """A keeper has taken it."""
        self._keeper = keeper

    def ended(self, code: int, error: OSError | None = None) -> None:
        """The keeper says how it ended."""
        if self._exit.done():
            return
        self._error = error
        self._exit.set_result(code)
        for pipe in self._pipes:
            pipe.command_ended()
        if self._input is not None:
            os.close(self._input)
            self._input = None

    def left_nothing(self) -> None:
        """The keeper says that nothing is left, and serves others from now on."""
        self._keeper = None
        self._gone.set()


def _file_with(content: bytes) -> int:
    """A descriptor to read this from, without a process or a task that must write it meanwhile."""
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
