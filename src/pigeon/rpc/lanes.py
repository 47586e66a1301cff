"""When a command runs: at once, in its turn, or beside the others.

`control` and `beside` commands start the moment they arrive. `session` commands start in order, each when the one
before has ended; a handler that does not wait is done before the next line is looked at.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pigeon.wire.commands import Command

Start = Callable[[], Any]
Finish = Callable[[Any, BaseException | None], None]


class CommandJob:
    """One command: what starts it, and what is called exactly once with its result or its failure."""

    __slots__ = ("command", "finish", "start")

    def __init__(self, command: Command, start: Start, finish: Finish) -> None:
        self.command = command
        self.start = start
        self.finish = finish


class Lanes:
    """Runs jobs by lane; `finish` is called exactly once for each."""

    def __init__(self) -> None:
        self._waiting: deque[CommandJob] = deque()
        self._busy = False
        self._open: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """Jobs that were taken and have not finished."""
        return len(self._open) + len(self._waiting)

    def submit(self, job: CommandJob) -> None:
        """Take a job; it may be finished when this returns."""
        if job.command.lane != "session":
            self._begin(job, None)
            return
        self._waiting.append(job)
        if not self._busy:
            self._turn_over()

    def withdraw(self, kinds: tuple[type[Command], ...], reason: Exception) -> None:
        """Finish waiting jobs of these kinds with a failure; they never start."""
        kept = deque(job for job in self._waiting if not isinstance(job.command, kinds))
        gone = [job for job in self._waiting if isinstance(job.command, kinds)]
        self._waiting = kept
        for job in gone:
            job.finish(None, reason)

    async def drained(self) -> None:
        """Wait until every job has finished."""
        while self._open:
            await asyncio.wait(set(self._open))

    def _turn_over(self) -> None:
        # A loop, not recursion: handlers that do not wait may be many in one write.
        self._busy = False
        while self._waiting and not self._busy:
            self._busy = True
            self._busy = self._begin(self._waiting.popleft(), self._turn_over)

    def _begin(self, job: CommandJob, after: Callable[[], None] | None) -> bool:
        """True if the job goes on by itself; then `after` is called when it has finished."""
        try:
            result = job.start()
        except Exception as error:
            self._finish(job, None, error)
            return False
        if inspect.isawaitable(result):
            self._keep(self._await(job, result, after))
            return True
        self._finish(job, result, None)
        return False

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _await(self, job: CommandJob, result: Awaitable[Any], after: Callable[[], None] | None) -> None:
        try:
            data = await result
        except Exception as error:
            self._finish(job, None, error)
        else:
            self._finish(job, data, None)
        if after is not None:
            after()

    @staticmethod
    def _finish(job: CommandJob, data: Any, error: Exception | None) -> None:
        """An answer that cannot be given is a failure of that command, never the end of its lane."""
        try:
            job.finish(data, error)
        except Exception as trouble:
            job.finish(None, trouble)
