"""When a command runs: at once, in its turn, or beside the others.

`control` and `beside` commands start the moment they arrive. `session` commands start in order, each when the one
before has ended; a handler that does not wait is done before the next line is read. A prompt without queueing behaviour
does not wait for an earlier prompt: that one has reserved the run, so this one can be refused at once, however long
extensions process the first. `CommandRunner` finds the handler and puts it into its lane, for hosts behind a pipe
(`rpc/server.py`) and in this process (`sdk/agent.py`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from pigeon.rpc.router import CommandHandler
from pigeon.wire.base import Absent
from pigeon.wire.commands import Abort, AbortAndPrompt, Command, Prompt, Subject
from pigeon.wire.errors import ABORTED_BEFORE, Refusal

TOO_MANY = "Too many commands are running at once; wait for some of them to finish"
MOST_IN_FLIGHT = 1000
PROMPTS = (Prompt, AbortAndPrompt)
Start = Callable[[], Any]
Finish = Callable[[Any, BaseException | None], None]


class CommandJob:
    """One command: the function that starts it, and the function that is called exactly once with its result or
    failure."""

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
        self._present: Command | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """The number of jobs that have not finished."""
        return len(self._open) + len(self._waiting)

    def submit(self, job: CommandJob) -> None:
        """Start or queue a job; it may have finished when this returns."""
        if job.command.lane != "session" or self._is_behind_only_prompts(job.command):
            self._start_in_background(job, None)
            return
        self._waiting.append(job)
        if not self._busy:
            self._run_waiting()

    def withdraw(self, kinds: tuple[type[Command], ...], reason: Exception) -> None:
        """Finish waiting jobs of these kinds with a failure; they never start."""
        kept = deque(job for job in self._waiting if not isinstance(job.command, kinds))
        gone = [job for job in self._waiting if isinstance(job.command, kinds)]
        self._waiting = kept
        for job in gone:
            job.finish(None, reason)

    async def wait_until_drained(self) -> None:
        while self._open:
            await asyncio.wait(set(self._open))

    def _run_waiting(self) -> None:
        # A loop, not recursion: one write may contain many handlers that do not wait.
        self._busy = False
        while self._waiting and not self._busy:
            self._busy = True
            job = self._waiting.popleft()
            self._present = job.command
            self._busy = self._start_in_background(job, self._run_waiting)

    def _is_behind_only_prompts(self, command: Command) -> bool:
        """True for a prompt that cannot be queued and that only prompts precede in its lane.

        One with a `clientMessageId` may repeat one of those, which is only known when that one was answered.
        """
        if not self._busy or not isinstance(command, Prompt) or command.streaming_behavior or command.client_message_id:
            return False
        return isinstance(self._present, Prompt) and all(isinstance(job.command, Prompt) for job in self._waiting)

    def _start_in_background(self, job: CommandJob, after: Callable[[], None] | None) -> bool:
        """Start a job; returns True if it continues in the background. Then `after` is called when it has finished."""
        try:
            result = job.start()
        except Exception as error:
            self._finish(job, None, error)
            return False
        if inspect.isawaitable(result):
            self._run_task(self._await_result(job, result, after))
            return True
        self._finish(job, result, None)
        return False

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _await_result(self, job: CommandJob, result: Awaitable[Any], after: Callable[[], None] | None) -> None:
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
        """Report the result; an answer that cannot be encoded is a failure of that command, and never ends the lane."""
        try:
            job.finish(data, error)
        except Exception as trouble:
            job.finish(None, trouble)


def _return_unchanged(result: Any) -> Any:
    return result


def _call_at_once(callback: Callable[[], None]) -> None:
    callback()


class CommandRunner:
    """Runs commands: each by its handler, in its lane, with exactly one end."""

    def __init__(
        self,
        subjects: Mapping[Subject, object],
        handlers: Mapping[type[Command], CommandHandler],
        when_saved: Callable[[Callable[[], None]], None] = _call_at_once,
    ) -> None:
        """`when_saved` calls a function once what the command has recorded is safe: no answer comes before that."""
        self._when_saved = when_saved
        self._subjects = subjects
        self._handlers = handlers
        self._lanes = Lanes()

    def submit(self, command: Command, finish: Finish, taken: Callable[[Any], Any] = _return_unchanged) -> None:
        """Run a command. `finish` gets its answer or its failure; `taken` may first convert what the handler returned,
        a result or an awaitable."""
        # A prompt that waits in its lane has not begun: an abort must reach it too.
        if isinstance(command, Abort) and isinstance(command.tool_call_id, Absent):
            self._lanes.withdraw(PROMPTS, Refusal(ABORTED_BEFORE))
        if command.lane != "control" and self._lanes.in_flight >= MOST_IN_FLIGHT:
            finish(None, Refusal(TOO_MANY))
            return
        handler, subject = self._handlers[type(command)], self._subjects[command.about]

        def finish_when_saved(data: Any, error: BaseException | None) -> None:
            self._when_saved(lambda: finish(data, error))

        self._lanes.submit(CommandJob(command, lambda: taken(handler(command, subject)), finish_when_saved))

    async def run_command(self, command: Command) -> None:
        """Run a command without an answer; raises its refusal."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(data: Any, error: BaseException | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.submit(command, finish)
        await done

    @property
    def in_flight(self) -> int:
        """The number of commands that have not ended."""
        return self._lanes.in_flight

    async def wait_until_drained(self) -> None:
        await self._lanes.wait_until_drained()
