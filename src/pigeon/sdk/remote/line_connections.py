"""One connection to a conversation of `pigeon serve`, over a WebSocket or a unix socket: lines both ways.

`sdk/remote/served_transport.py` opens the next one when one is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pigeon.sdk.remote.addresses import ServedAddress
from pigeon.system.extras import make_install_command
from pigeon.transport.reader import CHUNK, Framing
from pigeon.transport.unix_socket import user_of
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.choices import ToolOffer
from pigeon.wire.errors import BadRecord, StartupError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

OPEN_SECONDS = 20.0
CLOSE_SECONDS = 5.0
# The longest accepted line: an answer with a whole conversation may be long.
LONGEST = 512 * 1024 * 1024
NO_WEBSOCKETS = "Conversations over the network need a package that is not installed"
_FINAL_STATUS = (400, 401, 403, 404)
_FINAL_CLOSE = range(4000, 4008)
_TOO_LONG_CLOSE = 1009
_MOST_BODY = 1024 * 1024


class NotReached(StartupError):
    """There is no connection; `final` if retrying is useless."""

    def __init__(self, text: str, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


class NewConversation(Struct, frozen=True):
    """A conversation to begin: its folder on the server, its model, and what its client shows."""

    cwd: str
    model: str | None = None
    offers: tuple[ToolOffer, ...] = ()

    def to_request(self) -> dict[str, Json]:
        """The members of the request for it."""
        model: dict[str, Json] = {} if self.model is None else {"model": self.model}
        return {"cwd": self.cwd, **model, **dict.fromkeys(self.offers, True)}


class LineConnection(Protocol):
    """An open connection. `start` is the number of the event behind which its events begin, `session` the id.

    `too_long` is True once it was lost because a sent line was too long for the server.
    """

    start: int
    session: str
    too_long: bool

    async def send(self, line: bytes) -> None:
        """Send a line, without its LF; raises `OSError` when the connection is lost."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """The received lines, without LF, until the connection is lost; raises `NotReached` if it was ended for
        good."""
        ...

    async def close(self) -> None:
        """Close the connection; the conversation continues."""
        ...


async def open_connection(
    address: ServedAddress, token: str | None, after: int | None, new: NewConversation | None
) -> LineConnection:
    """Connect to a conversation, or to a new one; raises `NotReached`."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            if address.path:
                return await _open_socket(address, after, new)
            if address.session is None:
                assert new is not None
                session = await asyncio.to_thread(_create_conversation, address, token, new)
                address = ServedAddress(address.origin, session=session)
            return await _open_websocket(address, token, after)
    except TimeoutError:
        raise NotReached(f"{address.text} does not answer") from None
    except OSError as error:
        raise NotReached(f"{address.text}: {error.strerror or error}") from None


# Over a WebSocket


class WebSocketLines:
    """Lines over a WebSocket: one in each text frame."""

    def __init__(self, connection: ClientConnection, session: str) -> None:
        self._connection = connection
        self.session = session
        self.too_long = False
        response = connection.response
        self.start = 0 if response is None else int(response.headers.get("pigeon-seq", "0"))

    async def send(self, line: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(line.decode("utf-8", "replace"))
        except ConnectionClosed as closed:
            raise ConnectionResetError(str(closed)) from None

    async def lines(self) -> AsyncIterator[bytes]:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                frame = await self._connection.recv(decode=False)
                yield frame if isinstance(frame, bytes) else frame.encode()
        except ConnectionClosed as closed:
            self.too_long = closed.rcvd is not None and closed.rcvd.code == _TOO_LONG_CLOSE
            if closed.rcvd is not None and closed.rcvd.code in _FINAL_CLOSE:
                raise NotReached(closed.rcvd.reason or f"the server has closed with {closed.rcvd.code}", True) from None

    async def close(self) -> None:
        """Close cleanly, without waiting long."""
        await self._connection.close()


async def _open_websocket(address: ServedAddress, token: str | None, after: int | None) -> LineConnection:
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidStatus
    except ModuleNotFoundError:
        raise NotReached(f"{NO_WEBSOCKETS}: {make_install_command('serve')}", True) from None
    url = address.text if after is None else f"{address.text}?after={after}"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection = await connect(
            url,
            additional_headers=headers,
            compression=None,
            proxy=None,
            max_size=LONGEST,
            open_timeout=None,
            close_timeout=CLOSE_SECONDS,
        )
    except InvalidStatus as refused:
        status = refused.response.status_code
        body = bytes(refused.response.body or b"")
        raise NotReached(_refusal_text(address, status, body), status in _FINAL_STATUS) from None
    except InvalidHandshake as error:
        raise NotReached(f"{address.text} is no server of conversations: {error}") from None
    assert address.session is not None
    return WebSocketLines(connection, address.session)


def _create_conversation(address: ServedAddress, token: str | None, new: NewConversation) -> str:
    """Begin a conversation; returns its id."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    parts = urlsplit(address.http_origin)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=OPEN_SECONDS)
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    body = new.to_request()
    try:
        connection.request("POST", f"{parts.path}/api/sessions", codec.encode(body), headers)
        response = connection.getresponse()
        answer = response.read(_MOST_BODY)
        if response.status not in (200, 201):
            raise NotReached(_refusal_text(address, response.status, answer), response.status in _FINAL_STATUS)
        return str(codec.decode(answer)["id"])
    except (HTTPException, BadRecord, KeyError, TypeError) as error:
        raise NotReached(f"{address.text} is no server of conversations: {error}") from None
    finally:
        connection.close()


def _refusal_text(address: ServedAddress, status: int, body: bytes) -> str:
    """The server's reason, or the meaning of its status."""
    try:
        value = codec.decode(body)
    except BadRecord:
        value = None
    said = value.get("error") if isinstance(value, dict) else None
    meant = {401: "a token is needed, and must be one of the server's", 403: "the token, or this address, may not"}
    return f"{address.text}: {said or meant.get(status) or f'the server answers with the status {status}'}"


# Over a unix socket


class SocketLines:
    """Lines over a Unix socket, after the line that names the conversation."""

    session = ""
    start = 0
    too_long = False

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._framing = Framing(LONGEST)
        self._waiting: deque[bytes] = deque()

    async def attach(self, request: dict[str, Any]) -> None:
        """Name the conversation; raises `NotReached`."""
        await self.send(codec.encode(request))
        first = await self._read_line()
        answer = {} if first is None else codec.decode(first)
        if not isinstance(answer, dict) or answer.get("command") != "attach":
            raise NotReached("no server of conversations listens there", first is not None)
        if answer.get("success") is not True:
            raise NotReached(str(answer.get("error")), answer.get("code") != "overloaded")
        self.session, self.start = str(answer["data"]["session"]), int(answer["data"]["seq"])

    async def send(self, line: bytes) -> None:
        self._writer.write(line + b"\n")
        await self._writer.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        try:
            while (line := await self._read_line()) is not None:
                yield line
        except OSError:
            return

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _read_line(self) -> bytes | None:
        while not self._waiting:
            data = await self._reader.read(CHUNK)
            if not data:
                return None
            self._waiting.extend(frame for frame in self._framing.feed(data) if isinstance(frame, bytes))
        return self._waiting.popleft()


async def _open_socket(address: ServedAddress, after: int | None, new: NewConversation | None) -> LineConnection:
    reader, writer = await asyncio.open_unix_connection(address.path)
    connection = SocketLines(reader, writer)
    try:
        # The peer can make this program run tools, so it must belong to our own user or to the system.
        if user_of(writer.get_extra_info("socket")) not in (None, 0, os.geteuid()):
            raise NotReached(f"{address.path}: the process that listens there is another user's", True)
        if address.session is not None:
            wanted: dict[str, Any] = {"session": address.session} | ({} if after is None else {"after": after})
        else:
            assert new is not None
            wanted = new.to_request()
        await connection.attach({"type": "attach", **wanted})
    except NotReached as error:
        await connection.close()
        raise NotReached(f"{address.text}: {error}", error.final) from None
    except BaseException:
        await connection.close()
        raise
    return connection
