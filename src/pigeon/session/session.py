"""The facade of one conversation: it holds the parts and passes calls on. A new command never changes this file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from pigeon.agent.protocols import Gate, Provider
from pigeon.agent.run import Run
from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity
from pigeon.session.bus import Bus
from pigeon.session.compaction import Compaction
from pigeon.session.conduct import Conduct
from pigeon.session.context import context_of, model_messages
from pigeon.session.dialogs import Dialogs
from pigeon.session.journal import Journal
from pigeon.session.model_choice import ModelChoice, ModelSource, ScopedModel
from pigeon.session.prompting import Expander, Prompting
from pigeon.session.queue import MessageQueue
from pigeon.session.retry import Retry
from pigeon.session.runs import Runs
from pigeon.session.shelf import Shelf
from pigeon.session.summaries import Summariser
from pigeon.session.switching import Reason, Switching
from pigeon.session.toolset import Toolset
from pigeon.session.user_shell import UserShell
from pigeon.system import ids
from pigeon.system.shell import Workplace
from pigeon.wire.answers import Compacted
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.events import MessageEnd, Outbound
from pigeon.wire.inference import ModelRequest
from pigeon.wire.messages import Message
from pigeon.wire.model import Model, ThinkingLevel


class Parts(Struct, kw_only=True):
    """What a session is put together from; the command line makes it."""

    shelf: Shelf
    journal: Journal
    place: Workplace
    moved: Callable[[str], Workplace]
    provider: Provider
    models: ModelSource
    model: Model | None
    thinking: ThinkingLevel
    toolset: Toolset
    expander: Expander
    system_prompt: Callable[[str], str]
    now: Callable[[], int]
    models_file: str
    model_is_explicit: bool = False
    scoped: Sequence[ScopedModel] = ()
    gate: Gate | None = None


class Session:
    """One conversation with memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.shelf = parts.shelf
        self.bus = Bus()
        self.activity = Activity()
        self.dialogs = Dialogs(self.bus.post, ids.dialog_id)
        self.journal = parts.journal
        self.queue = MessageQueue(self.bus.post)
        self.models = ModelChoice(
            parts.models,
            lambda: self.journal,
            self.bus.post,
            parts.model,
            parts.thinking,
            parts.scoped,
            parts.model_is_explicit,
        )
        self.retry = Retry(lambda: self.journal, self.bus.publish)
        self.compaction = Compaction(
            lambda: self.journal, self.models, Summariser(parts.provider, self.bus.publish), self.bus.publish
        )
        self.conduct = Conduct(self._request, parts.toolset, self.retry, self.compaction, self.activity)
        self._runs = Runs(self._run, self.conduct, self.queue, self.bus, self.activity, self.retry, self.compaction)
        self.prompting = Prompting(
            self.activity, self.queue, self._runs, self.models, parts.expander, parts.now, parts.models_file
        )
        self.shell = UserShell(parts.place, self.bus, lambda: self.journal, self.activity, parts.now)
        self._runs.before_settled = self._settle
        self.switching = Switching(parts.shelf, lambda: self.journal, self.abort, self._enter)
        self._context: tuple[Journal, tuple[int, int], list[Message]] | None = None
        self.bus.record(self._record)
        if self.journal.lines:
            self.models.restore(self.journal.branch)
        else:
            self.models.enter_session()

    @property
    def context(self) -> list[Message]:
        """The messages that the model would see now; do not change the list."""
        cached = self._context
        if cached is None or cached[0] is not self.journal or cached[1] != self.journal.version:
            cached = (self.journal, self.journal.version, context_of(self.journal.branch))
            self._context = cached
        return cached[2]

    async def abort(self) -> None:
        """Stop what is going on and wait until it has ended; queues stay as they are."""
        self.activity.cancel()
        await self.activity.until_idle()

    async def compact(self, instructions: str | Absent = ABSENT) -> Compacted:
        """Summarise the history now."""
        await self.abort()
        scope = self.activity.begin_compaction()
        try:
            return await self.compaction.manual(instructions, scope)
        finally:
            self.activity.end()

    async def close(self) -> None:
        """Stop everything for good."""
        self.activity.close()
        self.shell.abort()
        self.dialogs.close()
        await self.activity.until_idle()
        self.journal.close()

    def _enter(self, journal: Journal, reason: Reason) -> None:
        self.queue.drop()
        self.journal.close()
        if journal.cwd != self.journal.cwd:
            self.shell.place = self._parts.moved(journal.cwd)
        self.journal = journal
        if reason == "resume":
            self.models.restore(journal.branch)
        elif not journal.lines:
            self.models.enter_session()

    def _settle(self) -> None:
        self.shell.settle()
        self.journal.sync()

    def _record(self, event: Outbound) -> None:
        if isinstance(event, MessageEnd):
            self.journal.append_message(event.message)

    def _run(self, scope: Scope) -> Run:
        parts = self._parts
        return Run(parts.provider, self.conduct, self.queue, self.bus.publish, scope, parts.now, parts.gate)

    def _request(self) -> ModelRequest:
        model = self.models.model
        assert model is not None
        return ModelRequest(
            model=model,
            system_prompt=self._parts.system_prompt(self.journal.cwd),
            messages=model_messages(self.context),
            tools=self._parts.toolset.specs(),
            thinking=self.models.level,
            session_id=self.journal.session_id,
        )
