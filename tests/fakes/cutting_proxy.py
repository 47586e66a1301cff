"""A way to a server that breaks again and again: each connection is cut after some bytes, in either direction."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress


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
        """Cut nothing more."""
        self._calm = True

    async def close(self) -> None:
        """Cut everything."""
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
