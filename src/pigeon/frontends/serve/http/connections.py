"""Limits on HTTP and WebSocket connections: how many there may be, and how long a request may take to arrive.

A connection is unknown until a request on it had a valid token. Unknown ones are few and short-lived: a request must be
complete within some seconds, and if there is no room for a new connection, the oldest unknown one is closed, so that
silent connections lock no client out. Known ones have a separate limit. All this is done in subclasses of uvicorn's
protocols, because uvicorn itself does not do it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

import h11
from msgspec import Struct
from starlette.websockets import WebSocketDisconnect
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState

from pigeon.frontends.serve.conversations import STOPPING
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.http.entrance import HttpRefusal
from pigeon.wire import codec

HEADER_BYTES = 64 * 1024
ACCEPTED_AT_ONCE = 256
RETRY_SECONDS = 5
ABORT_SECONDS = 5.0
# The code of a connection that has ended without one.
GONE = 1006
LONG_HEADERS = f"The address and the headers are longer than {HEADER_BYTES} bytes"
_PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Busy"}


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """How many connections there may be, and how long they may be silent.

    There must be room for more than `ACCEPTED_AT_ONCE` unknown ones, or one could be closed before it was read.
    `request_seconds` run from the first byte of a request, or the start of the connection, to the end of its body;
    `unread_seconds` is how long a peer may leave data unread.
    """

    known: int = 2_000
    unknown: int = 2_048
    unknown_per_peer: int = 1_024
    request_seconds: float = 20.0
    idle_seconds: int = 15
    unread_seconds: float = 60.0


class PeerConnection:
    """One connection; `admit` makes it a known one."""

    def __init__(self, connections: Connections, transport: asyncio.Transport, peer: str) -> None:
        self._connections = connections
        self.transport = transport
        self.peer = peer
        self.known = False
        self._web_socket: LimitedWebSocket | None = None
        self._abort: asyncio.TimerHandle | None = None

    @property
    def web_socket(self) -> LimitedWebSocket:
        """What the connection has become by a request for a WebSocket."""
        assert self._web_socket is not None
        return self._web_socket

    def set_web_socket(self, protocol: LimitedWebSocket) -> None:
        self._web_socket = protocol

    def mark_known(self) -> None:
        """Count it as known, after a valid token; raises `HttpRefusal` if there are too many known ones."""
        if not self.known:
            self._connections.make_known(self)

    def on_connection_lost(self) -> None:
        if self._abort is not None:
            self._abort.cancel()
        self._connections.remove(self)

    def refuse(self, status: int, text: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(_encode_answer(status, text))
        self.close_or_abort()

    def close_or_abort(self) -> None:
        """Close it, by force if the peer does not read the rest."""
        if not self.transport.is_closing():
            self.transport.close()
            self._abort = asyncio.get_running_loop().call_later(ABORT_SECONDS, self.transport.abort)


class Connections:
    """All connections of one server."""

    def __init__(self, limits: ConnectionLimits, counts: ServeCounts, by_peer: bool = True) -> None:
        """`by_peer` is false behind a proxy, which would count as the peer of every connection."""
        self.limits = limits
        self._counts = counts
        self._by_peer = by_peer
        self._unknown: dict[PeerConnection, None] = {}
        self._known: set[PeerConnection] = set()
        self._of_peer: dict[str, dict[PeerConnection, None]] = {}
        self._second = 0

    def update_date(self, state: ServerState) -> None:
        """Set the date of the coming answers."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            state.default_headers[:] = [(b"date", formatdate(second, usegmt=True).encode())]

    @property
    def known_count(self) -> int:
        return len(self._known)

    @property
    def unknown_count(self) -> int:
        return len(self._unknown)

    def add(self, transport: asyncio.Transport) -> PeerConnection:
        """Add a connection; if there is no room, the oldest unknown one is closed."""
        name = transport.get_extra_info("peername")
        connection = PeerConnection(self, transport, str(name[0]) if name else "")
        _set_unread_timeout(transport, self.limits.unread_seconds)
        mine = self._of_peer.setdefault(connection.peer, {})
        if self._by_peer and len(mine) >= self.limits.unknown_per_peer:
            self._evict(next(iter(mine)))
        elif len(self._unknown) >= self.limits.unknown:
            self._evict(next(iter(self._unknown)))
        self._unknown[connection] = None
        self._of_peer.setdefault(connection.peer, {})[connection] = None
        return connection

    def make_known(self, connection: PeerConnection) -> None:
        """Raises `HttpRefusal` if there are too many known ones."""
        if len(self._known) >= self.limits.known:
            self._counts.count_refusal("connections")
            raise HttpRefusal(503, "connections", "There are too many connections. Try again later", RETRY_SECONDS)
        self._forget(connection)
        connection.known = True
        self._known.add(connection)

    def remove(self, connection: PeerConnection) -> None:
        self._forget(connection)
        self._known.discard(connection)

    def count_slow_request(self) -> None:
        self._counts.count_refusal("slow")

    def count_bad_request(self) -> None:
        self._counts.count_refusal("bad_request")

    def _evict(self, connection: PeerConnection) -> None:
        self._counts.count_refusal("connections")
        self._forget(connection)
        connection.refuse(503, "There are too many connections. Try again later")

    def _forget(self, connection: PeerConnection) -> None:
        self._unknown.pop(connection, None)
        mine = self._of_peer.get(connection.peer)
        if mine is not None:
            mine.pop(connection, None)
            if not mine:
                del self._of_peer[connection.peer]


class LimitedHttp(H11Protocol):
    """The HTTP requests of one connection, each with a time limit."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for the first request."""
        super().connection_made(transport)
        self._connection = self._all.add(transport)
        self.app_state = {**self.app_state, "connection": self._connection}
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self._connection.on_connection_lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive data; the time limit of a request runs from its first byte to its last."""
        if self.transport.is_closing():
            return
        self._all.update_date(self.server_state)
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and self.transport.get_protocol() is self:
            self._set_deadline()
        else:
            self._clear_deadline()

    def on_response_complete(self) -> None:
        """Start the limit for the next request, of which data may have arrived already."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0] and not self.transport.is_closing():
            self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request, or one with too many headers."""
        self._all.count_bad_request()
        if self.cycle is not None and not self.cycle.response_complete:
            self._connection.close_or_abort()
        elif self.conn.their_state is h11.ERROR and len(self.conn.trailing_data[0]) > HEADER_BYTES:
            self._connection.refuse(431, LONG_HEADERS)
        else:
            self._connection.refuse(400, "This is not an HTTP request")

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._all.limits.request_seconds, self._on_deadline)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        self._all.count_slow_request()
        if self.cycle is None or not self.cycle.response_started:
            self._connection.refuse(408, "The request was not complete in time")
        else:
            self._connection.close_or_abort()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket."""

    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make it known to its connection, for `send_lines`."""
        super().connection_made(transport)
        connection = self.app_state.get("connection")
        if isinstance(connection, PeerConnection):
            connection.set_web_socket(self)

    async def send_lines(self, lines: Sequence[bytes]) -> None:
        """Send each line in a text frame, all of them at once: the usual way takes a system call for each. Raises
        `WebSocketDisconnect` once the client has gone."""
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise WebSocketDisconnect(GONE)
        try:
            for line in lines:
                self.conn.send_text(line if line.isascii() else line.decode("utf-8", "replace").encode())
        except InvalidState:
            # The client has begun to close.
            raise WebSocketDisconnect(GONE) from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    def data_received(self, data: bytes) -> None:
        """Receive frames; everything after a refused one is dropped."""
        if not self._refused:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        """Refuse an invalid frame, or one that is too long.

        The peer may still be sending it, and closing a connection with unread bytes resets it, so that the peer would
        never learn why. So they are read for a while, until the peer has closed its side.
        """
        self._refused = True
        closed = self.conn.close_sent
        assert closed is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(ABORT_SECONDS, self.transport.close)
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def shutdown(self) -> None:
        """Close on shutdown; a client whose conversation is still waking is asked to reconnect, like those that were
        open."""
        connection = self.app_state.get("connection")
        if isinstance(connection, PeerConnection) and not self.handshake_complete and self.initial_response is None:
            connection.refuse(503, STOPPING)
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        connection = self.app_state.get("connection")
        if isinstance(connection, PeerConnection):
            connection.on_connection_lost()
        super().connection_lost(exc)


def _set_unread_timeout(transport: asyncio.Transport, seconds: float) -> None:
    """Have the kernel close the connection if the peer does not read."""
    link = transport.get_extra_info("socket")
    if link is not None and link.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_USER_TIMEOUT"):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def _encode_answer(status: int, text: str) -> bytes:
    body = codec.encode({"error": text})
    retry = f"retry-after: {RETRY_SECONDS}\r\n" if status == 503 else ""
    head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\n{retry}"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
