"""The tools of an agent: which it has, by options, settings and its conversation, and where they work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.agent.interfaces import Tool
from pigeon.config.settings import Settings
from pigeon.config.tool_selection import ToolSelection, matches, option_selection, selection_of
from pigeon.sandbox.control import SandboxControl
from pigeon.secrets.command_environment import tool_environment
from pigeon.secrets.redactor import Redactor
from pigeon.session.context.transcript import Transcript
from pigeon.session.history.file_store import FileStore
from pigeon.session.history.journal import Journal
from pigeon.session.host.host_services import HostServices
from pigeon.session.model_choice import ModelChoice
from pigeon.session.todos import Todos
from pigeon.session.toolset import DeclaredTools, Toolset
from pigeon.system.environment import Environment
from pigeon.system.paths import shows_process_memory
from pigeon.system.project_files import ProjectFiles
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Workplace, find_shell
from pigeon.tools.catalog import DEFAULT_TOOLS, built_in_tools, facts_of, plan_tools
from pigeon.tools.images.fitting import GuardedFitter
from pigeon.tools.images.prompt_images import PromptImages
from pigeon.tools.todo import TodoTool
from pigeon.wire.base import Absent, or_else
from pigeon.wire.events import Outbound

if TYPE_CHECKING:
    from pigeon.sandbox.policy import SandboxPolicy


def outputs_place(environment: Environment) -> str:
    """Where long outputs are kept that belong to no session file: a folder of the agent's own."""
    return os.path.join(environment.temporary, f"pigeon-{environment.ids.folder_id()}")


def outputs_folder(journal: Journal, environment: Environment) -> str:
    """Where the long outputs of a conversation are kept."""
    return FileStore.outputs_of(journal.file) if journal.file else outputs_place(environment)


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What the options say of tools: names or patterns, or changes (`+name`, `-name`)."""

    tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    no_tools: bool = False
    no_builtin_tools: bool = False


class AgentTools:
    """The tools and the place they work in; `move_to` makes them anew for another folder.

    Commands see neither the keys that the redactor knows nor the variables that keys come from. They are told which
    session and model they run for; both are looked up when a command starts.
    """

    def __init__(
        self,
        options: ToolOptions,
        environment: Environment,
        settings: Settings,
        sandbox: SandboxControl,
        transcript: Transcript,
        models: ModelChoice,
        post: Callable[[Outbound], None],
        redactor: Redactor,
    ) -> None:
        self._outputs = Artifacts(self._artifacts, outputs_place(environment))
        self._options = options
        self._environment = environment
        self._settings = settings
        self._processes = sandbox.processes
        self._transcript = transcript
        self._models = models
        self._redactor = redactor
        self._on_run: list[Callable[[], None]] = []
        self._sandbox = sandbox
        sandbox.keep_artifacts(self._artifacts)
        self.workplace = self._workplace(transcript.journal.cwd)
        # Terminals of a host would be outside the sandbox.
        self.host_services = HostServices(
            post,
            environment.ids.request_id,
            transcript.folder,
            environment.variables,
            walled=sandbox.is_enclosing,
            steered=lambda path: sandbox.policy is not None and sandbox.policy.lets_steer(path),
        )
        self._fitter = GuardedFitter(sandbox.processes)
        self.images = PromptImages(self._fitter, self._resizes)
        self.todos = Todos(post, plan_tools(), settings.tasks.todo_clear_delay, self._offer_plan)
        tools = self._tools()
        self._choice = ToolChoice(options, settings, list(tools))
        self.toolset = Toolset(tools, (), self._choice.active, self._choice.admits, facts_of)

    def add(self, tools: Mapping[str, Tool]) -> None:
        """Tools of extensions; they take the place of built-in ones of the same name."""
        self.toolset.replace(dict(tools))

    def report_unknown(self, report: Callable[[str], None]) -> None:
        """Report names that no tool has; those of the host's tools come later and need not be given."""
        known = sorted(tool.spec.name for tool in self.toolset.every())
        for problem in self._choice.problems(known):
            report(problem)

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """Where a sandbox is new, tell the model of it and how to ask for a command outside."""
        if self._sandbox.is_enclosing() and not self._tells_of_wall:
            self.move_to(cwd)

    def move_to(self, cwd: str) -> Workplace:
        """Work in another folder from here on."""
        self.workplace = self._workplace(cwd)
        self.toolset.replace(self._tools())
        return self.workplace

    def warm_up(self) -> None:
        """Start what shell commands need while the model still thinks."""
        if any(facts_of(name).command for name in self.toolset.active()):
            self._processes.warm_up()
        for begun in self._on_run:
            begun()

    def on_run(self, begun: Callable[[], None]) -> None:
        """Call this, too, beside the first request of each run."""
        self._on_run.append(begun)

    def _offer_plan(self) -> None:
        """The model sees the plan as soon as the host has made one, unless the options leave the tool out."""
        if self._choice.admits(TodoTool.name):
            self.toolset.offer(TodoTool.name)

    def _workplace(self, cwd: str) -> Workplace:
        settings, environment = self._settings, self._environment
        shell = find_shell(
            or_else(settings.shell_path, None),
            environment.home,
            environment.variables.get("PATH", os.defpath),
            or_else(settings.shell_command_prefix, ""),
        )
        return Workplace(
            cwd,
            shell,
            self._variables,
            self._outputs,
            self._processes,
            self._redactor,
            # How the output of a command comes in pieces depends on the time.
            at_once=environment.reproducible,
            host_is_outside=self._host_is_outside,
            outside_environment=self._outside_variables,
        )

    def _policy(self) -> SandboxPolicy | None:
        return self._sandbox.policy

    def current_workplace(self) -> Workplace:
        """Where tools work now."""
        return self.workplace

    def project_files(self, conceal: Callable[[str], Callable[[str], bool]]) -> ProjectFiles:
        """The files that hosts may complete: nothing that the tool `find` would not show.

        `conceal` returns the test for real paths that the rules keep from a tool of this name.
        """

        def concealment() -> Callable[[str], bool]:
            from pigeon.sandbox.file_access import WalledPaths
            from pigeon.tools.find import FindTool

            denied = conceal(FindTool.name)
            hidden = WalledPaths(self._transcript.folder(), self._environment.home, self._policy).hides()
            return lambda place: shows_process_memory(place) or denied(place) or hidden(place)

        return ProjectFiles(self._transcript.folder, self._environment.variables, self._environment.home, concealment)

    def _host_is_outside(self) -> bool:
        policy = self._sandbox.policy
        return policy is not None and policy.host_shell_outside

    def _tools(self) -> dict[str, Tool]:
        self._tells_of_wall = self._sandbox.is_enclosing()
        return dict(
            built_in_tools(
                self.workplace,
                self._environment.home,
                fitter=self._fitter,
                resize_images=self._resizes,
                declared=self._settings.tool_execution == "declared",
                host=self.host_services,
                plan=None if self._options.no_tools or self._options.no_builtin_tools else self.todos,
                sandbox=self._policy,
            )
        )

    def _resizes(self) -> bool:
        return self._settings.images.auto_resize

    def _artifacts(self) -> str | None:
        journal = self._transcript.journal
        return FileStore.outputs_of(journal.file) if journal.file and journal.saved else None

    def _variables(self) -> Mapping[str, str]:
        policy = self._sandbox.policy
        if policy is None:
            return self._outside_variables()
        from pigeon.secrets.shapes import is_secret_variable

        shown = policy.pass_variables
        return self._outside_variables(lambda name, value: name not in shown and is_secret_variable(name, value))

    def _outside_variables(self, conceals: Callable[[str, str], bool] = lambda name, value: False) -> Mapping[str, str]:
        self._redactor.refresh()
        return tool_environment(
            self._environment.variables,
            keep_provider_keys=self._settings.keep_provider_keys,
            also_secret=self._redactor.variables(),
            shows_key=self._redactor.shows_key,
            conceals=conceals,
            session=self._known_to_commands(),
        )

    def _known_to_commands(self) -> dict[str, str]:
        """What a command may know of the session it runs in."""
        journal, model = self._transcript.journal, self._models.model
        known = {
            "PI_SESSION_ID": journal.session_id,
            "PI_SESSION_FILE": journal.file or "",
            "PI_PROVIDER": model.provider if model else "",
            "PI_MODEL": model.id if model else "",
            "PI_REASONING_LEVEL": self._models.level,
        }
        return {name: value for name, value in known.items() if value}


class ToolChoice:
    """Which tools are active when a conversation begins or goes on; raises `StartupError` for a list without sense.

    Options come before what the conversation had, and that before the settings. Tools of extensions are active unless
    an option or the conversation says otherwise.
    """

    def __init__(self, options: ToolOptions, settings: Settings, built_in: Sequence[str]) -> None:
        self._options = options
        self._built_in = built_in
        self._named = ToolSelection() if options.tools is None else option_selection(options.tools, "--tools")
        listed = settings.default_tools
        self._default = ToolSelection() if isinstance(listed, Absent) else selection_of(listed)

    def active(self, known: list[str], declared: DeclaredTools | None) -> list[str]:
        """Of all tools, those to begin with."""
        chosen = self._named.changed(self._named.named(self._before(known, declared), known), known)
        return [name for name in chosen if not self._excluded(name)]

    def admits(self, name: str) -> bool:
        """Whether a tool that appears later may become active."""
        if self._excluded(name):
            return False
        before = [] if self._options.no_tools else [name]
        return name in self._named.changed(self._named.named(before, [name]), [name])

    def problems(self, known: Sequence[str]) -> Iterator[str]:
        """What is named and does not exist, a sentence each."""
        for where, selection in (("--tools", self._named), ("defaultTools", self._default)):
            for name in selection.unknown(known):
                yield f'{where}: there is no tool "{name}" (known: {", ".join(known)})'

    def _before(self, known: list[str], declared: DeclaredTools | None) -> list[str]:
        """The tools that changes change."""
        if self._options.no_tools:
            return []
        added = [name for name in known if name not in self._built_in]
        if self._options.no_builtin_tools:
            return added
        if declared is not None:
            kept = [name for name in declared.active if name in known]
            return [*kept, *(name for name in added if name not in declared.named)]
        return self._default.changed([*self._default.named(DEFAULT_TOOLS, known), *added], known)

    def _excluded(self, name: str) -> bool:
        return any(matches(pattern, name) for pattern in self._options.exclude_tools)
