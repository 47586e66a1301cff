"""Unpacks a body that a server compressed, piece by piece and never much at once."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

PIECE_BYTES = 1024 * 1024
_EITHER_HEADER = 47


class DecodingError(Exception):
    """The body is not what its header says."""


async def unpacked(packed: AsyncIterator[bytes], how: str) -> AsyncIterator[bytes]:
    """The body in plain bytes."""
    if how not in ("gzip", "x-gzip", "deflate"):
        raise DecodingError(f"the server sent content-encoding {how}, though it was asked for none")
    machine = zlib.decompressobj(_EITHER_HEADER)
    async for chunk in packed:
        rest = chunk
        while rest:
            try:
                piece = machine.decompress(rest, PIECE_BYTES)
            except zlib.error as error:
                raise DecodingError(f"the body is not {how}: {error}") from None
            if piece:
                yield piece
            rest = machine.unconsumed_tail
    if not machine.eof:
        raise DecodingError(f"the {how} body ended too early")
