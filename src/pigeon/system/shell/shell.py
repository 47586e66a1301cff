"""One shell command from start to end: streamed, limited, stoppable, with its full output on disk when it is long."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from pigeon.system.paths import expand_home, keep_absolute_entries
from pigeon.system.process.start import Process, ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.truncation import LIMITS, OutputLimits, Shown

if TYPE_CHECKING:
    from pigeon.system.shell.output import Capture, OutputMask

UPDATE_EVERY = 0.1
NEVER = float("inf")
GONE_WITHIN = 1.5
LONGEST_TIMEOUT = 2_147_483.647


class Stoppable(Protocol):
    @property
    def cancelled(self) -> bool: ...

    def add_cancel_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once at cancellation; the returned function removes the callback."""
        ...


class OutputTap(Protocol):
    """Takes the output of a running command from some moment on."""

    @property
    def is_open(self) -> bool: ...

    def connect(self, capture: Capture) -> None:
        """The command has started; its output so far is always in the capture."""
        ...

    def write(self, clean: bytes) -> None:
        """More output, as clean text with keys masked."""
        ...


class CommandStarter(Protocol):
    """Starts commands where the shell is not one of this machine; `workspaces/command_process` implements it."""

    async def start(self, command: str, cwd: str, stdin: int | None) -> Process: ...


class ShellMissing(OSError):
    """The command could not be started; the text gives the reason."""


class Shell(Struct, frozen=True):
    """The program that runs commands, and the text that is put on a line before each."""

    path: str = "/bin/bash"
    prefix: str = ""

    def argv(self, command: str) -> list[str]:
        return [self.path, "-c", self.complete(command)]

    def complete(self, command: str) -> str:
        """The command with what is put before each."""
        return f"{self.prefix}\n{command}" if self.prefix else command


class ShellResult(Struct, frozen=True):
    """How a command ended. `exit_code` is absent if it was stopped, or if the connection to its machine was `lost`:
    that text says what is known."""

    output: str
    exit_code: int | None
    cancelled: bool
    timed_out: bool
    shown: Shown
    total_lines: int
    total_bytes: int
    output_lines: int
    output_bytes: int
    full_output_path: str | None
    artifact_id: str | None
    kept: str
    lost: str | None = None

    @property
    def is_truncated(self) -> bool:
        """True if `output` is incomplete."""
        return self.shown.is_truncated


class Workplace(Struct, frozen=True):
    """Where and how the commands of an agent run; the environment is requested each time.

    `tool` is the one that commands are run with: files with their whole outputs are named after it. `mask` takes keys
    out of what they print. With `at_once` what they print is shown as a whole when they end.
    With `host_is_outside`, commands that the host runs itself pass by the wall of `processes`. Commands outside of it
    see `outside_environment`, if there is another one for them. Commands that run `elsewhere` have the shell and the
    variables of that machine.
    """

    cwd: str
    shell: Shell
    environment: Callable[[], ProgramEnvironment]
    artifacts: Artifacts
    processes: ProcessOwner
    tool: str
    mask: OutputMask | None = None
    at_once: bool = False
    host_is_outside: Callable[[], bool] = lambda: False
    outside_environment: Callable[[], ProgramEnvironment] | None = None
    elsewhere: CommandStarter | None = None


def find_shell(configured: str | None, home: str, search_path: str, prefix: str = "") -> Shell:
    """The configured shell, where `~` is `home`; else bash, else sh, as the PATH-like `search_path` has them.

    A configured name without a slash is searched there too. Relative and empty entries are skipped.
    """
    configured = expand_home(configured, home) if configured else None
    if configured and "/" in configured:
        return Shell(configured, prefix)
    if not configured and os.path.exists("/bin/bash"):
        return Shell("/bin/bash", prefix)
    import shutil

    entries = keep_absolute_entries(search_path)
    if configured:
        return Shell(shutil.which(configured, path=entries) or f"/bin/{configured}", prefix)
    return Shell(shutil.which("bash", path=entries) or shutil.which("sh", path=entries) or "/bin/sh", prefix)


async def run_shell(  # noqa: PLR0913 - each is one thing that a caller may know of a command
    command: str,
    place: Workplace,
    *,
    scope: Stoppable | None = None,
    timeout: float | None = None,
    on_output: Callable[[str], Awaitable[None]] | None = None,
    on_progress: Callable[[Capture], Awaitable[None]] | None = None,
    limits: OutputLimits = LIMITS,
    outside: bool = False,
    stdin: int | None = None,
    tap: OutputTap | None = None,
) -> ShellResult:
    """Run it to its end. `on_output` gets each clean piece of text, `on_progress` is called at most every 100 ms.

    `outside` leaves out the wall of the place, if it has one: only for commands that the host has allowed, or runs
    itself. `stdin` is a descriptor that it reads, which is closed here. The `tap` may take all clean text from some
    moment on.
    """
    from pigeon.system.shell.output import Capture

    process = await _start_command(command, place, outside, stdin)
    # A tap may open at any time, and a key may have begun before that.
    is_live = on_output is not None or tap is not None
    capture = Capture(lambda: place.artifacts.create(place.tool), limits, place.mask, is_live)
    stopping = _Stopping(process, scope, timeout)
    lost: str | None = None
    code = 1
    try:
        if tap is not None:
            tap.connect(capture)
        await _pump_output(process, capture, on_output, on_progress, place.at_once, tap)
        try:
            code = await process.wait()
        except OSError as error:
            if place.elsewhere is None:
                raise _missing_shell_error(place, error) from error
            lost = error.strerror or str(error)
        if stopping.cause is not None:
            await process.wait_until_gone(GONE_WITHIN)
    except BaseException:
        process.kill()
        raise
    finally:
        stopping.disarm()
        process.close()
        capture.close()
    return _make_result(capture, code, stopping.cause, lost)


async def _start_command(command: str, place: Workplace, outside: bool, stdin: int | None) -> Process:
    if place.elsewhere is not None:
        return await place.elsewhere.start(place.shell.complete(command), place.cwd, stdin)
    line = place.shell.argv(command)
    variables = (place.outside_environment if outside else None) or place.environment
    try:
        return await place.processes.start(line, cwd=place.cwd, environment=variables(), outside=outside, stdin=stdin)
    except (OSError, ValueError) as error:
        raise _missing_shell_error(place, error) from error


def _missing_shell_error(place: Workplace, error: OSError | ValueError) -> ShellMissing:
    if not os.path.isdir(place.cwd):
        return ShellMissing(f"Working directory does not exist: {place.cwd}\nCannot execute bash commands.")
    reason = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        reason = "the command is too long for one argument; write it to a file and run that"
    return ShellMissing(f"Cannot run {place.shell.path}: {reason or error}")


class _Stopping:
    """Kills the command at cancellation or time-out, and remembers which it was."""

    def __init__(self, process: Process, scope: Stoppable | None, timeout: float | None) -> None:
        self._process = process
        self.cause: str | None = None
        self._forget = scope.add_cancel_callback(lambda: self._stop("cancelled")) if scope is not None else None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout, self._stop, "timeout") if timeout is not None else None
        if scope is not None and scope.cancelled:
            self._stop("cancelled")

    def _stop(self, cause: str) -> None:
        if self.cause is None:
            self.cause = cause
            self._process.kill()

    def disarm(self) -> None:
        if self._forget is not None:
            self._forget()
        if self._timer is not None:
            self._timer.cancel()


async def _pump_output(
    process: Process,
    capture: Capture,
    on_output: Callable[[str], Awaitable[None]] | None,
    on_progress: Callable[[Capture], Awaitable[None]] | None,
    at_once: bool,
    tap: OutputTap | None,
) -> None:
    """Read the output of the command, and show it: every so often, or `at_once` at the end."""
    due: float | None = None
    earliest = NEVER if at_once else 0.0
    printed: list[str] = []
    while True:
        chunk = await process.read(None if due in (None, NEVER) else max(0.0, due - time.monotonic()))
        if chunk is not None:
            clean = capture.feed(chunk) if chunk else capture.finish()
            if tap is not None and tap.is_open:
                tap.write(clean)
            if clean and on_output is not None:
                if at_once:
                    printed.append(clean.decode())
                else:
                    await on_output(clean.decode())
            if not chunk:
                break
            if on_progress is not None and due is None:
                due = max(time.monotonic(), earliest)
        if on_progress is not None and due is not None and time.monotonic() >= due:
            await on_progress(capture)
            due = None
            earliest = time.monotonic() + UPDATE_EVERY
    if on_output is not None and printed:
        await on_output("".join(printed))
    if on_progress is not None and due is not None:
        await on_progress(capture)


def make_shell_result(text: str, place: Workplace, code: int | None, cause: str | None) -> ShellResult:
    """The result of a command that ran elsewhere and printed this; `cause` is set if it was stopped."""
    from pigeon.system.shell.output import Capture

    capture = Capture(lambda: place.artifacts.create(place.tool), LIMITS, place.mask, is_live=False)
    try:
        capture.feed(text.encode("utf-8", "replace"))
        capture.finish()
    finally:
        capture.close()
    # A command without a code was ended by a signal.
    return _make_result(capture, 1 if code is None else code, cause)


def _make_result(capture: Capture, code: int, cause: str | None, lost: str | None = None) -> ShellResult:
    shown = capture.visible_tail()
    return ShellResult(
        output=shown.text,
        exit_code=None if cause or lost else code,
        cancelled=cause == "cancelled",
        timed_out=cause == "timeout",
        shown=shown,
        total_lines=capture.line_breaks + 1 if shown.total_bytes else 0,
        total_bytes=shown.total_bytes,
        output_lines=shown.text.count("\n") + 1 if shown.text else 0,
        output_bytes=shown.output_bytes,
        full_output_path=capture.full_output_path,
        artifact_id=capture.artifact_id,
        kept=capture.storage_note,
        lost=None if cause else lost,
    )
