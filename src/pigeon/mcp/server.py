"""One tool server from the agent's side: start, connection, calls, restarts, end.

    status       what happens                                                next status
    ----------   ---------------------------------------------------------   ------------------------------------
    connecting   its lists have come                                         connected
    connecting   it cannot be connected                                      failed, or sign_in for want of a person
    connected    it is lost                                                  connecting, after a pause
    failed       a call, `connect_mcp_server`, a change of the file          connecting

A server that keeps failing is not restarted after `MOST_RESTARTS`; the next call tries once more. Its tools stay in
place meanwhile, so that the prompt does not change with each failure.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from pigeon.mcp.connector.records import (
    CallFailed,
    CallProgress,
    FromCall,
    FromServer,
    OfferedPrompt,
    OfferedResource,
    OfferedTool,
    QuestionAsked,
    QuestionWithdrawn,
    ServerFailed,
    ServerListed,
    ServerOpened,
    ServerRequest,
    ServerResult,
    SignInChanged,
)
from pigeon.mcp.server_config import ServerConfig, WrongServer
from pigeon.system.process.start import Process, ProcessOwner, Streams
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.wire.base import ABSENT
from pigeon.wire.commands.mcp import McpResource, McpServerState, McpStatus, McpStep
from pigeon.wire.errors import ToolFailed

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ToolRun
    from pigeon.mcp.connector_process import Connector
    from pigeon.mcp.server_settings import ServerSettings

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
MOST_RESTARTS = 5
# A server that has worked for this long starts counting restarts from zero.
STEADY_SECONDS = 60.0
END_SECONDS = 1.0
KILL_SECONDS = 1.0
EXIT_SECONDS = 0.5
# How long the model's calls wait for servers that are being connected.
WAIT_SECONDS = 15.0
# The most characters of a server's stderr that are shown.
LONGEST_WORDS = 1_000
# Variables that a program needs to run and that cannot be secret: those that official clients pass, and those for
# language, certificates, proxies and folders.
_INHERITED = (
    "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HTTP_PROXY",
    "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE",
)  # fmt: skip


class ServerSurroundings(Protocol):
    """What all servers of an agent share; implemented by `mcp/control.py`."""

    @property
    def processes(self) -> ProcessOwner:
        """The owner of the programs that are started for servers."""
        ...

    def ensure_connector(self) -> Connector:
        """The process that holds the connections."""
        ...

    async def wait_for_turn(self, server: ToolServer) -> None:
        """Wait until few enough others are starting."""
        ...

    def command_variables(self) -> ProgramEnvironment:
        """The environment variables that commands of the agent see."""
        ...

    @property
    def settings(self) -> ServerSettings:
        """Completes the configuration of servers, and stores their sign-ins."""
        ...

    def on_question(self, server: ToolServer, record: QuestionAsked | QuestionWithdrawn) -> None:
        """Answer a question of a server in the background, or withdraw one."""
        ...

    def on_server_changed(self, server: ToolServer, lists: bool) -> None:
        """Report that the state of a server has changed, and with `lists` what it offers."""
        ...


class _Connection:
    """One connection to a server: its key at the connector, the data received through it, and its program if it has
    one."""

    def __init__(self, connector: Connector, process: Process | None) -> None:
        self.connector = connector
        self.process = process
        self.key = str(connector.assign_number())
        self.events: asyncio.Queue[FromServer] = asyncio.Queue()


class ToolServer:
    """One configured server: its status, its lists, and the requests to it."""

    def __init__(self, config: ServerConfig, surroundings: ServerSurroundings) -> None:
        self.config = config
        self._around = surroundings
        self.status: McpStatus = "connecting" if config.enabled else "disabled"
        self.error: str | None = None
        self.step: McpStep | None = None
        self._info = ServerOpened(server="")
        self._offers: ServerListed | None = None
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()
        self._down = asyncio.Event()
        self._needed = asyncio.Event()
        self._restarts = 0
        self._closed = False
        if config.problem is not None:
            self.step = "configuration"
            self._set_status("failed", f"{config.name} {config.problem}")

    @property
    def was_listed(self) -> bool:
        """Whether the server has ever listed what it offers."""
        return self._offers is not None

    @property
    def tools(self) -> list[OfferedTool]:
        return (None if self._offers is None else self._offers.tools) or []

    @property
    def prompts(self) -> list[OfferedPrompt]:
        return (None if self._offers is None else self._offers.prompts) or []

    @property
    def resources(self) -> list[OfferedResource]:
        return (None if self._offers is None else self._offers.resources) or []

    def start(self, may_ask: bool = True, in_turn: bool = False) -> None:
        """Connect in the background, unless that has begun or is impossible; `in_turn` waits for other starts."""
        if not in_turn:
            self._needed.set()
        if self._closed or not self.config.enabled or self.config.problem is not None or self._task is not None:
            return
        self._set_status("connecting")
        self._settled.clear()
        self._task = asyncio.ensure_future(self._keep_connected(may_ask))
        self._task.add_done_callback(self._on_task_done)

    async def stop(self) -> None:
        """Disconnect for good; the program gets a moment to end on its own."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        if self._ending:
            await asyncio.wait(set(self._ending))
        self._settled.set()

    async def wait_until_settled(self) -> None:
        """Wait until it is connected, or has failed."""
        await self._settled.wait()

    def make_state_record(self, names: list[str], deferred: int, prompts: list[str]) -> McpServerState:
        """The state of the server as hosts see it."""
        config, info = self.config, self._info
        return McpServerState(
            name=config.name,
            source=config.source,
            file=config.file or ABSENT,
            transport=info.transport or config.transport or ABSENT,
            status=self.status,
            error=self.error or ABSENT,
            step=self.step or ABSENT,
            tools=names,
            deferred=deferred,
            prompts=prompts,
            resources=len(self.resources),
            server_name=info.name or ABSENT,
            server_version=info.version or ABSENT,
            protocol_version=info.protocol or ABSENT,
        )

    def list_resources(self) -> list[McpResource]:
        """The resources that it offers."""
        return [
            McpResource(
                server=self.config.name,
                uri=one.uri,
                name=one.name,
                description=one.description or ABSENT,
                mime_type=one.mime_type or ABSENT,
                template=one.is_template,
            )
            for one in self.resources
        ]

    @property
    def can_complete(self) -> bool:
        """Whether the server supports completion."""
        return "completions" in self._info.offers

    @property
    def instructions(self) -> str:
        """What the server states about all of its tools."""
        return self._info.instructions

    # Calls

    async def wait_until_connected(
        self, may_ask: bool = False, wait: Callable[[Awaitable[Any]], Awaitable[Any]] | None = None
    ) -> None:
        """Wait until it is connected; raises `ToolFailed` if it cannot be."""
        if self.status != "connected":
            self.start(may_ask=may_ask)
            while self.status == "connecting":
                await (wait or _plain_wait)(self.wait_until_settled())
        if self.status != "connected":
            raise ToolFailed(f"The tool server {self.config.name} is not connected: {self.error or self.status}")

    async def send_request(
        self,
        request: ServerRequest,
        run: ToolRun | None = None,
        progress: Callable[[str], Awaitable[None]] | None = None,
        seconds: float | None = None,
    ) -> ServerResult:
        """The server's answer, within its configured time or `seconds`; reconnects if necessary.

        Raises `ToolFailed`, and `Aborted` if the run is aborted.
        """
        wait = _plain_wait if run is None else run.scope.wait
        seconds = self.config.call_seconds if seconds is None else seconds
        answer = await self._send_once(request, seconds, run is not None, wait, progress)
        if isinstance(answer, CallFailed) and answer.is_unsent:
            # The connection was lost before the server got the call, so it is sent again after reconnecting.
            await wait(self._down.wait())
            answer = await self._send_once(request, seconds, run is not None, wait, progress)
        if isinstance(answer, CallFailed):
            raise ToolFailed(f"The tool server {self.config.name} has failed: {answer.text}")
        return answer

    async def _send_once(
        self,
        request: ServerRequest,
        seconds: float,
        may_ask: bool,
        wait: Callable[[Awaitable[Any]], Awaitable[Any]],
        progress: Callable[[str], Awaitable[None]] | None,
    ) -> ServerResult | CallFailed:
        await self.wait_until_connected(may_ask, wait)
        connection = self._connection
        if connection is None:
            raise ToolFailed(f"The tool server {self.config.name} is not connected")
        answers: asyncio.Queue[FromCall] = asyncio.Queue()
        connector, key = connection.connector, connection.key
        id = connector.send_request(key, request, seconds, answers.put_nowait)
        try:
            while True:
                answer: FromCall = await wait(answers.get())
                if isinstance(answer, CallFailed):
                    return answer
                if not isinstance(answer, CallProgress):
                    return answer.result
                if progress is not None:
                    await progress(answer.text)
        finally:
            connector.cancel_request(id, key)

    # Connecting

    async def _keep_connected(self, may_ask: bool) -> None:
        loop = asyncio.get_running_loop()
        await self._wait_for_turn()
        while True:
            began = loop.time()
            was_connected = await self._connect_and_hold(may_ask)
            if was_connected and loop.time() - began > STEADY_SECONDS:
                self._restarts = 0
            again = was_connected or (self.status == "failed" and self.config.transport != "stdio" and self.was_listed)
            if not again or self._restarts >= MOST_RESTARTS:
                return
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._restarts)
            self._restarts += 1
            if self._settled.is_set():
                self._settled.clear()
            self._set_status("connecting", f"{self.error}; it is connected again in {pause:g} s")
            await asyncio.sleep(pause)
            may_ask = False

    async def _wait_for_turn(self) -> None:
        waiting = [asyncio.ensure_future(self._needed.wait()), asyncio.ensure_future(self._around.wait_for_turn(self))]
        try:
            if not self._needed.is_set():
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _connect_and_hold(self, may_ask: bool) -> bool:
        """Connect and wait until the connection is lost; returns True if it had been established."""
        connected = False
        try:
            connection = await self._open_connection(may_ask)
            while True:
                record = await connection.events.get()
                if isinstance(record, ServerOpened):
                    self._info = record
                elif isinstance(record, ServerListed):
                    connected = True
                    self._update_lists(record)
                elif isinstance(record, ServerFailed):
                    await self._record_failure(record, connection.process)
                    return connected
        except WrongServer as wrong:
            self.step = "configuration"
            self._set_status("failed", f"{self.config.name}: {wrong}")
            return False
        except OSError as error:
            self.step = "start"
            self._set_status("failed", _start_failure_text(self.config, error))
            return False
        finally:
            self._close_connection()

    async def _open_connection(self, may_ask: bool) -> _Connection:
        self.step = "start"
        config = await self._around.settings.fill_in_config(self.config)
        connector = self._around.ensure_connector()
        await connector.wait_until_started()
        started = await self._start_program(config) if config.transport == "stdio" else None
        process, pipes = (None, None) if started is None else started
        connection = self._connection = _Connection(connector, process)
        connector.open_server(
            connection.key, self._around.settings.make_link_config(config, may_ask), pipes, self._on_record
        )
        return connection

    async def _start_program(self, config: ServerConfig) -> tuple[Process, tuple[int, int, int]]:
        """Start the server's program; returns it with our ends of its stdin, stdout and stderr."""
        environment = self._make_environment(config)
        cwd = config.cwd or "/"
        from pigeon.system.process.run_program import find_program

        program = find_program(config.command, cwd, environment)
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe()
        ours = (ours_in, ours_out, ours_err)
        try:
            process = await self._around.processes.start(
                [config.command, *config.args],
                cwd=cwd,
                environment=environment,
                program=program,
                streams=Streams(theirs_in, theirs_out, theirs_err),
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        return process, ours

    def _make_environment(self, config: ServerConfig) -> ProgramEnvironment:
        seen = self._around.command_variables()
        return (seen if config.inherit_env else seen.only(_INHERITED)).with_added(config.env)

    def _on_record(self, record: FromServer | QuestionAsked | QuestionWithdrawn) -> None:
        if isinstance(record, QuestionAsked | QuestionWithdrawn):
            self._around.on_question(self, record)
        elif isinstance(record, SignInChanged):
            self._around.settings.store_sign_in(self.config, record.stored)
        elif self._connection is not None:
            self._connection.events.put_nowait(record)

    def _update_lists(self, record: ServerListed) -> None:
        before = self._offers
        self._offers = ServerListed(
            server=self.config.name,
            tools=self.tools if record.tools is None else record.tools,
            prompts=self.prompts if record.prompts is None else record.prompts,
            resources=self.resources if record.resources is None else record.resources,
        )
        changed = before != self._offers
        self.step = "connected"
        if record.notes is not None:
            notes: str | None = "; ".join(record.notes)
        else:
            notes = self.error if self.status == "connected" else None
        self._set_status("connected", notes or None, lists=changed)
        self._settled.set()

    async def _record_failure(self, record: ServerFailed, process: Process | None) -> None:
        """Record the failure, including the program's stderr and exit code."""
        self.step = record.step
        said = [record.text]
        if process is not None and record.is_lost:
            try:
                async with asyncio.timeout(EXIT_SECONDS):
                    code = await process.wait()
                said.append(f"its program ended with exit code {code}")
            except TimeoutError:
                pass
            except OSError as error:
                self.step = "start"
                self._set_status("failed", _start_failure_text(self.config, error))
                return
        words = record.stderr[-LONGEST_WORDS:].strip()
        if words:
            said.append(f"it wrote: {words}")
        self._set_status("sign_in" if record.needs_sign_in else "failed", f"{self.config.name}: " + "; ".join(said))

    def _close_connection(self) -> None:
        """Close the connection, and end the program if it does not end on its own."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.connector.close_server(connection.key)
        if connection.process is not None:
            task = asyncio.ensure_future(_end_program(connection.process))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._set_status("failed", f"{self.config.name}: {task.exception()}")
        if not task.cancelled():
            self._settled.set()

    def _set_status(self, status: McpStatus, error: str | None = None, *, lists: bool = False) -> None:
        if (status, error) != (self.status, self.error) or lists:
            self.status, self.error = status, error
            if status == "connected":
                self._down.clear()
            else:
                self._down.set()
            if self.status in ("failed", "sign_in"):
                self._settled.set()
            self._around.on_server_changed(self, lists)


async def wait_for_servers(servers: Iterable[ToolServer]) -> None:
    """Wait until none of the servers is connecting, for at most as long as a call of the model may wait."""
    waiting = [asyncio.ensure_future(one.wait_until_settled()) for one in servers if one.status == "connecting"]
    if waiting:
        try:
            await asyncio.wait(waiting, timeout=WAIT_SECONDS)
        finally:
            for task in waiting:
                task.cancel()


async def _end_program(process: Process) -> None:
    """End a program whose stdin was closed: SIGTERM if it continues, then SIGKILL for it and everything it started."""
    for end, seconds in ((process.terminate, END_SECONDS), (lambda: process.kill(keep_helper=True), KILL_SECONDS)):
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
            break
        except TimeoutError:
            end()
        except OSError:
            break
    process.kill(keep_helper=True)
    process.close()
    await process.wait_until_gone(KILL_SECONDS)


def _start_failure_text(config: ServerConfig, error: OSError) -> str:
    if config.cwd is not None and not os.path.isdir(config.cwd):
        return f"{config.name}: its folder {config.cwd} does not exist"
    program, blank, _ = config.command.partition(" ")
    if isinstance(error, FileNotFoundError) and blank:
        # What follows the name may be a key.
        return f'{config.name}: no program is called "{program} …". Put what follows {program!r} into "args"'
    if isinstance(error, FileNotFoundError):
        return f"{config.name}: the program {config.command!r} was not found. Install it, or name it with its full path"
    return f"{config.name}: the program {config.command!r} cannot be started: {error.strerror or error}"


async def _plain_wait(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
