"""A conversation of `pigeon serve` as a transport that outlives its connections; `Client` and `pigeon attach` use it.

When a connection is lost, the next one begins after the last event that came (`received_lines.py`), and unanswered
lines are sent again if that is safe (`sent_lines.py`).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from pigeon.sdk.errors import ProcessDied
from pigeon.sdk.remote.addresses import ServedAddress, parse_address
from pigeon.sdk.remote.line_connections import LineConnection, NewConversation, NotReached, open_connection
from pigeon.sdk.remote.received_lines import ReceivedLines
from pigeon.sdk.remote.sent_lines import SentLines
from pigeon.wire.choices import ToolOffer

PATIENCE_SECONDS = 60.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class ServedTransport:
    """The way to one conversation. `patience` is how many seconds it tries to reconnect, None for ever."""

    def __init__(
        self,
        address: ServedAddress,
        token: str | None = None,
        new: NewConversation | None = None,
        patience: float | None = PATIENCE_SECONDS,
        room: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:
        """`room` returns an awaitable while no more lines can be received, or None."""
        self.address = address
        self._token = token
        self._new = new
        self._patience = patience
        self._room = room
        self._receive: Callable[[bytes], None] = lambda data: None
        self._lost: Callable[[], None] = lambda: None
        self._running: asyncio.Task[None] | None = None
        # The reason why there is no connection any more.
        self.reason = ""
        self._sent = SentLines()
        self._received = ReceivedLines(self._sent, self._forward_line)

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """Connect; raises `NotReached`."""
        self._receive, self._lost = receive, lost
        connection = await open_connection(self.address, self._token, None, self._new)
        self.address = replace(self.address, session=connection.session)
        self._received.expect_events_after(connection.start)
        self._running = asyncio.ensure_future(self._keep_connected(connection))

    def write(self, data: bytes) -> None:
        """Send whole lines; without a connection they wait for the next one."""
        for line in data.split(b"\n"):
            if line:
                self._sent.queue_line(line)

    async def explain_death(self) -> ProcessDied:
        return ProcessDied(f"The connection to {self.address.text} has ended: {self.reason}")

    async def close(self) -> None:
        """Disconnect from the conversation, which continues."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def _keep_connected(self, connection: LineConnection) -> None:
        try:
            while True:
                await self._exchange_lines(connection)
                self._received.on_connection_lost(connection.too_long)
                connection = await self._reconnect()
        except Exception as error:  # not to be reached, or anything else: the client must not wait for ever
            self.reason = str(error)
            self._lost()

    async def _exchange_lines(self, connection: LineConnection) -> None:
        """Exchange lines until the connection is lost; raises `NotReached` if the server has ended it for good."""
        sending = asyncio.ensure_future(self._send_queued_lines(connection))
        try:
            async for line in connection.lines():
                self._received.on_line(line)
                waiting = self._room()
                if waiting is not None:
                    await waiting
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sending
            with suppress(OSError):
                await connection.close()

    async def _send_queued_lines(self, connection: LineConnection) -> None:
        while True:
            await connection.send(await self._sent.next_line())

    async def _reconnect(self) -> LineConnection:
        loop = asyncio.get_running_loop()
        until = None if self._patience is None else loop.time() + self._patience
        pause = FIRST_PAUSE
        while True:
            try:
                return await open_connection(self.address, self._token, self._received.last_number, None)
            except NotReached as error:
                if error.final or (until is not None and loop.time() + pause > until):
                    raise
            # So that not all clients return to a restarted server at the same moment.
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _forward_line(self, line: bytes) -> None:
        self._receive(line + b"\n")


class ServedPlace(Struct, frozen=True):
    """A conversation, or a server with a conversation to begin there."""

    address: ServedAddress
    new: NewConversation | None


def find_served_place(
    url: str, cwd: str | None, model: str | None, offers: tuple[ToolOffer, ...] = ()
) -> ServedPlace | None:
    """The place of an address, or None for an agent's own socket; raises `ValueError`."""
    if not isinstance(url, str):
        raise TypeError(f"url= is an address, not {type(url).__name__}; the program to start is command=")
    address = parse_address(url)
    if address.session is not None:
        if cwd is not None:
            raise ValueError("cwd= is for a new conversation, and this address is that of one that exists")
        return ServedPlace(address, None)
    if address.path and cwd is None:
        return None
    if cwd is None:
        raise ValueError("url must end with the id of a session; for a new one, give its folder as cwd=")
    if not os.path.isabs(cwd):
        raise ValueError("cwd= must be the whole path of a folder on the server")
    return ServedPlace(address, NewConversation(cwd, model, offers))
