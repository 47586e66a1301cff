"""A whole session without a process: a model that plays scripts, and stand-ins for everything else around it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from msgspec import structs

from fakes.journal_strategies import empty
from fakes.loop_fakes import AnyTool, EventLog, Script, ScriptedProvider
from fakes.model_requests import a_model
from fakes.repositories import NOW, DiskRepository
from pigeon.agent.inference import OutputFormat
from pigeon.agent.interfaces import PreparedImage
from pigeon.export.page_writer import PageWriter
from pigeon.mcp.configured_servers import AgentParts, ConfiguredServers
from pigeon.session.bus import Bus
from pigeon.session.context.transcript import Transcript
from pigeon.session.dependencies import Dependencies
from pigeon.session.history.journal import Journal
from pigeon.session.history.trash import SessionTrash
from pigeon.session.hooks import Hooks, NoHooks
from pigeon.session.host.dialogs import Dialogs
from pigeon.session.host.host_services import HostServices
from pigeon.session.model_choice import ModelChoice, ModelOptions
from pigeon.session.prompting import HostMessage
from pigeon.session.session import Session
from pigeon.session.settings import SessionSettings
from pigeon.session.todos import Todos
from pigeon.session.toolset import Toolset
from pigeon.system.environment import Environment
from pigeon.system.ids import RANDOM_IDS
from pigeon.system.process.start import ProcessOwner
from pigeon.system.project_files import ProjectFiles
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Shell, Workplace
from pigeon.tools.catalog import facts_of, plan_tools
from pigeon.wire.answers import Accepted, Permissions, SessionAllowance, SlashCommand, TrustChange, TrustState
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageContent, text_of
from pigeon.wire.events import AgentSettled, MessageEnd
from pigeon.wire.model import Model

MODEL = a_model()
BASH = Shell()
NOWHERE = Path("/nowhere")


class KnownModels:
    """The models that can be chosen."""

    def __init__(self, *models: Model) -> None:
        self._models = list(models)

    def available(self) -> list[Model]:
        return self._models

    def find(self, provider: str, model_id: str) -> Model | None:
        return next((one for one in self._models if (one.provider, one.id) == (provider, model_id)), None)


class Untrusted:
    """Trusts no project, and tells nobody."""

    async def enter(self, cwd: str) -> None:
        pass

    def use(self, cwd: str) -> None:
        pass

    def state(self) -> TrustState:
        return TrustState(cwd="/", trusted=False, decided_by=None, waiting=[])

    def decide(self, trusted: bool, keep: bool) -> TrustChange:
        raise NotImplementedError

    def repeat_waiting(self) -> None:
        pass


class Unexpanded:
    """Knows no slash commands."""

    def expand(self, text: str) -> str:
        return text

    def commands(self) -> list[SlashCommand]:
        return []


class UnchangedImages:
    """Takes every image for one that models take."""

    def at_once(self, image: ImageContent) -> PreparedImage | None:
        return PreparedImage(image)

    async def fitted(self, image: ImageContent) -> PreparedImage:
        return PreparedImage(image)


class SettableFormats:
    """Models have no format for structured answers, unless `known` says so."""

    def __init__(self) -> None:
        self.known = False
        self.refused: list[Model] = []

    def output_format(self, model: Model, schema: dict[str, Any], beside_tools: bool) -> OutputFormat | None:
        return OutputFormat(schema) if self.known and model not in self.refused else None

    def refused_format(self, model: Model) -> None:
        self.refused.append(model)


class NoPermissions:
    """Knows no permission rules."""

    def set_host_rules(self, rules: Any) -> None:
        raise NotImplementedError

    def set_host_mode(self, mode: Any) -> None:
        raise NotImplementedError

    def allowed(self) -> list[SessionAllowance]:
        return []

    def allow(self, calls: Sequence[SessionAllowance]) -> None:
        raise NotImplementedError

    def in_force(self) -> Permissions:
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
        self.provider = ScriptedProvider(*scripts)
        self.formats = SettableFormats()
        self.repository = DiskRepository(folder or NOWHERE, persistent=folder is not None)
        bus.announce(self.heard.events.append)
        workplace = Workplace(
            "/", shell, dict, Artifacts(lambda: None, str(folder or NOWHERE)), processes or ProcessOwner()
        )
        hooks = hooks or NoHooks()
        transcript = Transcript(journal or (self.repository.new("/") if folder else empty()))
        options = models or ModelOptions(source=KnownModels(MODEL), model=model, thinking="off")
        toolset = Toolset(
            {tool.spec.name: tool for tool in tools}, [tool.spec.name for tool in tools], facts_of=facts_of
        )
        self.session = Session(
            Dependencies(
                settings=settings or SessionSettings(),
                bus=bus,
                repository=self.repository,
                trash=SessionTrash(self.repository.store, lambda: NOW),
                trust=Untrusted(),
                transcript=transcript,
                dialogs=Dialogs(bus.post, RANDOM_IDS.dialog_id),
                workplace=workplace,
                move_to=lambda cwd: structs.replace(workplace, cwd=cwd),
                provider=self.provider,
                output_formats=self.formats,
                models=ModelChoice(options, transcript, hooks, bus.post),
                models_file="/agent/models.json",
                toolset=toolset,
                todos=Todos(bus.post, plan_tools()),
                host_services=HostServices(
                    bus.post, RANDOM_IDS.request_id, lambda: "/", {}, walled=lambda: False, steered=lambda path: False
                ),
                images=UnchangedImages(),
                expander=Unexpanded(),
                mask_result=lambda message: message,
                system_prompt=lambda cwd: "Be brief.",
                rules=lambda cwd: [],
                hooks=hooks,
                permissions=NoPermissions(),
                gate=lambda: None,
                run_started=lambda: None,
                tool_servers=ConfiguredServers(
                    cast("AgentParts", SimpleNamespace(agent_dir="/nowhere", toolset=toolset))
                ),
                pages=PageWriter(Environment(variables={}, home="/", cwd="/"), lambda data: data),
                files=ProjectFiles(lambda: transcript.journal.cwd, {}, "/"),
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
        await self.session.engine.told_all()

    async def until(self, happened: Any) -> None:
        """Let the loop turn until something has happened."""
        async with asyncio.timeout(10):
            while not happened():  # noqa: ASYNC110 - what happens is not known to the session setup
                await asyncio.sleep(0)

    def spoken(self) -> list[str]:
        """Who said what, in the order of the record."""
        return [
            f"{event.message.__struct_config__.tag}: {text_of(event.message.content)}"
            for event in self.heard.of(MessageEnd)
        ]

    async def close(self) -> None:
        """Close the session and its file."""
        await self.session.close()
