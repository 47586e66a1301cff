"""The network backend of the HTTP library: asyncio's own transports, and one send for a whole request.

The library writes a request in pieces, each of which would be a packet and a turn of the event loop. Here the pieces
are held until the library wants to read. Reading goes on while a connection is idle, so a server that closed it is
noticed without a request.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any

import httpcore2

READ_AHEAD_BYTES = 256 * 1024
SECOND_ADDRESS_AFTER_S = 0.25


class StaleConnection(httpcore2.ReadError):
    """The server closed a connection that had been used before, before a byte of the new answer came."""


class Network(httpcore2.AsyncNetworkBackend):
    """Opens connections for the library's pool."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that answers."""
        loop = asyncio.get_running_loop()
        local = None if local_address is None else (local_address, 0)
        # A literal address needs no race; and a cancelled race may leave a socket to the collector.
        race = None if ":" in host or host[-1:].isdigit() else SECOND_ADDRESS_AFTER_S
        try:
            async with asyncio.timeout(timeout):
                _, received = await loop.create_connection(
                    _ReceiveBuffer, host, port, local_addr=local, happy_eyeballs_delay=race
                )
        except TimeoutError:
            within = "" if timeout is None else f" within {timeout:g} s"
            raise httpcore2.ConnectTimeout(f"{host}:{port} did not answer{within}") from None
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host}:{port}: {error}") from error
        stream = _BufferedStream(received)
        for option in socket_options or ():
            stream.get_extra_info("socket").setsockopt(*option)
        return stream

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _ReceiveBuffer(asyncio.Protocol):
    """The asyncio protocol of a connection: keeps unread data, and pauses reading when full."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self.over = False
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > READ_AHEAD_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        self.error = exc
        self._wake()

    @property
    def is_readable(self) -> bool:
        """True if there is data, or if the connection has ended."""
        return self.over or bool(self._chunks)

    async def wait_until_readable(self) -> None:
        if not self.is_readable:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def pop_bytes(self, most: int) -> bytes:
        """The oldest bytes; empty at the end."""
        if not self._chunks:
            return b""
        chunk = self._chunks.popleft()
        if len(chunk) > most:
            self._chunks.appendleft(chunk[most:])
            chunk = chunk[:most]
        self._size -= len(chunk)
        if self._paused and self._size <= READ_AHEAD_BYTES // 2:
            self._paused = False
            self.transport.resume_reading()
        return chunk

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _BufferedStream(httpcore2.AsyncNetworkStream):
    """One connection with the interface that the library requires."""

    def __init__(self, received: _ReceiveBuffer) -> None:
        self._received = received
        self._held: list[bytes] = []
        self._served = False
        self._silent_since_served = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes; empty at the end. Held bytes are sent first."""
        if self._held:
            self._received.transport.write(b"".join(self._held))
            self._held.clear()
            self._silent_since_served = self._served
        if not self._received.is_readable:
            try:
                async with asyncio.timeout(timeout):
                    await self._received.wait_until_readable()
            except TimeoutError:
                raise httpcore2.ReadTimeout(f"nothing came within {timeout:g} s") from None
        chunk = self._received.pop_bytes(max_bytes)
        if chunk:
            self._served, self._silent_since_served = True, False
        elif self._silent_since_served:
            raise StaleConnection(str(self._received.error or "the server closed the connection"))
        elif self._received.error is not None:
            raise httpcore2.ReadError(str(self._received.error)) from self._received.error
        return chunk

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._held.append(buffer)

    async def aclose(self) -> None:
        """Drop the connection now, with whatever is still on its way."""
        self._held.clear()
        self._received.transport.abort()
        await asyncio.sleep(0)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """The same connection, encrypted from here on."""
        received = self._received
        try:
            async with asyncio.timeout(timeout):
                transport = await asyncio.get_running_loop().start_tls(
                    received.transport, received, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError:
            await self.aclose()
            raise httpcore2.ConnectTimeout(f"{server_hostname} did not finish the TLS handshake in time") from None
        except (OSError, ValueError) as error:
            await self.aclose()
            reason = str(error) or "the connection was closed during the TLS handshake"
            raise httpcore2.ConnectError(f"{server_hostname}: {reason}") from error
        if transport is None:
            raise httpcore2.ConnectError(f"{server_hostname} closed the connection during the TLS handshake")
        received.connection_made(transport)
        return _BufferedStream(received)

    def get_extra_info(self, info: str) -> Any:
        """Details of a connection for the pool."""
        transport = self._received.transport
        if info == "is_readable":
            # A server that answered early may never read the rest of that request, nor anything after it.
            unsent = transport.get_write_buffer_size() > 0
            return unsent or self._received.is_readable or _is_closed_or_readable(transport.get_extra_info("socket"))
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return transport.get_extra_info(names.get(info, info))


def _is_closed_or_readable(connection: Any) -> bool:
    """Whether an idle connection has input, which means that the server has closed it, even if the event loop has not
    noticed."""
    descriptor = -1 if connection is None else connection.fileno()
    if descriptor < 0:
        return True
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
