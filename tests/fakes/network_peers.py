"""Peers at the level of bytes: a listening socket, a proxy that makes tunnels, and one that cuts connections.

With `BareServer` the test is the server, and sees every piece as it comes over the wire. `TunnelProxy` remembers who
asked for a tunnel (`CONNECT`), and how. `CuttingProxy` cuts each connection after some bytes, in either direction.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from typing import Any

from pigeon.providers.http.client import HttpResponse

PATIENCE = 10.0


def reply(body: bytes, *headers: str, status: int = 200) -> bytes:
    """A whole reply, its length named."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def whole(answer: HttpResponse) -> bytes:
    """All of the body; the connection is free afterwards."""
    parts = []
    while (piece := await answer.read_chunk()) is not None:
        parts.append(piece)
    await answer.drop()
    return b"".join(parts)


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def some(self, most: int = 65536) -> bytes:
        """What one read gives; nothing when the other side closed."""
        async with asyncio.timeout(PATIENCE):
            return await asyncio.get_running_loop().sock_recv(self._connection, most)

    async def request(self) -> bytes:
        """One whole request; its body must have a length."""
        got = b""
        while b"\r\n\r\n" not in got:
            got += await self._more()
        head, _, rest = got.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        parts = [got]
        missing = int(lengths[0]) - len(rest)
        while missing > 0:
            parts.append(await self._more())
            missing -= len(parts[-1])
        return b"".join(parts)

    async def _more(self) -> bytes:
        piece = await self.some()
        assert piece, "the client closed the connection in the middle of a request"
        return piece

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().sock_sendall(self._connection, data)

    def close(self, *, reset: bool = False) -> None:
        """Close this end, politely or not."""
        if reset:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


class BareServer:
    """Use as an asynchronous context manager; `accept` in the order in which clients connect."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._peers: list[Peer] = []
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> BareServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for peer in self._peers:
            peer.close()

    async def accept(self) -> Peer:
        async with asyncio.timeout(PATIENCE):
            connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        self._peers.append(Peer(connection))
        return self._peers[-1]

    def has_another_client(self) -> bool:
        """True if somebody has connected who was not accepted yet."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        connection.close()
        return True


class TunnelProxy:
    """Use as an asynchronous context manager; a refusal is a status line to answer with instead."""

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal
        self._tasks: set[asyncio.Task[Any]] = set()
        self.heads: list[list[str]] = []

    async def __aenter__(self) -> TunnelProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._tunnel(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode("latin-1").split("\r\n")[:-2])
        if self._refusal:
            writer.write(f"HTTP/1.1 {self._refusal}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
            return
        target = self.heads[-1][0].split(" ")[1]
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        finally:
            far_writer.close()


class SocksProxy:
    """A SOCKS 5 proxy; use as an asynchronous context manager. It connects to this machine, whatever the name."""

    def __init__(self, login: tuple[str, str] | None = None, refusal: int = 0) -> None:
        self._login = login
        self._refusal = refusal
        self._tasks: set[asyncio.Task[Any]] = set()
        self.targets: list[tuple[str, int]] = []
        self.logins: list[tuple[str, str]] = []

    async def __aenter__(self) -> SocksProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._tunnel(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        method = 2 if self._login else 0
        if version != 5 or method not in methods:
            writer.write(b"\5\xff")
            return
        writer.write(bytes([5, method]))
        if self._login:
            _, size = await reader.readexactly(2)
            user = (await reader.readexactly(size)).decode()
            password = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
            if (user, password) != self._login:
                writer.write(b"\1\1")
                return
            self.logins.append((user, password))
            writer.write(b"\1\0")
        _, _, _, kind = await reader.readexactly(4)
        size = (await reader.readexactly(1))[0] if kind == 3 else {1: 4, 4: 16}[kind]
        host = (await reader.readexactly(size)).decode("latin-1")
        port = int.from_bytes(await reader.readexactly(2), "big")
        if self._refusal:
            writer.write(bytes([5, self._refusal, 0, 1, 0, 0, 0, 0, 0, 0]))
            return
        self.targets.append((host, port))
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            # The address it answers with has a name, in two pieces.
            writer.write(b"\5\0\0\3\x04na")
            await writer.drain()
            writer.write(b"me\0\x50")
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        finally:
            far_writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


class CuttingProxy:
    """Forwards to a port of this machine; of each connection at least `least` and at most `most` bytes are let through.

    `cuts` counts the connections that were cut. From `calm` on nothing is cut any more.
    """

    def __init__(self, port: int, seed: int, least: int = 400, most: int = 8_000) -> None:
        self._port = port
        self._random = random.Random(seed)
        self._sizes = (least, most)
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._calm = False
        self._names = (b"", b"")
        self.cuts = 0

    async def open(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        port = int(self._server.sockets[0].getsockname()[1])
        # Servers want to be called by their own name.
        self._names = (b"Host: 127.0.0.1:%d" % port, b"Host: 127.0.0.1:%d" % self._port)
        return port

    def calm(self) -> None:
        self._calm = True

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for link in self._links:
            link.cancel()
        if self._links:
            await asyncio.wait(set(self._links))

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        left = [self._random.randint(*self._sizes)]
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            self._links.discard(task)
            return
        ways = [
            asyncio.ensure_future(self._copy(reader, there_writer, left)),
            asyncio.ensure_future(self._copy(there_reader, writer, left)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass
        finally:
            for way in ways:
                way.cancel()
            for one in (writer, there_writer):
                one.transport.abort()
                with suppress(OSError):
                    await one.wait_closed()
            self._links.discard(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        with suppress(OSError):
            while data := await reader.read(512):
                data = data.replace(*self._names)
                if not self._calm:
                    data, left[0] = data[: max(0, left[0])], left[0] - len(data)
                writer.write(data)
                await writer.drain()
                if left[0] <= 0 and not self._calm:
                    self.cuts += 1
                    return
