"""The processes of tasks: each task gets one, forked from a warm parent, and its host makes sure that it ends.

The parent (`frontends/batch/batch_parent.py`) has imported everything, so that a task starts quickly and yet in a fresh
process. A process dies with its parent, the parent with its host, and the commands of a task with its process
(`system/process/helper_main.py`): whatever is killed, nothing keeps running.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from pigeon.frontends.batch.places.workspaces import remove_folder, rename_for_removal
from pigeon.frontends.batch.records import TaskResult, TaskSpec, hash_of
from pigeon.frontends.batch.task_link import HostEnd, LimitsAccess
from pigeon.frontends.batch.task_run import WORDS_FILE, TaskPlace, read_result
from pigeon.system.process.forking import ForkedProcess, ForkFamily, describe_exit, read_last_line
from pigeon.system.process.variables import own_environment
from pigeon.wire import codec

PART = ".part-"
STOP_SECONDS = 8.0
END_SECONDS = 5.0
# How long a process may take to end after the last message of its task.
LEAVE_SECONDS = 10.0


class TaskRequest(Struct, frozen=True, kw_only=True):
    """A task for a forked process."""

    spec: TaskSpec
    place: TaskPlace


class TaskProcessDied(Exception):
    """The process of a task ended without a result; `innocent` if its parent had died too."""

    def __init__(self, text: str, innocent: bool) -> None:
        super().__init__(text)
        self.innocent = innocent


class TaskProcesses:
    """Starts the processes of tasks on this machine and waits for their results."""

    def __init__(self, variables: Mapping[str, str], limits: LimitsAccess) -> None:
        self._family = ForkFamily("pigeon.frontends.batch.batch_parent", own_environment(variables))
        self._limits = limits
        self._running: dict[int, tuple[ForkedProcess, HostEnd]] = {}
        self._stop_reason: str | None = None

    async def run(
        self, spec: TaskSpec, place: TaskPlace, exhausted: Callable[[], Awaitable[None]]
    ) -> TaskResult | None:
        """Run a task; returns its result, which is then in its folder, or None if it was stopped.

        Raises `TaskProcessDied` and `FatalTask`, and `OSError` where there is no room for a process or a folder.
        """
        if (there := read_result(os.path.join(place.out, hash_of(spec)))) is not None:
            # A cluster retries what was lost with a machine; perhaps only the report of the result was lost.
            return there
        part = os.path.join(place.out, f"{PART}{hash_of(spec)}-{os.urandom(4).hex()}")
        os.mkdir(part, 0o700)
        try:
            return await self._run_in_new_process(
                TaskRequest(spec=spec, place=structs.replace(place, part=part)), exhausted
            )
        finally:
            await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(_remove_attempt, part)))

    async def _run_in_new_process(
        self, request: TaskRequest, exhausted: Callable[[], Awaitable[None]]
    ) -> TaskResult | None:
        words = os.path.join(request.place.part, WORDS_FILE)
        stderr = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await self._fork_process(codec.encode(request), [theirs.fileno(), stderr])
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(stderr)
        end = HostEnd(request.spec.id, ours, self._limits, exhausted)
        self._running[process.pid] = process, end
        if self._stop_reason is not None:
            # It was being forked when the others were stopped.
            end.stop(self._stop_reason)
        try:
            result = await end.serve_until_task_ends()
            code = await self._wait_for_exit(process)
        finally:
            self._running.pop(process.pid, None)
            process.send_signal(signal.SIGKILL)
            self._family.forget(process.pid)
            process.close_descriptor()
        if result is not None or code == 0:
            return result
        # It may have been killed after it stored the result and before it reported it.
        there = await asyncio.to_thread(read_result, os.path.join(request.place.out, hash_of(request.spec)))
        if there is not None:
            return there
        raise TaskProcessDied(_describe_death(code, read_last_line(words)), code is None)

    async def _wait_for_exit(self, process: ForkedProcess) -> int | None:
        """Wait for the end of a process whose link has closed; returns its exit code, or None if its parent is gone
        too."""
        code = await self._family.wait_for_exit_code(process.pid, LEAVE_SECONDS)
        if code is None:
            process.send_signal(signal.SIGKILL)
            code = await self._family.wait_for_exit_code(process.pid, END_SECONDS)
        return code

    async def _fork_process(self, request: bytes, descriptors: list[int]) -> ForkedProcess:
        pid = await self._family.fork(request, descriptors)
        try:
            return ForkedProcess(pid)
        except ProcessLookupError:
            self._family.forget(pid)
            raise TaskProcessDied("The task's process was killed before it began", False) from None

    async def stop(self, reason: str) -> None:
        """Ask all tasks to end, including those that are just starting, and kill those that do not."""
        self._stop_reason = reason
        running = list(self._running.values())
        for _, end in running:
            end.stop(reason)
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        for process, _ in running:
            if not await process.wait_until_ended(max(0.0, deadline - asyncio.get_running_loop().time())):
                process.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """End all tasks and their parent at once."""
        for process, _ in self._running.values():
            process.send_signal(signal.SIGKILL)
        self._family.close()


def _remove_attempt(part: str) -> None:
    with suppress(OSError):
        remove_folder(rename_for_removal(part))


def _describe_death(code: int | None, words: str) -> str:
    how = "was lost with its parent" if code is None else describe_exit(code)
    return f"The task's process {how}{f': {words}' if words else ''}"


def decode_request(data: bytes) -> TaskRequest:
    value: Any = codec.decode(data)
    return codec.convert(value, TaskRequest)
