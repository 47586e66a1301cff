"""The body of an answer: events cut out of it, and decompression."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.clock import within
from pigeon.providers.errors import from_exception
from pigeon.providers.http import decompression
from pigeon.providers.http.decompression import PIECE_BYTES, decompress_body
from pigeon.providers.http.exchange import EventTooLong, SseParser
from pigeon.providers.http.network_errors import DecodingError

STREAM = b"event: a\ndata: 1\n\n: ping\n\ndata: 2\ndata: 3\n\nid: 7\ndata:4\n\n"
EVENTS = [(b"a", b"1"), (b"", b"2\n3"), (b"", b"4")]


def all_events(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    parser = SseParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    return found + parser.finish()


def test_names_data_comments_and_several_data_lines() -> None:
    assert all_events([STREAM]) == EVENTS


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
def test_lines_may_end_in_lf_cr_or_crlf(ending: bytes) -> None:
    assert all_events([STREAM.replace(b"\n", ending)]) == EVENTS


@given(cuts=st.lists(st.integers(0, len(STREAM) * 2), max_size=12), ending=st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_where_the_network_cuts_makes_no_difference(cuts: list[int], ending: bytes) -> None:
    data = STREAM.replace(b"\n", ending)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    assert all_events([data[a:b] for a, b in itertools.pairwise(places)]) == EVENTS


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_break_the_parser(pieces: list[bytes]) -> None:
    assert all_events(pieces) == all_events([b"".join(pieces)])


def test_a_missing_last_blank_line_loses_nothing() -> None:
    assert all_events([b"data: 1\n\ndata: 2"]) == [(b"", b"1"), (b"", b"2")]


def test_a_byte_order_mark_is_passed_over_even_when_it_comes_in_pieces() -> None:
    assert all_events([b"\xef", b"\xbb", b"\xbfdata: 1\n\n"]) == [(b"", b"1")]


def test_a_field_without_a_colon_counts_with_an_empty_value() -> None:
    assert all_events([b"data\ndata\n\n"]) == [(b"", b"\n")]


def test_events_without_data_are_none() -> None:
    assert all_events([b"event: ping\n\n: hi\n\n"]) == []


def test_an_event_without_end_is_given_up_at_the_limit() -> None:
    parser = SseParser(limit=100)
    parser.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLong):
        parser.feed(b"xxxxxxxx")


def test_one_large_event_in_small_pieces_takes_linear_time() -> None:
    parser = SseParser()
    with within(1.5):
        for _ in range(40_000):
            assert parser.feed(b"data: xxxxxxxxxxxxxxxxxxxxxxxx\n") == []
        assert len(parser.feed(b"\n")) == 1


def test_ten_thousand_events_pass_quickly() -> None:
    parser = SseParser()
    chunk = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{}}\n\n'
    with within(0.5):
        count = sum(len(parser.feed(chunk)) for _ in range(10_000))
        assert count == 10_000


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
    return b"".join([piece async for piece in decompress_body(given_in(chunks), how)])


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
    sizes = [len(piece) async for piece in decompress_body(given_in([bomb]), how)]
    assert max(sizes) <= PIECE_BYTES
    assert sum(sizes) == 20 * PIECE_BYTES


@pytest.mark.parametrize(
    "behind", [b"\n", b"\0" * 512, gzip.compress(b"more", mtime=0)], ids=["line", "padding", "another"]
)
async def test_a_long_piece_with_something_behind_its_end_comes_to_an_end(behind: bytes) -> None:
    packed = gzip.compress(bytes(3 * PIECE_BYTES)) + behind
    sizes = [len(piece) async for piece in decompress_body(given_in([packed]), "gzip")]
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

        async def watch() -> AsyncIterator[bytes]:
            nonlocal seen
            yield first
            seen = bytes(told)
            yield data[len(first) :]

        async for piece in decompress_body(watch(), how):
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
