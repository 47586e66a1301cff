"""The agent's end of the process that holds connections to tool servers; the other end is `connector/main.py`.

It is a separate process because importing the package takes most of a second, and parsing what servers send may take
any time: neither may delay the event loop or its threads. Each event loop has one, shared by the agents on it like the
pool of helpers (`system/process/pool.py`); it starts with the first server and ends with its last user.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pigeon.system.process.start import Process, ProcessOwner, Streams
from pigeon.wire import codec

LONGEST_RECORD = 64 * 1024 * 1024
Record = dict[str, Any]
Listener = Callable[[Record], None]
# The connector lowers its priority before it imports anything, so that it never delays the agent. It finds modules
# where this process does and nowhere else: variables may name folders that commands can write to.
_BOOT = (
    "import os, sys; os.nice(5); sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from pigeon.mcp.connector.main import main; main()"
)
# Where the package is, however it was found: the program is the same one.
_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_connectors: dict[asyncio.AbstractEventLoop, Connector] = {}


def connector_line() -> list[str]:
    """The program and its arguments."""
    return [sys.executable, "-I", "-c", _BOOT, _SOURCE, *filter(os.path.isabs, sys.path)]


def joined_connector(user: object, environment: Mapping[str, str]) -> Connector:
    """The connector of the running loop; `user` holds it until `leave`."""
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

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._owner = ProcessOwner()
        self._process: Process | None = None
        self._control: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._users: set[object] = set()
        self._listeners: dict[str, Listener] = {}
        self._answers: dict[int, Listener] = {}
        self._questions: dict[int, Listener] = {}
        self._count = 0
        self._reading: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self.over = False
        self.unusable = ""

    def join(self, user: object) -> None:
        """Add a user."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """Remove a user; the last one to leave ends the process."""
        self._users.discard(user)
        if not self._users:
            await self._end()

    async def started(self) -> None:
        """Wait until the process runs; raises `OSError` if it cannot be started."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)

    def next_number(self) -> int:
        """A number for a server or a call, unique among all users of this connector."""
        self._count += 1
        return self._count

    def open(self, key: str, config: Record, pipes: tuple[int, int, int] | None, listener: Listener) -> None:
        """Connect a server; takes ownership of the pipes of a program."""
        self._listeners[key] = listener
        if pipes is not None:
            try:
                assert self._control is not None
                socket.send_fds(self._control, [b"p"], list(pipes))
            finally:
                for descriptor in pipes:
                    os.close(descriptor)
        self.send({"do": "open", "server": key, "config": config})

    def close(self, key: str) -> None:
        """Disconnect a server; its listener is not called again."""
        if self._listeners.pop(key, None) is not None:
            self.send({"do": "close", "server": key})

    def ask(self, id: int, record: Record, listener: Listener) -> None:
        """Send a call; the listener gets its progress and its result."""
        self._answers[id] = listener
        self.send({**record, "id": id})

    def forget(self, id: int, key: str) -> None:
        """Cancel a call; the server is told."""
        if self._answers.pop(id, None) is not None:
            self.send({"do": "cancel", "id": id, "server": key})

    def send(self, record: Record) -> None:
        """Send a record; nothing happens if the process is gone."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(codec.encode(record) + b"\n")

    def abandon(self) -> None:
        """Close the sockets after the loop was closed, which ends the process."""
        self.over = True
        if self._control is not None:
            self._control.close()

    async def _start(self) -> None:
        kind = socket.SOCK_DGRAM
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        line, their_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        streams = Streams(theirs.detach(), their_line.detach(), os.open(os.devnull, os.O_WRONLY))
        try:
            self._process = await self._owner.start(
                connector_line(), cwd="/", environment=self._environment, streams=streams
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
                self._heard(codec.decode(line))
        except (OSError, ValueError):
            pass
        finally:
            self._lost()

    def _heard(self, record: Record) -> None:
        what = record["event"]
        if what == "unusable":
            self.unusable = record["text"]
        elif what in ("result", "error", "progress"):
            listener = self._answers.get(record["id"])
            if what != "progress":
                self._answers.pop(record["id"], None)
            if listener is not None:
                listener(record)
        elif what == "ask":
            server = self._listeners.get(record["server"])
            if server is None:
                self.send({"do": "answer", "id": record["id"], "value": None})
            else:
                self._questions[record["id"]] = server
                server(record)
        elif what == "asked":
            asked = self._questions.pop(record["id"], None)
            if asked is not None:
                asked(record)
        elif "server" in record:
            server = self._listeners.get(record["server"])
            if server is not None:
                server(record)

    def answer(self, id: int, value: Any) -> None:
        """The answer to a question."""
        if self._questions.pop(id, None) is not None:
            self.send({"do": "answer", "id": id, "value": value})

    def _lost(self) -> None:
        """The process has ended: fail open calls, and tell the servers."""
        self.over = True
        answers, self._answers = self._answers, {}
        listeners, self._listeners = self._listeners, {}
        why = self.unusable or "the process that holds the connections has ended"
        for listener in answers.values():
            listener({"event": "error", "text": why})
        for listener in listeners.values():
            listener({"event": "failed", "step": "connect", "text": why, "words": "", "signIn": False, "lost": False})

    async def _end(self) -> None:
        self.over = True
        for loop in [loop for loop, connector in _connectors.items() if connector is self]:
            del _connectors[loop]
        if self._starting is not None:
            with suppress(OSError):
                await asyncio.shield(self._starting)
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
        if self._control is not None:
            self._control.close()
        await self._owner.kill_everything()
