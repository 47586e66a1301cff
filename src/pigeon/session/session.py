"""The facade of one conversation: it holds the parts. A new command never changes this file."""

from __future__ import annotations

import asyncio

from pigeon.session.bus import Bus
from pigeon.session.context.conversation import Conversation
from pigeon.session.context.model_context import VisibleEntries
from pigeon.session.dependencies import Dependencies
from pigeon.session.engine import Engine
from pigeon.session.history.journal import Journal
from pigeon.session.host.dialogs import Dialogs
from pigeon.session.host.host_shell import HostShell
from pigeon.session.host.host_tools import HostTools
from pigeon.session.interjections import Interjections
from pigeon.session.model_choice import ModelChoice
from pigeon.session.prompting import Prompting
from pigeon.session.queue import MessageQueue
from pigeon.session.steering.todos import Todos
from pigeon.session.switching import Reason, Switching
from pigeon.system import ids
from pigeon.wire.messages import Message


class Session:
    """One conversation with memory."""

    def __init__(self, parts: Dependencies) -> None:
        self._parts = parts
        self._syncing: asyncio.Future[None] | None = None
        self.hooks = parts.hooks
        self.repository = parts.repository
        self.toolset = parts.toolset
        self.write_page = parts.write_page
        self.bus = Bus()
        self._current = Conversation(parts.journal)
        self.dialogs = Dialogs(self.bus.post, ids.dialog_id)
        self.queue = MessageQueue(self.bus.post)
        self.host_tools = HostTools(parts.toolset, self.bus.post)
        self.todos = Todos(self.bus.post)
        self.models = ModelChoice(parts, lambda: self.journal, self.bus.post)
        self.engine = Engine(parts, self._current, self.bus, self.models, self.queue, self.todos)
        self.activity = self.engine.activity
        self.prompting = Prompting(self.engine, self.queue, self.models, parts)
        self.interjections = Interjections(
            self.activity, self.queue, self.engine.runs, self.bus, self.prompting.require_model
        )
        self.prompting.also_said = self.interjections.take_next_turn
        self.shell = HostShell(parts.place, self.bus, lambda: self.journal, self.activity, parts.hooks)
        self.switching = Switching(parts, lambda: self.journal, self.engine.settle, self._enter)
        self.engine.runs.before_settled = self._settle
        self.bus.record(self._current.record)
        self.bus.record(self.engine.reminders.notes)
        self.bus.record(self.engine.rules.notes)
        self._entered(restore=bool(self.journal.lines))

    @property
    def journal(self) -> Journal:
        """The conversation on record."""
        return self._current.journal

    @property
    def context(self) -> list[Message]:
        """The messages that the model would see now; do not change the list."""
        return self._current.context

    @property
    def shown(self) -> VisibleEntries:
        """The entries of that conversation, not parsed."""
        return self._current.shown

    def disconnect(self) -> None:
        """The host will say nothing more: whatever waits for it goes on without."""
        self.host_tools.disconnect()
        self.dialogs.close()

    async def close(self) -> None:
        """Stop everything for good."""
        self.disconnect()
        self.todos.close()
        self.activity.close()
        self.shell.abort()
        await self.activity.until_idle()
        self.journal.close()

    def _enter(self, journal: Journal, reason: Reason) -> None:
        self.queue.drop()
        self.shell.abort()
        if journal.cwd != self.journal.cwd:
            self.shell.place = self._parts.moved(journal.cwd)
        self._current.turn_to(journal)
        self._entered(restore=reason == "resume")

    def _entered(self, restore: bool) -> None:
        if restore:
            self.models.restore(self.journal.branch)
        elif not self.journal.lines:
            self.models.enter_session()
        self.engine.entered()

    def _settle(self) -> None:
        self.shell.settle()
        self.interjections.settle()
        self._syncing = asyncio.get_running_loop().run_in_executor(None, self.journal.sync)
