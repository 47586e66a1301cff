"""From an accepted prompt to settlement: one run, and whatever has to follow it by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pigeon.agent.fold import Fold
from pigeon.agent.protocols import Gate, Provider, Spoken, Tool, ToolMode
from pigeon.agent.run import Run, RunResult
from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity
from pigeon.session.bus import Bus
from pigeon.session.queue import MessageQueue
from pigeon.session.retry import Retry
from pigeon.session.toolset import Toolset
from pigeon.wire.commands import InterruptMode
from pigeon.wire.events import AgentEnd, AgentSettled, MessageEnd, MessageStart, TurnEnd
from pigeon.wire.inference import Failure, ModelRequest
from pigeon.wire.messages import AssistantMessage


class Conduct:
    """What the loop asks its owner, answered from the session's parts."""

    def __init__(self, request: Callable[[], ModelRequest], toolset: Toolset, retry: Retry) -> None:
        self._request = request
        self._toolset = toolset
        self._retry = retry
        self.interrupt_mode: InterruptMode = "immediate"
        self.mode: ToolMode = "ordered"

    def request(self) -> ModelRequest:
        """The next request."""
        return self._request()

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        return self._toolset.active()

    def tool_mode(self) -> ToolMode:
        """How the calls of one answer run."""
        return self.mode

    def interrupts(self) -> bool:
        """True if waiting steering skips calls that have not started."""
        return self.interrupt_mode == "immediate"

    async def between_turns(self) -> None:
        """Nothing yet happens between turns."""

    async def answered(self, answer: AssistantMessage) -> None:
        """A retry that led here has succeeded."""
        await self._retry.succeeded()

    async def failed(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """True if the answer will be tried again."""
        return self._retry.wanted(failure)


class Runs:
    """Starts runs and sees them through."""

    def __init__(
        self,
        provider: Provider,
        conduct: Conduct,
        queue: MessageQueue,
        bus: Bus,
        activity: Activity,
        retry: Retry,
        now: Callable[[], int],
        gate: Gate | None = None,
    ) -> None:
        self._provider = provider
        self._conduct = conduct
        self._queue = queue
        self._bus = bus
        self._activity = activity
        self._retry = retry
        self._now = now
        self._gate = gate
        self._task: asyncio.Task[None] | None = None
        self.before_settled: Callable[[], None] = _nothing

    def start(self, opening: Sequence[Spoken], scope: Scope) -> None:
        """Begin in the background; the run was reserved with this scope."""
        self._task = asyncio.get_running_loop().create_task(self._settle(opening, scope), name="pigeon-run")

    async def _settle(self, opening: Sequence[Spoken], scope: Scope) -> None:
        try:
            result = await self._tried(await self._run(opening, scope, resumes=False), scope)
            while not scope.cancelled and not _failed(result) and len(self._queue):
                result = await self._tried(await self._run((), scope, resumes=True), scope)
        finally:
            self.before_settled()
            self._activity.end()
            await self._bus.publish(AgentSettled())

    async def _tried(self, result: RunResult, scope: Scope) -> RunResult:
        """The result after as many further tries as it takes or as are allowed."""
        while result.will_retry and result.failure is not None:
            self._activity.enter("retrying")
            if not await self._retry.pause(result.failure, scope):
                return result
            self._activity.enter("running")
            result = await self._run((), scope, resumes=False)
        if _failed(result) and result.failure is not None:
            await self._retry.gave_up(result.failure.message)
        return result

    async def _run(self, opening: Sequence[Spoken], scope: Scope, resumes: bool) -> RunResult:
        run = Run(self._provider, self._conduct, self._queue, self._bus.publish, scope, self._now, self._gate)
        try:
            return await run.run(opening, resumes=resumes)
        except Exception as error:
            return await self._crashed(error, scope)

    async def _crashed(self, error: Exception, scope: Scope) -> RunResult:
        """A defect of ours must not look like a hang: the run still ends, and says why."""
        request = self._conduct.request()
        answer = Fold(request.model, self._now()).message(
            "aborted" if scope.cancelled else "error", error=f"Internal error: {type(error).__name__}: {error}"
        )
        for event in (
            MessageStart(message=answer),
            MessageEnd(message=answer),
            TurnEnd(message=answer, tool_results=[]),
            AgentEnd(messages=[answer], will_retry=False),
        ):
            await self._bus.publish(event)
        return RunResult(answer, None, will_retry=False)


def _failed(result: RunResult) -> bool:
    return result.answer is None or result.answer.stop_reason in ("error", "aborted")


def _nothing() -> None:
    return None
