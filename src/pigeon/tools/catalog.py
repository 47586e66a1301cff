"""The built-in tools, by name. `tools/agent_tools.py` makes them for a working directory, and for each new one."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.agent.interfaces import NO_HOST, HostAccess
from pigeon.system.paths import PathResolver
from pigeon.system.shell.shell import Workplace
from pigeon.tools.base import BaseTool
from pigeon.tools.bash import bash_tool
from pigeon.tools.edit import EditTool
from pigeon.tools.file_access import FileAccess
from pigeon.tools.find import FindTool
from pigeon.tools.grep import GrepTool
from pigeon.tools.images.fitting import ImageFitter
from pigeon.tools.ls import LsTool
from pigeon.tools.read import ReadTool
from pigeon.tools.searching.ripgrep import Ripgrep
from pigeon.tools.write import WriteTool

DEFAULT_TOOLS = ("read", "bash", "edit", "write")


def built_in_tools(
    place: Workplace,
    home: str,
    *,
    fitter: ImageFitter,
    resize_images: Callable[[], bool] = lambda: True,
    sees_images: Callable[[], bool] = lambda: True,
    declared: bool = False,
    host: HostAccess = NO_HOST,
) -> dict[str, BaseTool]:
    """All built-in tools but `todo` for one working directory; the toolset of the session says which are active.

    `fitter` decodes images. `resize_images` and `sees_images` (does the current model take images) are asked anew for
    each image. With `declared` the model may say of a command that it is independent. `host` may have taken over files
    and commands.
    """
    paths = PathResolver(place.cwd, home) if place.sandbox() is None else _walled(place, home)
    files = FileAccess(host)
    search = Ripgrep(place.processes, place.environment, home)
    tools: list[BaseTool] = [
        ReadTool(paths, fitter, resize_images, sees_images, files),
        bash_tool(place, declared, host),
        EditTool(paths, files),
        WriteTool(paths, files),
        GrepTool(paths, search),
        FindTool(paths, search),
        LsTool(paths),
    ]
    return {tool.name: tool for tool in tools}


def _walled(place: Workplace, home: str) -> PathResolver:
    from pigeon.sandbox.file_access import WalledPaths

    return WalledPaths(place.cwd, home, place.sandbox)
