"""A proxy on loopback that makes tunnels (`CONNECT`) and remembers who asked for them, and how."""

from __future__ import annotations

import asyncio
from typing import Any


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


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
