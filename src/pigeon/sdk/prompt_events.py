"""A prompt and its run, as an iterator of events that ends with the run and may be left before.

    begun -> accepted -> settled
      |         |
      +---------+-> left: abort, wait for `agent_settled`

Leaving means: `break`, an exception in the loop's body, `aclose`, or cancellation of the task that iterates. An
iterator only notices a `break` by its deletion, so that case is handled there, and its abort continues in the
background. The next prompt of the conversation waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from pigeon.sdk.errors import ConversationClosed, ReaderTooSlow, RunOver
from pigeon.sdk.reader_queue import ReaderQueue
from pigeon.wire.answers import Accepted
from pigeon.wire.base import Absent
from pigeon.wire.commands import Abort, GetState, Prompt, RemoveQueued
from pigeon.wire.errors import Refusal
from pigeon.wire.events import AgentSettled

if TYPE_CHECKING:
    from pigeon.sdk.results import ConversationEvent, RecentRuns

Call = Callable[..., Awaitable[Any]]
Subscribe = Callable[..., ReaderQueue]
# How long to wait for the end of an aborted run after the agent has reported that it is idle.
SETTLE_SECONDS = 10.0


class FollowedRun:
    """The events of the run that a prompt started, joined, or had started before; and its place in the queue."""

    __slots__ = ("queue", "queued_id")

    def __init__(self, queue: ReaderQueue, queued_id: str | Absent) -> None:
        self.queue = queue
        self.queued_id = queued_id


class PromptRuns:
    """Starts the prompts of one conversation, and tracks those that were left and have not ended."""

    def __init__(self, call: Call, subscribe: Subscribe, recent: RecentRuns) -> None:
        self._call = call
        self._subscribe = subscribe
        self._recent = recent
        self._left: set[asyncio.Future[None]] = set()
        self._started: WeakSet[PromptedRun] = WeakSet()

    def start_prompt(self, command: Callable[[], Awaitable[Prompt]], every_delta: bool) -> PromptedRun:
        """Begin a prompt once all runs that were left have ended."""
        run = PromptedRun(self, command, every_delta)
        self._started.add(run)
        return run

    async def send_prompt(self, prompt: Prompt, every_delta: bool) -> FollowedRun | None:
        """Send a prompt; returns the events from its acceptance on, or None if no run follows.

        A message that was sent before under its id starts nothing: the result is then the rest of its run, or only the
        end of a finished run. Raises `RunOver` if that is no longer known.
        """
        followed: list[FollowedRun] = []
        again: list[RunOver] = []

        def on_answer(answer: Any) -> None:
            accepted = answer if isinstance(answer, Accepted) else Accepted(disposition="started")
            if accepted.disposition == "handled":
                return
            run_id = accepted.run_id or None
            known = self._recent.get(run_id)
            missed = None
            if prompt.client_message_id and known is None:
                missed = RunOver(prompt.client_message_id, run_id or "")
                again.append(missed)
            queue = self._subscribe(run_id, missed, every_delta=every_delta)
            if known is not None and known.settled_event is not None:
                queue.put(known.settled_event)
            followed.append(FollowedRun(queue, accepted.queued_id))

        await self._call(prompt, on_answer)
        if again:
            await self._check_still_runs(followed[0].queue, again[0])
        return followed[0] if followed else None

    async def _check_still_runs(self, queue: ReaderQueue, over: RunOver) -> None:
        """Check a message with an id that is unknown here: it is new, or its run has already ended."""
        state = await self._call(GetState())
        if not state.is_streaming and not len(queue):
            raise over

    async def abort(self) -> None:
        """Abort the run of this prompt; its events still arrive until the end."""
        await self._call(Abort())

    async def withdraw_queued(self, run: FollowedRun) -> bool:
        """Remove a message that waits in the queue; returns False if it does not wait there."""
        if isinstance(run.queued_id, Absent):
            return False
        try:
            await self._call(RemoveQueued(queued_id=run.queued_id))
        except Refusal:
            return False
        return True

    def end_in_background(self, run: PromptedRun) -> asyncio.Future[None]:
        """End a run in the background; awaiting the result waits for that."""
        ending = asyncio.ensure_future(run.abort_and_drain())
        self._left.add(ending)
        ending.add_done_callback(self._left.discard)
        return ending

    def has_other_runs(self, run: PromptedRun) -> bool:
        """Whether another prompt of this conversation has an active run."""
        return any(one.is_running for one in self._started if one is not run)

    async def wait_for_abandoned_runs(self) -> None:
        """Wait for the end of the runs that were left."""
        while self._left:
            await asyncio.wait(set(self._left))


class PromptedRun:
    """One prompt, from its command to the end of its run."""

    def __init__(self, runs: PromptRuns, command: Callable[[], Awaitable[Prompt]], every_delta: bool) -> None:
        self._runs = runs
        self._command = command
        self._every_delta = every_delta
        self._loop = asyncio.get_running_loop()
        self._beginning: asyncio.Task[FollowedRun | None] = self._loop.create_task(self._start_run())
        self._ending: asyncio.Future[None] | None = None
        self._sent = False
        self.over = False

    async def _start_run(self) -> FollowedRun | None:
        # A run whose iterator was just deleted requests its end in the next iteration of the loop.
        await asyncio.sleep(0)
        await self._runs.wait_for_abandoned_runs()
        command = await self._command()
        self._sent = True
        return await self._runs.send_prompt(command, self._every_delta)

    @property
    def is_running(self) -> bool:
        """True from its acceptance to its end."""
        return self._beginning.done() and not self.over

    async def next(self) -> Any:
        """The next event; raises `StopAsyncIteration` after the last."""
        if self.over:
            raise StopAsyncIteration
        try:
            run = await asyncio.shield(self._beginning)
            event = await self._next_of(run)
        except (asyncio.CancelledError, ReaderTooSlow):
            await self.end_early()
            raise
        except BaseException:
            self.over = True
            raise
        self.over = isinstance(event, AgentSettled)
        return event

    @staticmethod
    async def _next_of(run: FollowedRun | None) -> Any:
        if run is None:
            raise StopAsyncIteration
        try:
            return await run.queue.get()
        except StopAsyncIteration:
            raise ConversationClosed("The conversation was closed before the run had ended") from None

    async def end_early(self) -> None:
        """End the run early, and wait for its end."""
        ending = self.start_ending()
        if ending is not None:
            await asyncio.shield(ending)

    def start_ending(self) -> asyncio.Future[None] | None:
        """Begin to end the run early; returns an awaitable for its end, or None if it is over."""
        if self._ending is None and not self.over:
            self.over = True
            if self._loop.is_closed():
                return None
            self._ending = self._runs.end_in_background(self)
        return self._ending

    def end_threadsafe(self) -> None:
        """Like `start_ending`, but may be called from any thread and never waits."""
        if not self.over and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.start_ending)

    async def abort_and_drain(self) -> None:
        """Abort, and read to the end; a prompt that was not sent need not be aborted."""
        if not self._sent:
            self._beginning.cancel()
            await asyncio.wait({self._beginning})
            return
        if self._beginning.done() and self._beginning.exception() is not None:
            return
        with suppress(Exception):
            await self._abort_or_withdraw_run()

    async def _abort_or_withdraw_run(self) -> None:
        """Abort the run, unless the prompt was refused or joined another prompt's run."""
        alone = not self._runs.has_other_runs(self)
        waits = not self._beginning.done()
        if alone and waits:
            await self._runs.abort()
        run = await self._beginning
        if run is None or await self._runs.withdraw_queued(run) or not alone:
            return
        if not waits:
            await self._runs.abort()
        async with asyncio.timeout(SETTLE_SECONDS):
            while not isinstance(await self._next_of(run), AgentSettled):
                pass


class PromptEvents:
    """The events of one prompt: an async iterator, and a context manager for callers who wait when they leave."""

    def __init__(self, runs: PromptRuns, command: Callable[[], Awaitable[Prompt]], every_delta: bool) -> None:
        self._runs = runs
        self._command = command
        self._every_delta = every_delta
        self._run: PromptedRun | None = None

    def __aiter__(self) -> PromptEvents:
        return self

    async def __anext__(self) -> ConversationEvent:
        if self._run is None:
            self._run = self._runs.start_prompt(self._command, self._every_delta)
        return cast("ConversationEvent", await self._run.next())

    async def __aenter__(self) -> PromptEvents:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave: abort the run unless it is over, and wait for its end."""
        if self._run is not None:
            await self._run.end_early()

    def __del__(self) -> None:
        if self._run is not None:
            self._run.end_threadsafe()
