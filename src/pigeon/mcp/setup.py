"""The tool servers of an agent, as the session has them: nothing is loaded for an agent that has none."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pigeon.config.paths import project_dirs
from pigeon.session.dependencies import ServerContent
from pigeon.session.toolset import Toolset
from pigeon.wire.answers import SlashCommand
from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpCompletions, McpResource, McpServers, McpServerState
from pigeon.wire.errors import Refusal

if TYPE_CHECKING:
    from pigeon.mcp.control import AgentParts, ServerControl

NOTHING = ServerContent()


class ToolServerSetup:
    """The servers of files that there are, and of the host once it has set some. `parts` is asked for when needed."""

    def __init__(self, agent_dir: str, toolset: Toolset, parts: Callable[[], AgentParts]) -> None:
        self._agent_dir = agent_dir
        self._toolset = toolset
        self._waiting = False
        self._parts = parts
        self._control: ServerControl | None = None
        self._place: tuple[str, bool] | None = None
        self._began = False
        self._skips_pause = False

    def skip_start_pause(self) -> None:
        """Connect servers as soon as there are some, without the pause that leaves a start to other work."""
        self._skips_pause = True
        if self._control is not None:
            self._control.skip_start_pause()

    def read(self, cwd: str, trusted: bool) -> None:
        """The conversation is in this folder; its own files count if it is trusted. They are read when there is need,
        or after the first answer."""
        self._place = (cwd, trusted)
        if self._control is not None:
            self._control.read(cwd, trusted)
            return
        files = [os.path.join(self._agent_dir, "mcp.json")]
        if trusted:
            files += [os.path.join(folder, "mcp.json") for folder in project_dirs(cwd)]
            files.append(os.path.join(cwd, ".mcp.json"))
        self._waiting = any(map(os.path.lexists, files))
        if self._waiting:
            self._toolset.before_use(self._load_waiting)

    def begin(self) -> None:
        """The first answer is out: connect what is configured, soon."""
        self._began = True
        self._load_waiting()
        if self._control is not None:
            self._control.begin_soon()

    async def close(self) -> None:
        """End them all."""
        if self._control is not None:
            await self._control.close()

    def state(self) -> McpServers:
        """All that are configured."""
        self._load_waiting()
        return McpServers(servers=[], problems=[]) if self._control is None else self._control.state()

    def set_by_host(self, servers: dict[str, Json]) -> None:
        """Replace those of the host."""
        if servers or self._control is not None:
            self._loaded().set_by_host(servers)

    def connect(self, name: str) -> McpServerState:
        """Connect one again, now; raises `Refusal`."""
        self._load_waiting()
        if self._control is None:
            raise Refusal(f'There is no tool server "{name}" (configured: none)')
        return self._control.connect(name)

    def resources(self) -> list[McpResource]:
        """What they offer to be read."""
        return [] if self._control is None else self._control.content.resources()

    def commands(self) -> list[SlashCommand]:
        """Their prompts, as slash commands."""
        return [] if self._control is None else self._control.content.commands()

    def content_of(self, text: str) -> Awaitable[ServerContent] | ServerContent:
        """What a message asks of them."""
        self._load_waiting()
        return NOTHING if self._control is None else self._control.content.content_of(text)

    async def completions(self, text: str) -> McpCompletions:
        """What could stand at the end of a message."""
        self._load_waiting()
        if self._control is None:
            return McpCompletions(replaces="", completions=[])
        if self._began:
            self._control.begin()
        return await self._control.completion.completions(text)

    def _load_waiting(self) -> None:
        if self._waiting:
            self._loaded()

    def _loaded(self) -> ServerControl:
        if self._control is None:
            from pigeon.mcp.control import ServerControl

            self._waiting = False
            self._control = ServerControl(self._parts())
            if self._skips_pause:
                self._control.skip_start_pause()
            if self._place is not None:
                self._control.read(*self._place)
            if self._began:
                self._control.begin_soon()
        return self._control
