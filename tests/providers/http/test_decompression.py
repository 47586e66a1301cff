from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.providers.errors import from_exception
from pigeon.providers.http import decompression
from pigeon.providers.http.decompression import PIECE_BYTES, DecodingError, unpacked


def bare(data: bytes) -> bytes:
    """Deflate without its frame, as some servers send it."""
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", bare),
]
KINDS = [f"{how}-{pack.__name__}" for how, pack in PACKED]
BODIES = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=3), st.integers(1, 5000)),
)


async def given_in(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def plain(how: str, *chunks: bytes) -> bytes:
    return b"".join([piece async for piece in unpacked(given_in(chunks), how)])


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in pieces of these sizes, over and over; some are empty."""
    out: list[bytes] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)] + (turn % len(sizes) == 0)
        out.append(data[at : at + size])
        at += size
        turn += 1
    return out


@pytest.mark.parametrize(("how", "pack"), PACKED, ids=KINDS)
@given(body=BODIES, sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5))
async def test_pieces_of_any_size_make_the_same_body(how: str, pack: Any, body: bytes, sizes: list[int]) -> None:
    assert await plain(how, *cut(pack(body), sizes)) == body


@pytest.mark.parametrize(("how", "pack"), PACKED, ids=KINDS)
@given(body=BODIES, at=st.integers(0, 10_000))
async def test_a_body_that_ends_too_early_is_an_error(how: str, pack: Any, body: bytes, at: int) -> None:
    data = pack(body)
    with pytest.raises(DecodingError, match=f"the {how} body ended too early"):
        await plain(how, data[: at % len(data)])


@pytest.mark.parametrize("how", ["gzip", "deflate"])
async def test_a_body_that_is_something_else_is_an_error_that_says_so(how: str) -> None:
    with pytest.raises(DecodingError, match=f"the body is not {how}: ") as caught:
        await plain(how, b"<html>not compressed at all</html>")
    failure = from_exception(caught.value)
    assert failure.message.startswith("The answer cannot be decompressed: the body is not")
    assert (failure.code, failure.retryable) == ("malformed_stream", False)


async def test_a_body_that_was_changed_on_its_way_is_an_error() -> None:
    data = bytearray(gzip.compress(b"hello" * 100))
    data[-6] ^= 1
    with pytest.raises(DecodingError, match="the body is not gzip"):
        await plain("gzip", bytes(data))


@pytest.mark.parametrize("how", ["br", "zstd", "gzip, gzip"])
async def test_an_unknown_way_to_compress_is_an_error_that_names_it(how: str) -> None:
    with pytest.raises(DecodingError, match=f"content-encoding {how}"):
        await plain(how, b"...")


@pytest.mark.parametrize(("how", "pack"), PACKED, ids=KINDS)
async def test_a_bomb_comes_in_pieces_of_bounded_size(how: str, pack: Any) -> None:
    bomb = pack(bytes(20 * PIECE_BYTES))
    assert len(bomb) < PIECE_BYTES // 20
    sizes = [len(piece) async for piece in unpacked(given_in([bomb]), how)]
    assert max(sizes) <= PIECE_BYTES
    assert sum(sizes) == 20 * PIECE_BYTES


@pytest.mark.parametrize(
    "behind", [b"\n", b"\0" * 512, gzip.compress(b"more", mtime=0)], ids=["line", "padding", "another"]
)
async def test_a_long_piece_with_something_behind_its_end_comes_to_an_end(behind: bytes) -> None:
    packed = gzip.compress(bytes(3 * PIECE_BYTES)) + behind
    sizes = [len(piece) async for piece in unpacked(given_in([packed]), "gzip")]
    assert sum(sizes) in (3 * PIECE_BYTES, 3 * PIECE_BYTES + len(b"more"))


@pytest.mark.parametrize(("how", "pack"), PACKED, ids=KINDS)
@given(body=BODIES, at=st.integers(2, 10_000))
async def test_nothing_that_came_is_held_back(how: str, pack: Any, body: bytes, at: int) -> None:
    data = pack(body)
    first = data[: 2 + at % len(data)]
    machine = zlib.decompressobj(-15 if pack is bare else 47)
    expected = machine.decompress(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompression, "PIECE_BYTES", 7)
        told = bytearray()
        seen = b""

        async def watched() -> AsyncIterator[bytes]:
            nonlocal seen
            yield first
            seen = bytes(told)
            yield data[len(first) :]

        async for piece in unpacked(watched(), how):
            assert len(piece) <= 7
            told += piece
    assert seen == expected
    assert told == body


@given(bodies=st.lists(BODIES, min_size=1, max_size=4), sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5))
async def test_gzip_bodies_in_a_row_are_one_body(bodies: list[bytes], sizes: list[int]) -> None:
    data = b"".join(gzip.compress(body) for body in bodies)
    assert await plain("gzip", *cut(data, sizes)) == b"".join(bodies)


@pytest.mark.parametrize(("how", "pack"), PACKED, ids=KINDS)
async def test_what_comes_behind_the_end_is_not_kept(how: str, pack: Any) -> None:
    assert await plain(how, pack(b"hello"), b"\0", *[bytes(1000)] * 100) == b"hello"
    assert await plain(how, pack(b"hello") + bytes(1000), gzip.compress(b"no more")) == b"hello"
