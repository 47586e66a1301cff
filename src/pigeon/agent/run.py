"""One run, from `agent_start` to `agent_end`: turns until nothing wants another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pigeon.agent.fold import Fold
from pigeon.agent.inference import Failure
from pigeon.agent.interfaces import Feed, Gate, ModelProvider, Publish, Queued, RunOwner, Spoken
from pigeon.agent.scope import Scope
from pigeon.agent.tool_calls import ToolBatch
from pigeon.agent.turn import AnswerStream
from pigeon.wire.events import AgentEnd, AgentStart, MessageEnd, MessageStart, TurnEnd, TurnStart
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage


class RunResult:
    """How a run ended."""

    __slots__ = ("answer", "failure", "will_retry")

    def __init__(self, answer: AssistantMessage | None, failure: Failure | None, will_retry: bool) -> None:
        self.answer = answer
        self.failure = failure
        self.will_retry = will_retry


class Run:
    """Opening messages in, events out; the context is whatever `conduct.request()` says at each turn."""

    def __init__(
        self,
        provider: ModelProvider,
        conduct: RunOwner,
        feed: Feed,
        publish: Publish,
        scope: Scope,
        now: Callable[[], int],
        gate: Gate | None = None,
    ) -> None:
        self._provider = provider
        self._conduct = conduct
        self._feed = feed
        self._publish = publish
        self._scope = scope
        self._now = now
        self._gate = gate
        self._added: list[Message] = []

    async def run(self, opening: Sequence[Spoken] = (), resumes: bool = False) -> RunResult:
        """Play turns until the agent stops; an error or an abort ends the run at once, queues untouched."""
        try:
            return await self._play(opening, resumes)
        except Exception as error:
            return await self._crashed(error)

    async def _crashed(self, error: Exception) -> RunResult:
        """A defect of ours must not look like a hang: the run still ends, and says why."""
        answer = Fold(self._conduct.model(), self._now()).message(
            "aborted" if self._stopped() else "error", error=f"Internal error: {type(error).__name__}: {error}"
        )
        await self._publish(MessageStart(message=answer))
        await self._publish(MessageEnd(message=answer))
        await self._publish(TurnEnd(message=answer, tool_results=[]))
        await self._publish(AgentEnd(messages=[*self._added, answer], will_retry=False))
        return RunResult(answer, None, will_retry=False)

    async def _play(self, opening: Sequence[Spoken], resumes: bool) -> RunResult:
        await self._publish(AgentStart())
        await self._publish(TurnStart())
        for message in opening:
            await self._say(message)
        pending = [] if self._scope.cancelled else self._feed.next_steering()
        if resumes and not pending:
            pending = self._feed.next_follow_ups()
        while True:
            for item in pending:
                await self._deliver(item)
            answer, failure, wants_more, cut = await self._turn()
            if self._scope.cancelled or (answer.stop_reason in ("error", "aborted") and not cut):
                break
            pending = self._feed.next_steering() or ([] if wants_more or cut else self._feed.next_follow_ups())
            ends = not pending and not wants_more
            said = await self._conduct.adds(answer, ends)
            if self._scope.cancelled or (ends and not said):
                break
            await self._conduct.between_turns(self._scope)
            if self._stopped():
                break
            pending = [item for item in pending if self._feed.still_waits(item)] or self._feed.next_steering()
            if not pending and not wants_more and not said:
                break
            await self._publish(TurnStart())
            for message in said:
                await self._say(message)
        retry = answer.stop_reason == "error" and await self._conduct.failed(answer, failure)
        await self._publish(AgentEnd(messages=self._added, will_retry=retry))
        return RunResult(answer, failure, retry)

    async def _turn(self) -> tuple[AssistantMessage, Failure | None, bool, bool]:
        conduct = self._conduct
        stream = AnswerStream(await conduct.request(), self._publish, self._now, conduct.final, conduct.watch())
        scope = self._scope.child()
        try:
            answer = await stream.stream(self._provider, scope)
            self._added.append(answer)
            results: list[ToolResultMessage] = []
            batch = ToolBatch(self._conduct, self._feed, self._gate, self._publish, self._now, scope)
            if answer.stop_reason not in ("error", "aborted"):
                await self._conduct.answered(answer)
                results = await batch.run(answer, stream.incomplete)
                self._added.extend(results)
        finally:
            scope.close()
        await self._publish(TurnEnd(message=answer, tool_results=results))
        return answer, stream.failure, bool(results) and not batch.terminates, stream.cut

    def _stopped(self) -> bool:
        return self._scope.cancelled

    async def _deliver(self, item: Queued) -> None:
        await self._feed.delivered(item)
        await self._say(item.message)

    async def _say(self, given: Spoken) -> None:
        message = await self._conduct.ready(given)
        await self._publish(MessageStart(message=message))
        final = await self._conduct.final(message)
        self._added.append(final)
        await self._publish(MessageEnd(message=final))
