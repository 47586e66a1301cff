"""The tools of an agent: which it has, by options and settings, and where they work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from pigeon.agent.interfaces import Tool
from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.config.settings import Settings
from pigeon.guard.secrets import Redactor, tool_environment
from pigeon.session.context.conversation import Conversation
from pigeon.session.history.repository import artifact_folder
from pigeon.session.model_choice import ModelChoice
from pigeon.session.steering.todos import Todos
from pigeon.session.toolset import Toolset
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Workplace, find_shell
from pigeon.tools.catalog import DEFAULT_TOOLS, built_in_tools
from pigeon.tools.images.fitting import GuardedFitter
from pigeon.tools.images.prompt_images import PromptImages
from pigeon.tools.todo import TodoTool
from pigeon.wire.base import Absent, or_else
from pigeon.wire.events import Outbound


class ToolSetup:
    """The tools and the place they work in; `move_to` makes them anew for another folder.

    Commands see neither the keys that the redactor knows nor the variables that keys come from. They are told which
    session and model they run for; both are looked up when a command starts.
    """

    def __init__(
        self,
        options: AgentOptions,
        environment: Environment,
        settings: Settings,
        processes: ProcessOwner,
        conversation: Conversation,
        models: ModelChoice,
        post: Callable[[Outbound], None],
        redactor: Redactor,
    ) -> None:
        self._options = options
        self._environment = environment
        self._settings = settings
        self._processes = processes
        self._conversation = conversation
        self._models = models
        self._redactor = redactor
        self.workplace = self._workplace(conversation.journal.cwd)
        self._fitter = GuardedFitter(processes)
        self.images = PromptImages(self._fitter, self._resizes)
        # The model sees the plan as soon as the host has made one, unless the tools were named.
        offer = self._offer_plan if options.tools is None else lambda: None
        self.todos = Todos(post, settings.tasks.todo_clear_delay, offer)
        tools = self._tools()
        if not (options.no_tools or options.no_builtin_tools):
            tools["todo"] = TodoTool(self.todos)
        self.toolset = Toolset(tools, _active(options, settings, list(tools)))

    def add(self, tools: Mapping[str, Tool]) -> None:
        """Tools of extensions; they take the place of built-in ones of the same name."""
        options = self._options
        self.toolset.replace(dict(tools))
        allowed = list(tools) if options.tools is None else options.tools
        for name in tools:
            if name in allowed and name not in options.exclude_tools and not options.no_tools:
                self.toolset.offer(name)

    def report_unknown(self, report: Callable[[str], None]) -> None:
        """Report names in the options that no tool has; those of the host's tools come later and need not be given."""
        known = sorted(tool.spec.name for tool in self.toolset.every())
        for name in self._options.tools or ():
            if name not in known:
                report(f'--tools: there is no tool "{name}" (known: {", ".join(known)})')

    def move_to(self, cwd: str) -> Workplace:
        """Work in another folder from here on."""
        self.workplace = self._workplace(cwd)
        self.toolset.replace(self._tools())
        return self.workplace

    def warm_up(self) -> None:
        """Start what shell commands need while the model still thinks."""
        if "bash" in self.toolset.active():
            self._processes.warm_up()

    def _offer_plan(self) -> None:
        self.toolset.offer("todo")

    def _workplace(self, cwd: str) -> Workplace:
        settings, environment = self._settings, self._environment
        shell = find_shell(
            or_else(settings.shell_path, None),
            environment.home,
            environment.variables.get("PATH", os.defpath),
            or_else(settings.shell_command_prefix, ""),
        )
        artifacts = Artifacts(self._artifacts, environment.temporary)
        return Workplace(cwd, shell, self._variables, artifacts, self._processes, self._redactor)

    def _tools(self) -> dict[str, Tool]:
        return dict(
            built_in_tools(self.workplace, self._environment.home, fitter=self._fitter, resize_images=self._resizes)
        )

    def _resizes(self) -> bool:
        return self._settings.images.auto_resize

    def _artifacts(self) -> str | None:
        journal = self._conversation.journal
        return artifact_folder(journal.file) if journal.file and journal.saved else None

    def _variables(self) -> Mapping[str, str]:
        self._redactor.refresh()
        return tool_environment(
            self._environment.variables,
            keep_provider_keys=self._settings.keep_provider_keys,
            also_secret=self._redactor.variables(),
            shows_key=self._redactor.shows_key,
            session=self._known_to_commands(),
        )

    def _known_to_commands(self) -> dict[str, str]:
        """What a command may know of the session it runs in."""
        journal, model = self._conversation.journal, self._models.model
        known = {
            "PI_SESSION_ID": journal.session_id,
            "PI_SESSION_FILE": journal.file or "",
            "PI_PROVIDER": model.provider if model else "",
            "PI_MODEL": model.id if model else "",
            "PI_REASONING_LEVEL": self._models.level,
        }
        return {name: value for name, value in known.items() if value}


def _active(options: AgentOptions, settings: Settings, known: list[str]) -> list[str]:
    if options.no_tools or options.no_builtin_tools:
        return []
    wanted: Iterable[str] = DEFAULT_TOOLS
    if options.tools is not None:
        wanted = options.tools
    elif not isinstance(settings.default_tools, Absent):
        wanted = settings.default_tools
    return [name for name in wanted if name in known and name not in options.exclude_tools]
