"""Playback: a stored session is played to a host as if it happened now.

`SessionPlayer` publishes the events of a live run, made by the same code from the same records, at the requested speed.
No model is called, and no tool runs. The conversation grows in memory with the ids and times of the session
(`PlayedClock`), so that `get_state` and `get_messages` answer as they would have.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from pigeon.agent.answer import AnswerStream
from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockOpened,
    Delta,
    Failure,
    Finished,
    Metered,
    ModelRequest,
    Named,
)
from pigeon.agent.interfaces import Publish
from pigeon.agent.scope import Scope
from pigeon.session.context.transcript import message_of
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.reading import LoadedSession
from pigeon.session.session import Session
from pigeon.system.clock import PlaybackPace
from pigeon.system.ids import Ids
from pigeon.wire import codec
from pigeon.wire.answers import Compacted
from pigeon.wire.base import value_or_default
from pigeon.wire.content import AssistantBlock, TextContent, ThinkingContent, ToolCall
from pigeon.wire.entries import CompactionEntry, ContextEdit, SessionInfo, ThinkingLevelChange
from pigeon.wire.errors import Aborted
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    AutoRetryEnd,
    AutoRetryStart,
    CompactionEnd,
    CompactionReason,
    CompactionStart,
    EndReason,
    MessageEnd,
    MessageStart,
    SessionInfoChanged,
    SessionSettled,
    ThinkingLevelChanged,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolOutcome,
    ToolsDeclared,
    TurnEnd,
    TurnStart,
)
from pigeon.wire.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from pigeon.wire.model import Model, ModelCost

PIECE = 24
MOST_RETRIES = 3
FAILED = ("error", "aborted")
_OF_RUNS = ("user", "assistant", "toolResult")


def last_branch_of(loaded: LoadedSession) -> list[EntryLine]:
    branch: list[EntryLine] = []
    at = loaded.lines[-1] if loaded.lines else None
    while at is not None and len(branch) < len(loaded.lines):
        branch.append(at)
        at = loaded.by_id.get(at.parent_id or "")
    return branch[::-1]


class PlayedClock(Ids):
    """The clock and the ids of the entry that is being played."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0
        self._next = ""

    def move_to(self, line: EntryLine) -> None:
        """Move to the time and place of this entry."""
        self._at = _to_ms(line.timestamp) or self._at
        self._next = line.id

    def now(self) -> int:
        return self._at

    def entry_id(self, taken: Container[str]) -> str:
        return self._next if self._next and self._next not in taken else super().entry_id(taken)


class SessionPlayer:
    """Publishes the events of a session, run by run; every run that is begun ends in `agent_settled`."""

    def __init__(self, session: Session, clock: PlayedClock, pace: PlaybackPace) -> None:
        self._session = session
        self._clock = clock
        self._pace = pace
        self._at = 0
        self._level = ""

    async def play(self, branch: Sequence[EntryLine]) -> None:
        """Play everything, or up to the run that the host aborts."""
        rest = list(branch)
        while rest:
            size = _count_run_entries(rest)
            if not size:
                await self._play_between_runs(rest.pop(0))
            elif not await self._play_run(rest[:size]):
                return
            del rest[:size]

    async def _play_run(self, lines: list[EntryLine]) -> bool:
        """Play one run; returns False if it was aborted now, and not in the recording."""
        activity, post = self._session.activity, self._session.bus.post
        scope = activity.begin_run()
        reason: EndReason = "error"
        try:
            reason = await _PlayedRun(self, self._session.bus.publish, scope).play(lines)
        finally:
            stopped, run_id = scope.cancelled, activity.run_id
            activity.end()
            post(AgentSettled(aborted=reason == "aborted", reason=reason, run_id=run_id))
            post(SessionSettled(run_id=run_id))
        return not stopped

    async def _play_between_runs(self, line: EntryLine) -> None:
        publish = self._session.bus.publish
        await self.wait_until_entry(line)
        entry = line.entry
        said = message_of(line)
        if isinstance(entry, CompactionEntry):
            await self.play_compaction(line, entry, "manual")
        elif isinstance(said, SystemMessage):
            await publish(ToolsDeclared(message=said))
        elif isinstance(said, CustomMessage):
            await publish(MessageStart(message=said))
            await publish(MessageEnd(message=said))
        elif entry is not None:
            self.record_entry(line)
        if isinstance(entry, SessionInfo):
            await publish(SessionInfoChanged(name=entry.name))
        elif isinstance(entry, ThinkingLevelChange) and self._set_level_and_check_change(entry.thinking_level):
            await publish(ThinkingLevelChanged(level=entry.thinking_level, thinking_level=entry.thinking_level))

    def _set_level_and_check_change(self, level: str) -> bool:
        """Set the level; returns False for the level that the session begins with."""
        before, self._level = self._level, level
        return before not in ("", level)

    async def wait_until_entry(self, line: EntryLine, before_ms: int = 0) -> None:
        """Wait until an entry was made, or until so long before; session time continues from there."""
        at = (_to_ms(line.timestamp) or self._at) - before_ms
        await self._pace.pause(at - self._at if self._at else 0)
        self._at = max(self._at, at)
        self._clock.move_to(line)

    async def pass_time(self, ms: float) -> None:
        await self._pace.pause(ms)
        self._at += int(ms)

    def record_entry(self, line: EntryLine) -> None:
        """Record an entry that no event records."""
        entry = line.entry
        if entry is not None:
            kept = [name for name in type(entry).__struct_fields__ if name not in ("id", "parent_id", "timestamp")]
            self._session.journal.append(type(entry), **{name: getattr(entry, name) for name in kept})

    async def play_compaction(self, line: EntryLine, entry: CompactionEntry, reason: CompactionReason) -> None:
        """Play a compaction as it was recorded."""
        publish = self._session.bus.publish
        await publish(CompactionStart(reason=reason))
        self.record_entry(line)
        result = Compacted(
            summary=entry.summary,
            first_kept_entry_id=entry.first_kept_entry_id,
            tokens_before=entry.tokens_before,
            usage=entry.usage,
            details=entry.details,
        )
        await publish(CompactionEnd(reason=reason, result=result, aborted=False, will_retry=False))


class _PlayedRun:
    """One run: turns with their messages, answers in deltas, calls with their results."""

    def __init__(self, player: SessionPlayer, publish: Publish, scope: Scope) -> None:
        self._player = player
        self._publish = publish
        self._scope = scope
        self._added: list[Message] = []
        self._answer: AssistantMessage | None = None
        self._results: list[ToolResultMessage] = []
        self._calls: dict[str, ToolCall] = {}
        self._attempt = 0
        self._begun = False

    async def play(self, lines: list[EntryLine]) -> EndReason:
        """Play all entries; returns how the run ended."""
        await self._begin_run()
        for line in lines:
            if self._scope.cancelled:
                break
            # An abort ends the waiting, and the event follows at once.
            with suppress(Aborted):
                await self._play_entry(line)
        last = self._answer
        await self._end_turn()
        await self._publish(AgentEnd(messages=self._added, will_retry=False))
        if self._scope.cancelled or (last is not None and last.stop_reason == "aborted"):
            return "aborted"
        return "error" if last is not None and last.stop_reason == "error" else "done"

    async def _play_entry(self, line: EntryLine) -> None:
        entry, said = line.entry, message_of(line)
        if isinstance(said, AssistantMessage):
            await self._play_answer(line, said)
            return
        if isinstance(said, ToolResultMessage):
            await self._play_result(line, said)
            return
        await self._scope.wait(self._player.wait_until_entry(line))
        if isinstance(entry, CompactionEntry):
            await self._end_turn()
            await self._player.play_compaction(line, entry, "threshold")
        elif isinstance(said, SystemMessage):
            await self._publish(ToolsDeclared(message=said))
        elif isinstance(said, UserMessage | CustomMessage):
            await self._ensure_turn()
            await self._publish(MessageStart(message=said))
            await self._publish(MessageEnd(message=said))
            self._added.append(said)
        elif entry is not None:
            if isinstance(entry, ContextEdit):
                await self._announce_retry()
            self._player.record_entry(line)

    async def _begin_run(self) -> None:
        await self._publish(AgentStart())
        await self._publish(TurnStart())
        self._begun = True

    async def _ensure_turn(self) -> None:
        """Begin a turn after the last answer, for anything said now."""
        if not self._begun:
            await self._begin_run()
        elif self._answer is not None:
            await self._end_turn()
            await self._publish(TurnStart())

    async def _end_turn(self) -> None:
        if self._answer is not None:
            await self._publish(TurnEnd(message=self._answer, tool_results=self._results))
        self._answer, self._results = None, []

    async def _announce_retry(self) -> None:
        """Announce the retry after the last answer, which failed and is left out."""
        failed = self._answer
        if failed is None or failed.stop_reason != "error":
            return
        await self._end_turn()
        await self._publish(AgentEnd(messages=self._added, will_retry=True))
        self._added, self._begun = [], False
        self._attempt += 1
        most, error = max(MOST_RETRIES, self._attempt), value_or_default(failed.error_message, "")
        await self._publish(AutoRetryStart(attempt=self._attempt, max_attempts=most, delay_ms=0, error_message=error))

    async def _play_answer(self, line: EntryLine, message: AssistantMessage) -> None:
        if self._answer is not None and self._answer.stop_reason == "error":
            await self._announce_retry()
        await self._ensure_turn()
        lasted = max(0, _to_ms(line.timestamp) - message.timestamp)
        await self._scope.wait(self._player.wait_until_entry(line, lasted))

        async def use_recorded_message(made: Message) -> Message:
            return made if self._scope.cancelled else message

        request = ModelRequest(model=_model_of(message), system_prompt="", messages=[], tools=[])
        stream = AnswerStream(request, self._publish, lambda: message.timestamp, use_recorded_message)
        answer = await stream.stream(_SaidAgain(message, lasted, self._player.pass_time), self._scope)
        self._answer = answer
        self._added.append(answer)
        self._calls = {block.id: block for block in answer.content if isinstance(block, ToolCall)}
        if self._attempt and answer.stop_reason not in FAILED:
            await self._publish(AutoRetryEnd(success=True, attempt=self._attempt))
            self._attempt = 0

    async def _play_result(self, line: EntryLine, message: ToolResultMessage) -> None:
        id, lasted = message.tool_call_id, value_or_default(message.duration_ms, 0)
        call = self._calls.get(id)
        name, arguments = (message.tool_name, {}) if call is None else (call.name, call.arguments)
        await self._publish(ToolExecutionStart(tool_call_id=id, tool_name=name, args=arguments))
        with suppress(Aborted):
            await self._scope.wait(self._player.wait_until_entry(line, lasted))
            await self._scope.wait(self._player.wait_until_entry(line))
        await self._publish(
            ToolExecutionEnd(
                tool_call_id=id,
                tool_name=name,
                result=ToolOutcome(content=message.content, details=message.details),
                is_error=message.is_error,
                duration_ms=message.duration_ms,
            )
        )
        await self._publish(MessageStart(message=message))
        await self._publish(MessageEnd(message=message))
        self._results.append(message)
        self._added.append(message)


class _SaidAgain:
    """A provider that repeats a recorded answer, in pieces over its original duration."""

    def __init__(self, message: AssistantMessage, lasted_ms: int, spend: Callable[[float], Awaitable[None]]) -> None:
        self._message = message
        self._spend = spend
        pieces = sum(len(_text_of(block)) for block in message.content) / PIECE
        self._ms = lasted_ms / max(1.0, pieces)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        message = self._message
        yield Named(message.response_id, message.response_model)
        # The tokens of the answer are only known when it is complete.
        yield Metered(replace(message.usage, output=0))
        for index, block in enumerate(message.content):
            text = _text_of(block)
            if isinstance(block, ToolCall):
                yield BlockOpened(index, "toolCall", block.id, block.name)
            else:
                yield BlockOpened(index, "text" if isinstance(block, TextContent) else "thinking")
            for at in range(0, len(text), PIECE):
                await self._spend(self._ms)
                yield BlockGrew(index, text[at : at + PIECE])
            yield _to_block_closed(index, block)
        yield Metered(message.usage)
        failure = (
            Failure(message=value_or_default(message.error_message, "")) if message.stop_reason in FAILED else None
        )
        yield Finished(message.stop_reason, failure, message.raw_stop_reason)


def _text_of(block: AssistantBlock) -> str:
    if isinstance(block, ToolCall):
        return codec.encode(block.arguments).decode()
    return block.text if isinstance(block, TextContent) else block.thinking


def _to_block_closed(index: int, block: AssistantBlock) -> BlockClosed:
    if isinstance(block, ThinkingContent):
        return BlockClosed(index, block.thinking_signature, value_or_default(block.redacted, False))
    return BlockClosed(index, block.thought_signature if isinstance(block, ToolCall) else block.text_signature)


def _count_run_entries(lines: Sequence[EntryLine]) -> int:
    """The number of entries in the run that begins with the first one; 0 if it begins none.

    A message of the user begins another run, unless the model still waits for results or has to see them.
    """
    size, over = 0, False
    for number, line in enumerate(lines):
        role = line.role if line.type == "message" else ""
        # The tools of a run are declared after it has begun.
        if number == 0 and role not in (*_OF_RUNS, "system"):
            return 0
        if role == "user" and over:
            break
        if role in _OF_RUNS:
            size = number + 1
        message = line.message if role == "assistant" else None
        if isinstance(message, AssistantMessage):
            over = message.stop_reason in FAILED or not any(isinstance(block, ToolCall) for block in message.content)
        elif role == "toolResult":
            over = False
    return size


def _to_ms(timestamp: str) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:
        return 0


def _model_of(message: AssistantMessage) -> Model:
    """A model with what the stream of its answer needs: prices that result in the recorded cost."""
    usage, cost = message.usage, message.usage.cost
    prices = ModelCost(
        input=_price_per_million(cost.input, usage.input),
        output=_price_per_million(cost.output, usage.output),
        cache_read=_price_per_million(cost.cache_read, usage.cache_read),
        cache_write=_price_per_million(cost.cache_write, usage.cache_write),
    )
    return Model(
        id=message.model,
        name=message.model,
        api=message.api,
        provider=message.provider,
        base_url="",
        reasoning=True,
        input=["text", "image"],
        cost=prices,
        context_window=0,
        max_tokens=0,
    )


def _price_per_million(cost: float, tokens: int) -> float:
    return cost * 1e6 / tokens if tokens else 0
