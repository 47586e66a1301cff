"""Server-sent events, cut out of a byte stream as it arrives.

Lines may end in LF, CR or CRLF, an event may be split anywhere, comments and unknown fields are passed over. The work
is linear in the bytes fed, whatever the size of the pieces. Written here because the libraries decode to text first
and cost several times more per event.
"""

from __future__ import annotations

Event = tuple[bytes, bytes]
MAX_EVENT_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


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
