"""The view of extensions on a session: what they may read of it and do to it, on the real `Session`.

Everything here is called on the session's event loop only, one call at a time; an extension reaches it through its
`SessionAccess`, which transfers calls from the extension's thread. A call that cannot be carried out raises a
`Refusal`, whose text goes to the extension.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pigeon.agent.interfaces import ModelProvider, Tool
from pigeon.session.history.views import clean_name, context_usage, session_name_of
from pigeon.system import clock
from pigeon.wire.answers import ContextUsage, SlashCommand
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import TextContent, UserBlock
from pigeon.wire.entries import CustomEntry, LabelEntry, SessionInfo
from pigeon.wire.errors import Refusal
from pigeon.wire.events import EntryAppended, SessionInfoChanged
from pigeon.wire.messages import CustomMessage, Message, UserMessage
from pigeon.wire.model import Model, ThinkingLevel

if TYPE_CHECKING:
    from pigeon.session.prompting import DeliverAs
    from pigeon.session.session import Session
    from pigeon.workspaces.workspace import Workspace

AddProvider = Callable[[str, Mapping[str, Any], ModelProvider | None], None]
RemoveProvider = Callable[[str], None]


class SessionFacts(Struct, frozen=True):
    """The identity of a conversation: its id, file, name, folder and leaf."""

    session_id: str
    file: str | None
    name: str | None
    cwd: str
    leaf_id: str | None


class ExecResult(Struct, frozen=True):
    """How a program ended; `killed` if its time was up or it was stopped."""

    stdout: str
    stderr: str
    code: int
    killed: bool = False


class ConversationPort:
    """The conversation: read it, add to it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def facts(self) -> SessionFacts:
        """The facts about the current conversation."""
        journal = self._session.journal
        return SessionFacts(
            session_id=journal.session_id,
            file=journal.file,
            name=session_name_of(journal.lines),
            cwd=journal.cwd,
            leaf_id=journal.leaf_id,
        )

    def entries(self, branch_only: bool) -> list[dict[str, Json]]:
        """All entries, or those of the active branch, as in the session file; the caller may change the list."""
        journal = self._session.journal
        return [line.to_plain() for line in (journal.branch if branch_only else journal.lines)]

    def messages(self) -> list[Message]:
        """The messages that the model would see now; the caller must not change them."""
        return self._session.context

    def send_message(self, message: CustomMessage, trigger_turn: bool, deliver_as: DeliverAs) -> None:
        """Send a message: `nextTurn` waits for the next prompt; in a run it is queued (or, without a turn, added after
        the run); otherwise it is recorded and announced, and starts a run if `trigger_turn`."""
        self._session.prompting.deliver_custom_message(message, trigger_turn, deliver_as)

    def send_user_message(
        self, content: str | list[UserBlock], deliver_as: Literal["steer", "followUp"] | None
    ) -> None:
        """Start a turn; raises while a run is active and `deliver_as` is None."""
        blocks: list[UserBlock] = [TextContent(text=content)] if isinstance(content, str) else content
        self._session.prompting.deliver_user_message(UserMessage(content=blocks, timestamp=clock.now_ms()), deliver_as)

    def append_entry(self, custom_type: str, data: Json) -> str:
        """Record state of an extension that the model does not see; returns the entry's id."""
        given = ABSENT if data is None else data
        entry = self._session.journal.append(CustomEntry, custom_type=custom_type, data=given)
        self._session.bus.post(EntryAppended(entry=entry))
        return entry.id

    def set_name(self, name: str) -> None:
        cleaned = clean_name(name)
        self._session.journal.append(SessionInfo, name=cleaned)
        self._session.bus.post(SessionInfoChanged(name=cleaned))

    def set_label(self, entry_id: str, label: str | None) -> None:
        """Set a bookmark on an entry; None removes it."""
        if self._session.journal.find_line(entry_id) is None:
            raise Refusal(f"Entry not found: {entry_id}")
        self._session.journal.append(LabelEntry, target_id=entry_id, label=label or ABSENT)


class ToolsPort:
    """The tools that the model has."""

    def __init__(self, session: Session) -> None:
        self._toolset = session.toolset

    def active(self) -> list[str]:
        return list(self._toolset.active_tools())

    def describe_all(self) -> list[tuple[str, str]]:
        """Name and description of every tool."""
        return [(tool.spec.name, tool.spec.description) for tool in self._toolset.all_tools()]

    def activate(self, names: list[str]) -> None:
        """Set the tools of the next turn; unknown names are left out."""
        self._toolset.set_active(names)

    def add(self, tool: Tool) -> None:
        """Register a tool and activate it, as far as the command line allows; replaces a built-in one."""
        self._toolset.add(tool)


class ModelsPort:
    """The models and their providers."""

    def __init__(self, session: Session, add_provider: AddProvider, remove_provider: RemoveProvider) -> None:
        self._models = session.models
        self._tell_selection = session.announce_selection
        self._add_provider = add_provider
        self._remove_provider = remove_provider

    def current(self) -> Model | None:
        return self._models.model

    def available(self) -> list[Model]:
        return self._models.list_available()

    def select_model(self, provider: str, model_id: str) -> bool:
        """Choose a model; returns False if it cannot be used."""
        try:
            self._models.select_model(provider, model_id)
            self._tell_selection("set_model")
        except Refusal:
            return False
        return True

    def thinking(self) -> ThinkingLevel:
        return self._models.level

    def set_thinking(self, level: ThinkingLevel) -> None:
        """Set the thinking level, as far as the model supports it."""
        self._models.set_level(level)

    def add_provider(self, name: str, entry: Mapping[str, Any], provider: ModelProvider | None) -> None:
        """Add a provider in the form of `models.json`; one that is not an HTTP service answers under the API `name`."""
        self._add_provider(name, entry, provider)

    def remove_provider(self, name: str) -> None:
        """Remove a provider that was added."""
        self._remove_provider(name)


class ControlPort:
    """The activity of the session: query it, stop it, begin something else, run a program beside it."""

    def __init__(self, session: Session, shutdown: Callable[[], None]) -> None:
        self._session = session
        self._shutdown = shutdown

    def is_idle(self) -> bool:
        return self._session.activity.state == "idle"

    def has_pending_messages(self) -> bool:
        """True while messages are queued."""
        return len(self._session.queue) > 0

    def abort(self) -> None:
        self._session.activity.cancel()

    def shutdown(self) -> None:
        """End the process with code 0 after the command in progress, at the latest when the run has settled."""
        self._shutdown()

    def context_usage(self) -> ContextUsage | None:
        """How full the window is, or None if that is unknown."""
        usage = context_usage(self._session.journal.branch, self._session.models.model)
        return None if isinstance(usage, Absent) else usage

    def system_prompt(self) -> str:
        return self._session.system_prompt.text()

    def commands(self) -> list[SlashCommand]:
        return self._session.prompting.list_commands()

    async def compact(self, instructions: str | None) -> None:
        """Summarize the history now; raises if that fails."""
        await self._session.history.compact(ABSENT if instructions is None else instructions)

    async def wait_until_idle(self) -> None:
        await self._session.activity.wait_until_idle()

    async def new_session(self, parent: str | None) -> bool:
        """Begin an empty conversation; returns False if that was vetoed."""
        return not await self._session.switching.veto_or_open_new(parent or ABSENT)

    async def switch_session(self, path: str) -> bool:
        """Open another conversation; returns False if that was vetoed."""
        return not await self._session.switching.veto_or_open(path)

    async def fork(self, entry_id: str) -> bool:
        """Continue before a user message in a new conversation; returns False if that was vetoed."""
        _, cancelled = await self._session.switching.fork(entry_id, "forking")
        return not cancelled

    async def exec(self, argv: list[str], cwd: str | None, timeout: float | None) -> ExecResult:
        """Run a program without a shell, in the folder and with the variables of the session's commands.

        It is supervised like these commands: cancelling the call ends it, and nothing that it starts outlives Pigeon.
        In a workspace elsewhere it runs there, and its errors are part of its output.
        """
        folder = os.path.join(self._session.journal.cwd, cwd or "")
        workspace = self._session.dependencies.workspace
        if workspace.chosen is not None and workspace.runs_commands:
            return await _run_in_workspace(workspace.chosen, argv, folder, timeout)
        from pigeon.system.process.run_program import run_program

        place = self._session.shell.workplace
        try:
            ran = await run_program(place.processes, argv, cwd=folder, environment=place.environment(), timeout=timeout)
        except OSError as error:
            return ExecResult(stdout="", stderr=str(error), code=127)
        return ExecResult(
            ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace"), ran.code, ran.killed
        )


async def _run_in_workspace(workspace: Workspace, argv: list[str], folder: str, timeout: float | None) -> ExecResult:
    import shlex

    try:
        ended = await workspace.run(shlex.join(argv), cwd=folder, timeout=timeout)
    except OSError as error:
        return ExecResult(stdout="", stderr=error.strerror or str(error), code=127)
    code = 137 if ended.exit_code is None else ended.exit_code
    return ExecResult(ended.output.decode("utf-8", "replace"), "", code, ended.timed_out)


class SessionPort(Struct, frozen=True):
    """Everything that extensions may do with one session."""

    conversation: ConversationPort
    tools: ToolsPort
    models: ModelsPort
    control: ControlPort


def make_session_port(
    session: Session, add_provider: AddProvider, remove_provider: RemoveProvider, shutdown: Callable[[], None]
) -> SessionPort:
    """The port of a session; the composition root provides the functions that register providers and end the
    process."""
    return SessionPort(
        ConversationPort(session),
        ToolsPort(session),
        ModelsPort(session, add_provider, remove_provider),
        ControlPort(session, shutdown),
    )
