"""HTTP/1.1 as bytes: the head of a request, and a parser for the response to it.

Nothing here does I/O. A `ResponseHead` is parsed once it has arrived completely; then a body is fed the pieces as they
come and returns what they contain. All data of a piece is returned at once, however many chunks it is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from pigeon.providers.http.network_errors import InvalidHeader, ProtocolError

MAX_HEAD_BYTES = 100 * 1024
MAX_CHUNK_LINE = 16 * 1024
Headers = list[tuple[bytes, bytes]]

_STATUS_LINE = re.compile(rb"HTTP/(\d\.\d) ([1-5]\d\d)(?: .*)?")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?")
_FORBIDDEN_IN_VALUE = re.compile(r"[\0\r\n]")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")


def encode_head(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The head of a request; raises `InvalidHeader` for what cannot be sent."""
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers:
        if not (name.isascii() and _TOKEN.fullmatch(name.encode())):
            raise InvalidHeader("a header has an illegal name. Check headers.")
        if not value.isascii() or _FORBIDDEN_IN_VALUE.search(value):
            raise InvalidHeader(f"the header {name} has an illegal value. Check apiKey and headers.")
        lines.append(f"{name}: {value.strip()}")
    return "\r\n".join((*lines, "", "")).encode("ascii")


class ResponseHead(NamedTuple):
    """Status and headers of a response; names are in lower case."""

    status: int
    reason: str
    version: bytes
    headers: Headers

    def values_of(self, name: bytes) -> list[bytes]:
        """The values of a list header, in lower case."""
        joined = b",".join(value for key, value in self.headers if key == name)
        return [part.strip().lower() for part in joined.split(b",")] if joined else []

    @property
    def is_kept_alive(self) -> bool:
        """Whether the server takes another request on this connection."""
        return self.version >= b"1.1" and b"close" not in self.values_of(b"connection")


def split_head(buffer: bytes) -> tuple[ResponseHead, bytes] | None:
    """The head and what follows it, or None if it is not complete yet."""
    # An empty line in front is not an end; some servers send one after the body of the response before.
    start = len(buffer) - len(buffer.lstrip(b"\r\n"))
    end = _HEAD_END.search(buffer, start)
    if end is None:
        if len(buffer) > MAX_HEAD_BYTES:
            raise ProtocolError(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")
        if len(buffer) - start > 5 and not buffer.startswith(b"HTTP/", start):
            raise _not_http(buffer)
        return None
    if end.start() - start > MAX_HEAD_BYTES:
        raise ProtocolError(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")
    first, *rest = _LINE_END.split(buffer[start : end.start()])
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise _not_http(buffer)
    reason = first[13:].decode("latin-1").strip()
    return ResponseHead(int(status[2]), reason, status[1], _parse_headers(rest)), buffer[end.end() :]


def _not_http(buffer: bytes) -> ProtocolError:
    shown = buffer[:60].decode("latin-1").split("\n")[0].strip()
    return ProtocolError(f"the server does not speak HTTP/1.1; it sent {shown!r}")


def _parse_headers(lines: list[bytes]) -> Headers:
    headers: Headers = []
    for line in lines:
        if line[:1] in (b" ", b"\t") and headers:  # continues the line before, in an old form
            name, value = headers[-1]
            headers[-1] = (name, value + b" " + line.strip())
            continue
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or b"\0" in value:
            raise ProtocolError("the answer has a malformed header")
        headers.append((name.lower(), value.strip(b" \t")))
    return headers


class Body(Protocol):
    """What is left to come of a response."""

    @property
    def complete(self) -> bool:
        """True when the body has ended; what was fed beyond its end is in `rest`."""
        ...

    @property
    def rest(self) -> bytes: ...

    def feed(self, data: bytes) -> bytes:
        """What these bytes contain of the body."""
        ...

    def end(self) -> None:
        """The server closed the connection; raises `ProtocolError` if the body is not complete."""
        ...


def body_of(head: ResponseHead) -> Body:
    """The body that a head announces."""
    if head.status < 200 or head.status in (204, 304):
        return LengthBody(0)
    encodings = head.values_of(b"transfer-encoding")
    if encodings:
        if encodings != [b"chunked"]:
            raise ProtocolError("the answer has a transfer-encoding that was not asked for")
        return ChunkedBody()
    lengths = set(head.values_of(b"content-length"))
    if not lengths:
        return OpenBody()
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > 20:
        raise ProtocolError("the answer has a malformed content-length")
    return LengthBody(int(length))


class LengthBody:
    """A body whose length the head names."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.rest = b""

    @property
    def complete(self) -> bool:
        return self._left == 0

    def feed(self, data: bytes) -> bytes:
        if len(data) > self._left:
            data, self.rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        return data

    def end(self) -> None:
        if self._left:
            raise ProtocolError(f"the server closed the connection {self._left} bytes before the end of the answer")


class OpenBody:
    """A body that ends with the connection."""

    complete = False
    rest = b""

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> None:
        self.complete = True


class ChunkedBody:
    """A body in chunks, each with its size in front of it."""

    def __init__(self) -> None:
        self.complete = False
        self.rest = b""
        self._held = b""  # the beginning of a line
        self._left = 0  # of the current chunk
        self._in_trailer = False
        self._after_chunk = False
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> bytes:
        if self._held:
            data, self._held = self._held + data, b""
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while at < size and not self.complete:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._after_chunk = not self._left
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._held = data[at:]
                if len(self._held) > MAX_CHUNK_LINE:
                    raise ProtocolError("the answer has an endless line between its chunks")
                break
            line = data[at : end - 1] if data[end - 1 : end] == b"\r" and end > at else data[at:end]
            at = end + 1
            self._read_line(line)
        if self.complete:
            self.rest = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_line(self, line: bytes) -> None:
        if self._after_chunk:
            if line:
                raise ProtocolError("the answer has a chunk that is longer than it says")
            self._after_chunk = False
        elif self._in_trailer:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MAX_HEAD_BYTES:
                raise ProtocolError(f"the trailer of the answer is longer than {MAX_HEAD_BYTES} bytes")
            self.complete = not line
        else:
            size = _CHUNK_SIZE.fullmatch(line)
            if size is None:
                raise ProtocolError("the answer has a chunk without a size")
            self._left = int(size[1], 16)
            self._in_trailer = not self._left

    def end(self) -> None:
        if not self.complete:
            raise ProtocolError("the server closed the connection before the end of the answer")
