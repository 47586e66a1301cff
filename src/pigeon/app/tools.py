"""Which tools a session has, by options and settings, and where their commands run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from pigeon.agent.interfaces import Tool
from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.config.settings import Settings
from pigeon.guard.environment import tool_environment
from pigeon.providers.catalog.built_in import key_variables
from pigeon.session.history.repository import artifact_folder
from pigeon.session.session import Session
from pigeon.session.steering.todos import Todos
from pigeon.session.toolset import Toolset
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Workplace, find_shell
from pigeon.tools.catalog import DEFAULT_TOOLS, built_in_tools
from pigeon.tools.images.prompt_images import PromptImages
from pigeon.tools.todo import TodoTool
from pigeon.wire.base import Absent, or_else
from pigeon.wire.events import Outbound


class Bench:
    """The tools of one working directory; moving makes them anew for another."""

    def __init__(
        self,
        options: AgentOptions,
        environment: Environment,
        processes: ProcessOwner,
        settings: Settings,
        cwd: str,
        post: Callable[[Outbound], None],
        session: Callable[[], Session | None],
    ) -> None:
        self._surroundings = environment
        self._processes = processes
        self._settings = settings
        self._session = session
        self.place = self._place(cwd)
        self.images = PromptImages(self._resizes)
        # The model sees the plan as soon as the host has made one, unless the tools were named.
        offer = self._offer_plan if options.tools is None else lambda: None
        self.todos = Todos(post, settings.tasks.todo_clear_delay, offer)
        tools = self._tools()
        if not (options.no_tools or options.no_builtin_tools):
            tools["todo"] = TodoTool(self.todos)
        self.toolset = Toolset(tools, _active(options, settings, list(tools)))

    def add(self, tools: Mapping[str, Tool], options: AgentOptions) -> None:
        """Tools from elsewhere; they take the place of built-in ones of the same name."""
        self.toolset.replace(dict(tools))
        allowed = list(tools) if options.tools is None else options.tools
        for name in tools:
            if name in allowed and name not in options.exclude_tools and not options.no_tools:
                self.toolset.offer(name)

    def move_to(self, cwd: str) -> Workplace:
        """Work in another folder from here on."""
        self.place = self._place(cwd)
        self.toolset.replace(self._tools())
        return self.place

    def _offer_plan(self) -> None:
        self.toolset.offer("todo")

    def _place(self, cwd: str) -> Workplace:
        settings = self._settings
        around = self._surroundings
        shell = find_shell(
            or_else(settings.shell_path, None),
            around.home,
            around.variables.get("PATH", os.defpath),
            or_else(settings.shell_command_prefix, ""),
        )
        artifacts = Artifacts(self._artifacts, around.temporary)
        return Workplace(cwd, shell, self._environment, artifacts, self._processes)

    def _tools(self) -> dict[str, Tool]:
        return dict(built_in_tools(self.place, self._surroundings.home, resize_images=self._resizes))

    def _resizes(self) -> bool:
        return self._settings.images.auto_resize

    def _artifacts(self) -> str | None:
        session = self._session()
        file = session.journal.file if session is not None and session.journal.saved else None
        return artifact_folder(file) if file else None

    def _environment(self) -> Mapping[str, str]:
        return tool_environment(
            self._surroundings.variables,
            keep_provider_keys=self._settings.keep_provider_keys,
            also_secret=key_variables(),
            session=self._known_to_commands(),
        )

    def _known_to_commands(self) -> dict[str, str]:
        """What a command may know of the session it runs in."""
        session = self._session()
        if session is None:
            return {}
        model = session.models.model
        known = {
            "PI_SESSION_ID": session.journal.session_id,
            "PI_SESSION_FILE": session.journal.file or "",
            "PI_PROVIDER": model.provider if model else "",
            "PI_MODEL": model.id if model else "",
            "PI_REASONING_LEVEL": session.models.level,
        }
        return {name: value for name, value in known.items() if value}


def unknown_tools(options: AgentOptions, toolset: Toolset) -> list[str]:
    """What to say of names that no tool has; those of the host's tools come later and need not be given."""
    known = sorted(tool.spec.name for tool in toolset.every())
    unknown = [name for name in options.tools or () if name not in known]
    return [f'--tools: there is no tool "{name}" (known: {", ".join(known)})' for name in unknown]


def _active(options: AgentOptions, settings: Settings, known: list[str]) -> list[str]:
    if options.no_tools or options.no_builtin_tools:
        return []
    wanted: Iterable[str] = DEFAULT_TOOLS
    if options.tools is not None:
        wanted = options.tools
    elif not isinstance(settings.default_tools, Absent):
        wanted = settings.default_tools
    return [name for name in wanted if name in known and name not in options.exclude_tools]


def ready_for_commands(toolset: Toolset, processes: ProcessOwner) -> None:
    """Start what shell commands need while the model still thinks."""
    if "bash" in toolset.active():
        processes.warm_up()
