"""The tool servers of an agent for its session: no code is loaded for an agent that has none."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.config.paths import project_dirs
from pigeon.session.dependencies import ServerContent
from pigeon.session.toolset import Toolset
from pigeon.wire.answers import SlashCommand
from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpCompletions, McpResource, McpServers, McpServerState
from pigeon.wire.errors import Refusal

if TYPE_CHECKING:
    from pigeon.mcp.control import ServerControl
    from pigeon.session.host.dialogs import Dialogs
    from pigeon.system.process.start import ProcessOwner
    from pigeon.system.shell.shell import Workplace
    from pigeon.wire.events import Outbound

NOTHING = ServerContent()


class AgentParts(Struct, frozen=True, kw_only=True):
    """The parts of the agent that servers use."""

    agent_dir: str
    variables: Mapping[str, str]
    home: str
    cwd: Callable[[], str]
    processes: ProcessOwner
    toolset: Toolset
    workplace: Callable[[], Workplace]
    dialogs: Dialogs
    post: Callable[[Outbound], None]
    report: Callable[[str], None]
    learn: Callable[[Iterable[tuple[str, str]]], None]
    is_secret: Callable[[str], bool]
    has_provider_key: Callable[[str], bool]
    budget: int
    unattended: bool
    only: tuple[str, ...] | None
    version: str
    on_run: Callable[[Callable[[], None]], None]


class ConfiguredServers:
    """The servers of existing files, and those of the host once it has set some."""

    def __init__(self, parts: AgentParts) -> None:
        self._agent_dir = parts.agent_dir
        self._toolset = parts.toolset
        self._waiting = False
        self._parts = parts
        self._on_commands_changed: Callable[[], None] = lambda: None
        self._control: ServerControl | None = None
        self._place: tuple[str, bool] | None = None
        self._began = False
        self._skips_pause = False

    def skip_startup_delay(self) -> None:
        """Connect servers as soon as there are some, without the pause that leaves a start to other work."""
        self._skips_pause = True
        if self._control is not None:
            self._control.skip_startup_delay()

    def set_commands_listener(self, on_changed: Callable[[], None]) -> None:
        """Call this whenever the servers offer other slash commands than before."""
        self._on_commands_changed = on_changed

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """Switch to the conversation's folder, whose own files are used if it is trusted. They are read on demand, or
        after the first answer."""
        self._place = (cwd, trusted)
        if self._control is not None:
            self._control.load_files(cwd, trusted)
            return
        files = [os.path.join(self._agent_dir, "mcp.json")]
        if trusted:
            files += [os.path.join(folder, "mcp.json") for folder in project_dirs(cwd)]
            files.append(os.path.join(cwd, ".mcp.json"))
        self._waiting = any(map(os.path.lexists, files))
        if self._waiting:
            self._toolset.set_before_use_callback(self._load_control_if_waiting)

    def start_connecting(self) -> None:
        """Connect the configured servers soon; called once the first answer is out."""
        self._began = True
        self._load_control_if_waiting()
        if self._control is not None:
            self._control.connect_soon()

    async def close(self) -> None:
        """Disconnect all servers and end their programs."""
        if self._control is not None:
            await self._control.close()

    def state(self) -> McpServers:
        """The state of all configured servers."""
        self._load_control_if_waiting()
        return McpServers(servers=[], problems=[]) if self._control is None else self._control.state()

    def set_host_servers(self, servers: dict[str, Json]) -> None:
        """Replace the servers that the host has set."""
        if servers or self._control is not None:
            self._ensure_control().set_host_servers(servers)

    def reconnect_server(self, name: str) -> McpServerState:
        """Reconnect a server now; raises `Refusal`."""
        self._load_control_if_waiting()
        if self._control is None:
            raise Refusal(f'There is no tool server "{name}" (configured: none)')
        return self._control.reconnect_server(name)

    def resources(self) -> list[McpResource]:
        """The resources that the servers offer."""
        return [] if self._control is None else self._control.content.resources()

    def list_commands(self) -> list[SlashCommand]:
        """Their prompts, as slash commands."""
        return [] if self._control is None else self._control.content.list_commands()

    def fetch_mentioned_content(self, text: str) -> Awaitable[ServerContent] | ServerContent:
        """The content that a message requests from servers."""
        self._load_control_if_waiting()
        return NOTHING if self._control is None else self._control.content.fetch_mentioned_content(text)

    async def complete_message(self, text: str) -> McpCompletions:
        """Completions for the end of a message."""
        self._load_control_if_waiting()
        if self._control is None:
            return McpCompletions(replaces="", completions=[])
        if self._began:
            self._control.connect_all()
        return await self._control.completion.complete_message(text)

    def _load_control_if_waiting(self) -> None:
        if self._waiting:
            self._ensure_control()

    def _ensure_control(self) -> ServerControl:
        if self._control is None:
            from pigeon.mcp.control import ServerControl

            self._waiting = False
            self._control = ServerControl(self._parts, self._on_commands_changed)
            if self._skips_pause:
                self._control.skip_startup_delay()
            if self._place is not None:
                self._control.load_files(*self._place)
            if self._began:
                self._control.connect_soon()
        return self._control
