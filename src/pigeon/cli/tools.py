"""Which tools a session has, by options and settings, and where their commands run."""

from __future__ import annotations

import os
from collections.abc import Callable

from pigeon.agent.protocols import Tool
from pigeon.cli.args import Options
from pigeon.config.settings import Settings
from pigeon.session.todos import Todos
from pigeon.session.toolset import Toolset
from pigeon.system.artifacts import Artifacts
from pigeon.system.shell import Workplace, find_shell
from pigeon.tools.catalog import DEFAULT_TOOLS, built_in_tools, workplace
from pigeon.tools.todo import TodoTool
from pigeon.wire.base import Absent, or_else


def workplace_of(settings: Settings, cwd: str, artifact_folder: Callable[[], str | None]) -> Workplace:
    """Where shell commands run and keep their output."""
    shell = find_shell(or_else(settings.shell_path, None), or_else(settings.shell_command_prefix, ""))
    return workplace(cwd, shell=shell, environment=lambda: os.environ, artifacts=Artifacts(artifact_folder))


def tools_at(place: Workplace, settings: Settings) -> dict[str, Tool]:
    """The built-in tools for one working directory."""
    return dict(built_in_tools(place, resize_images=lambda: settings.images.auto_resize))


def toolset_of(options: Options, settings: Settings, place: Workplace) -> Toolset:
    """The tools that the options leave."""
    tools = tools_at(place, settings)
    if not (options.no_tools or options.no_builtin_tools):
        tools["todo"] = TodoTool()
    return Toolset(tools, _active(options, settings, list(tools)))


def share_plan(options: Options, toolset: Toolset, todos: Todos) -> None:
    """Let the model see the plan as soon as the host has made one, unless the tools were named."""
    tool = toolset.tool("todo")
    if isinstance(tool, TodoTool):
        tool.plan = todos
        if not options.tools:
            todos.wanted = lambda: toolset.offer("todo")


def _active(options: Options, settings: Settings, known: list[str]) -> list[str]:
    if options.no_tools or options.no_builtin_tools:
        return []
    wanted = list(DEFAULT_TOOLS)
    if options.tools:
        wanted = _names(options.tools)
    elif not isinstance(settings.default_tools, Absent):
        wanted = settings.default_tools
    excluded = _names(options.exclude_tools or "")
    return [name for name in wanted if name in known and name not in excluded]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


async def stop_children() -> None:
    """End every process that a tool started."""
    from pigeon.system import processes

    await processes.kill_everything()
