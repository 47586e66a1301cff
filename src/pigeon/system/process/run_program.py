"""Runs a program without a shell to its end and collects its output: for extensions' `ctx.exec` and key commands.

It is supervised like every command, so nothing that it starts outlives Pigeon. Memory is bounded: a program that prints
more than `limit` bytes to one of its outputs is killed. Processes that it leaves in the background do not keep the call
open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from pigeon.system.paths import keep_absolute_entries
from pigeon.system.process.start import Process, ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment

MOST_OUTPUT = 64 * 1024 * 1024
TERM_GRACE = 5.0
GONE_WITHIN = 1.5


class ProgramResult(NamedTuple):
    """The output of a program and how it ended; `killed` if we ended it. A signal is 128 plus its number."""

    stdout: bytes
    stderr: bytes
    code: int
    killed: bool


async def run_program(  # noqa: PLR0913 - each is one thing that a caller may know of a program
    owner: ProcessOwner,
    argv: Sequence[str],
    *,
    cwd: str,
    environment: ProgramEnvironment,
    timeout: float | None = None,
    stdin: bytes | None = None,
    limit: int = MOST_OUTPUT,
    term_grace: float = TERM_GRACE,
    sealed: bool = False,
) -> ProgramResult:
    """Run it in `cwd` with exactly `environment`, whose PATH is searched for a name without a slash.

    Raises `OSError` if it cannot be started. When its time is up it gets SIGTERM, and SIGKILL after `term_grace`
    seconds. `sealed` is as for `ProcessOwner.start`.
    """
    program = find_program(argv[0], cwd, environment)
    process = await owner.start(
        argv, cwd=cwd, environment=environment, program=program, separate_errors=True, stdin=stdin, sealed=sealed
    )
    collected = _Collected(process, limit)
    try:
        async with asyncio.timeout(timeout):
            await collected.read_until_end()
            code = await process.wait()
    except TimeoutError:
        await _end_program(process, term_grace, keep_helper=True)
        return ProgramResult(bytes(collected.out), bytes(collected.err), await process.wait(), True)
    except asyncio.CancelledError:
        await _end_program(process, term_grace, keep_helper=False)
        raise
    except OSError as error:
        raise _with_program_name(error, argv[0], cwd) from error
    finally:
        process.close()
    return ProgramResult(bytes(collected.out), bytes(collected.err), code, collected.too_much)


def _with_program_name(error: OSError, program: str, cwd: str) -> OSError:
    return OSError(error.errno, error.strerror, program if os.path.isdir(cwd) else cwd)


class _Collected:
    """Both outputs of a program, as far as the limit allows; a program that prints more is killed."""

    def __init__(self, process: Process, limit: int) -> None:
        self._process = process
        self._limit = limit
        self.out = bytearray()
        self.err = bytearray()
        self.too_much = False

    async def read_until_end(self) -> None:
        """Read both until the program has ended and nothing more arrives."""
        await asyncio.gather(
            self._read_up_to_limit(self._process.read, self.out),
            self._read_up_to_limit(self._process.read_errors, self.err),
        )

    async def _read_up_to_limit(self, read: Callable[[], Awaitable[bytes | None]], into: bytearray) -> None:
        while chunk := await read():
            into += chunk
            if len(into) > self._limit:
                del into[self._limit :]
                self.too_much = True
                self._process.kill(keep_helper=True)
                return


async def _end_program(process: Process, term_grace: float, keep_helper: bool) -> None:
    """End a program with all it started: SIGTERM first, SIGKILL when it has ended or its grace time is up."""
    try:
        if term_grace > 0:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), term_grace)
    finally:
        process.kill(keep_helper)
    await process.wait_until_gone(GONE_WITHIN)


def find_program(name: str, cwd: str, environment: Mapping[str, str]) -> str:
    """The file of a program: relative to `cwd` if the name has a slash, else searched on the PATH of `environment`.

    Relative and empty entries of that PATH are skipped.
    """
    if not name or os.path.dirname(name):
        return os.path.join(cwd, name)
    error = errno.ENOENT
    for folder in filter(None, keep_absolute_entries(environment.get("PATH")).split(os.pathsep)):
        candidate = os.path.join(folder, name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            error = errno.EACCES
    raise OSError(error, os.strerror(error), name)
