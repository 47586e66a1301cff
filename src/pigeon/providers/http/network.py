"""Connections to servers: asyncio's own transports, with a buffer that pauses reading.

Reading goes on while a connection is idle, so a server that closed it is noticed without a request.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections import deque
from typing import Any

from pigeon.providers.http.network_errors import (
    CertificateError,
    ConnectError,
    ConnectTimeout,
    ReadError,
    StaleConnection,
)

READ_AHEAD_BYTES = 256 * 1024
SECOND_ADDRESS_AFTER_S = 0.25


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

    def pop_bytes(self) -> bytes:
        """The oldest bytes; empty at the end."""
        if not self._chunks:
            return b""
        chunk = self._chunks.popleft()
        self._size -= len(chunk)
        if self._paused and self._size <= READ_AHEAD_BYTES // 2:
            self._paused = False
            self.transport.resume_reading()
        return chunk

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class NetworkStream:
    """One connection, plain or encrypted."""

    def __init__(self, received: _ReceiveBuffer) -> None:
        self._received = received
        self._served = False
        self._silent_since_served = False

    def write(self, data: bytes) -> None:
        """Send these bytes, without waiting for them to leave."""
        self._received.transport.write(data)
        self._silent_since_served = self._served

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        if not self._received.is_readable:
            await self._received.wait_until_readable()
        chunk = self._received.pop_bytes()
        if chunk:
            self._served, self._silent_since_served = True, False
        elif self._silent_since_served:
            raise StaleConnection(str(self._received.error or "the server closed the connection"))
        elif self._received.error is not None:
            raise ReadError(str(self._received.error)) from self._received.error
        return chunk

    def abort(self) -> None:
        """Drop the connection now, with whatever is still on its way."""
        self._received.transport.abort()

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent: the server has closed nothing, sent nothing, and read all."""
        transport = self._received.transport
        # A server that answered early may never read the rest of that request, nor anything after it.
        if transport.get_write_buffer_size() or self._received.is_readable:
            return False
        return not _is_closed_or_readable(transport.get_extra_info("socket"))

    async def start_tls(self, context: ssl.SSLContext, host: str, timeout: float | None = None) -> NetworkStream:
        """The same connection, encrypted from here on."""
        received = self._received
        try:
            async with asyncio.timeout(timeout):
                transport = await asyncio.get_running_loop().start_tls(
                    received.transport, received, context, server_hostname=host
                )
        except TimeoutError:
            self.abort()
            raise ConnectTimeout(f"{host} did not finish the TLS handshake in time") from None
        except ssl.SSLCertVerificationError as error:
            self.abort()
            raise CertificateError(f"{host}: {error}") from error
        except (OSError, ValueError) as error:
            self.abort()
            raise ConnectError(
                f"{host}: {str(error) or 'the connection was closed during the TLS handshake'}"
            ) from error
        except BaseException:
            self.abort()
            raise
        if transport is None:
            raise ConnectError(f"{host} closed the connection during the TLS handshake")
        received.connection_made(transport)
        return NetworkStream(received)


async def connect(host: str, port: int, timeout: float | None = None) -> NetworkStream:
    """A connection to the first address of the host that answers."""
    # A literal address needs no race; and a cancelled race may leave a socket to the collector.
    race = None if ":" in host or host[-1:].isdigit() else SECOND_ADDRESS_AFTER_S
    try:
        async with asyncio.timeout(timeout):
            _, received = await asyncio.get_running_loop().create_connection(
                _ReceiveBuffer, host, port, happy_eyeballs_delay=race
            )
    except TimeoutError:
        within = "" if timeout is None else f" within {timeout:g} s"
        raise ConnectTimeout(f"{host}:{port} did not answer{within}") from None
    except (OSError, UnicodeError) as error:
        raise ConnectError(f"{host}:{port}: {error}") from error
    return NetworkStream(received)


def _is_closed_or_readable(connection: Any) -> bool:
    """Whether an idle connection has input, which means that the server has closed it, even if the event loop has not
    noticed."""
    descriptor = -1 if connection is None else connection.fileno()
    if descriptor < 0:
        return True
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
