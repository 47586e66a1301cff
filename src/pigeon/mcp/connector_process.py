"""The agent's end of the process that holds connections to tool servers; the other end is `connector/main.py`.

It is a separate process because importing the package takes most of a second, and parsing what servers send may take
any time: neither may delay the event loop or its threads. Each event loop has one, shared by the agents on it like the
pool of helpers (`system/process/pool.py`); it starts with the first server and ends with its last user.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from pigeon.mcp.connector.records import (
    LONGEST_RECORD,
    Answer,
    AnswerQuestion,
    AskServer,
    CallFailed,
    CallProgress,
    CancelCall,
    CloseServer,
    ConnectorReady,
    ConnectorUnusable,
    FromCall,
    FromConnector,
    FromServer,
    LinkConfig,
    OpenServer,
    QuestionAsked,
    QuestionWithdrawn,
    ServerFailed,
    ServerRequest,
    ToConnector,
    decode_for_agent,
    encode_line,
)
from pigeon.system.process.python_programs import make_python_command
from pigeon.system.process.start import Process, ProcessOwner, Streams
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.wire.errors import BadRecord

ServerListener = Callable[[FromServer | QuestionAsked | QuestionWithdrawn], None]
CallListener = Callable[[FromCall], None]
_connectors: dict[asyncio.AbstractEventLoop, Connector] = {}


def make_connector_command() -> list[str]:
    # It lowers its priority before it imports anything, so that it never delays the agent.
    return make_python_command("pigeon.mcp.connector.main", first="import os; os.nice(5); ")


def join_connector(user: object, environment: ProgramEnvironment) -> Connector:
    """Returns the connector of the running loop; `user` holds it until it calls `leave`."""
    loop = asyncio.get_running_loop()
    connector = _connectors.get(loop)
    if connector is None or connector.over:
        for closed in [other for other in _connectors if other.is_closed()]:
            _connectors.pop(closed).abandon()
        connector = _connectors[loop] = Connector(environment)
    connector.join(user)
    return connector


class Connector:
    """One connector process. If it ends, its users are told, and join another."""

    def __init__(self, environment: ProgramEnvironment) -> None:
        self._environment = environment
        self._owner = ProcessOwner()
        self._process: Process | None = None
        self._control: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._users: set[object] = set()
        self._listeners: dict[str, ServerListener] = {}
        self._calls: dict[int, CallListener] = {}
        self._questions: dict[int, ServerListener] = {}
        self._count = 0
        self._reading: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self.over = False
        self.unusable = ""

    def join(self, user: object) -> None:
        """Add a user, which keeps the process running until it leaves."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """Remove a user; the last one to leave ends the process."""
        self._users.discard(user)
        if not self._users:
            await self._end_process()

    async def wait_until_started(self) -> None:
        """Wait until the process runs; raises `OSError` if it cannot be started."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start_process())
        await asyncio.shield(self._starting)

    def assign_number(self) -> int:
        """A number for a server or a call, unique among all users of this connector."""
        self._count += 1
        return self._count

    def open_server(
        self, key: str, config: LinkConfig, pipes: tuple[int, int, int] | None, listener: ServerListener
    ) -> None:
        """Connect a server; takes ownership of the pipes of a program."""
        self._listeners[key] = listener
        if pipes is not None:
            try:
                assert self._control is not None
                socket.send_fds(self._control, [b"p"], list(pipes))
            finally:
                for descriptor in pipes:
                    os.close(descriptor)
        self._send(OpenServer(server=key, config=config))

    def close_server(self, key: str) -> None:
        """Disconnect a server; its listener is not called again."""
        if self._listeners.pop(key, None) is not None:
            self._send(CloseServer(server=key))

    def send_request(self, key: str, request: ServerRequest, seconds: float, listener: CallListener) -> int:
        """Send a request to a server; returns its id. The listener gets its progress and its result."""
        id = self.assign_number()
        self._calls[id] = listener
        self._send(AskServer(id=id, server=key, seconds=seconds, request=request))
        return id

    def cancel_request(self, id: int, key: str) -> None:
        """Cancel a request that has no answer yet, which also notifies the server."""
        if self._calls.pop(id, None) is not None:
            self._send(CancelCall(id=id, server=key))

    def send_answer(self, id: int, answer: Answer) -> None:
        """Answer a question, unless it was withdrawn."""
        if self._questions.pop(id, None) is not None:
            self._send(AnswerQuestion(id=id, answer=answer))

    def _send(self, record: ToConnector) -> None:
        """Send a record; nothing happens if the process is gone."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_line(record))

    def abandon(self) -> None:
        """Close the sockets after the loop was closed, which ends the process."""
        self.over = True
        if self._control is not None:
            self._control.close()

    async def _start_process(self) -> None:
        kind = socket.SOCK_DGRAM
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        line, their_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        streams = Streams(theirs.detach(), their_line.detach(), os.open(os.devnull, os.O_WRONLY))
        try:
            self._process = await self._owner.start(
                make_connector_command(), cwd="/", environment=self._environment, streams=streams
            )
        except BaseException:
            self.over = True
            ours.close()
            line.close()
            raise
        self._control = ours
        line.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=line, limit=LONGEST_RECORD)
        self._reading = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._dispatch(decode_for_agent(line))
        except BadRecord as error:
            self.unusable = f"the process that holds the connections has sent a record that cannot be read: {error}"
        except (OSError, ValueError):
            # It was killed, or a record was longer than any may be.
            pass
        finally:
            self._on_process_lost()

    def _dispatch(self, record: FromConnector) -> None:
        if isinstance(record, ConnectorUnusable):
            self.unusable = record.text
        elif isinstance(record, FromCall):
            call = self._calls.get(record.id) if isinstance(record, CallProgress) else self._calls.pop(record.id, None)
            if call is not None:
                call(record)
        elif isinstance(record, QuestionAsked):
            server = self._listeners.get(record.server)
            if server is None:
                self._send(AnswerQuestion(id=record.id))
            else:
                self._questions[record.id] = server
                server(record)
        elif isinstance(record, QuestionWithdrawn):
            asked = self._questions.pop(record.id, None)
            if asked is not None:
                asked(record)
        elif not isinstance(record, ConnectorReady):
            server = self._listeners.get(record.server)
            if server is not None:
                server(record)

    def _on_process_lost(self) -> None:
        """The process is gone: release its resources, fail open requests, and notify the servers."""
        self.over = True
        self._close_sockets()
        calls, self._calls = self._calls, {}
        listeners, self._listeners = self._listeners, {}
        why = self.unusable or "the process that holds the connections has ended"
        for id, call in calls.items():
            call(CallFailed(id=id, text=why))
        for key, listener in listeners.items():
            listener(ServerFailed(server=key, step="connect", text=why))

    async def _end_process(self) -> None:
        self.over = True
        for loop in [loop for loop, connector in _connectors.items() if connector is self]:
            del _connectors[loop]
        if self._starting is not None:
            with suppress(OSError):
                await asyncio.shield(self._starting)
        self._close_sockets()
        if self._reading is not None:
            self._reading.cancel()
        await self._owner.kill_everything()

    def _close_sockets(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._control is not None:
            self._control.close()
