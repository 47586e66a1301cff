"""A session as its extensions see it: their three protocols on the session's own parts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from pigeon.agent.arguments import checked_arguments
from pigeon.agent.interfaces import Tool
from pigeon.extensions.adapters.session_port import DeliverAs, ExecResult, SessionFacts, SessionPort, Streamer
from pigeon.providers.gateway import Gateway
from pigeon.providers.registry import ModelRegistry
from pigeon.session.history.views import clean_name, context_usage, name_of
from pigeon.session.session import Session
from pigeon.system import clock
from pigeon.wire.answers import ContextUsage, SlashCommand
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import TextContent, UserBlock
from pigeon.wire.entries import CustomEntry, LabelEntry, SessionInfo
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import EntryAppended, SessionInfoChanged
from pigeon.wire.messages import CustomMessage, Message, UserMessage
from pigeon.wire.model import Model, ThinkingLevel


class Conversation:
    """Reading and adding."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def facts(self) -> SessionFacts:
        """Which conversation this is, now."""
        journal = self._session.journal
        return SessionFacts(
            session_id=journal.session_id,
            file=journal.file,
            name=name_of(journal.lines),
            cwd=journal.cwd,
            leaf_id=journal.leaf_id,
        )

    def entries(self, branch_only: bool) -> list[dict[str, Json]]:
        """Entries as in the session file."""
        journal = self._session.journal
        return [line.plain() for line in (journal.branch if branch_only else journal.lines)]

    def messages(self) -> list[Message]:
        """What the model would see now."""
        return self._session.context

    def send_message(self, message: CustomMessage, trigger_turn: bool, deliver_as: DeliverAs) -> None:
        """Say something."""
        self._session.interjections.say(message, trigger_turn, deliver_as)

    def send_user_message(
        self, content: str | list[UserBlock], deliver_as: Literal["steer", "followUp"] | None
    ) -> None:
        """Prompt as a user would."""
        blocks: list[UserBlock] = [TextContent(text=content)] if isinstance(content, str) else content
        self._session.interjections.ask(UserMessage(content=blocks, timestamp=clock.now_ms()), deliver_as)

    def append_entry(self, custom_type: str, data: Json) -> str:
        """State of an extension, on record."""
        given = ABSENT if data is None else data
        entry = self._session.journal.append(CustomEntry, custom_type=custom_type, data=given)
        self._session.bus.post(EntryAppended(entry=entry))
        return entry.id

    def set_name(self, name: str) -> None:
        """The display name of the session."""
        cleaned = clean_name(name)
        self._session.journal.append(SessionInfo, name=cleaned)
        self._session.bus.post(SessionInfoChanged(name=cleaned))

    def set_label(self, entry_id: str, label: str | None) -> None:
        """A bookmark on an entry."""
        if self._session.journal.line(entry_id) is None:
            raise Refusal(f"Entry not found: {entry_id}")
        self._session.journal.append(LabelEntry, target_id=entry_id, label=label or ABSENT)


class Equipment:
    """Tools, models, programs."""

    def __init__(self, session: Session, registry: ModelRegistry, gateway: Gateway) -> None:
        self._session = session
        self._registry = registry
        self._gateway = gateway

    def active_tools(self) -> list[str]:
        """Names of the tools that the model has."""
        return list(self._session.toolset.active())

    def all_tools(self) -> list[tuple[str, str]]:
        """Name and description of every tool."""
        return [(tool.spec.name, tool.spec.description) for tool in self._session.toolset.every()]

    def set_active_tools(self, names: list[str]) -> None:
        """The tools of the next turn."""
        self._session.toolset.activate(names)

    def add_tool(self, tool: Tool) -> None:
        """Register a tool and make it active."""
        self._session.toolset.replace({tool.spec.name: tool})
        self._session.toolset.offer(tool.spec.name)

    def checked(self, tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """The arguments checked against the tool's schema."""
        found = self._session.toolset.tool(tool)
        if found is None:
            raise ToolFailed(f"Tool {tool} not found")
        return checked_arguments(tool, found.spec.parameters, arguments)

    def model(self) -> Model | None:
        """The model that answers."""
        return self._session.models.model

    def models(self) -> list[Model]:
        """The models that can be chosen."""
        return self._session.models.available()

    def set_model(self, provider: str, model_id: str) -> bool:
        """Choose a model."""
        try:
            self._session.models.use(provider, model_id)
        except Refusal:
            return False
        return True

    def thinking(self) -> ThinkingLevel:
        """How hard the model thinks."""
        return self._session.models.level

    def set_thinking(self, level: ThinkingLevel) -> None:
        """How hard it shall think."""
        self._session.models.think(level)

    def add_provider(self, name: str, entry: Mapping[str, Any], streamer: Streamer | None) -> None:
        """A provider in the form of `models.json`."""
        self._registry.put_entry(name, entry)
        if streamer is not None:
            self._gateway.add(name, lambda: streamer)

    def remove_provider(self, name: str) -> None:
        """Forget a provider that was added."""
        self._registry.put_entry(name, None)

    async def exec(self, argv: list[str], cwd: str | None, timeout: float | None) -> ExecResult:
        """Run a program without a shell."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd or self._session.journal.cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._session.shell.place.environment()),
                start_new_session=True,
            )
        except OSError as error:
            return ExecResult(stdout="", stderr=str(error), code=127)
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout)
        except (TimeoutError, asyncio.CancelledError) as reason:
            await _ended(process)
            if isinstance(reason, asyncio.CancelledError):
                raise
            return ExecResult(stdout="", stderr="", code=process.returncode or -1, killed=True)
        return ExecResult(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), process.returncode or 0)


class Controls:
    """Looking, stopping, beginning anew."""

    def __init__(self, session: Session, shutdown: Callable[[], None]) -> None:
        self._session = session
        self._shutdown = shutdown

    def is_idle(self) -> bool:
        """True while nothing runs."""
        return self._session.activity.state == "idle"

    def has_pending_messages(self) -> bool:
        """True while messages are queued."""
        return len(self._session.queue) > 0

    def abort(self) -> None:
        """Stop the run."""
        self._session.activity.cancel()

    def shutdown(self) -> None:
        """End the process."""
        self._shutdown()

    def context_usage(self) -> ContextUsage | None:
        """How full the window is."""
        usage = context_usage(self._session.journal.branch, self._session.models.model)
        return None if isinstance(usage, Absent) else usage

    def system_prompt(self) -> str:
        """What the model is told about its job now."""
        return self._session.engine.system_prompt()

    def commands(self) -> list[SlashCommand]:
        """All slash commands."""
        return self._session.prompting.commands()

    async def compact(self, instructions: str | None) -> None:
        """Summarize the history now."""
        await self._session.engine.compact(ABSENT if instructions is None else instructions)

    async def until_idle(self) -> None:
        """Wait until nothing runs."""
        await self._session.activity.until_idle()

    async def new_session(self, parent: str | None) -> bool:
        """Begin an empty conversation."""
        return not await self._session.switching.new(parent or ABSENT)

    async def switch_session(self, path: str) -> bool:
        """Open another conversation."""
        return not await self._session.switching.open(path)

    async def fork(self, entry_id: str) -> bool:
        """Go on before a user message, in a new conversation."""
        _, cancelled = await self._session.switching.fork(entry_id, "forking")
        return not cancelled


async def _ended(process: asyncio.subprocess.Process) -> None:
    """The program and what it started: asked first, then made to."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 1)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            return


def port_of(session: Session, registry: ModelRegistry, gateway: Gateway, shutdown: Callable[[], None]) -> SessionPort:
    """Everything an extension may do with this session."""
    return SessionPort(Conversation(session), Equipment(session, registry, gateway), Controls(session, shutdown))
