"""Unpacks a body that a server compressed, piece by piece and never much at once."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator

PIECE_BYTES = 1024 * 1024
_EITHER_HEADER = 47
_NO_HEADER = -15
_GZIP = b"\x1f\x8b"


class DecodingError(Exception):
    """The body is not what its header says."""


async def unpacked(packed: AsyncIterator[bytes], how: str) -> AsyncIterator[bytes]:
    """The body in plain bytes; all that a chunk tells comes before the next chunk is asked for."""
    if how not in ("gzip", "x-gzip", "deflate"):
        raise DecodingError(f"the server sent content-encoding {how}, though it was asked for none")
    body = _Packed(how)
    async for chunk in packed:
        for piece in body.pieces(chunk):
            yield piece
    if not body.complete:
        raise DecodingError(f"the {how} body ended too early")


class _Packed:
    """One compressed stream, or several gzip ones in a row."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._machine: zlib._Decompress | None = None
        self._head = b""
        self._ignored = False
        self.complete = False

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What can be told with this chunk."""
        rest, self._head = self._head + chunk, b""
        while rest and not self._ignored:
            if self._machine is None:
                if len(rest) < 2:
                    self._head = rest
                    return
                if self.complete and (self._how == "deflate" or not rest.startswith(_GZIP)):
                    self._ignored = True
                    return
                self._machine = self._started(rest)
                self.complete = False
            yield from self._inflated(self._machine, rest)
            rest = self._machine.unused_data
            if self._machine.eof:
                self._machine, self.complete = None, True

    def _started(self, head: bytes) -> zlib._Decompress:
        """Some servers leave away the frame that `deflate` has by the standard."""
        framed = head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        bare = self._how == "deflate" and not framed and not head.startswith(_GZIP)
        return zlib.decompressobj(_NO_HEADER if bare else _EITHER_HEADER)

    def _inflated(self, machine: zlib._Decompress, rest: bytes) -> Iterator[bytes]:
        full = False
        # Bytes behind the end stay in the tail for ever.
        while (rest or full) and not machine.eof:
            try:
                piece = machine.decompress(rest, PIECE_BYTES)
            except zlib.error as error:
                raise DecodingError(f"the body is not {self._how}: {error}") from None
            if piece:
                yield piece
            rest = machine.unconsumed_tail
            # The machine may have taken all bytes and still have something to tell.
            full = len(piece) == PIECE_BYTES
