"""The program that holds an agent's connections to tool servers, so that they cannot slow the agent down.

`mcp/connector_process.py` starts it with two sockets: the pipes of programs come as descriptors through stdin, and the
records of `mcp/connector/records.py` go both ways through stdout. It ends when the agent has gone.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import TYPE_CHECKING

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
    FromConnector,
    OpenServer,
    Question,
    QuestionAsked,
    QuestionWithdrawn,
    ServerListed,
    ToConnector,
    decode_for_connector,
    encode_line,
)
from pigeon.system.extras import make_install_command
from pigeon.wire.errors import BadRecord

if TYPE_CHECKING:
    from pigeon.mcp.connector.link import ServerLink

NOT_INSTALLED = "Tool servers need packages that are not installed"
MOST_WAITING = 64 * 1024 * 1024


class ConnectionHolder:
    """All links of an agent, by the keys that the agent chose."""

    def __init__(self, control: socket.socket, line: socket.socket) -> None:
        self._control = control
        self._socket = line
        self._links: dict[str, ServerLink] = {}
        self._questions: dict[int, asyncio.Future[Answer]] = {}
        self._count = 0
        self._writer: asyncio.StreamWriter | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Carry out the agent's requests until it has gone."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=LONGEST_RECORD)
        try:
            from pigeon.mcp.connector.link import ServerLink
        except ImportError as error:
            text = f"{NOT_INSTALLED} ({error.name} is missing). Install them with: {make_install_command('mcp')}"
            await self._report_unusable(text)
            return
        gc.collect()
        gc.freeze()
        self._send(ConnectorReady())
        try:
            while line := await reader.readline():
                self._execute_request(decode_for_connector(line), ServerLink)
        except BadRecord as error:
            await self._report_unusable(f"The agent has sent a record that cannot be read: {error}")
        for link in list(self._links.values()):
            await link.close()

    async def _report_unusable(self, text: str) -> None:
        assert self._writer is not None
        self._send(ConnectorUnusable(text=text))
        await self._writer.drain()

    def _execute_request(self, record: ToConnector, link_type: type[ServerLink]) -> None:
        if isinstance(record, AnswerQuestion):
            question = self._questions.get(record.id)
            if question is not None and not question.done():
                question.set_result(record.answer)
            return
        link = self._links.get(record.server)
        if isinstance(record, OpenServer):
            pipes = self._receive_pipes() if record.config.transport == "stdio" else None
            link = link_type(record.server, record.config, pipes, self._send, self._ask)
            self._links[record.server] = link
            link.start()
        elif isinstance(record, AskServer):
            if link is None:
                self._send(CallFailed(id=record.id, text="the server is not connected", is_unsent=True))
            else:
                link.ask_server(record.id, record.request, record.seconds)
        elif isinstance(record, CancelCall) and link is not None:
            link.cancel(record.id)
        elif isinstance(record, CloseServer) and link is not None:
            del self._links[record.server]
            task = asyncio.ensure_future(link.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _receive_pipes(self) -> tuple[int, int, int]:
        """The pipes of the next program, which were sent before the line that opens it."""
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
        stdin, stdout, stderr = descriptors
        return stdin, stdout, stderr

    def _send(self, record: FromConnector) -> None:
        assert self._writer is not None
        waiting = self._writer.transport.get_write_buffer_size()
        if waiting > MOST_WAITING and isinstance(record, CallProgress | ServerListed):
            return
        self._writer.write(encode_line(record))

    async def _ask(self, server: str, question: Question) -> Answer:
        self._count += 1
        id = self._count
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._questions[id] = answer
        self._send(QuestionAsked(id=id, server=server, question=question))
        try:
            return await answer
        finally:
            del self._questions[id]
            if not answer.done() or answer.cancelled():
                self._send(QuestionWithdrawn(id=id))


def main() -> None:
    """Run until the agent is gone."""
    import logging
    import signal

    logging.disable(logging.CRITICAL)
    # Signals from the terminal are meant for the agent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control, line = socket.socket(fileno=0), socket.socket(fileno=1)
    line.setblocking(False)
    asyncio.run(ConnectionHolder(control, line).run())
