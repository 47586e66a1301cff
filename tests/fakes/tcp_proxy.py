"""A network between two programs of this machine that can be slow, silent or cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK = 64 * 1024


class TcpProxy:
    """Passes connections on to a port; `delay` is the time of one direction in seconds."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self.delay = 0.0
        self.connections = 0
        self.port = 0

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cut(self) -> None:
        """End all connections; new ones can be made."""
        for writer in list(self._writers):
            writer.transport.abort()

    def freeze(self) -> None:
        """Let nothing through any more, in either direction, without a word; new connections are silent, too."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def refuse(self, refuses: bool = True) -> None:
        """Whether new connections end at once."""
        self._refuses = refuses

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._refuses:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back}
        self._writers |= ends
        try:
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        finally:
            for end in ends:
                end.transport.abort()
            self._writers -= ends

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)

        async def deliver() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._flows.wait()
                target.write(data)
                await target.drain()
                if not data:
                    return

        delivering = asyncio.ensure_future(deliver())
        self._tasks.add(delivering)
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK):
                await waiting.put((loop.time() + self.delay, data))
        target.transport.abort()
        delivering.cancel()
        self._tasks.discard(delivering)


@contextlib.asynccontextmanager
async def tcp_proxy(target: int) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy(target)
    server = await proxy.start()
    try:
        yield proxy
    finally:
        proxy.thaw()
        proxy.cut()
        server.close()
        await server.wait_closed()
