"""Connections of one route that are kept for the next request, and the response on one of them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator

from pigeon.providers.http.addresses import Address, Origin
from pigeon.providers.http.http1 import ResponseHead, body_of, encode_head, split_head
from pigeon.providers.http.network import NetworkStream, connect
from pigeon.providers.http.network_errors import ProtocolError, ReadError, StaleConnection
from pigeon.providers.http.proxies import Proxy, connect_to_proxy, open_tunnel

KEPT_CONNECTIONS = 20
KEPT_SECONDS = 60.0


class ServerConnection:
    """A connection on which one request after the other is sent; its origin is None if a proxy forwards them."""

    def __init__(self, stream: NetworkStream, origin: Origin | None) -> None:
        self.stream = stream
        self.origin = origin
        self._idle_since = 0.0

    def mark_idle(self) -> None:
        """From now on the connection waits for a request."""
        self._idle_since = time.monotonic()

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent after the time in which the connection was idle."""
        return time.monotonic() - self._idle_since < KEPT_SECONDS and self.stream.is_usable

    async def exchange(self, request: bytes) -> tuple[ResponseHead, bytes]:
        """Send a request and wait for the head of its response; returns it, and what has arrived of the body."""
        self.stream.write(request)
        buffer = b""
        while True:
            data = await self.stream.read()
            if not data:
                raise ProtocolError("the server closed the connection without an answer")
            buffer = buffer + data if buffer else data
            while (found := split_head(buffer)) is not None:
                head, buffer = found
                if head.status >= 200:
                    return head, buffer


class PooledResponse:
    """A response whose body is still arriving."""

    def __init__(self, pool: ConnectionPool, connection: ServerConnection, head: ResponseHead, first: bytes) -> None:
        self._pool = pool
        self._connection: ServerConnection | None = connection
        self._head = head
        self._body = body_of(head)
        self._first = first
        self.status = head.status
        self.headers = head.headers

    async def aiter_stream(self) -> AsyncIterator[bytes]:
        """Yields the body in the pieces in which it arrives."""
        body = self._body
        if self._first or body.complete:
            first, self._first = self._first, b""
            piece = body.feed(first)
            if piece:
                yield piece
        while not body.complete:
            connection = self._connection
            if connection is None:
                raise ReadError("the answer was closed before its end")
            try:
                data = await connection.stream.read()
            except BaseException:
                # Also when the wait is cancelled: the server must notice at once.
                self._connection = None
                self._pool.discard(connection)
                raise
            if not data:
                body.end()
                return
            piece = body.feed(data)
            if piece:
                yield piece

    async def aclose(self) -> None:
        """Return the connection to the pool if the body was read to its end, else close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._head.is_kept_alive and self._body.complete and not self._body.rest and not self._first:
            self._pool.keep(connection)
        else:
            self._pool.discard(connection)
            await asyncio.sleep(0)


class ConnectionPool:
    """Opens connections of one route, and keeps some of them open for the next request."""

    def __init__(self, certificates: ssl.SSLContext | None, proxy: Proxy | None, connect_timeout_s: float) -> None:
        self._certificates = certificates
        self._proxy = proxy
        self._timeout = connect_timeout_s
        self._open: set[ServerConnection] = set()
        self._idle: list[ServerConnection] = []  # the one that was used last comes last
        self._closed = False

    async def send(self, method: str, address: Address, headers: dict[str, str], body: bytes) -> PooledResponse:
        """Send a request and return when the head of its response has arrived.

        If a kept connection turns out to be closed before a byte of an answer, the request is sent again: the server
        may have read it before, but asking a model twice does no harm. Every kept connection may be stale.
        """
        target = address.target
        origin: Origin | None = address.origin
        if self._proxy is not None and not self._proxy.is_socks and address.scheme == "http":
            # Such a proxy reads the requests, and asks for each one itself.
            target = f"http://{address.authority}{target}"
            headers = {**headers, **self._proxy.authorization}
            origin = None
        request = encode_head(method, target, headers.items()) + body
        while True:
            connection = self._take_idle(origin)
            is_new = connection is None
            if connection is None:
                connection = await self._connect(origin)
            try:
                return PooledResponse(self, connection, *await connection.exchange(request))
            except StaleConnection:
                self.discard(connection)
                if is_new:
                    raise
            except BaseException:
                self.discard(connection)
                raise

    async def _connect(self, origin: Origin | None) -> ServerConnection:
        if self._proxy is not None:
            stream = await connect_to_proxy(self._proxy, self._certificates, self._timeout)
            if origin is not None:
                await open_tunnel(stream, self._proxy, origin)
        else:
            assert origin is not None
            stream = await connect(origin.host, origin.port, self._timeout)
        if origin is not None and origin.scheme == "https":
            assert self._certificates is not None
            stream = await stream.start_tls(self._certificates, origin.host, self._timeout)
        if self._closed:
            stream.abort()
            raise ReadError("the agent is closing")
        connection = ServerConnection(stream, origin)
        self._open.add(connection)
        return connection

    def _take_idle(self, origin: Origin | None) -> ServerConnection | None:
        """The connection that was used last, of those that can still be used."""
        found: ServerConnection | None = None
        for connection in reversed(self._idle.copy()):
            if not connection.is_usable:
                self.discard(connection)
            elif found is None and connection.origin == origin:
                found = connection
                self._idle.remove(connection)
        return found

    def keep(self, connection: ServerConnection) -> None:
        """Keep a connection whose response was read to its end."""
        if self._closed:
            self.discard(connection)
            return
        connection.mark_idle()
        self._idle.append(connection)
        if len(self._idle) > KEPT_CONNECTIONS:
            self.discard(self._idle[0])

    def discard(self, connection: ServerConnection) -> None:
        """Close a connection and forget it."""
        connection.stream.abort()
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def aclose(self) -> None:
        """Close all connections, also those in use."""
        self._closed = True
        for connection in [*self._open]:
            self.discard(connection)
        await asyncio.sleep(0)
