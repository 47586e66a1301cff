"""The program that holds an agent's connections to tool servers, so that they cannot slow the agent down.

`mcp/connector_process.py` starts it with two sockets: the pipes of programs come as descriptors through stdin, and
lines of JSON go both ways through stdout. It ends when the agent has gone.

    from the agent                                       to the agent
    --------------------------------------------------   ---------------------------------------------------------
    open    server, config; its pipes come by stdin      ready; unusable: the package is not there; text
    close   server                                       opened, listed, failed, kept: of a server
    call, prompt, read   id, server, ...                 result, error, once for each id; progress before it
    cancel  id, server                                   ask: a question, with an id; asked: it is not wanted any more
    answer  id, value
"""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from pigeon.system.platforms import install_command

if TYPE_CHECKING:
    from pigeon.mcp.connector.link import ServerLink

NOT_INSTALLED = "Tool servers need packages that are not installed"
MOST_WAITING = 64 * 1024 * 1024
LONGEST_RECORD = 64 * 1024 * 1024


class ConnectionHolder:
    """All links of an agent, by the keys that the agent chose."""

    def __init__(self, control: socket.socket, line: socket.socket) -> None:
        self._control = control
        self._socket = line
        self._links: dict[str, ServerLink] = {}
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._writer: asyncio.StreamWriter | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Carry out the agent's requests until it has gone."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=LONGEST_RECORD)
        try:
            from pigeon.mcp.connector.link import ServerLink
        except ImportError as error:
            text = f"{NOT_INSTALLED} ({error.name} is missing). Install them with: {install_command('mcp>=2.3')}"
            self._tell({"event": "unusable", "text": text})
            await self._writer.drain()
            return
        gc.collect()
        gc.freeze()
        self._tell({"event": "ready"})
        while line := await reader.readline():
            self._do(msgspec.json.decode(line), ServerLink)
        for link in list(self._links.values()):
            await link.close()

    def _do(self, record: dict[str, Any], link_type: type[ServerLink]) -> None:
        what, key = record["do"], record.get("server", "")
        if what == "open":
            pipes = self._received() if record["config"]["transport"] == "stdio" else None
            link = link_type(key, record["config"], pipes, self._tell, self._ask)
            self._links[key] = link
            link.start()
        elif what == "close":
            closed = self._links.pop(key, None)
            if closed is not None:
                task = asyncio.ensure_future(closed.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        elif what == "answer":
            question = self._questions.get(record["id"])
            if question is not None and not question.done():
                question.set_result(record.get("value"))
        elif what == "cancel":
            if key in self._links:
                self._links[key].cancel(record["id"])
        elif key in self._links:
            self._links[key].ask_server(record["id"], what, record)
        else:
            self._tell({"event": "error", "id": record["id"], "text": "the server is not connected", "unsent": True})

    def _received(self) -> tuple[int, int, int]:
        """The pipes of the next program, which were sent before the line that opens it."""
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
        stdin, stdout, stderr = descriptors
        return stdin, stdout, stderr

    def _tell(self, record: dict[str, Any]) -> None:
        assert self._writer is not None
        waiting = self._writer.transport.get_write_buffer_size()
        if waiting > MOST_WAITING and record["event"] in ("progress", "listed"):
            return
        self._writer.write(msgspec.json.encode(record) + b"\n")

    async def _ask(self, kind: str, about: dict[str, Any]) -> Any:
        self._count += 1
        id = self._count
        question = self._questions[id] = asyncio.get_running_loop().create_future()
        self._tell({"event": "ask", "id": id, "kind": kind, **about})
        try:
            return await question
        finally:
            del self._questions[id]
            if not question.done() or question.cancelled():
                self._tell({"event": "asked", "id": id})


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


if __name__ == "__main__":
    main()
