"""`pigeon serve` from its start to its end: conversations, the ways in, and signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from pigeon.frontends.serve.conversations import Conversations
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.http.server import HttpServer, ServeOptions, delete_address, store_address
from pigeon.frontends.serve.http.tokens import Tokens
from pigeon.frontends.serve.service_log import ServiceLog
from pigeon.frontends.serve.unix_server import UnixServer
from pigeon.transport import exit_codes


class NetworkService:
    """Serves until a signal: then it starts nothing more, gives runs some time to finish, and aborts the rest. A second
    signal ends everything at once. `pigeon serve --link` finds the server's address in `folder`."""

    def __init__(
        self,
        conversations: Conversations,
        tokens: Tokens,
        options: ServeOptions,
        folder: str,
        counts: ServeCounts,
        log: ServiceLog,
    ) -> None:
        self._conversations = conversations
        self._tokens = tokens
        self._options = options
        self._folder = folder
        self._counts = counts
        self._log = log

    async def run(self, on_ready: Callable[[str, str], None]) -> int:
        """Serve; `on_ready` is called with the address and a link once clients can connect. Returns the exit code."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()
        again: asyncio.Future[None] = loop.create_future()

        def end_or_kill() -> None:
            if not ended.done():
                ended.set_result(exit_codes.OK)
            elif not again.done():
                again.set_result(None)
                self._conversations.kill()

        server = HttpServer(self._conversations, self._tokens, self._options, self._counts, self._log)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end_or_kill)
        await self._conversations.open()
        serving = asyncio.ensure_future(server.serve())
        path = self._options.socket
        unix = None if path is None else UnixServer(path, self._conversations)
        try:
            if unix is not None:
                await unix.open()
            address = server.address
            store_address(self._folder, address)
            self._log.info("listening", address=address.url, pid=address.pid)
            on_ready(address.url, f"{address.public}/?token={self._tokens.create_link()}")
            waited: set[asyncio.Future[Any]] = {serving, ended}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            server.stop_accepting()
            self._log.info("draining")
            draining = asyncio.ensure_future(self._conversations.drain(self._options.drain_seconds))
            await asyncio.wait({draining, again}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
        finally:
            self._log.info("stopping")
            delete_address(self._folder)
            server.request_exit()
            if unix is not None:
                await unix.close()
            await serving
            await self._conversations.close()
            self._log.info("stopped")
        return exit_codes.OK
