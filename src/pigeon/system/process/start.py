"""The one way to start a process: streamed, killable with everything it started, and never outliving Pigeon.

On Linux a command runs under a reaper of the helper program (`pool`), so killing it takes along what called setsid or
forked twice, and our own death, even by SIGKILL, ends it. Elsewhere, or where the helper cannot run, it is a direct
child in a process group of its own (`unsupervised`), which is as far as those systems go. A command gets one pipe for
both outputs (or one for each), `/dev/null` or given bytes as input, and no other descriptor of ours; or three
descriptors that are given, for a program that is talked to. Shell commands (`shell/shell`), ripgrep
(`tools/searching`), extensions and key commands (`run_program`) and tool servers (`mcp/`) all start here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Streams(NamedTuple):
    """The descriptors that a program gets as its input, output and errors."""

    stdin: int
    stdout: int
    stderr: int


class Process(Protocol):
    """A running command."""

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; `b""` when there will be none, `None` when the time is over."""
        ...

    async def read_errors(self) -> bytes | None:
        """The same for its error output, if that was wanted separately."""
        ...

    async def wait(self) -> int:
        """The exit code, 128 plus the signal's number for a death by signal; `OSError` if it could not be started."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to its process group; returns at once."""
        ...

    def kill(self, keep_helper: bool = False) -> None:
        """Kill it and everything it started; returns at once. The idle helper goes along unless it is kept."""
        ...

    async def gone(self, timeout: float) -> bool:
        """Wait until nothing of it is left; false if that took too long."""
        ...

    def close(self) -> None:
        """No more output is wanted; what still runs in the background goes on."""
        ...


class ProcessOwner:
    """Starts the processes of one agent and holds them until they are gone; `app` makes one for each agent."""

    def __init__(self) -> None:
        self._processes: set[Process] = set()

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        program: str | None = None,
        separate_errors: bool = False,
        stdin: bytes | None = None,
        folder: int | None = None,
        streams: Streams | None = None,
    ) -> Process:
        """Run `program` (an absolute path; the first argument unless given) in `cwd` with exactly `environment`.

        `streams` are closed here once the program has them, or if it cannot be started; there is no output to be read
        then.

        `folder` is an open descriptor of `cwd`: given, the program starts there even if another folder has taken that
        path meanwhile, where a reaper starts it. The caller keeps it open until the process has ended.
        """
        program = program or argv[0]
        process = None
        if sys.platform.startswith("linux"):
            process = self._start_supervised(program, argv, cwd, environment, separate_errors, stdin, folder, streams)
        if process is None:
            from pigeon.system.process.unsupervised import start_unsupervised

            process = await start_unsupervised(
                program,
                argv,
                cwd,
                environment,
                self._processes.discard,
                separate_errors=separate_errors,
                stdin=stdin,
                streams=streams,
            )
            self._processes.add(process)
        return process

    def _start_supervised(
        self,
        program: str,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        separate_errors: bool,
        stdin: bytes | None,
        folder: int | None,
        streams: Streams | None,
    ) -> Process | None:
        from pigeon.system.process.pool import current_pool
        from pigeon.system.process.supervised import SupervisedProcess, program_request

        pool = current_pool()
        command = program_request(program, argv, cwd if folder is None else None, pool.encoded(environment))
        pool.join(self)
        if not pool.open():
            return None
        process = SupervisedProcess(
            pool,
            command,
            self._processes.discard,
            separate_errors=separate_errors,
            stdin=stdin,
            folder=folder,
            streams=streams,
        )
        self._processes.add(process)
        pool.start(process)
        return process

    def warm_up(self) -> None:
        """Prepare for a first command that is soon to come, so that it need not wait; in a running event loop."""
        if sys.platform.startswith("linux"):
            from pigeon.system.process.pool import current_pool

            pool = current_pool()
            pool.join(self)
            pool.stock()

    def rest(self) -> None:
        """Keep nothing for commands that are not soon to come; what runs in the background goes on."""
        if "pigeon.system.process.pool" in sys.modules:
            from pigeon.system.process.pool import current_pool

            current_pool().rest()

    async def kill_everything(self, timeout: float = 2.0) -> bool:
        """Kill every command of this owner and all that was left running in the background; true if nothing is left."""
        deadline = time.monotonic() + timeout
        processes = list(self._processes)
        for process in processes:
            process.kill()
        done = all([await process.gone(max(0.0, deadline - time.monotonic())) for process in processes])
        if "pigeon.system.process.pool" in sys.modules:
            from pigeon.system.process.pool import leave_pool

            done = await leave_pool(self, deadline) and done
        return done
