"""From an accepted prompt to settlement: one run, and whatever has to follow it by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pigeon.agent.inference import Failure
from pigeon.agent.interfaces import Spoken
from pigeon.agent.run import Run, RunResult
from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity
from pigeon.session.bus import Bus
from pigeon.session.compaction.compaction import Compaction
from pigeon.session.conduct import Conduct
from pigeon.session.hooks import Hooks, NoHooks
from pigeon.session.queue import MessageQueue
from pigeon.session.retry import Retry
from pigeon.wire.events import AgentSettled
from pigeon.wire.messages import CustomMessage


class Runs:
    """Starts runs and sees them through."""

    def __init__(
        self,
        make_run: Callable[[Scope], Run],
        conduct: Conduct,
        queue: MessageQueue,
        bus: Bus,
        activity: Activity,
        retry: Retry,
        compaction: Compaction,
    ) -> None:
        self._make_run = make_run
        self._conduct = conduct
        self._queue = queue
        self._bus = bus
        self._activity = activity
        self._retry = retry
        self._compaction = compaction
        self._recovered = False
        self._task: asyncio.Task[None] | None = None
        self.hooks: Hooks = NoHooks()
        self.while_running: Callable[[], None] = _nothing
        self.before_settled: Callable[[], None] = _nothing

    def start(self, opening: Sequence[Spoken], scope: Scope) -> None:
        """Begin in the background; the run was reserved with this scope."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._settle(opening, scope), name="pigeon-run")
        loop.call_soon(self.while_running)

    async def _settle(self, opening: Sequence[Spoken], scope: Scope) -> None:
        try:
            self._recovered = False
            await self._conduct.make_room(scope)
            result = await self._seen_through(await self._run(opening, scope, resumes=False), scope)
            while not scope.cancelled and not _failed(result) and len(self._queue):
                result = await self._seen_through(await self._run((), scope, resumes=True), scope)
            while not scope.cancelled and (more := await self._asked_on(result)):
                result = await self._seen_through(await self._run(more, scope, resumes=False), scope)
        finally:
            self._conduct.prompt_of_run = None
            self._conduct.scope = None
            self.before_settled()
            self._activity.end()
            await self._bus.publish(AgentSettled())

    async def _asked_on(self, result: RunResult) -> list[CustomMessage]:
        """What somebody wants done before the agent settles."""
        stopped = result.answer.stop_reason if result.answer is not None else "error"
        asked = self.hooks.before_settle(stopped if stopped in ("error", "aborted") else "stop")
        return await self._conduct.unless_stopped(asked, [])

    async def _seen_through(self, result: RunResult, scope: Scope) -> RunResult:
        """The result after as many further tries as it takes or as are allowed, and with room for what comes next."""
        while _failed(result) and result.failure is not None and not scope.cancelled:
            if result.will_retry:
                again = await self._after_pause(result.failure, scope)
            else:
                again = result.failure.overflow and await self._after_recovery(scope)
            if not again:
                break
            result = await self._run((), scope, resumes=False)
        if not _failed(result):
            self._recovered = False
            await self._conduct.make_room(scope)
        elif result.failure is not None:
            await self._retry.gave_up(result.failure.message)
        return result

    async def _after_pause(self, failure: Failure, scope: Scope) -> bool:
        self._activity.enter("retrying")
        try:
            return await self._retry.pause(failure, scope)
        finally:
            self._activity.enter("running")

    async def _after_recovery(self, scope: Scope) -> bool:
        if not self._compaction.enabled:
            return False
        if self._recovered:
            await self._compaction.overflowed_again()
            return False
        self._recovered = True
        self._activity.enter("compacting")
        try:
            return await self._compaction.recover(scope, self._retry.leave_out)
        finally:
            self._activity.enter("running")

    async def _run(self, opening: Sequence[Spoken], scope: Scope, resumes: bool) -> RunResult:
        return await self._make_run(scope).run(opening, resumes=resumes)


def _failed(result: RunResult) -> bool:
    return result.answer is None or result.answer.stop_reason in ("error", "aborted")


def _nothing() -> None:
    return None
