"""The built-in tools, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Shell, Workplace, find_shell
from pigeon.tools.base import BaseTool
from pigeon.tools.bash import BashTool
from pigeon.tools.edit import EditTool
from pigeon.tools.find import FindTool
from pigeon.tools.grep import GrepTool
from pigeon.tools.ls import LsTool
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


def built_in_tools(
    place: Workplace,
    *,
    resize_images: Callable[[], bool] = lambda: True,
    sees_images: Callable[[], bool] = lambda: True,
) -> dict[str, BaseTool]:
    """All built-in tools for one working directory; which of them are active is decided elsewhere.

    `resize_images` and `sees_images` (does the current model take images) are asked anew for each image.
    """
    tools: list[BaseTool] = [
        ReadTool(place.cwd, resize_images, sees_images),
        BashTool(place),
        EditTool(place.cwd),
        WriteTool(place.cwd),
        GrepTool(place.cwd),
        FindTool(place.cwd),
        LsTool(place.cwd),
    ]
    return {tool.name: tool for tool in tools}
