"""Bodies that a server compressed although it was asked not to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from pigeon.providers.http.network_errors import DecodingError

if TYPE_CHECKING:
    import zlib

PIECE_BYTES = 1024 * 1024
# Window sizes of zlib: with a gzip or zlib header, and without one.
_EITHER_HEADER = 47
_NO_HEADER = -15
_GZIP = b"\x1f\x8b"


async def decompress_body(packed: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The decompressed body; all output of a chunk is yielded before the next chunk is read.

    It comes in pieces, so that a small body cannot expand to a large one in memory at once.
    """
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise DecodingError(f"the server sent content-encoding {encoding}, though it was asked for none")
    body = _Decompressor(encoding)
    async for chunk in packed:
        for piece in body.decompress(chunk):
            yield piece
            await asyncio.sleep(0)  # one chunk may expand to a thousand pieces
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

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        """The output of this chunk, in pieces of limited size."""
        rest, self._head = self._head + chunk, b""
        while rest and not self._ignored:
            if self._inflater is None:
                if len(rest) < 2:
                    self._head = rest
                    return
                if self.complete and (self._encoding == "deflate" or not rest.startswith(_GZIP)):
                    self._ignored = True
                    return
                self._inflater = self._new_inflater(rest)
                self.complete = False
            yield from self._inflate(self._inflater, rest)
            rest = self._inflater.unused_data
            if self._inflater.eof:
                self._inflater, self.complete = None, True

    def _new_inflater(self, head: bytes) -> zlib._Decompress:
        """Some servers omit the frame that the standard requires for `deflate`."""
        framed = head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        bare = self._encoding == "deflate" and not framed and not head.startswith(_GZIP)
        import zlib

        return zlib.decompressobj(_NO_HEADER if bare else _EITHER_HEADER)

    def _inflate(self, inflater: zlib._Decompress, rest: bytes) -> Iterator[bytes]:
        import zlib

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
