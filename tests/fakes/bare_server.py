"""A listening socket on loopback: the test is the server, and sees every piece as it comes over the wire."""

from __future__ import annotations

import asyncio
import socket
import struct

from pigeon.providers.http.client import HttpResponse

PATIENCE = 10.0


def reply(body: bytes, *headers: str, status: int = 200) -> bytes:
    """A whole reply, its length named."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def whole(answer: HttpResponse) -> bytes:
    """All of the body; the connection is free afterwards."""
    parts = []
    while (piece := await answer.chunk()) is not None:
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
        """Send all of it."""
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
        """The next client."""
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
