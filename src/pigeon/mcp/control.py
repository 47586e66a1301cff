"""All tool servers of one agent: which are configured, their state for the session and its host, how they end.

Files are read after the first answer, or as soon as they are needed; reading them starts nothing. Servers are connected
in the background after a pause, or earlier if something needs them: the first prompt should not compete with ten
starting programs for the processor. A project's servers are used only while the project is trusted.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from pigeon.mcp.connector.records import Answer, QuestionAsked, QuestionWithdrawn
from pigeon.mcp.message_completion import MessageCompletion
from pigeon.mcp.named_content import NamedContent
from pigeon.mcp.offered_tools import OfferedTools
from pigeon.mcp.open_questions import OpenQuestions
from pigeon.mcp.problem_reports import ProblemReports
from pigeon.mcp.questions import Questions
from pigeon.mcp.server import ToolServer, wait_for_servers
from pigeon.mcp.server_config import WrongServer
from pigeon.mcp.server_files import ServerLayers
from pigeon.mcp.server_settings import ServerSettings
from pigeon.mcp.server_tool import ExpectedTool, ServerTool
from pigeon.mcp.start_schedule import StartSchedule
from pigeon.mcp.tool_names import can_belong_to, make_distinct_names
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpServers, McpServerState
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import McpServerChanged

if TYPE_CHECKING:
    from pigeon.mcp.configured_servers import AgentParts
    from pigeon.mcp.connector_process import Connector

STOP_SECONDS = 3.0


class ServerControl:
    """All tool servers of one agent, and what they share."""

    def __init__(self, parts: AgentParts, on_commands_changed: Callable[[], None]) -> None:
        self._parts = parts
        self._on_commands_changed = on_commands_changed
        self._reports = ProblemReports(parts.report)
        questions = Questions(parts.dialogs)
        self.settings = ServerSettings(parts, questions, self._reports.report_once)
        self._open_questions = OpenQuestions(questions, self.settings, parts.unattended, self._send_answer)
        self._layers = ServerLayers(parts.agent_dir, parts.only, self._reports.report_once)
        self._schedule = StartSchedule(self.connect_all)
        self._offered = OfferedTools(parts.toolset, parts.workplace, parts.budget, self.connect_all)
        self._servers: dict[str, ToolServer] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._connector: Connector | None = None
        self.content = NamedContent(lambda: self._servers, parts.workplace)
        self.completion = MessageCompletion(lambda: self._servers)
        self._closed = False
        parts.on_run(self.on_run_start)
        parts.toolset.missing.set_stand_in(self.find_expected_tool)

    @property
    def processes(self) -> ProcessOwner:
        """The owner of the programs that are started for servers."""
        return self._parts.processes

    # Configuration

    def load_files(self, cwd: str, trusted: bool) -> None:
        """Loads the servers from the files, those of the project only if it is trusted, and adds and removes servers
        to match.
        """
        moved = self._layers.read_files(cwd, trusted)
        self._reconcile(anew=moved)

    def set_host_servers(self, servers: dict[str, Json]) -> None:
        """Replace the servers that the host has set."""
        self._layers.set_host_servers(servers)
        self._reconcile()
        self.connect_all()

    def connect_soon(self) -> None:
        """Connect all servers after a pause, unless that has begun; at once for a host that shows their progress."""
        if not self._closed:
            self._schedule.schedule_connecting()

    def connect_all(self) -> None:
        """Connect all servers in the background; those that are added later are connected at once."""
        if self._closed:
            return
        self._schedule.end_pause_and_mark_begun()
        for server in self._servers.values():
            if not server.was_listed and server.status == "connecting":
                server.start(in_turn=True)

    def on_run_start(self) -> None:
        """Called when a run begins: connect the remaining servers soon, and keep the tools that the model sees in their
        places."""
        self._offered.on_run_start()
        self.connect_soon()

    def find_expected_tool(self, tool: str) -> ExpectedTool | None:
        """A stand-in for a tool that is called but missing; it waits for the server that may have it. None if there is
        no such server.

        That is a server that has not listed its tools; the model knows the name from earlier in the conversation.
        Raises `ToolFailed` if no such server can be connected.
        """
        unlisted = [
            one for one in self._servers.values() if not one.was_listed and can_belong_to(one.config.name, tool)
        ]
        if not unlisted:
            return None
        if not any(one.config.enabled and one.config.problem is None for one in unlisted):
            raise ToolFailed(_uncallable_text(tool, unlisted))

        async def connect_and_find_tool() -> ServerTool:
            for server in unlisted:
                server.start()
            await wait_for_servers(unlisted)
            found = self._offered.find_tool(tool)
            if found is None:
                was_listed = any(one.was_listed for one in unlisted)
                raise ToolFailed(f"Tool {tool} not found" if was_listed else _uncallable_text(tool, unlisted))
            return found

        return ExpectedTool(tool, connect_and_find_tool)

    def _reconcile(self, anew: bool = False) -> None:
        """Create and remove servers to match the configuration; servers whose configuration is unchanged stay."""
        wanted = {config.name: config for config in self._layers.merged_servers()}
        for name, server in list(self._servers.items()):
            if anew or wanted.get(name) != server.config:
                del self._servers[name]
                self._stop_in_background(server)
                if name not in wanted:
                    self._parts.post(McpServerChanged(server=server.make_state_record([], 0, []), removed=True))
        ordered: dict[str, ToolServer] = {}
        fresh: list[ToolServer] = []
        for name, config in wanted.items():
            server = self._servers.get(name) or ToolServer(config, self)
            ordered[name] = server
            if name not in self._servers:
                fresh.append(server)
        self._servers = ordered
        self._offered.set_servers(list(ordered.values()))
        for server in fresh:
            self.on_server_changed(server, False)
            if self._schedule.has_begun:
                server.start(in_turn=True)

    def _stop_in_background(self, server: ToolServer) -> None:
        self._run_in_background(server.stop())

    def _run_in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run work in the background; `close` waits for it."""
        task = asyncio.ensure_future(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def close(self) -> None:
        """Disconnect all servers; their programs get a moment to end on their own."""
        self._closed = True
        self._schedule.end_pause()
        self._open_questions.cancel_all()
        for server in self._servers.values():
            self._stop_in_background(server)
        if self._stopping:
            await asyncio.wait(set(self._stopping), timeout=STOP_SECONDS)
        connector, self._connector = self._connector, None
        if connector is not None:
            await connector.leave(self)
        await self.settings.finish_saving(STOP_SECONDS)

    # State for the session and its host

    def skip_startup_delay(self) -> None:
        """End the pause before servers are connected, and have none from now on."""
        self._schedule.skip_startup_delay()

    def state(self) -> McpServers:
        """The state of all configured servers."""
        return McpServers(
            servers=[self._state_of_server(server) for server in self._servers.values()],
            problems=list(self._layers.problems),
        )

    def reconnect_server(self, name: str) -> McpServerState:
        """Reconnect a server now; raises `Refusal`."""
        server = self._servers.get(name)
        if server is None:
            known = ", ".join(self._servers) or "none"
            raise Refusal(f'There is no tool server "{name}" (configured: {known})')
        if server.config.problem is not None or not server.config.enabled:
            raise Refusal(server.error or f'The tool server "{name}" is disabled')
        self._schedule.mark_begun()
        fresh = ToolServer(server.config, self)
        self._servers[name] = fresh
        self._stop_in_background(server)
        self._reports.forget_server(name)
        self._offered.set_servers(list(self._servers.values()))
        fresh.start()
        return self._state_of_server(fresh)

    def _state_of_server(self, server: ToolServer) -> McpServerState:
        name = server.config.name
        prompts = make_distinct_names(name, [prompt.name for prompt in server.prompts])
        return server.make_state_record(
            self._offered.list_callable_names(name), self._offered.count_deferred(name), list(prompts.values())
        )

    # Services for servers

    def ensure_connector(self) -> Connector:
        """The process that holds the connections; starts another if it has ended."""
        if self._closed:
            raise WrongServer("the agent ends")
        if self._connector is None or self._connector.over:
            from pigeon.mcp.connector_process import join_connector

            self._connector = join_connector(self, self._parts.workplace().environment())
        return self._connector

    async def wait_for_turn(self, server: ToolServer) -> None:
        """Wait until few enough others are starting; the turn ends when this one is settled."""
        await self._schedule.wait_for_turn()
        self._run_in_background(self._schedule.release_turn_when_settled(server))

    def command_variables(self) -> ProgramEnvironment:
        """The environment variables that commands of the agent see."""
        return self._parts.workplace().environment()

    def on_question(self, server: ToolServer, record: QuestionAsked | QuestionWithdrawn) -> None:
        """Answer a question of a server in the background, or withdraw one."""
        self._open_questions.on_record(server.config, record)

    def _send_answer(self, id: int, answer: Answer) -> None:
        if self._connector is not None:
            self._connector.send_answer(id, answer)

    def on_server_changed(self, server: ToolServer, lists: bool) -> None:
        """Report that the state of a server has changed, and with `lists` what it offers."""
        if self._servers.get(server.config.name) is not server:
            return
        if lists:
            self._offered.update_tools(server)
            if server.prompts:
                self._on_commands_changed()
        self._parts.post(McpServerChanged(server=self._state_of_server(server)))
        if server.status in ("failed", "sign_in") and server.error:
            self._reports.report_server(server)


def _uncallable_text(tool: str, servers: list[ToolServer]) -> str:
    """Why a tool cannot be called, by the state of the servers that match its name: the longest match is the
    likeliest."""
    return f"{tool} cannot be called: {_unusable_server_text(max(servers, key=lambda one: len(one.config.name)))}"


def _unusable_server_text(server: ToolServer) -> str:
    """Why a server cannot be used, and what to do about it."""
    name = server.config.name
    if server.status == "connecting":
        return f"the tool server {name} is still being connected. Continue with other work and try again later"
    if server.status == "disabled":
        return f"the tool server {name} is disabled. Continue without it, or ask the user to enable it"
    test = f"`pigeon mcp test {shlex.quote(name)}`"
    if server.status == "sign_in":
        return (
            f"the tool server {name} requires the user to sign in. Continue without it, or ask the user to run {test}"
        )
    return (
        f"the tool server {name} is not connected ({server.error or server.status}). Continue without it, or ask the "
        f"user to check it with {test}"
    )
