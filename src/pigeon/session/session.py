"""The facade of one conversation: it builds its objects from `Dependencies` and holds them for handlers.

A new command does not change this file.
"""

from __future__ import annotations

from pigeon.session.compaction.compaction import Compaction
from pigeon.session.compaction.summarizer import Summarizer
from pigeon.session.context.reading_ahead import read_ahead
from pigeon.session.context.system_prompt import SystemPrompt
from pigeon.session.context.transcript import VisibleEntries
from pigeon.session.dependencies import Dependencies
from pigeon.session.engine import Engine
from pigeon.session.file_undo import FileUndo
from pigeon.session.history.journal import Journal
from pigeon.session.history_changes import HistoryChanges
from pigeon.session.host.host_shell import HostShell
from pigeon.session.host.host_tools import HostTools
from pigeon.session.navigation import Navigation
from pigeon.session.policies.run_limits import RunLimits
from pigeon.session.prompting import Prompting
from pigeon.session.queue import MessageQueue
from pigeon.session.switching import Reason, Switching
from pigeon.wire.errors import PigeonError
from pigeon.wire.events import CommandsChanged, SelectionChanged
from pigeon.wire.messages import Message


class Session:
    """One conversation with memory."""

    def __init__(self, dependencies: Dependencies) -> None:
        bus = dependencies.bus
        self.dependencies = dependencies
        self.transcript = dependencies.transcript
        bus.add_recorder(self.transcript.record_event)
        self.bus = bus
        self.toolset = dependencies.toolset
        self.todos = dependencies.todos
        self.queue = MessageQueue(bus.post, dependencies.settings, new_id=dependencies.ids.request_id)
        self.host_tools = HostTools(
            dependencies.toolset, bus.post, dependencies.ids.request_id, dependencies.settings.several_clients
        )
        self.models = dependencies.models
        self.system_prompt = SystemPrompt(dependencies.system_prompt, dependencies.toolset, self.transcript)
        limits = RunLimits(dependencies.settings.limits, self.transcript.journal.session_id, dependencies.limits_above)
        settings, hooks = dependencies.settings, dependencies.hooks
        provider, retry = (
            limits.wrap_summary_provider(dependencies.provider),
            settings.retry if settings.auto_retry else None,
        )
        summarizer = Summarizer(provider, bus.publish, retry, dependencies.toolset.facts_of)
        compaction = Compaction(
            self.transcript, self.models, summarizer, bus.publish, hooks, settings.compaction, settings.auto_compaction
        )
        self.engine = Engine(dependencies, self.queue, self.system_prompt, limits, compaction)
        self.activity = self.engine.activity
        navigation = Navigation(self.transcript, self.models, summarizer)
        file_undo = FileUndo(dependencies.checkpoints, self.transcript, self.activity, dependencies.agents, bus.post)
        self.history = HistoryChanges(
            self.transcript, self.activity, compaction, navigation, self.engine.restore_from_branch, file_undo
        )
        self.prompting = Prompting(dependencies, self.engine, self.queue, self.system_prompt)
        dependencies.jobs.set_idle_callback(self.prompting.start_run_for_jobs)
        self.shell = HostShell(
            dependencies.workplace, bus, self.transcript, self.activity, dependencies.hooks, dependencies.now
        )
        self.switching = Switching(
            dependencies.repository,
            dependencies.hooks,
            self.transcript,
            self._stop_everything,
            dependencies.trust.resolve_trust,
            self._enter_journal,
            self._on_entered,
        )
        self._follow_rows()
        self._apply_journal(restore=bool(self.journal.lines))

    def _on_entered(self) -> None:
        self.announce_commands()
        self.engine.continue_interrupted_run()

    def announce_commands(self) -> None:
        self.bus.post(CommandsChanged())

    def announce_selection(self, by: str) -> None:
        """Announce the model and the place in the session after a command has changed them."""
        self.bus.post(SelectionChanged(by=by, model=self.models.model, leaf_id=self.journal.leaf_id))

    @property
    def journal(self) -> Journal:
        """The recorded conversation, including what another process that writes it has appended."""
        self._read_appended()
        return self.transcript.journal

    @property
    def context(self) -> list[Message]:
        self._read_appended()
        return self.transcript.context

    @property
    def visible_entries(self) -> VisibleEntries:
        self._read_appended()
        return self.transcript.visible_entries

    def _read_appended(self) -> None:
        if self.transcript.journal.read_appended():
            self.engine.restore_from_branch()

    async def warm_up(self) -> None:
        """Load what the first request will need, while there is time: the HTTP client, then the files of the system
        prompt, then the names of tool servers, which are connected a little later, then a long conversation."""
        preparation = self.dependencies.preparation
        await preparation.warm(self.models.model)
        self.engine.warm_up()
        self.dependencies.tool_servers.start_connecting()
        await self.dependencies.agents.remove_leftovers()
        await read_ahead(self.transcript, self.activity, self.models, preparation)

    def on_host_disconnected(self) -> None:
        """The host is gone: whatever waits for it continues without an answer."""
        self.host_tools.on_host_disconnected()
        self.dependencies.host_services.on_host_disconnected()
        self.dependencies.dialogs.close()

    def on_host_services_set(self) -> None:
        """The host serves files now: if they are the workspace, the project is read before the next prompt."""
        if self.dependencies.workspace.is_of_host():
            self.dependencies.workspace.begin_reading(self._read_project())

    async def _read_project(self) -> None:
        trust, cwd = self.dependencies.trust, self.journal.cwd
        try:
            await trust.resolve_trust(cwd)
        except (OSError, PigeonError) as error:
            self.dependencies.report(f"The project in {cwd} was not read: {error}")
            return
        trust.switch_folder(cwd)
        self.announce_commands()

    async def close(self) -> None:
        self.on_host_disconnected()
        await self.end()

    async def end(self) -> None:
        """End the conversation; the host stays, and so does what is shared with other agents."""
        await self.dependencies.agents.stop_all()
        await self.dependencies.jobs.stop_all()
        self.todos.close()
        self.activity.close()
        self.shell.abort()
        await self.activity.wait_until_idle()
        await self.dependencies.checkpoints.close(keep=self.transcript.journal.file is not None)
        await self.dependencies.tool_servers.close()
        self.journal.close()

    async def _stop_everything(self) -> None:
        await self.engine.abort_and_settle()
        await self.dependencies.agents.stop_all()
        await self.dependencies.jobs.stop_all()

    def _enter_journal(self, journal: Journal, reason: Reason) -> None:
        """Switch to another journal; everything of the old conversation has ended."""
        if len(self.queue):
            self.queue.clear()
        self.shell.abort()
        if journal.cwd != self.journal.cwd:
            self.dependencies.trust.switch_folder(journal.cwd)
            self.shell.set_workplace(self.dependencies.move_to(journal.cwd))
        self.transcript.switch_journal(journal)
        self._follow_rows()
        self.dependencies.agents.leave_conversation()
        self.engine.limits.enter_conversation(journal.session_id)
        self._apply_journal(restore=reason == "resume")

    def _follow_rows(self) -> None:
        """Announce only what the store has confirmed, if one keeps the conversation."""
        rows = self.transcript.journal.rows
        if rows is None:
            self.bus.hold_until_saved(None)
            return
        self.bus.hold_until_saved(lambda: rows.is_pending)
        rows.set_listeners(self.bus.release_held, self._stop_lost_conversation)

    def _stop_lost_conversation(self, problem: str) -> None:
        """Another process owns the conversation: nothing of it may go on here."""
        self.bus.drop_held(problem)
        self.engine.abort()

    def _apply_journal(self, restore: bool) -> None:
        begins = not self.journal.lines
        if restore:
            self.models.restore(self.journal.branch)
        elif begins:
            self.models.record_choice()
        self.engine.restore_from_branch(restore=restore or begins)
