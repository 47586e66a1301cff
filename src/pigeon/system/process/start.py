"""The one way to start a process: streamed, killable with everything it started, and never outliving Pigeon.

On Linux a command runs under a reaper of the helper program (`pool`), so killing it includes processes that called
setsid or forked twice, and our own death, even by SIGKILL, ends it. Elsewhere, or where the helper cannot run, it is a
direct child in its own process group (`unsupervised`), which is as far as those systems go. A command gets one pipe for
both outputs (or one for each), `/dev/null` or given bytes as input, and no other descriptor of ours; or three given
descriptors, for a program to communicate with. Shell commands (`shell/shell`), ripgrep (`workspaces/ripgrep`),
extensions and key commands (`run_program`) and tool servers (`mcp/`) all start here.

The wall, if the agent has one (`sandbox/wall`), applies here too: a program is replaced by what the wall runs instead.
Only a call with `outside` avoids it, and a command that cannot be enclosed is not run.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pigeon.system.process.messages import BubblewrapWall, LandlockWall
from pigeon.system.process.variables import ProgramEnvironment

WallRecord = BubblewrapWall | LandlockWall


class EnclosedProgram(NamedTuple):
    """The program that is run instead of another; the reaper builds the `wall` around it."""

    program: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    wall: WallRecord


class CommandWall(Protocol):
    """Encloses programs (`sandbox/wall`): `prepare_program` and `on_program_ended` are called around each of them."""

    @property
    def temporary_folder(self) -> str:
        """Where the programs may write temporary files."""
        ...

    async def prepare_program(
        self, program: str, argv: Sequence[str], cwd: str, environment: Mapping[str, str]
    ) -> EnclosedProgram:
        """The program to run instead; raises `OSError` if there is none. `on_program_ended` must follow."""
        ...

    def on_program_ended(self) -> None:
        """Called when a program has ended with all that it started."""
        ...


class Streams(NamedTuple):
    """The descriptors of a program's input, output and errors."""

    stdin: int
    stdout: int
    stderr: int


class Process(Protocol):
    """A running command, supervised by a reaper or started as a child of this process."""

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; `b""` at its end, `None` when the time is up."""
        ...

    async def read_errors(self) -> bytes | None:
        """The same for its error output, if that is separate."""
        ...

    async def wait(self) -> int:
        """The exit code, 128 plus the signal's number for a death by signal; raises `OSError` if it could not be
        started."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to its process group; returns at once."""
        ...

    def kill(self, keep_helper: bool = False) -> None:
        """Kill it and everything it started; returns at once. An idle helper ends too unless it is kept."""
        ...

    async def wait_until_gone(self, timeout: float) -> bool:
        """Wait until nothing of it is left; returns False if that took too long."""
        ...

    def close(self) -> None:
        """Stop reading the output; background processes continue."""
        ...


class ProgramLine(NamedTuple):
    """A program, its arguments, its folder and its variables, and the wall around it."""

    program: str
    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    wall: WallRecord | None


class Channels(NamedTuple):
    """The streams of a program, as for `ProcessOwner.start`."""

    separate_errors: bool
    stdin: bytes | int | None
    folder: int | None
    streams: Streams | None


class ProcessOwner:
    """Starts the processes of one agent and holds them until they are gone; `app` makes one for each agent.

    `wall` encloses what it starts; without one, commands may do whatever the user may do.
    """

    def __init__(self, wall: CommandWall | None = None) -> None:
        self._wall = wall
        self._sealed_wall = wall
        self._processes: dict[Process, CommandWall | None] = {}

    @property
    def temporary_folder(self) -> str | None:
        """Where what it starts may write temporary files, if a wall decides about that."""
        return None if self._wall is None else self._wall.temporary_folder

    def set_walls(self, wall: CommandWall, sealed: CommandWall) -> None:
        """Enclose everything that is started from here on, programs that see keys with `sealed`; this cannot be
        undone."""
        self._wall = wall
        self._sealed_wall = sealed

    async def start(  # noqa: PLR0913 - each is one thing that a caller may know of a program
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: ProgramEnvironment,
        program: str | None = None,
        separate_errors: bool = False,
        stdin: bytes | int | None = None,
        folder: int | None = None,
        streams: Streams | None = None,
        outside: bool = False,
        sealed: bool = False,
        detached: bool = False,
    ) -> Process:
        """Run `program` (an absolute path; the first argument unless given) in `cwd` with exactly `environment`.

        `stdin` is what the program reads, or a descriptor to read it from, which is closed here when it has ended.
        `streams` are closed here once the program has them, or if it cannot be started; then there is no output to
        read.

        `folder` is an open descriptor of `cwd`: with it, if a reaper starts the program without a wall, the program
        starts there even if another folder has that path meanwhile. The caller keeps it open until the process has
        ended. `outside` leaves out the wall: only for programs that the host has allowed, or runs itself. `sealed` is
        for programs that see keys: behind its wall they can write nothing that a later command would find.

        `detached` is for programs that end when their input does, and start others that must outlive them: killing one
        kills its process group alone, and nothing is killed when Pigeon is.
        """
        wall = None if outside else self._sealed_wall if sealed else self._wall
        line = ProgramLine(program or argv[0], argv, cwd, environment, None)
        channels = Channels(separate_errors, stdin, folder, streams)
        if wall is None:
            return await self._start_process(line, channels, None, detached)
        try:
            enclosed = await wall.prepare_program(*line[:4])
        except BaseException:
            for descriptor in streams or ():
                os.close(descriptor)
            raise
        line = ProgramLine(enclosed.program, enclosed.argv, cwd, enclosed.environment, enclosed.wall)
        try:
            return await self._start_process(line, channels, wall)
        except BaseException:
            wall.on_program_ended()
            raise

    async def _start_process(
        self, line: ProgramLine, channels: Channels, wall: CommandWall | None, detached: bool = False
    ) -> Process:
        if sys.platform.startswith("linux") and not detached:
            process = self._start_supervised(line, channels, wall)
            if process is not None:
                return process
        if wall is not None:
            for descriptor in channels.streams or ():
                os.close(descriptor)
            raise OSError(errno.ENOSYS, "no sandbox here: the program that supervises commands cannot run")
        from pigeon.system.process.unsupervised import start_unsupervised

        alone = await start_unsupervised(
            line.program,
            line.argv,
            line.cwd,
            line.environment,
            self._on_process_gone,
            separate_errors=channels.separate_errors,
            stdin=channels.stdin,
            streams=channels.streams,
        )
        self._processes[alone] = wall
        return alone

    def _start_supervised(self, line: ProgramLine, channels: Channels, wall: CommandWall | None) -> Process | None:
        from pigeon.system.process.pool import ensure_current_pool
        from pigeon.system.process.supervised import SupervisedProcess, make_start_command

        pool = ensure_current_pool()
        cwd = line.cwd if channels.folder is None else None
        has_input = channels.stdin is not None or channels.streams is not None
        command = make_start_command(line.program, line.argv, cwd, line.environment, has_input, line.wall)
        pool.add_owner(self)
        if not pool.try_ensure_helper():
            return None
        process = SupervisedProcess(
            pool,
            command,
            self._on_process_gone,
            self._on_wall_empty,
            separate_errors=channels.separate_errors,
            stdin=channels.stdin,
            folder=channels.folder,
            streams=channels.streams,
        )
        self._processes[process] = wall
        pool.start(process)
        return process

    def _on_wall_empty(self, process: Process) -> None:
        """The rest of the process ends by itself and does nothing: the wall's resources can be released."""
        wall = self._processes.get(process)
        if wall is not None:
            self._processes[process] = None
            wall.on_program_ended()

    def _on_process_gone(self, process: Process, known: bool = True) -> None:
        """Nothing is left of the process; if that is not `known`, the wall's resources stay, since something may still
        run."""
        wall = self._processes.pop(process, None)
        if wall is not None and known:
            wall.on_program_ended()

    def warm_up(self) -> None:
        """Prepare for the first command, so that it need not wait; in a running event loop."""
        if sys.platform.startswith("linux"):
            from pigeon.system.process.pool import ensure_current_pool

            pool = ensure_current_pool()
            pool.add_owner(self)
            pool.ensure_free_reaper()

    def release_when_idle(self) -> None:
        """Keep nothing for future commands; background processes continue."""
        if "pigeon.system.process.pool" in sys.modules:
            from pigeon.system.process.pool import ensure_current_pool

            ensure_current_pool().release_when_idle()

    async def kill_everything(self, timeout: float = 2.0) -> bool:
        """Kill every command of this owner and all background processes; returns True if nothing is left."""
        deadline = time.monotonic() + timeout
        processes = list(self._processes)
        for process in processes:
            process.kill()
        done = all([await process.wait_until_gone(max(0.0, deadline - time.monotonic())) for process in processes])
        if "pigeon.system.process.pool" in sys.modules:
            from pigeon.system.process.pool import leave_pool

            done = await leave_pool(self, deadline) and done
        return done
