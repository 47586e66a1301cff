"""One run, from `agent_start` to `agent_end`: turns until nothing calls for another.

A turn is the new messages to the model, its answer, and the results of the tools it called. Another turn follows for
steering messages, for tool results that the model has not seen, for follow-ups, or for what the owner adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from pigeon.agent.answer import AnswerStream, Fold
from pigeon.agent.inference import Failure, report_failure
from pigeon.agent.interfaces import (
    Feed,
    Gate,
    ModelProvider,
    Publish,
    QueuedItem,
    RunOwner,
    Spoken,
    ToolMode,
    UnfinishedAnswer,
)
from pigeon.agent.scope import Scope
from pigeon.agent.tool_calls import ToolBatch
from pigeon.wire.content import ToolCall
from pigeon.wire.events import AgentEnd, AgentStart, MessageEnd, MessageStart, TurnEnd, TurnStart
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage

FAILED = ("error", "aborted")


class RunResult(Struct, frozen=True):
    """How a run ended; `denied` is True if none of its last tool calls was allowed to run, None if it made no calls."""

    answer: AssistantMessage
    failure: Failure | None
    will_retry: bool
    denied: bool | None = None

    @property
    def has_failed(self) -> bool:
        """True if the last answer is an error or was aborted."""
        return self.answer.stop_reason in FAILED


class Turn(Struct, frozen=True):
    """How a turn ended: `wants_more` if the model has to see tool results, `cut` if a rule cut the answer."""

    answer: AssistantMessage
    failure: Failure | None
    wants_more: bool
    cut: bool
    results: Sequence[ToolResultMessage] = ()

    @property
    def has_failed(self) -> bool:
        return self.answer.stop_reason in FAILED and not self.cut


class NextTurn(Struct, frozen=True):
    """How another turn begins: messages of the owner, then messages from the queue."""

    said: Sequence[Spoken]
    queued: Sequence[QueuedItem]


class Run:
    """Runs from the opening messages to the end; the context is whatever `owner.build_request()` returns at each
    turn."""

    def __init__(
        self,
        provider: ModelProvider,
        owner: RunOwner,
        feed: Feed,
        publish: Publish,
        scope: Scope,
        now: Callable[[], int],
        gate: Callable[[], Gate | None] = lambda: None,
        tool_mode: ToolMode = "ordered",
    ) -> None:
        self._provider = provider
        self._owner = owner
        self._feed = feed
        self._publish = publish
        self._scope = scope
        self._now = now
        self._gate = gate
        self._tool_mode = tool_mode
        self._added: list[Message] = []
        self._denied: bool | None = None

    async def run(
        self, opening: Sequence[Spoken] = (), resumes: bool = False, unfinished: UnfinishedAnswer | None = None
    ) -> RunResult:
        """Play turns until the agent stops; an error or an abort ends the run at once and leaves the queues untouched.

        A run that resumes begins with a queued message instead of an opening; one that an earlier process has begun may
        have an `unfinished` answer.
        """
        try:
            return await self._play_turns(opening, resumes, unfinished)
        except Exception as error:
            return await self._end_after_crash(error)

    async def _play_turns(
        self, opening: Sequence[Spoken], resumes: bool, unfinished: UnfinishedAnswer | None
    ) -> RunResult:
        await self._publish(AgentStart())
        await self._publish(TurnStart())
        await self._owner.announce_tools()
        await self._publish_messages(opening)
        queued = [] if unfinished is not None else self._reserve_queued_at_start(resumes)
        while True:
            turn = await (self._play_turn(queued) if unfinished is None else self._finish_turn(unfinished))
            unfinished = None
            following = await self._prepare_next_turn(turn)
            if following is None:
                return await self._end_run(turn)
            await self._publish(TurnStart())
            await self._publish_messages(following.said)
            queued = following.queued

    async def _publish_messages(self, messages: Sequence[Spoken]) -> None:
        for message in messages:
            await self._publish_message(message)

    def _reserve_queued_at_start(self, resumes: bool) -> Sequence[QueuedItem]:
        steering = [] if self._is_cancelled() else self._feed.peek_steering()
        return self._reserve_items(steering or (self._feed.peek_follow_ups() if resumes else []))

    def _reserve_items(self, items: Sequence[QueuedItem]) -> list[QueuedItem]:
        if not items or not self._owner.can_accept_messages():
            return []
        return [item for item in items if self._feed.try_reserve_item(item)]

    async def _play_turn(self, queued: Sequence[QueuedItem]) -> Turn:
        """Deliver the queued messages, stream one answer, run its tools."""
        for item in queued:
            await self._feed.mark_delivered(item)
            await self._publish_message(item.message)
        owner = self._owner
        stream = AnswerStream(
            await owner.build_request(),
            self._publish,
            self._now,
            owner.finalize_message,
            owner.make_watches(),
            on_tool_named=owner.on_tool_named,
        )
        scope = self._scope.make_child()
        try:
            answer = await stream.stream(self._provider, scope)
            self._added.append(answer)
            if stream.sampled_tokens is not None:
                owner.record_tokens(stream.sampled_tokens)
            batch = ToolBatch(owner, self._feed, self._gate, self._publish, self._now, scope, self._tool_mode)
            results = [] if answer.stop_reason in FAILED else await self._run_tools(batch, answer)
        finally:
            scope.close()
        await self._publish(TurnEnd(message=answer, tool_results=results))
        return Turn(answer, stream.failure, bool(results) and not batch.should_end_run, stream.cut, results)

    async def _finish_turn(self, unfinished: UnfinishedAnswer) -> Turn:
        """The rest of a turn: the calls of the answer that have not begun."""
        answer, scope = unfinished.answer, self._scope.make_child()
        try:
            batch = ToolBatch(
                self._owner, self._feed, self._gate, self._publish, self._now, scope, self._tool_mode, unfinished
            )
            results = await self._run_tools(batch, answer) if unfinished.open_calls else []
        finally:
            scope.close()
        await self._publish(TurnEnd(message=answer, tool_results=results))
        has_calls = any(isinstance(block, ToolCall) for block in answer.content)
        return Turn(answer, None, has_calls and not batch.should_end_run, False, results)

    async def _run_tools(self, batch: ToolBatch, answer: AssistantMessage) -> list[ToolResultMessage]:
        await self._owner.on_answer(answer)
        results = await batch.run(answer)
        self._added.extend(results)
        self._denied = self._denied if batch.is_denied is None else batch.is_denied
        return results

    async def _prepare_next_turn(self, turn: Turn) -> NextTurn | None:
        """The next turn, or None if the run ends with this one."""
        if self._is_cancelled() or turn.has_failed:
            return None
        queued = self._find_queued_after(turn)
        ends = not queued and not turn.wants_more
        said = await self._owner.collect_additions(turn.answer, turn.results, ends)
        if self._is_cancelled() or said is None or (ends and not said):
            return None
        await self._owner.before_next_turn(self._scope)
        if self._is_cancelled():
            return None
        # A compaction between the turns takes time: messages may have been removed or added.
        queued = self._reserve_items(queued) or self._reserve_items(self._feed.peek_steering())
        return NextTurn(said, queued) if queued or turn.wants_more or said else None

    def _find_queued_after(self, turn: Turn) -> Sequence[QueuedItem]:
        """Steering messages at once, follow-ups when the agent would otherwise stop."""
        steering = self._feed.peek_steering()
        return steering or ([] if turn.wants_more or turn.cut else self._feed.peek_follow_ups())

    async def _end_run(self, turn: Turn) -> RunResult:
        wants_retry = turn.answer.stop_reason == "error" and await self._owner.should_retry_answer(
            turn.answer, turn.failure
        )
        await self._publish(AgentEnd(messages=self._added, will_retry=wants_retry))
        return RunResult(turn.answer, turn.failure, wants_retry, self._denied)

    async def _end_after_crash(self, error: Exception) -> RunResult:
        """End the run after a defect of our own, with the reason, so that it does not look like a hang."""
        answer = Fold(self._owner.model(), self._now()).to_message(
            "aborted" if self._is_cancelled() else "error", error=report_failure(error).message
        )
        await self._publish(MessageStart(message=answer))
        await self._publish(MessageEnd(message=answer))
        await self._publish(TurnEnd(message=answer, tool_results=[]))
        await self._publish(AgentEnd(messages=[*self._added, answer], will_retry=False))
        return RunResult(answer, None, will_retry=False)

    async def _publish_message(self, given: Spoken) -> None:
        message = await self._owner.prepare_message(given)
        await self._publish(MessageStart(message=message))
        final = await self._owner.finalize_message(message)
        self._added.append(final)
        await self._publish(MessageEnd(message=final))

    def _is_cancelled(self) -> bool:
        return self._scope.cancelled
