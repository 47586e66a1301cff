"""The tools of an agent, chosen by options, settings and its conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from pigeon.agent.interfaces import Tool
from pigeon.config.settings import Settings
from pigeon.config.tool_selection import ToolSelection, is_match, parse_option_selection, selection_of
from pigeon.sandbox.control import SandboxControl
from pigeon.session.context.transcript import Transcript
from pigeon.session.host.host_services import HostServices
from pigeon.session.jobs import Jobs
from pigeon.session.todos import Todos
from pigeon.session.toolset import DeclaredTools, Toolset
from pigeon.system.environment import Environment
from pigeon.system.paths import PathResolver, is_process_memory
from pigeon.system.project_files import ProjectFiles
from pigeon.system.shell.shell import Workplace
from pigeon.tools.base import TaskRunner, ToolParts
from pigeon.tools.bash import BashTool
from pigeon.tools.catalog import DEFAULT_TOOLS, OFFERED_TOOLS, built_in_tools, facts_of, list_plan_tool_names
from pigeon.tools.file_access import FileAccess
from pigeon.tools.images.fitting import GuardedFitter
from pigeon.tools.images.prompt_images import PromptImages
from pigeon.tools.jobs import JobsTool
from pigeon.tools.todo import TodoTool
from pigeon.tools.workplaces import Workplaces
from pigeon.wire.base import Absent
from pigeon.wire.choices import ToolOffer
from pigeon.wire.events import Outbound
from pigeon.workspaces.agent_workspace import AgentWorkspace
from pigeon.workspaces.local import LocalParts
from pigeon.workspaces.workspace import Workspace

if TYPE_CHECKING:
    from pigeon.sandbox.policy import SandboxPolicy
    from pigeon.session.dependencies import SessionFiles


class ToolOptions(Struct, frozen=True, kw_only=True):
    """The options about tools: names or patterns, or changes (`+name`, `-name`)."""

    tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    no_tools: bool = False
    no_builtin_tools: bool = False
    offers: tuple[ToolOffer, ...] = ()


class Concealing(Protocol):
    """The rules about what searches show; `permissions/control` implements it."""

    def make_concealment_test(self, tool: str) -> Callable[[str], bool]:
        """A test for real paths that a tool of this name must not show."""
        ...

    async def fetch_concealment_test(self, tool: str) -> Callable[[str], bool]:
        """The same where files have to be fetched to know."""
        ...


class AgentTools:
    """The tools and their working folder; `move_to` creates them again for another folder."""

    def __init__(  # noqa: PLR0913 - what tools are made from
        self,
        options: ToolOptions,
        environment: Environment,
        settings: Settings,
        sandbox: SandboxControl,
        transcript: Transcript,
        workplaces: Workplaces,
        post: Callable[[Outbound], None],
        *,
        agents: TaskRunner | None = None,
        starter: AgentTools | None = None,
    ) -> None:
        """`agents` starts other agents. `starter` has the tools of the agent that has started this one: both work with
        the same services of the host."""
        self._options = options
        self._environment = environment
        self._settings = settings
        self._transcript = transcript
        self._sandbox = sandbox
        self._workplaces = workplaces
        self.workspace = workplaces.workspace
        self._agents = agents
        self.workplace = workplaces.make_workplace(transcript.journal.cwd)
        # Terminals of a host would be outside the sandbox, and are not on the machine of a workspace.
        self.host_services: HostServices = (
            starter.host_services
            if starter
            else HostServices(
                post,
                environment.ids.request_id,
                transcript.folder,
                environment.variables,
                walled=lambda: sandbox.is_enclosing() or self.workspace.is_elsewhere,
                steered=self._is_out_of_reach,
                has_workspace=self.workspace.is_of_host,
            )
        )
        self.workspace.use_host(self.host_services)
        self._fitter: GuardedFitter = starter._fitter if starter else GuardedFitter(sandbox.processes)
        self.images: PromptImages = starter.images if starter else PromptImages(self._fitter, self._should_resize)
        self.todos = Todos(post, list_plan_tool_names(), settings.tasks.todo_clear_delay, self._activate_plan_tool)
        own_id = transcript.journal.session_id if starter else ""
        self.jobs: Jobs = Jobs(post, settings.jobs.start_run, starter.jobs if starter else None, own_id)
        tools = self._make_built_in_tools()
        self._choice = ToolChoice(options, settings, list(tools))
        self.toolset = Toolset(tools, (), self._choice.choose_active_tools, self._choice.can_activate, facts_of)
        self.toolset.set_active_callback(self._update_background)

    def add_tools(self, tools: Mapping[str, Tool]) -> None:
        """Add tools of extensions, which replace built-in ones of the same name."""
        self.toolset.replace_implementations(dict(tools))

    def report_unknown_names(self, report: Callable[[str], None]) -> None:
        """Report names that no tool has; tools of the host come later and may be missing."""
        known = sorted(self.toolset.all_names())
        for problem in self._choice.find_unknown_names(known):
            report(problem)

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """If there is a new sandbox, describe it to the model, with the way to request a command outside."""
        if self._sandbox.is_enclosing() and not self._tells_of_wall:
            self.move_to(cwd)

    def move_to(self, cwd: str) -> Workplace:
        """Switch to another working folder."""
        self.workplace = self._workplaces.make_workplace(cwd)
        self.toolset.replace_implementations(self._make_built_in_tools())
        self._update_background()
        return self.workplace

    def _update_background(self) -> None:
        """Let the model start commands in the background while it has the tool that looks after them."""
        shell = self.toolset.find_tool(BashTool.name)
        if isinstance(shell, BashTool):
            shell.offer_background(self.toolset.is_active(JobsTool.name))

    def _activate_plan_tool(self) -> None:
        """Show the plan to the model as soon as the host has made one, unless the options exclude the tool."""
        if self._choice.can_activate(TodoTool.name):
            self.toolset.activate_tool(TodoTool.name)

    def _is_out_of_reach(self, path: str) -> bool:
        """Whether a host must not be asked for the file at a path."""
        policy = self._sandbox.policy
        return self.workspace.is_elsewhere or (policy is not None and policy.can_commands_redirect(path))

    def _policy(self) -> SandboxPolicy | None:
        return self._sandbox.policy

    def current_workplace(self) -> Workplace:
        return self.workplace

    def make_project_files(self, permissions: Concealing) -> SessionFiles:
        """The files for completion by hosts: only those that the tool `find` would show."""
        chosen = self.workspace.chosen
        if chosen is not None and self.workspace.is_elsewhere:
            from pigeon.tools.files_elsewhere import FilesElsewhere

            return FilesElsewhere(chosen, self._transcript.folder, permissions.fetch_concealment_test)

        def concealment() -> Callable[[str], bool]:
            from pigeon.sandbox.file_access import WalledPaths
            from pigeon.tools.find import FindTool

            denied = permissions.make_concealment_test(FindTool.name)
            hidden = WalledPaths(
                self._transcript.folder(), self._environment.home, self._policy
            ).make_hidden_path_test()
            return lambda place: is_process_memory(place) or denied(place) or hidden(place)

        return ProjectFiles(self._transcript.folder, self._environment.variables, self._environment.home, concealment)

    def _make_built_in_tools(self) -> dict[str, Tool]:
        self._tells_of_wall = self._sandbox.is_enclosing()
        place, home = self.workplace, self._environment.home
        parts = ToolParts(
            place=place,
            paths=make_path_resolver(
                place.cwd, home, self._policy, self.workspace, self._workplaces.find_output_folders
            ),
            files=FileAccess(self.host_services, self._make_workspace(place)),
            fitter=self._fitter,
            resize_images=self._should_resize,
            declared=self._settings.tool_execution == "declared",
            host=self.host_services,
            plan=None if self._options.no_tools or self._options.no_builtin_tools else self.todos,
            sandbox=self._policy,
            jobs=self.jobs,
            agents=self._agents,
        )
        return dict(built_in_tools(parts))

    def _make_workspace(self, place: Workplace) -> Workspace:
        parts = LocalParts(place.processes, place.environment, self._environment.home, place.shell.path)
        return self.workspace.for_tools(place.cwd, parts)

    def _should_resize(self) -> bool:
        return self._settings.images.auto_resize


def make_path_resolver(
    cwd: str,
    home: str,
    sandbox: Callable[[], SandboxPolicy | None],
    workspace: AgentWorkspace | None = None,
    find_output_folders: Callable[[], Sequence[str]] = lambda: (),
) -> PathResolver:
    """How tools resolve paths, behind the sandbox if there is one."""
    if sandbox() is None:
        return PathResolver(cwd, home) if workspace is None else workspace.make_path_resolver(cwd, find_output_folders)
    from pigeon.sandbox.file_access import WalledPaths

    return WalledPaths(cwd, home, sandbox)


class ToolChoice:
    """Which tools are active when a conversation begins or resumes; raises `StartupError` for an invalid list.

    Options take precedence over the conversation's earlier tools, and these over the settings. Tools of extensions are
    active unless an option or the conversation says otherwise.
    """

    def __init__(self, options: ToolOptions, settings: Settings, built_in: Sequence[str]) -> None:
        self._options = options
        self._built_in = built_in
        self._named = ToolSelection() if options.tools is None else parse_option_selection(options.tools, "--tools")
        listed = settings.default_tools
        self._default = ToolSelection() if isinstance(listed, Absent) else selection_of(listed)

    def choose_active_tools(self, known: list[str], declared: DeclaredTools | None) -> list[str]:
        """The initial tools among all tools."""
        chosen = self._named.apply_changes(
            self._named.select_named(self._choose_base_tools(known, declared), known), known
        )
        return [name for name in chosen if not self._is_excluded(name)]

    def can_activate(self, name: str) -> bool:
        """Whether a tool that appears later may become active."""
        if self._is_excluded(name):
            return False
        before = [] if self._options.no_tools else [name]
        return name in self._named.apply_changes(self._named.select_named(before, [name]), [name])

    def find_unknown_names(self, known: Sequence[str]) -> Iterator[str]:
        """A sentence for each named tool that does not exist."""
        for where, selection in (("--tools", self._named), ("defaultTools", self._default)):
            for name in selection.find_unknown(known):
                yield f'{where}: there is no tool "{name}" (known: {", ".join(known)})'

    def _choose_base_tools(self, known: list[str], declared: DeclaredTools | None) -> list[str]:
        """The tools to which changes are applied."""
        if self._options.no_tools:
            return []
        added = [name for name in known if name not in self._built_in]
        if self._options.no_builtin_tools:
            return added
        if declared is not None:
            kept = [name for name in declared.active if name in known]
            return [*kept, *(name for name in added if name not in declared.named)]
        usual = [*DEFAULT_TOOLS, *(name for offer in self._options.offers for name in OFFERED_TOOLS[offer])]
        usual = [name for name in usual if name in known]
        return self._default.apply_changes([*self._default.select_named(usual, known), *added], known)

    def _is_excluded(self, name: str) -> bool:
        return any(is_match(pattern, name) for pattern in self._options.exclude_tools)
