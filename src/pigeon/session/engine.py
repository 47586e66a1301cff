"""The engine of a session: runs and what may follow them, retries, compaction, and going elsewhere in the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from pigeon.agent.inference import ModelRequest
from pigeon.agent.run import Run
from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity, Claim
from pigeon.session.bus import Bus
from pigeon.session.compaction.compaction import CANCELLED, Compaction
from pigeon.session.compaction.summarizer import Summarizer
from pigeon.session.conduct import Conduct
from pigeon.session.context.conversation import Conversation
from pigeon.session.context.model_context import model_messages, without_images
from pigeon.session.dependencies import Dependencies
from pigeon.session.model_choice import ModelChoice
from pigeon.session.navigation import Navigation, NavigationOptions
from pigeon.session.queue import MessageQueue
from pigeon.session.retry import Retry
from pigeon.session.runs import Runs
from pigeon.session.steering.stream_rules import StreamRules
from pigeon.session.steering.todos import Reminders, Todos
from pigeon.wire.answers import Compacted, Navigated
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.errors import Aborted, Refusal
from pigeon.wire.model import Model

LOCALE = "The user's locale is {}. Answer in its language unless you are asked for another one."


class Engine:
    """Everything that makes the agent do something."""

    def __init__(
        self,
        parts: Dependencies,
        current: Conversation,
        bus: Bus,
        models: ModelChoice,
        queue: MessageQueue,
        todos: Todos,
    ) -> None:
        self._parts = parts
        self._current = current
        self._bus = bus
        self._models = models
        self._queue = queue
        self.locale = ""
        self.activity = Activity()
        self.retry = Retry(lambda: current.journal, bus.publish, bus.post)
        self.summarizer = Summarizer(parts.provider, bus.publish)
        self.compaction = Compaction(lambda: current.journal, models, self.summarizer, bus.publish, parts.hooks)
        self.navigation = Navigation(lambda: current.journal, models, self.summarizer)
        self.rules = StreamRules(lambda: parts.rules(current.journal.cwd), bus.publish, parts.now, parts.report)
        self.reminders = Reminders(todos, bus.publish, parts.now)
        self.conduct = Conduct(self._request, self._model, parts, self.retry, self.compaction, self.activity)
        self.conduct.rules = self.rules
        self.conduct.reminders = self.reminders
        self.runs = Runs(self._run, self.conduct, queue, bus, self.activity, self.retry, self.compaction)
        self.runs.hooks = parts.hooks
        self._todos = todos
        self.block_images = False
        self.aborts = 0

    def abort(self) -> Awaitable[None] | None:
        """Stop what is going on, at once; awaiting the result waits for its end. Queues stay as they are."""
        self.aborts += 1
        self.activity.cancel()
        return self.activity.ended()

    async def settle(self) -> None:
        """Stop everything, and what was to come next, and wait for the end."""
        while self.activity.busy:
            self.activity.cancel()
            await (self.activity.ended() or asyncio.sleep(0))

    def compact(self, instructions: str | Absent = ABSENT) -> Awaitable[Compacted]:
        """Summarize the history now; what is going on is stopped before this returns."""
        return self._compacted(self.activity.claim_compaction(), instructions)

    async def _compacted(self, claim: Claim, instructions: str | Absent) -> Compacted:
        scope = await self._taken_up(claim)
        try:
            return await self.compaction.manual(instructions, scope)
        finally:
            self.activity.end()

    def navigate(self, entry_id: str, wish: NavigationOptions) -> Awaitable[Navigated]:
        """Go to another place in the tree; what is going on is stopped before this returns."""
        if self._current.journal.line(entry_id) is None:
            raise Refusal(f"Entry not found: {entry_id}")
        return self._navigated(self.activity.claim_compaction(), entry_id, wish)

    async def _navigated(self, claim: Claim, entry_id: str, wish: NavigationOptions) -> Navigated:
        scope = await self._taken_up(claim)
        try:
            arrived = await self.navigation.go(entry_id, wish, scope)
            self.entered()
            return arrived
        except Aborted:
            return Navigated(cancelled=True, leaf_id=self._current.journal.leaf_id)
        finally:
            self.activity.end()

    async def _taken_up(self, claim: Claim) -> Scope:
        ended = self.activity.ended()
        if ended is not None:
            await ended
        try:
            return self.activity.begin_compaction(claim)
        except Aborted:
            raise Refusal(CANCELLED) from None

    def entered(self) -> None:
        """Another branch or another conversation: take its plan and its rules."""
        self._todos.enter(self._current.journal.branch)
        self.rules.enter(self._current.journal.branch)

    def system_prompt(self) -> str:
        """What the model is told about its job now."""
        prompt = self._parts.system_prompt(self._current.journal.cwd)
        return f"{prompt}\n\n{LOCALE.format(self.locale)}" if self.locale else prompt

    def _run(self, scope: Scope) -> Run:
        parts = self._parts
        self.conduct.scope = scope
        return Run(parts.provider, self.conduct, self._queue, self._bus.publish, scope, parts.now, parts.gate)

    def _model(self) -> Model:
        if self._models.model is None:
            raise Refusal("No model selected")
        return self._models.model

    async def _request(self) -> ModelRequest:
        context = self._current.context
        given = await self.conduct.unless_stopped(self._parts.hooks.context(context), context)
        messages = self._current.said if given is context else model_messages(given)
        return ModelRequest(
            model=self._model(),
            system_prompt=self.conduct.prompt_of_run or self.system_prompt(),
            messages=without_images(messages) if self.block_images else messages,
            tools=self._parts.toolset.specs(),
            thinking=self._models.level,
            session_id=self._current.journal.session_id,
        )
