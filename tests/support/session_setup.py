"""A whole session without a process, and a compaction alone: scripted models, and stand-ins for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from msgspec import structs

from fakes.agent_loop import AnyTool, EventLog, Script, ScriptedProvider
from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockOpened,
    Delta,
    Failure,
    Finished,
    Metered,
    ModelMessage,
    ModelRequest,
    OutputFormat,
)
from pigeon.agent.interfaces import PreparedImage
from pigeon.agent.scope import Scope
from pigeon.export.page_writer import PageWriter
from pigeon.mcp.configured_servers import AgentParts, ConfiguredServers
from pigeon.session.bus import Bus
from pigeon.session.checkpoints import NoCheckpoints
from pigeon.session.compaction.compaction import Compaction
from pigeon.session.compaction.summarizer import Summarizer
from pigeon.session.context.transcript import Transcript
from pigeon.session.dependencies import Dependencies, KeptAllowance
from pigeon.session.history.journal import Journal
from pigeon.session.hooks import Hooks, NoHooks
from pigeon.session.host.dialogs import Dialogs
from pigeon.session.host.host_services import HostServices
from pigeon.session.jobs import Jobs
from pigeon.session.model_choice import ModelChoice, ModelOptions
from pigeon.session.navigation import Navigation
from pigeon.session.plan_state import PlanState
from pigeon.session.prompting import HostMessage
from pigeon.session.session import Session
from pigeon.session.settings import CompactionPolicy, RetryPolicy, SessionSettings
from pigeon.session.todos import Todos
from pigeon.session.toolset import Toolset
from pigeon.subagents.conversation_agents import ConversationAgents, TreeChoices
from pigeon.system.environment import Environment
from pigeon.system.ids import RANDOM_IDS
from pigeon.system.process.start import ProcessOwner
from pigeon.system.project_files import ProjectFiles
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Shell, Workplace
from pigeon.tools.catalog import facts_of, list_plan_tool_names
from pigeon.wire.answers import Accepted, Permissions, SlashCommand, TrustChange, TrustState
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageContent, TextContent, ToolCall, text_of
from pigeon.wire.entries import CompactionEntry
from pigeon.wire.events import AgentSettled, CompactionEnd, MessageEnd, Outbound
from pigeon.wire.messages import StopReason
from pigeon.wire.model import Cost, Model, Usage
from pigeon.workspaces.agent_workspace import AgentWorkspace
from support.model_requests import a_model, assistant_message, tool_result
from support.sessions import NOW, DiskRepository, user
from support.strategies import empty_journal

MODEL = a_model()
BASH = Shell()
NOWHERE = Path("/nowhere")
QUICK = RetryPolicy(max_retries=2, base_delay_ms=0)
Reply = str | Failure | tuple[str, StopReason] | Exception | None
LONG = "lorem ipsum " * 100


class KnownModels:
    """The models that can be chosen."""

    def __init__(self, *models: Model) -> None:
        self._models = list(models)

    def list_available(self) -> list[Model]:
        return self._models

    def find_usable(self, provider: str, model_id: str) -> Model | None:
        return next((one for one in self._models if (one.provider, one.id) == (provider, model_id)), None)


class Untrusted:
    """Trusts no project, and tells nobody."""

    async def resolve_trust(self, cwd: str) -> None:
        pass

    def switch_folder(self, cwd: str) -> None:
        pass

    def state(self) -> TrustState:
        return TrustState(cwd="/", trusted=False, decided_by=None, waiting=[])

    def set_decision(self, trusted: bool, keep: bool) -> TrustChange:
        raise NotImplementedError

    def reannounce_pending_decision(self) -> None:
        pass


class Unexpanded:
    def expand(self, text: str) -> str:
        return text

    def commands(self) -> list[SlashCommand]:
        return []


class UnchangedImages:
    """Takes every image for one that models take."""

    def prepare_quickly(self, image: ImageContent) -> PreparedImage | None:
        return PreparedImage(image)

    async def fit_image(self, image: ImageContent) -> PreparedImage:
        return PreparedImage(image)


class SettableFormats:
    """Models have no format for structured answers, unless `known` says so."""

    def __init__(self) -> None:
        self.known = False
        self.refused: list[Model] = []

    def find_output_format(self, model: Model, schema: dict[str, Any], beside_tools: bool) -> OutputFormat | None:
        return OutputFormat(schema) if self.known and model not in self.refused else None

    def on_format_refused(self, model: Model) -> None:
        self.refused.append(model)


class NoPreparation:
    async def warm(self, model: Model | None) -> None:
        pass

    def convert_ahead(self, model: Model, messages: list[ModelMessage]) -> None:
        pass


class NoPermissions:
    plan_state = PlanState()

    def leave_plan_mode(self) -> None:
        raise NotImplementedError

    def set_host_rules(self, rules: Any) -> None:
        raise NotImplementedError

    def set_host_mode(self, mode: Any) -> None:
        raise NotImplementedError

    def list_session_allowances(self) -> list[KeptAllowance]:
        return []

    def restore_allowances(self, calls: Sequence[KeptAllowance]) -> None:
        raise NotImplementedError

    def current_permissions(self) -> Permissions:
        raise NotImplementedError


class SessionSetup:
    """A session, what it published (`heard`), and what the model was asked (`provider.requests`)."""

    def __init__(
        self,
        *scripts: Script,
        journal: Journal | None = None,
        model: Model | None = MODEL,
        settings: SessionSettings | None = None,
        hooks: Hooks | None = None,
        tools: tuple[AnyTool, ...] = (),
        folder: Path | None = None,
        models: ModelOptions | None = None,
        shell: Shell = BASH,
        processes: ProcessOwner | None = None,
    ) -> None:
        bus = Bus()
        self.heard = EventLog()
        self.warmings: list[int] = []  # how many events there were each time that processes were prepared
        self.provider = ScriptedProvider(*scripts)
        self.formats = SettableFormats()
        self.repository = DiskRepository(folder or NOWHERE, persistent=folder is not None)
        bus.add_announcer(self.heard.events.append)
        workplace = Workplace(
            "/", shell, dict, Artifacts(lambda: None, str(folder or NOWHERE)), processes or ProcessOwner(), "bash"
        )
        hooks = hooks or NoHooks()
        transcript = Transcript(journal or (self.repository.create_journal("/") if folder else empty_journal()))
        options = models or ModelOptions(source=KnownModels(MODEL), model=model, thinking="off")
        toolset = Toolset(
            {tool.spec.name: tool for tool in tools}, [tool.spec.name for tool in tools], facts_of=facts_of
        )
        self.session = Session(
            Dependencies(
                settings=settings or SessionSettings(),
                bus=bus,
                repository=self.repository,
                trust=Untrusted(),
                transcript=transcript,
                dialogs=Dialogs(bus.post, RANDOM_IDS.dialog_id),
                workplace=workplace,
                move_to=lambda cwd: structs.replace(workplace, cwd=cwd),
                provider=self.provider,
                output_formats=self.formats,
                preparation=NoPreparation(),
                models=ModelChoice(options, transcript, hooks, bus.post, lambda text: None),
                models_file="/agent/models.json",
                toolset=toolset,
                todos=Todos(bus.post, list_plan_tool_names()),
                host_services=HostServices(
                    bus.post, RANDOM_IDS.request_id, lambda: "/", {}, walled=lambda: False, steered=lambda path: False
                ),
                images=UnchangedImages(),
                expander=Unexpanded(),
                mask_result=lambda message: message,
                system_prompt=lambda cwd, tools, guidelines: "Be brief.",
                rules=lambda cwd: [],
                hooks=hooks,
                permissions=NoPermissions(),
                gate=lambda: None,
                warm_processes=lambda: self.warmings.append(len(self.heard.events)),
                run_callbacks=(),
                tool_servers=ConfiguredServers(
                    cast("AgentParts", SimpleNamespace(agent_dir="/nowhere", toolset=toolset))
                ),
                agents=ConversationAgents(cast("TreeChoices", SimpleNamespace())),
                jobs=Jobs(bus.post),
                checkpoints=NoCheckpoints(),
                pages=PageWriter(
                    Environment(variables={}, home="/", cwd="/"), self.repository.store, lambda data: data
                ),
                files=ProjectFiles(lambda: transcript.journal.cwd, {}, "/"),
                workspace=AgentWorkspace("/"),
                sandbox=lambda: ABSENT,
                now=lambda: NOW,
                report=self.repository.reports.append,
            )
        )

    async def prompt(self, text: str, **more: Any) -> None:
        """A prompt of the host, seen through until the agent has settled."""
        settled = len(self.heard.of(AgentSettled))
        waiting = self.session.prompting.prompt(HostMessage(text, **more))
        if not isinstance(waiting, Accepted):
            await waiting
        await self.until(lambda: len(self.heard.of(AgentSettled)) > settled)
        await self.session.engine.wait_until_prompts_reported()

    async def until(self, happened: Any) -> None:
        """Let the loop turn until something has happened."""
        async with asyncio.timeout(10):
            while not happened():  # noqa: ASYNC110 - what happens is not known to the session setup
                await asyncio.sleep(0)

    def message_texts(self) -> list[str]:
        """Who said what, in the order of the record."""
        return [
            f"{event.message.__struct_config__.tag}: {text_of(event.message.content)}"
            for event in self.heard.of(MessageEnd)
        ]

    async def close(self) -> None:
        """Close the session and its file."""
        await self.session.close()


class Answers:
    """A provider that gives prepared answers; none means that it says nothing and waits."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self.on_last: Callable[[], None] = lambda: None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        reply = self.replies.pop(0)
        try:
            if reply is None:
                await asyncio.get_running_loop().create_future()
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, Failure):
                yield Finished(stop="error", failure=reply)
                return
            text, stop = reply if isinstance(reply, tuple) else (reply, "stop")
            yield BlockOpened(index=0, kind="text")
            yield BlockGrew(index=0, text=text or "")
            yield BlockClosed(index=0)
            yield Metered(usage=Usage(input=7, output=3, total_tokens=10, cost=Cost()))
            if not self.replies:
                self.on_last()
            yield Finished(stop=stop)
        finally:
            self.closed += 1

    def summarized_text(self, number: int = -1) -> str:
        """What the model was asked to summarize."""
        message = self.requests[number].messages[0]
        return text_of(message.content)


class Models:
    def __init__(self, model: Model | None) -> None:
        self.model = model
        self.level = "medium"


class CompactionSetup:
    """Everything that a compaction needs; `told` is what listeners heard."""

    def __init__(
        self,
        *replies: Reply,
        window: int = 10_000,
        hooks: Any = None,
        retries: RetryPolicy | None = QUICK,
        **policy: Any,
    ) -> None:
        self.journal = empty_journal()
        self.answers = Answers(*replies)
        self.told: list[Outbound] = []
        self.models: Any = Models(a_model(context_window=window, max_tokens=4_000, reasoning=True))
        self._transcript = Transcript(self.journal)
        self._summarizer = Summarizer(self.answers, self._publish, retries, facts_of)
        self._hooks = hooks or NoHooks()
        self.compaction = self.with_policy(**policy)
        self.navigation = Navigation(self._transcript, self.models, self._summarizer)
        self.scope = Scope()
        self.on_event: Callable[[Outbound], None] = lambda event: None

    def with_policy(self, **policy: Any) -> Compaction:
        """A compaction of the same conversation with another policy."""
        return Compaction(
            self._transcript,
            self.models,
            self._summarizer,
            self._publish,
            self._hooks,
            CompactionPolicy(**policy),
            enabled=True,
        )

    async def _publish(self, event: Outbound) -> None:
        self.told.append(event)
        self.on_event(event)

    def kinds(self) -> list[str]:
        return [str(event.__struct_config__.tag) for event in self.told]

    def append_user_message(self, text: str) -> str:
        return self.journal.append_message(user(text)).id

    def answer(self, text: str, tokens: int = 0, **more: Any) -> str:
        return self.journal.append_message(assistant_message(TextContent(text=text), tokens=tokens, **more)).id

    def call(self, name: str, result: str, **arguments: Any) -> tuple[str, str]:
        """The model calls a tool, which gives something back."""
        call = ToolCall(id=f"call_{len(self.journal.lines)}", name=name, arguments=arguments)
        asked = self.journal.append_message(assistant_message(call, stop_reason="toolUse")).id
        return asked, self.journal.append_message(tool_result(call.id, result)).id


def make_filled_setup(*replies: Any, turns: int = 3, window: int = 10_000, **policy: Any) -> CompactionSetup:
    """A conversation with something to summarize; of its last turn the answer is kept."""
    setup = CompactionSetup(*replies, window=window, **{"keep_tokens": 1, "reserve_tokens": 1_000, **policy})
    for number in range(turns):
        setup.append_user_message(f"question {number} {LONG}")
        setup.answer(f"answer {number}")
    return setup


def last(setup: CompactionSetup) -> CompactionEntry:
    """The compaction that was put on record last."""
    entry = setup.journal.branch[-1].entry
    assert isinstance(entry, CompactionEntry)
    return entry


def end(setup: CompactionSetup) -> CompactionEnd:
    """The last thing that was told."""
    event = setup.told[-1]
    assert isinstance(event, CompactionEnd)
    return event
