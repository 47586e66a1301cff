"""`pigeon serve` from its start to its end: conversations, the ways in, and signals."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from msgspec import Struct

from pigeon.serve.conversations import Conversations
from pigeon.serve.http.application import ServeApplication
from pigeon.serve.http.entrance import Entrance
from pigeon.serve.http.tokens import Tokens
from pigeon.serve.unix_door import UnixDoor
from pigeon.transport import exit_codes

FRAME_BYTES = 32 * 1024 * 1024
BACKLOG = 256
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Where and for whom to serve."""

    host: str = "127.0.0.1"
    port: int = 7463
    socket: str | None = None
    allowed_hosts: Sequence[str] = ()


class HttpServer(uvicorn.Server):
    """One that leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield


class NetworkService:
    """Serves until a signal."""

    def __init__(self, conversations: Conversations, tokens: Tokens, options: ServeOptions) -> None:
        self._conversations = conversations
        self._tokens = tokens
        self._options = options

    async def run(self, ready: Callable[[str, str], None]) -> int:
        """Serve; `ready` gets the address and a link to it when connections are taken. Returns the exit code."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(exit_codes.OK)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        await self._conversations.open()
        options = self._options
        listener = _listener(options)
        port = listener.getsockname()[1]
        hosts = [f"{name}:{port}" for name in (*LOOPBACK, options.host)] + list(options.allowed_hosts)
        application = ServeApplication(self._conversations, Entrance(self._tokens, hosts))
        config = uvicorn.Config(
            application.asgi, lifespan="off", log_config=None, access_log=False, ws_max_size=FRAME_BYTES
        )
        server = HttpServer(config)
        serving = asyncio.ensure_future(server.serve([listener]))
        door = None if options.socket is None else UnixDoor(options.socket, self._conversations)
        try:
            if door is not None:
                await door.open()
            address = f"http://{options.host}:{port}"
            ready(address, f"{address}/?token={self._tokens.link()}")
            waited: set[asyncio.Future[Any]] = {serving, ended}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.should_exit = True
            if door is not None:
                await door.close()
            await serving
            await self._conversations.close()
        return exit_codes.OK


def _listener(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((options.host, options.port))
    listener.listen(BACKLOG)
    return listener
