"""Puts a session together from options, settings and files. The only module that knows all the rooms."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.agent.interfaces import Gate
from pigeon.app.built_in import DEMO, Offer
from pigeon.app.environment import Environment
from pigeon.app.export_page import PageWriter
from pigeon.app.extensions import ExtensionProviders, ExtensionSetup, LoadedExtensions
from pigeon.app.models import Choice, choose, gateway_of, registry_of
from pigeon.app.options import AgentOptions
from pigeon.app.permissions import permission_gate
from pigeon.app.reports import Reports
from pigeon.app.sessions import journal_of, repository_of
from pigeon.app.tools import Bench, ready_for_commands, unknown_tools
from pigeon.config.layers import Layers
from pigeon.config.paths import agent_dir
from pigeon.config.settings import Settings
from pigeon.providers.gateway import Gateway
from pigeon.providers.registry import ModelRegistry
from pigeon.resources.resources import ResourceOptions, Resources
from pigeon.resources.rule_files import read_rules, rule_folders
from pigeon.session.bus import Bus
from pigeon.session.dependencies import Dependencies, ModelOptions
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.views import clean_name
from pigeon.session.hooks import Hooks, NoHooks
from pigeon.session.session import Session
from pigeon.session.settings import CompactionPolicy, RetryPolicy, SessionSettings
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.shell import Workplace
from pigeon.wire.base import or_else
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import StartupError
from pigeon.wire.steering import Rule

if TYPE_CHECKING:
    from pigeon.extensions.runner import Runner


class BuiltAgent(Struct, frozen=True, kw_only=True):
    """A session, and what its host must know: what is wrong with options and files, and when to call what.

    `started` is awaited once there is a host to talk to, `warm` when there is time before the first request, `leaving`
    while the session is still open, `stop` after it was closed. `known_flags` are the options that extensions take.
    """

    session: Session
    problems: list[str]
    known_flags: frozenset[str]
    drains: Callable[[], bool]
    started: Callable[[Callable[[], None]], Awaitable[None]]
    warm: Callable[[], Awaitable[None]]
    leaving: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]


async def build(options: AgentOptions, environment: Environment) -> BuiltAgent:
    """The agent that the options describe; raises `StartupError` where they cannot be followed."""
    return await _Builder(options, environment).build()


class _Builder:
    """Collects the pieces in the order in which they need each other."""

    def __init__(self, options: AgentOptions, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        self._folder = agent_dir(options.agent_dir, environment.variables, environment.cwd, environment.home)
        self._reports = Reports()
        self._settings_problems: list[str] = []
        self._layers = Layers(self._folder, self._settings_problems.append)
        self._cwd = _working_directory(options, environment)
        self._processes = ProcessOwner()
        self._session: Session | None = None

    async def build(self) -> BuiltAgent:
        options, environment = self._options, self._environment
        extended = await ExtensionSetup(
            options, environment, self._layers, self._folder, self._cwd, self._reports
        ).load()
        settings = self._layers.settings
        registry = registry_of(self._folder, environment.variables, self._cwd, self._processes)
        gateway = gateway_of(registry, settings, environment, _hooks(extended))
        providers = ExtensionProviders(registry, gateway)
        for contributed in extended.runner.contributions.providers() if extended.runner else ():
            providers.add(contributed.name, contributed.entry, contributed.provider)
        choice = choose(options, environment, settings, registry)
        repository = repository_of(options, environment, settings, self._folder, self._cwd, self._reports)
        journal = journal_of(options, environment, repository, self._cwd)
        resources = self._resources(journal.cwd, extended.trusted)
        session = self._session = Session(
            self._dependencies(choice, registry, gateway, repository, journal, resources, extended)
        )
        if options.name and options.name.strip():
            session.journal.append(SessionInfo, name=clean_name(options.name))
        life = _Life(session, providers, gateway, extended, resources, self._reports, self._processes)
        return BuiltAgent(
            session=session,
            problems=[
                *self._settings_problems,
                *registry.problems(),
                *choice.problems,
                *extended.problems,
                *unknown_tools(options, session.toolset),
            ],
            known_flags=frozenset(extended.runner.known_flags() if extended.runner else ()),
            drains=lambda: options.drain or _is_demo(session),
            started=life.started,
            warm=life.warm,
            leaving=life.leaving,
            stop=life.stop,
        )

    def _bench(self, settings: Settings, cwd: str, bus: Bus) -> Bench:
        return Bench(self._options, self._environment, self._processes, settings, cwd, bus.post, lambda: self._session)

    def _dependencies(
        self,
        choice: Choice,
        registry: ModelRegistry,
        gateway: Gateway,
        repository: SessionRepository,
        journal: Journal,
        resources: Resources,
        extended: LoadedExtensions,
    ) -> Dependencies:
        bus, settings = Bus(), self._layers.settings
        bench = self._bench(settings, journal.cwd, bus)
        if extended.runner is not None:
            bench.add({tool.spec.name: tool for tool in extended.runner.contributions.tools()}, self._options)
        trusts = _Trusts(self._cwd, extended.trusted)

        def move_to(cwd: str) -> Workplace:
            resources.move_to(cwd, trusts(cwd))
            return bench.move_to(cwd)

        def rules(cwd: str) -> list[Rule]:
            folders = rule_folders(self._folder, cwd, trusts(cwd))
            return [] if self._options.no_rules else read_rules(folders, self._reports)

        return Dependencies(
            settings=_session_settings(settings, self._options),
            bus=bus,
            repository=repository,
            journal=journal,
            workplace=bench.place,
            move_to=move_to,
            provider=gateway,
            models=ModelOptions(
                source=Offer(registry, choice.built_in),
                model=choice.model,
                thinking=choice.thinking,
                scoped=choice.scoped,
                explicit=choice.explicit,
            ),
            toolset=bench.toolset,
            todos=bench.todos,
            images=bench.images,
            expander=resources,
            system_prompt=lambda cwd: resources.system_prompt(cwd, *bench.toolset.described()),
            now=self._environment.now,
            report=self._reports,
            rules=rules,
            hooks=_hooks(extended),
            gate=self._gate(extended),
            run_started=lambda: ready_for_commands(bench.toolset, self._processes),
            write_page=PageWriter(self._environment).write,
            models_file=os.path.join(self._folder, "models.json"),
        )

    def _gate(self, extended: LoadedExtensions) -> Gate | None:
        home, report = self._environment.home, self._settings_problems.append
        asked = permission_gate(self._layers, extended.trusted, lambda: self._session, home, report)
        gates = [gate for gate in (asked, extended.runner.gate if extended.runner else None) if gate is not None]
        if not gates:
            return None
        from pigeon.guard.gate_chain import chain

        return chain(gates)

    def _resources(self, cwd: str, trusted: bool) -> Resources:
        options, settings = self._options, self._layers.settings
        chosen = ResourceOptions(
            skills=options.skills,
            prompt_templates=options.prompt_templates,
            no_skills=options.no_skills,
            no_prompt_templates=options.no_prompt_templates,
            no_context_files=options.no_context_files,
            system_prompt=options.system_prompt,
            append_system_prompt=options.append_system_prompt,
            user_skills=or_else(settings.skills, []),
            user_prompts=or_else(settings.prompts, []),
        )
        return Resources(
            self._folder,
            cwd,
            trusted,
            chosen,
            home=self._environment.home,
            base=self._environment.cwd,
            report=self._reports,
            expansion_failed=self._reports.skill_failed,
        )


class _Trusts:
    """The decision holds for the folder it was made for; another folder is not trusted."""

    def __init__(self, cwd: str, trusted: bool) -> None:
        self._cwd = cwd
        self._trusted = trusted

    def __call__(self, cwd: str) -> bool:
        return self._trusted and cwd == self._cwd


class _Life:
    """What happens around a session: it gets a host, it warms up, it ends."""

    def __init__(
        self,
        session: Session,
        providers: ExtensionProviders,
        gateway: Gateway,
        extended: LoadedExtensions,
        resources: Resources,
        reports: Reports,
        processes: ProcessOwner,
    ) -> None:
        self._session = session
        self._processes = processes
        self._providers = providers
        self._gateway = gateway
        self._runner = extended.runner
        self._resources = resources
        self._reports = reports
        self._finding: asyncio.Future[None] | None = None

    async def started(self, shutdown: Callable[[], None]) -> None:
        """There is a host to talk to."""
        session, runner = self._session, self._runner
        self._reports.to(session.bus.post)
        if runner is None:
            return
        from pigeon.extensions.adapters.session_port import session_port

        runner.bind(session_port(session, self._providers.add, self._providers.remove, shutdown), session.dialogs)
        session.bus.announce(runner.forward)
        await runner.hooks.session_started("startup")
        self._finding = asyncio.ensure_future(self._find_resources(runner))

    async def _find_resources(self, runner: Runner) -> None:
        found = await runner.hooks.resources(self._session.journal.cwd)
        self._resources.add_paths(found.skills, found.prompts)

    async def warm(self) -> None:
        """Load what the first request will need."""
        await self._gateway.warm(self._session.models.model)

    async def leaving(self) -> None:
        """Say goodbye to extensions while there is still a session to look at."""
        if self._runner is not None:
            await self._runner.close()

    async def stop(self) -> None:
        """End what was started for the session."""
        await self._processes.kill_everything()
        await self._gateway.aclose()


def _hooks(extended: LoadedExtensions) -> Hooks:
    return extended.runner.hooks if extended.runner else NoHooks()


def _session_settings(settings: Settings, options: AgentOptions) -> SessionSettings:
    """What the files say, and where they say nothing what the options do: the defaults of a dialect."""
    return SessionSettings(
        steering_mode=settings.steering_mode,
        follow_up_mode=settings.follow_up_mode,
        interrupt_mode=or_else(settings.interrupt_mode, options.interrupt_mode),
        tool_mode=settings.tool_execution,
        block_images=settings.images.block_images,
        keep_unreadable_images=options.keep_unreadable_images,
        auto_retry=settings.retry.enabled,
        retry=RetryPolicy(
            max_retries=settings.retry.max_retries,
            base_delay_ms=settings.retry.base_delay_ms,
            max_delay_ms=settings.retry.max_agent_delay_ms,
        ),
        auto_compaction=settings.compaction.enabled,
        compaction=CompactionPolicy(
            reserve_tokens=or_else(settings.compaction.reserve_tokens, None),
            keep_tokens=or_else(settings.compaction.keep_recent_tokens, None),
            per_model=or_else(settings.compaction.model_overrides, {}),
        ),
    )


def _working_directory(options: AgentOptions, environment: Environment) -> str:
    folder = environment.absolute(options.cwd or environment.cwd)
    if not os.path.isabs(folder):
        raise StartupError("The working directory does not exist any more; name another with --cwd")
    if not os.path.isdir(folder):
        raise StartupError(f"Not a directory: {folder}")
    return folder


def _is_demo(session: Session) -> bool:
    """The demo is for trying things out by hand, where stdin ends with the prompt."""
    return session.models.model is not None and session.models.model.provider == DEMO
