"""Commands of `bash` in the background: started there, or sent there while their call waits for them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pigeon.session.jobs import LONGEST_TITLE, Jobs
from pigeon.system.shell.kept_output import KeptOutput, OutputPart
from pigeon.system.shell.shell import ShellResult, Stoppable, Workplace, run_shell
from pigeon.wire.agents import JobInfo, JobStatus
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Refusal

if TYPE_CHECKING:
    from pigeon.system.shell.output import Capture

LARGEST_WRITE = 64 * 1024
# A command that has not failed by then is reported as started.
STARTED_WITHIN = 0.05


class CommandScope:
    """Stops a command: with the call that waits for it, until the call lets it go; later only as a job."""

    def __init__(self, call: Stoppable | None = None) -> None:
        self._callbacks: dict[object, Callable[[], object]] = {}
        self._cancelled = False
        self._forget = call.add_cancel_callback(self.cancel) if call is not None else lambda: None
        if call is not None and call.cancelled:
            self._cancelled = True

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def add_cancel_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        key = object()
        self._callbacks[key] = callback
        return lambda: self._remove(key)

    def _remove(self, key: object) -> None:
        self._callbacks.pop(key, None)

    def cancel(self) -> None:
        self._cancelled = True
        callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            callback()

    def leave_call(self) -> None:
        """The call ends, the command goes on."""
        self._forget()


class CommandTap:
    """Takes the output of a command from the moment on at which it is in the background."""

    def __init__(self) -> None:
        self._capture: Capture | None = None
        self._kept: KeptOutput | None = None

    @property
    def is_open(self) -> bool:
        return self._kept is not None

    def connect(self, capture: Capture) -> None:
        self._capture = capture

    def open(self, kept: KeptOutput) -> None:
        """Keep everything from here on, and the end of what came before."""
        if self._capture is not None:
            kept.append(self._capture.visible_tail().text.encode("utf-8", "replace"))
        self._kept = kept

    def write(self, clean: bytes) -> None:
        if self._kept is not None:
            self._kept.append(clean)


class BackgroundCommand:
    """A command in the background, with a pipe to its stdin if it was started there."""

    def __init__(
        self, job_id: str, title: str, call_id: str, work: asyncio.Task[ShellResult], scope: CommandScope,
        kept: KeptOutput, began: float, stdin: int | None,
    ) -> None:  # fmt: skip
        self._id = job_id
        self._title = title
        self._call_id = call_id
        self._work = work
        self._scope = scope
        self._kept = kept
        self._began = began
        self._took: float | None = None
        self._stdin = stdin
        work.add_done_callback(self._on_ended)

    @property
    def info(self) -> JobInfo:
        status, code = self._describe_end()
        took = time.monotonic() - self._began if self._took is None else self._took
        return JobInfo(
            job_id=self._id,
            kind="command",
            title=self._title,
            status=status,
            seconds=round(took, 1),
            exit_code=ABSENT if code is None else code,
            tool_call_id=self._call_id,
        )

    def _describe_end(self) -> tuple[JobStatus, int | None]:
        if not self._work.done():
            return "running", None
        if self._work.cancelled() or self._work.exception() is not None:
            return "failed", None
        result = self._work.result()
        if result.cancelled:
            return "stopped", None
        return ("done" if result.exit_code == 0 else "failed"), result.exit_code

    async def wait_for_end(self) -> None:
        await asyncio.wait({self._work})

    def read(self, after: int) -> OutputPart:
        return self._kept.read(after)

    async def write(self, text: str) -> None:
        if self._stdin is None or self._work.done():
            raise Refusal(f"{self._id} has ended" if self._work.done() else f"{self._id} has no stdin to write to")
        data = text.encode("utf-8", "replace")
        if len(data) > LARGEST_WRITE:
            raise Refusal(f"The text is longer than {LARGEST_WRITE} bytes; send it in parts")
        try:
            written = os.write(self._stdin, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            raise Refusal(f"{self._id} does not read its stdin any more ({error.strerror})") from None
        if written < len(data):
            raise Refusal(f"{self._id} reads too slowly: it has taken {written} of {len(data)} bytes")

    async def stop(self) -> None:
        self._scope.cancel()
        await asyncio.wait({self._work})

    def _on_ended(self, work: asyncio.Task[ShellResult]) -> None:
        self._took = time.monotonic() - self._began
        if not work.cancelled():
            work.exception()  # it is part of what the job reports
        self._kept.close()
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None


def make_kept_output(place: Workplace, job_id: str) -> KeptOutput:
    """The file for the output of a job, beside the long outputs of the conversation."""
    artifact = place.artifacts.create(job_id)
    if artifact is None:
        return KeptOutput(None)
    artifact.close()
    with suppress(OSError):
        os.unlink(artifact.path)
    return KeptOutput(artifact.path)


def make_title(command: str) -> str:
    text = " ".join(command.split())
    return text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"


async def start_in_background(
    command: str, place: Workplace, jobs: Jobs, call_id: str, outside: bool, timeout: float | None
) -> BackgroundCommand:
    """Start a command as a job with a pipe as its stdin; raises `ShellMissing` if it cannot be started."""
    job_id = jobs.new_id()
    scope, tap, kept = CommandScope(), CommandTap(), make_kept_output(place, job_id)
    tap.open(kept)
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(write_end, False)
    began = time.monotonic()
    running: Coroutine[Any, Any, ShellResult] = run_shell(
        command, place, scope=scope, timeout=timeout, outside=outside, stdin=read_end, tap=tap
    )
    work = asyncio.ensure_future(running)
    job = BackgroundCommand(job_id, make_title(command), call_id, work, scope, kept, began, write_end)
    await asyncio.wait({work}, timeout=STARTED_WITHIN)
    if work.done() and work.exception() is not None:
        work.result()
    jobs.add(job)
    return job


class WaitingCommand:
    """A command whose call waits for it, until it is sent to the background."""

    def __init__(self, jobs: Jobs, place: Workplace, command: str, call_id: str, call: Stoppable) -> None:
        self._jobs = jobs
        self._place = place
        self._command = command
        self._call_id = call_id
        self.scope = CommandScope(call)
        self.tap = CommandTap()
        self._began = time.monotonic()
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def detach(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    async def wait(self, running: Coroutine[Any, Any, ShellResult]) -> ShellResult | BackgroundCommand:
        """The result of the command, or its job if it was sent to the background meanwhile."""
        work = asyncio.ensure_future(running)
        self._jobs.add_detachable(self._call_id, self)
        watched: set[asyncio.Future[Any]] = {work, self._left}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            self._jobs.remove_detachable(self._call_id)
            self._left.cancel()
        if work.done():
            self.scope.leave_call()
            return work.result()
        job_id = self._jobs.new_id()
        kept = make_kept_output(self._place, job_id)
        self.tap.open(kept)
        self.scope.leave_call()
        title = make_title(self._command)
        job = BackgroundCommand(job_id, title, self._call_id, work, self.scope, kept, self._began, None)
        self._jobs.add(job)
        return job
