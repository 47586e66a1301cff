"""The built-in tools, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from pigeon.system.artifacts import Artifacts
from pigeon.system.shell import Shell, Workplace, find_shell
from pigeon.tools.base import BaseTool
from pigeon.tools.bash import BashTool
from pigeon.tools.edit import EditTool
from pigeon.tools.read import ReadTool
from pigeon.tools.write import WriteTool

DEFAULT_TOOLS = ("read", "bash", "edit", "write")


def workplace(
    cwd: str,
    shell: Shell | None = None,
    environment: Callable[[], Mapping[str, str]] | None = None,
    artifacts: Artifacts | None = None,
) -> Workplace:
    """Where commands run; by default with the shell that is found and our own environment."""
    return Workplace(cwd, shell or find_shell(), environment or (lambda: os.environ), artifacts or Artifacts())


def built_in_tools(place: Workplace, *, resize_images: bool = True) -> dict[str, BaseTool]:
    """All built-in tools for one working directory; which of them are active is decided elsewhere."""
    tools: list[BaseTool] = [
        ReadTool(place.cwd, resize_images),
        BashTool(place),
        EditTool(place.cwd),
        WriteTool(place.cwd),
    ]
    return {tool.name: tool for tool in tools}
