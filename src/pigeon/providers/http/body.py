"""Reading the body of an answer: server-sent events cut out of the bytes as they arrive, and decompression.

Lines may end in LF, CR or CRLF, an event may be split anywhere, comments and unknown fields are passed over. The work
is linear in the bytes fed, whatever the size of the pieces. Written here because the libraries decode to text first
and cost several times more per event.

Bodies are asked for uncompressed; a server that compresses all the same is unpacked piece by piece, so that a small
body cannot become a large one in memory at once.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator

Event = tuple[bytes, bytes]
MAX_EVENT_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
PIECE_BYTES = 1024 * 1024
# Window sizes of zlib: with a header of gzip or zlib, and without any.
_EITHER_HEADER = 47
_NO_HEADER = -15
_GZIP = b"\x1f\x8b"


class EventTooLong(ValueError):
    """One event grew past the limit without an end."""


class SseParser:
    """Bytes in, complete events out; an event is its name (may be empty) and its data."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._after_cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete with this piece."""
        if not self._begun:
            chunk = self._without_bom(chunk)
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        buffer = self._buffer
        scanned = len(buffer) - 1
        buffer += chunk
        end = buffer.rfind(b"\n\n", max(scanned, 0))
        if end < 0:
            if len(buffer) > self._limit:
                raise EventTooLong(f"an event is longer than {self._limit} bytes")
            return []
        complete = bytes(buffer[:end])
        del buffer[: end + 2]
        events: list[Event] = []
        for block in complete.split(b"\n\n"):
            _parse(block, events)
        return events

    def finish(self) -> list[Event]:
        """The stream is over: an event whose closing blank line is missing still counts."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        events: list[Event] = []
        _parse(rest, events)
        return events

    def _without_bom(self, chunk: bytes) -> bytes:
        held = bytes(self._buffer) + chunk
        self._buffer.clear()
        if len(held) < len(_BOM) and _BOM.startswith(held):
            self._buffer += held
            return b""
        self._begun = True
        return held.removeprefix(_BOM)

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        if not chunk:
            return chunk
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
            if not chunk:
                return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse(block: bytes, events: list[Event]) -> None:
    name = b""
    data: bytes | None = None
    more: list[bytes] = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[6:] if line.startswith(b"data: ") else line[5:]
        elif line == b"data":
            value = b""
        else:
            if line.startswith(b"event:"):
                name = line[6:].removeprefix(b" ")
            continue
        if data is None:
            data = value
        else:
            more.append(value)
    if data is not None:
        events.append((name, b"\n".join((data, *more)) if more else data))


class DecodingError(Exception):
    """The body is not what its header says."""


async def unpacked(packed: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The body in plain bytes; all that a chunk gives comes before the next chunk is asked for."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise DecodingError(f"the server sent content-encoding {encoding}, though it was asked for none")
    body = _Decompressor(encoding)
    async for chunk in packed:
        for piece in body.pieces(chunk):
            yield piece
    if not body.complete:
        raise DecodingError(f"the {encoding} body ended too early")


class _Decompressor:
    """One compressed stream, or several gzip ones in a row."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflater: zlib._Decompress | None = None
        self._head = b""
        self._ignored = False
        self.complete = False

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What this chunk gives, in pieces of limited size."""
        rest, self._head = self._head + chunk, b""
        while rest and not self._ignored:
            if self._inflater is None:
                if len(rest) < 2:
                    self._head = rest
                    return
                if self.complete and (self._encoding == "deflate" or not rest.startswith(_GZIP)):
                    self._ignored = True
                    return
                self._inflater = self._started(rest)
                self.complete = False
            yield from self._inflated(self._inflater, rest)
            rest = self._inflater.unused_data
            if self._inflater.eof:
                self._inflater, self.complete = None, True

    def _started(self, head: bytes) -> zlib._Decompress:
        """Some servers leave away the frame that `deflate` has by the standard."""
        framed = head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        bare = self._encoding == "deflate" and not framed and not head.startswith(_GZIP)
        return zlib.decompressobj(_NO_HEADER if bare else _EITHER_HEADER)

    def _inflated(self, inflater: zlib._Decompress, rest: bytes) -> Iterator[bytes]:
        full = False
        # Bytes behind the end stay in the tail for ever.
        while (rest or full) and not inflater.eof:
            try:
                piece = inflater.decompress(rest, PIECE_BYTES)
            except zlib.error as error:
                raise DecodingError(f"the body is not {self._encoding}: {error}") from None
            if piece:
                yield piece
            rest = inflater.unconsumed_tail
            # The inflater may have taken all bytes and still have output left.
            full = len(piece) == PIECE_BYTES
