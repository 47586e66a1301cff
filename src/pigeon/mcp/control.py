"""All tool servers of one agent: which are configured, what the session and its host see of them, how they end.

Files are read after the first answer, or as soon as they are needed; reading them starts nothing. Servers are connected
in the background `START_PAUSE` later, or earlier if something needs them: the first prompt should not compete with ten
starting programs for the processor. At most `MOST_STARTING` start at a time. A project's servers are used only while
the project is trusted.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pigeon.mcp.connector.main import NOT_INSTALLED
from pigeon.mcp.message_completion import MessageCompletion
from pigeon.mcp.named_content import NamedContent
from pigeon.mcp.offered_tools import OfferedTools
from pigeon.mcp.questions import Questions
from pigeon.mcp.server import Record, ToolServer, settle
from pigeon.mcp.server_config import ServerConfig, WrongServer, server_of
from pigeon.mcp.server_files import merged_servers, project_files, read_servers, user_file
from pigeon.mcp.server_tool import ExpectedTool, ServerTool
from pigeon.mcp.tool_names import distinct_names, may_be_of
from pigeon.mcp.variables import Surroundings
from pigeon.session.host.dialogs import Dialogs
from pigeon.session.toolset import Toolset
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.shell import Workplace
from pigeon.wire.base import Json
from pigeon.wire.commands.mcp import McpServers, McpServerState
from pigeon.wire.errors import Refusal, ToolFailed
from pigeon.wire.events import McpServerChanged, Outbound

if TYPE_CHECKING:
    from pigeon.config.credentials import AuthFile
    from pigeon.mcp.connector_process import Connector

STOP_SECONDS = 3.0
START_PAUSE = 0.2
MOST_STARTING = 4
# After this time, a server that is still starting no longer delays the next one.
LONGEST_TURN = 2.0
_KEPT = "mcp:"


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
    auth: AuthFile
    budget: int
    unattended: bool
    only: tuple[str, ...] | None
    version: str
    tell_commands: Callable[[], None]
    on_run: Callable[[Callable[[], None]], None]


class ServerControl:
    """The servers of one agent."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts
        self._questions = Questions(parts.dialogs)
        self._offered = OfferedTools(parts.toolset, parts.workplace, parts.budget, self.begin)
        self._servers: dict[str, ToolServer] = {}
        self._files: list[list[ServerConfig]] = []
        self._host: list[ServerConfig] = []
        self._problems: list[str] = []
        self._answers: dict[str, str] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._reported: set[str] = set()
        self._connector: Connector | None = None
        self.content = NamedContent(lambda: self._servers, parts.workplace)
        self.completion = MessageCompletion(lambda: self._servers)
        self._began = False
        self._beginning: asyncio.TimerHandle | None = None
        self._turns = asyncio.Semaphore(MOST_STARTING)
        self._closed = False
        self._place: tuple[str, bool] | None = None
        self._skips_pause = False
        parts.on_run(self.run_begun)
        parts.toolset.missing.stand_in(self.expected)

    @property
    def processes(self) -> ProcessOwner:
        """Where programs are started."""
        return self._parts.processes

    # Which servers there are

    def read(self, cwd: str, trusted: bool) -> None:
        """Read the servers from the files; those of the project only if it is trusted."""
        self._problems = []
        layers = [read_servers(user_file(self._parts.agent_dir), "user", self._wrong_file)]
        if trusted:
            layers += [read_servers(path, "project", self._wrong_file) for path in project_files(cwd)]
        only = self._parts.only
        self._files = [[one for one in layer if only is None or one.name in only] for layer in layers]
        moved = self._place is not None and self._place[0] != cwd
        self._place = (cwd, trusted)
        self._reconcile(anew=moved)

    def set_by_host(self, servers: dict[str, Json]) -> None:
        """Replace the host's servers."""
        self._host = [server_of(name, value, "host") for name, value in servers.items()]
        self._reconcile()
        self.begin()

    def begin_soon(self) -> None:
        """Connect all servers after a pause, unless that has begun; at once for a host that shows how they come up."""
        if self._skips_pause:
            self.begin()
        elif not self._began and self._beginning is None and not self._closed:
            self._beginning = asyncio.get_running_loop().call_later(START_PAUSE, self.begin)

    def begin(self) -> None:
        """Connect all servers in the background; those that are added later are connected at once."""
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None
        if self._closed:
            return
        self._began = True
        for server in self._servers.values():
            if not server.was_listed and server.status == "connecting":
                server.start(in_turn=True)

    def run_begun(self) -> None:
        """A run begins: connect the remaining servers soon, and keep the tools that the model sees in their places."""
        self._offered.run_begun()
        self.begin_soon()

    def expected(self, tool: str) -> ExpectedTool | None:
        """A tool is called that is not there: one that waits for the server that may have it, if there is such a one.

        That is a server that has not listed its tools; the model knows the name from the conversation before. Raises
        `ToolFailed` if no such server can be connected.
        """
        unlisted = [one for one in self._servers.values() if not one.was_listed and may_be_of(one.config.name, tool)]
        if not unlisted:
            return None
        if not any(one.config.enabled and one.config.problem is None for one in unlisted):
            raise ToolFailed(_uncallable(tool, unlisted))

        async def arrive() -> ServerTool:
            for server in unlisted:
                server.start()
            await settle(unlisted)
            found = self._offered.named(tool)
            if found is None:
                was_listed = any(one.was_listed for one in unlisted)
                raise ToolFailed(f"Tool {tool} not found" if was_listed else _uncallable(tool, unlisted))
            return found

        return ExpectedTool(tool, arrive)

    def _wrong_file(self, text: str) -> None:
        self._problems.append(text)
        self._report(text)

    def _reconcile(self, anew: bool = False) -> None:
        """Create and remove servers to match the configuration; servers whose configuration is unchanged stay."""
        wanted = {config.name: config for config in merged_servers([*self._files, self._host])}
        for name, server in list(self._servers.items()):
            if anew or wanted.get(name) != server.config:
                del self._servers[name]
                self._stop(server)
                if name not in wanted:
                    self._parts.post(McpServerChanged(server=server.state([], 0, []), removed=True))
        ordered: dict[str, ToolServer] = {}
        fresh: list[ToolServer] = []
        for name, config in wanted.items():
            server = self._servers.get(name) or ToolServer(config, self)
            ordered[name] = server
            if name not in self._servers:
                fresh.append(server)
        self._servers = ordered
        self._offered.configured(list(ordered.values()))
        for server in fresh:
            self.changed(server, False)
            if self._began:
                server.start(in_turn=True)

    def _stop(self, server: ToolServer) -> None:
        task = asyncio.ensure_future(server.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def close(self) -> None:
        """Disconnect all servers; their programs get a moment to end on their own."""
        self._closed = True
        if self._beginning is not None:
            self._beginning.cancel()
        for task in self._asking.values():
            task.cancel()
        for server in self._servers.values():
            self._stop(server)
        if self._stopping:
            await asyncio.wait(set(self._stopping), timeout=STOP_SECONDS)
        connector, self._connector = self._connector, None
        if connector is not None:
            await connector.leave(self)

    # What the session and its host see

    def skip_start_pause(self) -> None:
        """End the pause before servers are connected, and have none from now on."""
        self._skips_pause = True
        if self._beginning is not None:
            self.begin()

    def state(self) -> McpServers:
        """The state of all configured servers."""
        return McpServers(
            servers=[self._state(server) for server in self._servers.values()], problems=list(self._problems)
        )

    def connect(self, name: str) -> McpServerState:
        """Reconnect a server now; raises `Refusal`."""
        server = self._servers.get(name)
        if server is None:
            known = ", ".join(self._servers) or "none"
            raise Refusal(f'There is no tool server "{name}" (configured: {known})')
        if server.config.problem is not None or not server.config.enabled:
            raise Refusal(server.error or f'The tool server "{name}" is disabled')
        self._began = True
        fresh = ToolServer(server.config, self)
        self._servers[name] = fresh
        self._stop(server)
        self._reported = {text for text in self._reported if not text.startswith(f"{name}: ")}
        self._offered.configured(list(self._servers.values()))
        fresh.start()
        return self._state(fresh)

    def _state(self, server: ToolServer) -> McpServerState:
        name = server.config.name
        prompts = distinct_names(name, [prompt["name"] for prompt in server.prompts])
        return server.state(self._offered.names(name), self._offered.deferred(name), list(prompts.values()))

    # What servers need

    def connector(self) -> Connector:
        """The process that holds the connections; starts another if it has ended."""
        if self._closed:
            raise WrongServer("the agent ends")
        if self._connector is None or self._connector.over:
            from pigeon.mcp.connector_process import joined_connector

            self._connector = joined_connector(self, self._parts.workplace().environment())
        return self._connector

    async def turn(self, server: ToolServer) -> None:
        """Wait until fewer than `MOST_STARTING` others are starting; the turn ends when this one is settled."""
        await self._turns.acquire()
        task = asyncio.ensure_future(self._end_of_turn(server))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _end_of_turn(self, server: ToolServer) -> None:
        try:
            async with asyncio.timeout(LONGEST_TURN):
                await server.settled()
        except TimeoutError:
            pass
        finally:
            self._turns.release()

    def command_variables(self) -> Mapping[str, str]:
        """The environment variables that commands of the agent see."""
        return self._parts.workplace().environment()

    async def filled_in(self, config: ServerConfig) -> ServerConfig:
        """The server with all variables filled in; their values are masked from now on. Raises `WrongServer`."""
        parts = self._parts
        around = Surroundings(parts.variables, parts.cwd(), parts.home, self._answers, parts.is_secret)
        for id, question in around.questions(config).items():
            unasked = parts.unattended
            answer = question.default if unasked else await self._questions.input(config.name, question)
            if answer is None:
                raise WrongServer(f"the input {id!r} was not answered")
            self._answers[id] = answer
            if not question.choices:
                parts.learn([(f"token {id}", answer)])
        filled = around.filled_in(config)
        parts.learn([(f"header {name}", value) for name, value in filled.headers.items()])
        parts.learn([(name, value) for name, value in filled.env.items()])
        parts.learn([("url", filled.url), ("secret", filled.oauth.client_secret or "")])
        return filled

    def link_config(self, config: ServerConfig, may_ask: bool) -> Record:
        """The server's configuration in the form that the connector expects."""
        parts, oauth = self._parts, config.oauth
        signed = any(name.lower() == "authorization" for name in config.headers)
        kept = self._kept_of(config.url)
        return {
            "transport": config.transport,
            "url": config.url,
            "headers": dict(config.headers),
            "folder": parts.cwd(),
            "startSeconds": config.start_seconds,
            "version": parts.version,
            "interactive": may_ask and not parts.unattended,
            "oauth": None
            if config.transport == "stdio" or signed or not oauth.wanted
            else {
                "client_id": oauth.client_id,
                "client_secret": oauth.client_secret,
                "scope": oauth.scope,
                "port": oauth.port,
                "flow": oauth.flow,
                "client_metadata_url": oauth.client_metadata_url,
                "remote": _is_remote(parts.variables),
                "kept": kept,
            },
        }

    def _kept_of(self, url: str) -> Record:
        """The stored sign-in for an address, from `auth.json`."""
        kept = self._parts.auth.all().get(_KEPT + url) or {}
        self._learn_tokens(kept)
        return {name: value for name, value in kept.items() if name != "type"}

    def _address_of(self, config: ServerConfig) -> str:
        parts = self._parts
        around = Surroundings(parts.variables, parts.cwd(), parts.home, self._answers, parts.is_secret)
        return around.filled_in(config).url

    def kept(self, config: ServerConfig, kept: Record) -> None:
        """Store the result of a sign-in in `auth.json`, for the server's address only."""
        self._learn_tokens(kept)
        problem = self._parts.auth.put(_KEPT + self._address_of(config), {"type": "mcp", **kept})
        if problem is not None:
            self._report(problem)

    def asked(self, server: ToolServer, record: Record) -> None:
        """Handle a question of a server, or withdraw one."""
        id = record["id"]
        if record["event"] == "asked":
            task = self._asking.pop(id, None)
            if task is not None:
                task.cancel()
            return
        task = self._asking[id] = asyncio.ensure_future(self._answer(server, record))
        task.add_done_callback(lambda _: self._asking.pop(id, None))

    async def _answer(self, server: ToolServer, record: Record) -> None:
        value: Any = None
        name = server.config.name
        try:
            if record["kind"] == "kept":
                value = self._kept_of(self._address_of(server.config))
            elif self._parts.unattended:
                value = None
            elif record["kind"] == "sign_in" and "code" in record:
                value = await self._questions.code_entered(name, record["code"], record["url"], record["complete"])
            elif record["kind"] == "sign_in":
                value = await self._questions.sign_in(name, record["url"])
            else:
                value = await self._questions.elicited(name, record)
        finally:
            if self._connector is not None:
                self._connector.answer(record["id"], value)

    def changed(self, server: ToolServer, lists: bool) -> None:
        """Report that the state of a server has changed; with `lists`, also what it offers."""
        if self._servers.get(server.config.name) is not server:
            return
        if lists:
            self._offered.listed(server)
            if server.prompts:
                self._parts.tell_commands()
        self._parts.post(McpServerChanged(server=self._state(server)))
        if server.status in ("failed", "sign_in") and server.error:
            self._report_server(server)

    def _report_server(self, server: ToolServer) -> None:
        text = server.error or ""
        if NOT_INSTALLED in text:
            # The reason is the same for every server, so it is reported once.
            self._report(text[text.index(NOT_INSTALLED) :])
        elif server.status == "sign_in":
            self._report(f"{text}. Sign in with: pigeon mcp test {shlex.quote(server.config.name)}")
        else:
            self._report(f"Tool server {text}")

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._parts.report(text)

    def _learn_tokens(self, kept: Record) -> None:
        tokens, client = kept.get("tokens"), kept.get("client")
        found = [tokens.get("access_token"), tokens.get("refresh_token")] if isinstance(tokens, dict) else []
        found += [client.get("client_secret")] if isinstance(client, dict) else []
        self._parts.learn([("token", value) for value in found if isinstance(value, str)])


def _uncallable(tool: str, servers: list[ToolServer]) -> str:
    """Why a tool cannot be called, by the state of the servers that its name fits: the longest is the likeliest one."""
    return f"{tool} cannot be called: {_hindrance(max(servers, key=lambda one: len(one.config.name)))}"


def _hindrance(server: ToolServer) -> str:
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


def _is_remote(variables: Mapping[str, str]) -> bool:
    """Whether the person's browser probably cannot be redirected to this machine."""
    if any(variables.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT")):
        return True
    return sys.platform == "linux" and not any(variables.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
