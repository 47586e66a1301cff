"""The composition root: `build` makes an agent from its options, its environment and the files that they name.

The only module that knows all packages. Objects are made in the order in which they need each other, so that each gets
finished ones by its constructor: folders and settings, the user's extensions, the conversation, trust in its folder,
the project's settings and extensions, models, tools and resources, the session, and last the lifecycle that starts and
ends all of it. Once `build` has returned, nothing here is called any more: running code belongs to the package of its
subject.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pigeon import __version__
from pigeon.agent.inference import Pacing, ProviderHooks
from pigeon.agent.interfaces import Gate
from pigeon.app.checkpoints import complete_interrupted_undo, make_checkpoints
from pigeon.app.lifecycle import Lifecycle
from pigeon.app.models import (
    find_usable_model,
    make_gateway,
    make_registry,
    resolve_model_options,
)
from pigeon.app.options import AgentOptions
from pigeon.app.sandbox import make_sandbox
from pigeon.app.sessions import find_workspace_of_session, make_repository, open_first_journal
from pigeon.app.workspaces import make_container, make_workspace
from pigeon.checkpoints.on_demand import CheckpointsOnDemand
from pigeon.config.layers import Layers
from pigeon.config.models_file import find_models_file
from pigeon.config.paths import project_dirs
from pigeon.config.settings import Settings, list_skill_paths
from pigeon.export.page_writer import PageWriter
from pigeon.extensions.agent_extensions import AgentExtensions, ExtensionOptions, ExtensionProviders
from pigeon.mcp.configured_servers import AgentParts, ConfiguredServers
from pigeon.permissions.control import AgentPermissions, HostPermissions, SessionParts
from pigeon.providers.catalog.built_in import to_current_reference
from pigeon.providers.gateway import Gateway
from pigeon.providers.http.recorders import ExchangeRecorder
from pigeon.providers.local_models import AvailableModels
from pigeon.providers.recording.agent_recordings import AgentRecordings
from pigeon.providers.request import NoProviderHooks
from pigeon.resources.resources import ResourceOptions, Resources
from pigeon.secrets.redactor import Redactor
from pigeon.session.bus import Bus
from pigeon.session.context.transcript import Transcript
from pigeon.session.dependencies import Dependencies
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.views import clean_name
from pigeon.session.hooks import Hooks, NoHooks
from pigeon.session.host.dialogs import Dialogs
from pigeon.session.host.reports import Reports
from pigeon.session.model_choice import ModelChoice
from pigeon.session.session import Session
from pigeon.session.settings import CompactionPolicy, LoopGuardPolicy, RetryPolicy, SessionSettings
from pigeon.subagents.conversation_agents import AgentSurroundings, ConversationAgents, TreeChoices
from pigeon.system.environment import DOCS_FOLDER, Environment
from pigeon.system.paths import absolute_path
from pigeon.system.process.start import ProcessOwner
from pigeon.tools.agent_tools import AgentTools, ToolOptions
from pigeon.tools.task import TaskTool
from pigeon.tools.workplaces import Workplaces, outputs_folder
from pigeon.trust.control import ProjectDecisions, TrustControl
from pigeon.wire.base import value_or_default
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import BadRecord, Refusal, StartupError, UsageError
from pigeon.wire.model import Model
from pigeon.wire.steering import LIMIT_FIELDS, Limits, parse_limits
from pigeon.workspaces.agent_workspace import AgentWorkspace, FolderUser

# For hosts that set no limits: they see the same as from the rest of the family, unless nothing else ends a loop.
PATIENT_GUARD = LoopGuardPolicy(warn=250, stop=300)
DEBUG_EXTENSIONS = "PIGEON_DEBUG_EXTENSIONS"


class BuiltAgent(Struct, frozen=True, kw_only=True):
    """An agent that is ready for its host: `problems` are to be shown, `lifecycle` documents when to call what.

    `known_flags` are the options that extensions take, and whether with a value; the caller knows which were given.
    `processes` starts programs as the agent does: behind its wall, if there is one. `why_hidden` returns why the
    sandbox hides the file at a real path from the model; None if it may be shown.
    """

    session: Session
    lifecycle: Lifecycle
    problems: list[str]
    known_flags: Mapping[str, bool]
    redactor: Redactor
    processes: ProcessOwner
    why_hidden: Callable[[str], str | None]


async def build(
    options: AgentOptions,
    environment: Environment,
    redactor: Redactor | None = None,
    recorders: Sequence[ExchangeRecorder] = (),
    pacing: Pacing | None = None,
) -> BuiltAgent:
    """The agent that the options describe; raises `StartupError` if that is impossible.

    A caller that masks its own output passes the redactor, which then learns the keys of the agent. The recorders see
    what model servers are sent and answer, keys included. `pacing` says when requests may be sent, where others share
    what providers allow.
    """
    return await _Builder(options, environment, redactor or Redactor(), recorders, pacing).build()


class _Builder:
    """What all parts of one agent share while it is built."""

    def __init__(
        self,
        options: AgentOptions,
        environment: Environment,
        redactor: Redactor,
        recorders: Sequence[ExchangeRecorder],
        pacing: Pacing | None,
    ) -> None:
        self._redactor = redactor
        self._pacing = pacing
        self._reports = Reports()
        self._recordings = AgentRecordings(
            options.model_reference, options.record, environment, redactor, recorders, self._reports.show_warning
        )
        environment = self._recordings.environment
        self._reports.set_ids(environment.ids)
        options = _options_for_replay(options, self._recordings)
        self._options = options
        self._environment = environment
        self._agent_dir = environment.agent_dir(options.agent_dir)
        self._cwd = _resolve_working_directory(options, environment)
        self._workspace = AgentWorkspace(environment.home, self._cwd)
        self._layers = Layers(self._agent_dir, self._reports.add_startup_problem, self._workspace.current_view)
        self._workspace.add_project_readers(self._layers.read_project)
        self._extensions = AgentExtensions(
            ExtensionOptions(named=options.extensions, only_named=options.no_extensions, flags=options.flags),
            self._agent_dir,
            self._cwd,
            environment.home,
            self._reports,
            print_tracebacks=bool(environment.variables.get(DEBUG_EXTENSIONS)),
        )
        processes = ProcessOwner()
        # The wall exists before anything can start a command; `build` first checks that it works.
        self._sandbox = make_sandbox(
            options, environment, self._agent_dir, self._layers, processes, self._reports.show_warning
        )
        self._sandbox.enclose_commands(self._cwd)
        # Keys are known before the first line of an extension runs.
        self._registry = make_registry(
            self._agent_dir, environment.variables, self._cwd, processes, redactor, self._recordings.models
        )
        self._bus = Bus()
        self._dialogs = Dialogs(self._bus.post, environment.ids.dialog_id, options.several_clients)
        if options.unattended:
            self._dialogs.close()

    async def build(self) -> BuiltAgent:
        extensions = self._extensions
        try:
            await complete_interrupted_undo(self._agent_dir, self._reports.show_info)
            await self._sandbox.find_working_wall()
            await self._open_workspace()
            settings = self._layers.settings
            await extensions.load_user_extensions(value_or_default(settings.extensions, []), settings.packages)
            decisions = ProjectDecisions(
                self._options.trust_project,
                self._cwd,
                self._agent_dir,
                self._environment.home,
                self._layers.settings.default_project_trust,
                extensions.ask_extensions_about_trust,
                self._reports.add_startup_problem,
                self._workspace,
            )
            repository, transcript = await self._open_transcript(decisions)
            try:
                cwd = transcript.journal.cwd
                here = self._workspace.find_own_folder() if self._workspace.is_elsewhere else cwd
                self._sandbox.enclose_commands(here)
                await self._sandbox.find_working_wall()
                self._refuse_sandbox_elsewhere()
                # Extensions run here, so only those of a project on this machine are loaded.
                uses_project = decisions.is_trusted(cwd) and not self._workspace.is_elsewhere
                await extensions.load_project_extensions(project_dirs(cwd) if uses_project else [])
                agents, resources = self._build_agents(), self._build_resources(cwd)
                self._workspace.add_project_readers(agents.read_project, resources.read_project)
                await self._workspace.read_project(cwd, decisions.is_trusted(cwd))
                return self._assemble(decisions, repository, transcript, agents, resources)
            except BaseException:
                transcript.journal.close()
                await repository.close_store()
                raise
        except BaseException:
            self._sandbox.close()
            await extensions.close()
            await self._workspace.close()
            raise

    async def _open_workspace(self) -> None:
        """Connect to the workspace that the options name, or in which their conversation was begun."""
        options, environment = self._options, self._environment
        chosen = options.workspace
        key_names = self._redactor.list_key_variables()
        if options.container is not None:
            if chosen is not None:
                raise UsageError("A container is a workspace of its own: leave out the other workspace")
            owner, image = self._sandbox.processes, options.container
            chosen = make_container(image, options.container_engine, self._cwd, environment, owner, key_names)
        elif options.container_engine is not None:
            raise UsageError("A container engine needs a container: name an image")
        if chosen is None:
            chosen = await find_workspace_of_session(options, environment, self._make_repository(None))
        if chosen is None:
            return
        if isinstance(chosen, str):
            chosen = make_workspace(chosen, environment, self._sandbox.processes, key_names)
        await self._workspace.open(chosen)
        self._cwd = chosen.folder
        self._refuse_sandbox_elsewhere()

    def _refuse_sandbox_elsewhere(self) -> None:
        """A sandbox is one of this machine: it would not hold commands elsewhere."""
        if self._workspace.runs_commands and self._sandbox.is_enclosing():
            name = self._workspace.machine or "the workspace"
            raise StartupError(
                f"The sandbox cannot hold commands that run on {name}: leave out --sandbox and turn off the one in the "
                'settings ("sandbox": {"mode": "off"}), or work on this machine'
            )

    async def _open_transcript(self, decisions: ProjectDecisions) -> tuple[SessionRepository, Transcript]:
        """Open the first conversation and switch to the settings for its folder.

        A trusted project may set where its sessions are kept, so the agent's initial folder counts until the
        conversation is known. The conversation's folder may differ, with its own trust decision.
        """
        await decisions.decide(self._cwd)
        await self._workspace.read_project(self._cwd, decisions.is_trusted(self._cwd))
        decisions.apply(self._cwd, [self._layers])
        options, environment = self._options, self._environment
        repository = self._make_repository(self._workspace.url)
        if options.continue_runs:
            repository.keep_open_calls()
        journal = await open_first_journal(options, environment, repository, self._cwd)
        transcript = Transcript(journal, options.continue_runs)
        cwd = transcript.journal.cwd
        if cwd != self._cwd:
            await decisions.decide(cwd)
            await self._workspace.read_project(cwd, decisions.is_trusted(cwd))
            decisions.apply(cwd, [self._layers])
        return repository, transcript

    def _make_repository(self, workspace: str | None) -> SessionRepository:
        return make_repository(
            self._options,
            self._environment,
            self._layers.settings,
            self._agent_dir,
            self._cwd,
            self._reports.show_warning,
            self._redactor.mask,
            workspace,
        )

    def _build_hooks(self) -> Hooks:
        return self._extensions.runner.hooks if self._extensions.runner else NoHooks()

    def _assemble(
        self,
        decisions: ProjectDecisions,
        repository: SessionRepository,
        transcript: Transcript,
        agents: ConversationAgents,
        resources: Resources,
    ) -> BuiltAgent:
        reports = self._reports
        hooks, runner = self._build_hooks(), self._extensions.runner
        folders = self._folders_by_purpose(transcript.journal)
        gateway = self._build_gateway(runner.hooks if runner else NoProviderHooks(), folders)
        providers = self._build_extension_providers(gateway)
        models = self._build_models(transcript, hooks)
        self._recordings.record_agent(models.model, models.level, models.list_available(), folders)
        tools = self._build_tools(transcript, models, agents)
        permissions = self._build_permissions(transcript, tools, runner.gate if runner else None)
        run_callbacks: list[Callable[[], None]] = []
        servers = self._servers = ConfiguredServers(
            self._build_server_parts(transcript, tools, on_run=run_callbacks.append)
        )
        # What reads a project's files, after what decides which those are.
        local: list[FolderUser] = [self._workspace.keep_here(user) for user in (servers, runner) if user is not None]
        readers: list[FolderUser] = [agents, resources, permissions, *local]
        decisions.apply(transcript.journal.cwd, readers)
        trust = self._build_trust(decisions, transcript.journal.cwd, [tools, *readers], run_callbacks)
        session = Session(
            self._build_dependencies(
                repository,
                transcript,
                gateway,
                models,
                tools,
                resources,
                trust,
                permissions,
                agents=agents,
                run_callbacks=run_callbacks,
            )
        )
        agents.connect(session, self._agent_surroundings(tools, resources, permissions))
        agents.report_mistakes(TaskTool.name)
        # A conversation that goes on has a model of its own.
        if models.problem:
            reports.add_startup_warning(models.problem)
        servers.set_commands_listener(session.announce_commands)
        self._record_session_name(session.journal)
        return BuiltAgent(
            session=session,
            lifecycle=Lifecycle(
                session, runner, providers, gateway, resources, reports, self._sandbox, self._workspace
            ),
            problems=reports.startup,
            redactor=self._redactor,
            known_flags=runner.list_known_flags() if runner else {},
            processes=self._sandbox.processes,
            why_hidden=self._sandbox.hidden_reason,
        )

    def _build_trust(
        self,
        decisions: ProjectDecisions,
        cwd: str,
        users: Sequence[FolderUser],
        run_callbacks: list[Callable[[], None]],
    ) -> TrustControl:
        # A sandbox is about folders of this machine.
        sandbox = None if self._workspace.is_elsewhere else self._sandbox
        return TrustControl(
            decisions,
            cwd,
            [self._layers, *([] if sandbox is None else [sandbox]), *users],
            self._bus,
            run_callbacks.append,
            None if sandbox is None else sandbox.check_folder,
            self._workspace.read_project,
        )

    def _build_extension_providers(self, gateway: Gateway) -> ExtensionProviders:
        runner, providers = self._extensions.runner, ExtensionProviders(self._registry, gateway)
        for contributed in runner.contributions.list_providers() if runner else ():
            providers.add(contributed.name, contributed.entry, contributed.provider)
        return providers

    def _build_models(self, transcript: Transcript, hooks: Hooks) -> ModelChoice:
        options, environment, reports, registry = self._options, self._environment, self._reports, self._registry
        chosen = resolve_model_options(options, environment, self._layers, registry, reports.add_startup_warning)
        for problem in registry.find_problems():
            reports.add_startup_problem(problem)
        return ModelChoice(chosen, transcript, hooks, self._bus.post, reports.show_warning)

    def _build_agents(self) -> ConversationAgents:
        return ConversationAgents(
            TreeChoices(
                agent_dir=self._agent_dir,
                settings=self._layers.settings,
                programs=self._options.agents,
                find_model=self._find_model,
                report=self._reports.add_startup_warning,
                in_turn=_works_in_turn(self._options, self._environment),
                workspace=self._workspace,
            )
        )

    def _find_model(self, name: str) -> Model | None:
        return find_usable_model(name, self._registry, self._environment)

    def _agent_surroundings(
        self, tools: AgentTools, resources: Resources, permissions: AgentPermissions
    ) -> AgentSurroundings:
        return AgentSurroundings(
            environment=self._environment,
            settings=self._layers.settings,
            sandbox=self._sandbox,
            redactor=self._redactor,
            resources=resources,
            permissions=permissions,
            tools=tools,
            models=AvailableModels(self._registry, None),
        )

    def _build_tools(self, transcript: Transcript, models: ModelChoice, agents: ConversationAgents) -> AgentTools:
        options, runner = self._options, self._extensions.runner
        chosen = ToolOptions(
            tools=options.tools,
            exclude_tools=options.exclude_tools,
            no_tools=options.no_tools,
            no_builtin_tools=options.no_builtin_tools,
            offers=options.offers,
        )
        environment, settings = self._environment, self._layers.settings
        workplaces = Workplaces(
            environment, settings, self._sandbox, transcript, models, self._redactor, self._workspace
        )
        self._sandbox.set_artifacts_source(workplaces.find_saved_outputs_folder)
        tools = AgentTools(
            chosen,
            environment,
            settings,
            self._sandbox,
            transcript,
            workplaces,
            self._bus.post,
            agents=agents if agents.may_spawn else None,
        )
        tools.add_tools({tool.spec.name: tool for tool in runner.contributions.list_tools()} if runner else {})
        tools.report_unknown_names(self._reports.add_startup_problem)
        return tools

    def _build_dependencies(  # noqa: PLR0913 - what a session is made from
        self,
        repository: SessionRepository,
        transcript: Transcript,
        gateway: Gateway,
        models: ModelChoice,
        tools: AgentTools,
        resources: Resources,
        trust: TrustControl,
        permissions: AgentPermissions,
        *,
        agents: ConversationAgents,
        run_callbacks: Sequence[Callable[[], None]],
    ) -> Dependencies:
        options, environment, settings = self._options, self._environment, self._layers.settings
        return Dependencies(
            settings=_make_session_settings(settings, options, environment, self._recordings),
            bus=self._bus,
            repository=repository,
            trust=trust,
            transcript=transcript,
            dialogs=self._dialogs,
            workplace=tools.workplace,
            move_to=tools.move_to,
            provider=self._recordings.wrap_provider(gateway),
            output_formats=gateway,
            preparation=gateway,
            models=models,
            models_file=find_models_file(self._agent_dir),
            toolset=tools.toolset,
            todos=tools.todos,
            host_services=tools.host_services,
            images=tools.images,
            expander=resources,
            system_prompt=resources.build_system_prompt,
            rules=resources.read_rules,
            hooks=self._build_hooks(),
            permissions=permissions,
            gate=permissions.build_gate,
            warm_processes=self._sandbox.processes.warm_up,
            run_callbacks=run_callbacks,
            mask_result=self._redactor.mask_result,
            pages=self._build_pages(repository),
            files=tools.make_project_files(permissions),
            tool_servers=self._servers,
            agents=agents,
            jobs=tools.jobs,
            workspace=self._workspace,
            checkpoints=self._build_checkpoints(repository, transcript),
            sandbox=self._sandbox.state,
            now=environment.now,
            ids=environment.ids,
            report=self._reports.show_warning,
        )

    def _build_pages(self, repository: SessionRepository) -> PageWriter:
        return PageWriter(
            self._environment,
            repository.store,
            self._redactor.mask,
            self._layers.settings.export.mask_secrets,
            self._registry.describe_key_origin,
        )

    def _build_checkpoints(self, repository: SessionRepository, transcript: Transcript) -> CheckpointsOnDemand:
        report, settings = self._reports.show_warning, self._layers.settings
        machine = (self._workspace.machine or "another machine") if self._workspace.is_elsewhere else ""
        return make_checkpoints(
            settings, self._environment, self._agent_dir, repository, transcript, self._redactor, report, machine
        )

    def _folders_by_purpose(self, journal: Journal) -> dict[str, str]:
        outputs = outputs_folder(journal, self._environment)
        return self._recordings.folders_by_purpose(journal.cwd, self._agent_dir, outputs)

    def _build_gateway(self, hooks: ProviderHooks, folders: dict[str, str]) -> Gateway:
        return make_gateway(
            self._registry,
            self._layers.settings,
            self._environment,
            hooks,
            self._redactor,
            self._recordings,
            folders,
            self._pacing,
        )

    def _build_permissions(self, transcript: Transcript, tools: AgentTools, extending: Gate | None) -> AgentPermissions:
        options = self._options
        return AgentPermissions(
            HostPermissions(options.permissions, options.approval_mode, options.unattended, options.attended),
            self._environment,
            self._layers,
            self._reports,
            [self._agent_dir, *self._extension_files()],
            SessionParts(
                transcript=transcript,
                toolset=tools.toolset,
                dialogs=self._dialogs,
                post=self._bus.post,
                workspace=self._workspace,
            ),
            extending,
            self._sandbox.is_enclosing,
        )

    def _build_server_parts(
        self, transcript: Transcript, tools: AgentTools, on_run: Callable[[Callable[[], None]], None]
    ) -> AgentParts:
        environment = self._environment
        return AgentParts(
            agent_dir=self._agent_dir,
            variables=environment.variables,
            home=environment.home,
            cwd=self._workspace.find_own_folder if self._workspace.is_elsewhere else transcript.folder,
            processes=self._sandbox.processes,
            toolset=tools.toolset,
            workplace=tools.current_workplace,
            dialogs=self._dialogs,
            post=self._bus.post,
            report=self._reports.show_warning,
            learn=self._redactor.learn_keys,
            is_secret=self._redactor.is_secret_variable,
            has_provider_key=self._redactor.has_provider_key,
            budget=self._layers.settings.mcp.tool_budget,
            unattended=self._options.unattended,
            only=self._options.tool_servers,
            version=__version__,
            on_run=on_run,
        )

    def _record_session_name(self, journal: Journal) -> None:
        name = self._options.name
        if not name or not name.strip():
            return
        try:
            journal.append(SessionInfo, name=clean_name(name))
        except Refusal as error:
            self._reports.add_startup_problem(f"--name: {error}")

    def _extension_files(self) -> list[str]:
        """The paths of the extensions that options and settings name."""
        home, listed = self._environment.home, value_or_default(self._layers.settings.extensions, [])
        named = [absolute_path(path, self._cwd, home) for path in self._options.extensions]
        return [*named, *(absolute_path(path, self._agent_dir, home) for path in listed)]

    def _build_resources(self, cwd: str) -> Resources:
        options, settings = self._options, self._layers.settings
        chosen = ResourceOptions(
            skills=options.skills,
            prompt_templates=options.prompt_templates,
            no_skills=options.no_skills,
            no_prompt_templates=options.no_prompt_templates,
            no_context_files=options.no_context_files,
            system_prompt=options.system_prompt,
            append_system_prompt=options.append_system_prompt,
            user_skills=list_skill_paths(settings),
            user_prompts=value_or_default(settings.prompts, []),
            docs=DOCS_FOLDER if os.path.isdir(DOCS_FOLDER) else None,
            unattended=options.unattended,
            no_rules=options.no_rules,
        )
        return Resources(
            self._agent_dir,
            cwd,
            False,
            chosen,
            home=self._environment.home,
            base=self._environment.cwd,
            report=self._reports.show_warning,
            expansion_failed=self._reports.report_skill_failure,
            project_view=self._workspace.current_view,
        )


def _options_for_replay(options: AgentOptions, recordings: AgentRecordings) -> AgentOptions:
    """The options of an agent that replays a recording: its model and thinking level are those of the recording.

    A replay creates the same session again with the same id; it is stored where that was requested.
    """
    agent = recordings.replayed_agent
    if agent is None:
        return options
    kept = options.session or options.resume or options.continue_newest or options.fork or options.session_dir
    return replace(
        options,
        provider=agent.provider,
        model=agent.model,
        api_key=None,
        thinking=options.thinking or agent.thinking,
        no_session=options.no_session or not kept,
    )


def _works_in_turn(options: AgentOptions, environment: Environment) -> bool:
    """Whether calls and agents work one after the other, so that a recording plays as it was made."""
    return options.record is not None or environment.reproducible


def _make_session_settings(
    settings: Settings, options: AgentOptions, environment: Environment, recordings: AgentRecordings
) -> SessionSettings:
    """The settings of the files, and defaults of the dialect in the options for missing ones."""
    overrides = value_or_default(settings.compaction.model_overrides, {})
    limits = _merge_limits(settings, options)
    # A host or a person that watches can stop a loop; otherwise it must end soon.
    is_watched = options.is_watched and not options.unattended and limits == Limits()
    guard = PATIENT_GUARD if is_watched else LoopGuardPolicy()
    return SessionSettings(
        steering_mode=settings.steering_mode,
        follow_up_mode=settings.follow_up_mode,
        interrupt_mode=value_or_default(settings.interrupt_mode, options.interrupt_mode),
        tool_mode=settings.tool_execution,
        block_images=settings.images.block_images,
        keep_unreadable_images=options.keep_unreadable_images,
        continues_after_failure=options.continues_after_failure,
        continues_runs=options.continue_runs,
        unattended=options.unattended,
        several_clients=options.several_clients,
        plan_is_seen="plans" in options.offers,
        reproducible=environment.reproducible,
        one_call_at_a_time=_works_in_turn(options, environment),
        finish_gate=value_or_default(
            settings.finish_gate, options.unattended if options.finish_gate is None else options.finish_gate
        ),
        auto_retry=settings.retry.enabled,
        retry=RetryPolicy(
            max_retries=settings.retry.max_retries,
            base_delay_ms=settings.retry.base_delay_ms,
            max_delay_ms=settings.retry.max_agent_delay_ms,
            sleep=recordings.sleep,
            chance=environment.ids.random_fraction,
        ),
        auto_compaction=settings.compaction.enabled,
        compaction=CompactionPolicy(
            reserve_tokens=value_or_default(settings.compaction.reserve_tokens, None),
            keep_tokens=value_or_default(settings.compaction.keep_recent_tokens, None),
            per_model={to_current_reference(key): own for key, own in overrides.items()},
        ),
        limits=limits,
        loop_guard=LoopGuardPolicy(
            warn=value_or_default(settings.loop_guard.warn, guard.warn),
            stop=value_or_default(settings.loop_guard.stop, guard.stop),
        ),
    )


def _merge_limits(settings: Settings, options: AgentOptions) -> Limits:
    """The limits of the options, completed by those of the settings."""
    try:
        first, second = parse_limits(options.limits), parse_limits(value_or_default(settings.limits, {}))
    except BadRecord as error:
        raise StartupError(str(error)) from None
    return Limits(
        **{field: value_or_default(getattr(first, field), getattr(second, field)) for field in LIMIT_FIELDS.values()}
    )


def _resolve_working_directory(options: AgentOptions, environment: Environment) -> str:
    folder = environment.absolute_path(options.cwd or environment.cwd)
    if not os.path.isabs(folder):
        raise StartupError("The working directory does not exist any more; name another with --cwd")
    if not os.path.isdir(folder):
        raise StartupError(f"Not a directory: {folder}")
    return folder
