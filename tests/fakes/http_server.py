"""A tiny HTTP server on loopback that plays prepared replies and remembers what it was asked.

It runs in the test's own event loop and never sleeps: a `Hold` in a reply stands still until the test releases it or
the client goes away, and `Cut` drops the connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

PATIENCE = 10.0


class Cut:
    """Drop the connection here."""


class Hold:
    """Stand still here."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


@dataclass
class Reply:
    """One reply; its parts are sent as chunks of their own."""

    parts: list[Any] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    held_headers: Hold | None = None


@dataclass
class Received:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: Any
    connection: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)


def sse(*payloads: Any, named: bool = False) -> list[bytes]:
    """Events with JSON data; the name is the payload's type."""
    return [
        (f"event: {payload['type']}\n".encode() if named else b"")
        + b"data: "
        + (payload.encode() if isinstance(payload, str) else json.dumps(payload).encode())
        + b"\n\n"
        for payload in payloads
    ]


def plain(status: int, body: Any, **headers: str) -> Reply:
    """A reply that is no stream."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply([data], status, {name.replace("_", "-"): value for name, value in headers.items()}, "application/json")


Answering = Callable[[Any], Reply]  # a reply that depends on what the request says


class HttpServer:
    """Use as an asynchronous context manager."""

    def __init__(self, replies: Iterable[Reply | Answering], port: int = 0, ssl: SSLContext | None = None) -> None:
        self._port = port
        self._ssl = ssl
        self._replies: list[Reply | Answering] = list(replies)
        self.requests: list[Received] = []
        self._connections = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> HttpServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._ssl)
        scheme = "http" if self._ssl is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def prepare(self, replies: Iterable[Reply | Answering]) -> None:
        """Play these replies from now on, and nothing that is left of those before."""
        self._replies = list(replies)

    @property
    def body(self) -> Any:
        """What the last request said."""
        return self.requests[-1].body

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        number = self._connections
        try:
            while await self._one(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:] if ": " in line)
        headers = {name.lower(): value for name, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(lines[0].split(" ")[1], headers, json.loads(raw or b"null"), number)
        self.requests.append(received)
        reply = self._replies.pop(0) if self._replies else plain(500, {"error": {"message": "no reply prepared"}})
        if not isinstance(reply, Reply):
            reply = reply(received.body)
        watch = asyncio.ensure_future(reader.read(1))
        watch.add_done_callback(lambda _: received.gone.set())
        try:
            if reply.held_headers is not None:
                await self._hold(reply.held_headers, received)
            return await self._send(reply, writer, received)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter, received: Received) -> bool:
        extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        writer.write(
            f"HTTP/1.1 {reply.status} X\r\ncontent-type: {reply.content_type}\r\n"
            f"transfer-encoding: chunked\r\n{extra}\r\n".encode()
        )
        for part in reply.parts:
            if isinstance(part, Cut):
                await writer.drain()
                writer.transport.abort()
                return False
            if isinstance(part, Hold):
                await writer.drain()
                await self._hold(part, received)
            elif part:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _hold(self, hold: Hold, received: Received) -> None:
        hold.reached.set()
        waits = [asyncio.ensure_future(hold.released.wait()), asyncio.ensure_future(received.gone.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
