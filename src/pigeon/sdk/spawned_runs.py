"""Agents that a program starts from a conversation: an iterator over the events of one, its result, and its abort."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, cast

from pigeon.sdk.errors import ConversationClosed
from pigeon.sdk.output import OutputType
from pigeon.sdk.reader_queue import ReaderQueue
from pigeon.sdk.results import ConversationEvent, OutputT, Result, RunRecord
from pigeon.wire.agents import AgentList, AgentStarted
from pigeon.wire.base import value_or_default
from pigeon.wire.commands.agents import AbortAgent, GetAgents, SpawnAgent
from pigeon.wire.errors import Refusal
from pigeon.wire.events import AgentSettled

Call = Callable[..., Awaitable[Any]]
MOST_EARLY = 1000


class AgentReaders:
    """The readers of the events of started agents, by agent; what comes before an agent's reader is kept for it."""

    def __init__(self) -> None:
        self._readers: dict[str, list[ReaderQueue]] = {}
        self._starting = 0
        self._early: list[tuple[str, Any, int]] = []

    def begin_start(self) -> None:
        """An agent is about to be started, whose id is not known yet."""
        self._starting += 1

    def end_start(self) -> None:
        """It has been started, or refused."""
        self._starting -= 1
        if not self._starting:
            self._early.clear()

    def subscribe(self, agent_id: str) -> ReaderQueue:
        """The events of an agent from here on, and those that have come while it was started."""
        queue = ReaderQueue()
        self._readers.setdefault(agent_id, []).append(queue)
        for known, event, size in self._early:
            if known == agent_id:
                queue.put(event, None, size)
        return queue

    def put(self, agent_id: str, event: Any, size: int) -> None:
        """Pass on an event of an agent; its last one ends the readers."""
        if self._starting and len(self._early) < MOST_EARLY:
            self._early.append((agent_id, event, size))
        for reader in self._readers.get(agent_id, ()):
            reader.put(event, None, size)
        if isinstance(event, AgentSettled):
            self._readers.pop(agent_id, None)

    def close(self, error: BaseException | None) -> None:
        """End all readers, with this error if there is one."""
        for readers in self._readers.values():
            for reader in readers:
                reader.close(error)
        self._readers.clear()


class SpawnedRun(Generic[OutputT]):
    """An agent that was started by `spawn`: an async iterator of its events, up to its `agent_settled`.

    Attributes:
        agent_id: its id, once it has been started; `None` before

    Leaving the iteration early aborts the agent.

    Example:
        import asyncio

        import pigeon


        async def main() -> None:
            async with pigeon.Agent(model="demo") as agent:
                run = agent.spawn("list the files", agent="explore")
                result = await run.result()
                print(run.agent_id, result.ended, result.text)


        asyncio.run(main())
    """

    def __init__(self, call: Call, readers: AgentReaders, command: SpawnAgent, wanted: OutputType | None) -> None:
        self._call = call
        self._readers = readers
        self._command = command
        self._record = RunRecord(wanted)
        self._queue: ReaderQueue | None = None
        self._over = False
        self.agent_id: str | None = None
        self._starting: asyncio.Task[None] = asyncio.ensure_future(self._start())
        self._starting.add_done_callback(_retrieve_exception)

    async def _start(self) -> None:
        def on_answer(answer: AgentStarted) -> None:
            self.agent_id = answer.agent_id
            self._queue = self._readers.subscribe(answer.agent_id)

        self._readers.begin_start()
        try:
            await self._call(self._command, on_answer)
        finally:
            self._readers.end_start()

    def __aiter__(self) -> AsyncIterator[ConversationEvent]:
        return self

    async def __anext__(self) -> ConversationEvent:
        if self._over:
            raise StopAsyncIteration
        await asyncio.shield(self._starting)
        assert self._queue is not None
        try:
            event = await self._queue.get()
        except StopAsyncIteration:
            raise ConversationClosed("The conversation was closed before the agent had ended") from None
        except asyncio.CancelledError:
            await self.abort()
            raise
        self._record.add_event(event)
        self._over = isinstance(event, AgentSettled)
        return cast("ConversationEvent", event)

    async def result(self) -> Result[OutputT]:
        """Wait for its end, and return how it ended; raises a `Refusal` if it could not be started."""
        async for _ in self:
            pass
        known: AgentList = await self._call(GetAgents())
        info = next(one for one in known.agents if one.agent_id == self.agent_id)
        return self._record.make_result_of_session(info.session_id, value_or_default(info.session_file, None))

    async def abort(self) -> None:
        """Stop it with what it has started, and wait for its end."""
        with suppress(Refusal):
            await asyncio.shield(self._starting)
        if self.agent_id is not None and not self._over:
            await self._call(AbortAgent(agent_id=self.agent_id))

    async def __aenter__(self) -> SpawnedRun[OutputT]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """A refusal is raised where the run is read; of a run that is not read, nothing is logged."""
    if not task.cancelled():
        task.exception()
