"""A command under a reaper, as the agent sees it: its streaming output, its exit code, the end of all it started."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pigeon.system.process.messages import StartCommand
from pigeon.system.process.messages import encode as encode_record

if TYPE_CHECKING:
    from pigeon.system.process.pool import HelperPool
    from pigeon.system.process.reaper import ReaperConnection
    from pigeon.system.process.start import Streams, WallRecord

PIPE_GRACE = 0.1
LONGEST_ARGUMENT = 128 * 1024
PIPE = 64 * 1024
WIDE_PIPE = 256 * 1024
_F_SETPIPE_SZ = 1031
_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()


def make_start_command(
    program: str,
    argv: Sequence[str],
    cwd: str | None,
    environment: Mapping[str, str],
    has_input: bool,
    wall: WallRecord | None,
) -> StartCommand:
    """The record for the reaper; raises `ValueError` for a NUL character, `OSError` for an argument that no system
    accepts."""
    words = [to_system_bytes(argument) for argument in argv]
    path, folder = to_system_bytes(program), None if cwd is None else to_system_bytes(cwd)
    if b"\0" in b"".join([*words, path, folder or b""]):
        raise ValueError("a command cannot contain a NUL character")
    if any(len(word) >= LONGEST_ARGUMENT for word in words):
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    # Names that cannot be set may still be inherited; programs are started without them.
    variables = {
        to_system_bytes(name): to_system_bytes(value) for name, value in environment.items() if name and "=" not in name
    }
    return StartCommand(path, words, folder, variables, has_input, b"" if wall is None else encode_record(wall))


def to_system_bytes(text: str) -> bytes:
    """The text in the file system's encoding, as the kernel expects arguments and paths."""
    return text.encode(_ENCODING, _ERRORS)


class OutputPipe:
    """The output of a command, read as it arrives.

    We hold both ends of the pipe until the command has ended, so that the end of the output, which is of no use before,
    does not wake us.
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
        """More output; its end is reported after the exit, when a silence of `PIPE_GRACE` counts as the end too."""
        if self._read_end is None:
            return b""
        waiting: asyncio.Future[bytes | None] = self._loop.create_future()
        self._waiting = waiting
        if not self._watched:
            self._loop.add_reader(self._read_end, self._on_readable)
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

    def on_command_ended(self) -> None:
        """Release the writing end; from now on the output can end."""
        os.close(self.write_end)
        self._ended = True
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            self._on_readable()
            if not waiting.done():
                self._grace = self._loop.call_later(PIPE_GRACE, _resolve, waiting, b"")

    def close(self) -> None:
        """Close the reading end; a process that still writes gets SIGPIPE, as with any closed reader."""
        if self._read_end is not None:
            self._unwatch()
            os.close(self._read_end)
            self._read_end = None

    def _on_readable(self) -> None:
        if self._waiting is None or self._waiting.done() or self._read_end is None:
            # No read is under way; the pipe buffers further output.
            self._unwatch()
            return
        try:
            data = os.read(self._read_end, self._chunk)
        except BlockingIOError:
            return
        if len(data) == PIPE:
            self._enlarge_pipe(self._read_end)
        self._waiting.set_result(data)

    def _enlarge_pipe(self, read_end: int) -> None:
        import fcntl

        self._chunk = WIDE_PIPE
        with contextlib.suppress(OSError):
            fcntl.fcntl(read_end, _F_SETPIPE_SZ, WIDE_PIPE)

    def _unwatch(self) -> None:
        if self._watched and self._read_end is not None:
            self._loop.remove_reader(self._read_end)
            self._watched = False


def _resolve(waiting: asyncio.Future[bytes | None], how: bytes | None) -> None:
    if not waiting.done():
        waiting.set_result(how)


class SupervisedProcess:
    """A command that waits for a reaper, runs under one, or has ended.

    `pool` and `reaper` report its progress (`on_reaper_assigned`, `on_ended`, `on_wall_left`, `on_nothing_left`); the
    rest is `start.Process`.
    """

    def __init__(
        self,
        pool: HelperPool,
        command: StartCommand,
        on_gone: Callable[[SupervisedProcess, bool], None],
        on_wall_empty: Callable[[SupervisedProcess], None],
        *,
        separate_errors: bool,
        stdin: bytes | int | None,
        folder: int | None,
        streams: Streams | None,
    ) -> None:
        self.command = command
        self._folder = folder
        self._streams = streams
        self._pool = pool
        self._on_gone = on_gone
        self._on_wall_empty = on_wall_empty
        self._reaper: ReaperConnection | None = None
        self._pipes = [OutputPipe() for _ in range(0 if streams else 2 if separate_errors else 1)]
        self._input = _open_in_memory_file(stdin) if isinstance(stdin, bytes) else stdin
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._error: OSError | None = None
        self._gone = asyncio.Event()

    @property
    def descriptors(self) -> list[int]:
        """The descriptors for the command, in the order of `StartCommand`."""
        if self._streams is not None:
            given = [self._streams.stdout, self._streams.stderr, self._streams.stdin]
        else:
            ends = [pipe.write_end for pipe in self._pipes]
            given = [ends[0], ends[-1], *([] if self._input is None else [self._input])]
        return given if self._folder is None else [*given, self._folder]

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; `b""` at its end, `None` when the time is up."""
        return await self._pipes[0].read(timeout) if self._pipes else b""

    async def read_errors(self) -> bytes | None:
        """More of its separate error output."""
        return await self._pipes[1].read()

    async def wait(self) -> int:
        """The exit code; 128 plus the signal's number for a death by signal."""
        code = self._exit.result() if self._exit.done() else await asyncio.shield(self._exit)
        if self._error is not None:
            raise self._error
        return code

    def terminate(self) -> None:
        """Send SIGTERM to its process group; a command that still waits for a reaper is never run."""
        if self._reaper is not None:
            self._reaper.terminate()
        else:
            self.kill()

    def kill(self, keep_helper: bool = False) -> None:
        """Kill everything that is left of it."""
        self._pool.kill(self, self._reaper, keep_helper)

    async def wait_until_gone(self, timeout: float) -> bool:
        """Wait until nothing of it is left; returns False if that takes longer than the timeout."""
        if not self._gone.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), timeout)
        return self._gone.is_set()

    def close(self) -> None:
        """Stop reading the output; background processes continue."""
        for pipe in self._pipes:
            pipe.close()

    def on_reaper_assigned(self, reaper: ReaperConnection) -> None:
        self._reaper = reaper

    def on_reaper_lost(self) -> None:
        self._reaper = None

    def on_ended(self, code: int, error: OSError | None = None) -> None:
        """Note how it ended, or why it could not be started; only the first report counts."""
        if self._exit.done():
            return
        self._error = error
        # A loop that was closed during a command accepts no results any more.
        self._exit.cancel() if self._loop.is_closed() else self._exit.set_result(code)
        self.release_streams()
        for pipe in self._pipes:
            pipe.on_command_ended()
        if self._input is not None:
            os.close(self._input)
            self._input = None

    def release_streams(self) -> None:
        """Close our copies: the reaper has them, or never will, and the program's end must be noticeable at the other
        ends."""
        given, self._streams = self._streams, None
        for descriptor in given or ():
            os.close(descriptor)

    def on_wall_empty(self) -> None:
        """Nothing is left of it but the wall around it."""
        self._on_wall_empty(self)

    def on_nothing_left(self, known: bool = True) -> None:
        """Nothing is left of it; its reaper serves others from now on, or is gone too.

        If that is not `known`, the reaper was lost: the rest is being killed and may still run for a moment.
        """
        self._reaper = None
        if not self._loop.is_closed():
            self._gone.set()
        self._on_gone(self, known)


def _open_in_memory_file(content: bytes) -> int:
    """A descriptor to read this content from, so that no task has to write it while the command runs."""
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
