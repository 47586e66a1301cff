from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.transport.reader import ENDING, Frame, Framing, SkippedEnd, TooLong

STREAMS = st.lists(
    st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"x" * 9])
)
STREAM = STREAMS.map(b"".join)


def lines_of(*chunks: bytes, cap: int = 1000) -> list[bytes | str]:
    framing = Framing(cap)
    frames: list[Frame] = [frame for chunk in chunks for frame in framing.feed(chunk)]
    return ["too long" if isinstance(frame, TooLong) else frame for frame in [*frames, *framing.finish_input()]]


def split_stream(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


@given(STREAM, st.lists(st.integers(0, 1000)), st.sampled_from([4, 1000]))
def test_any_chunking_gives_the_same_lines(stream: bytes, cuts: list[int], cap: int) -> None:
    expected = lines_of(stream, cap=cap)
    assert lines_of(*split_stream(stream, cuts), cap=cap) == expected
    assert lines_of(*(bytes([byte]) for byte in stream), cap=cap) == expected


@given(STREAM)
def test_only_a_line_feed_ends_a_line(stream: bytes) -> None:
    *whole, rest = stream.split(b"\n")
    expected = [line.removesuffix(b"\r") for line in whole]
    last = rest.removesuffix(b"\r")
    assert lines_of(stream) == [*expected, *([last] if last else [])]


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\r\nb\n", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"a", [b"a"]),
        (b"a\nb\r", [b"a", b"b"]),
        (b"a\n\r", [b"a"]),
        ("a\u2028b\u2029c\x85\n".encode(), ["a\u2028b\u2029c\x85".encode()]),
    ],
)
def test_lines_come_without_their_ends(stream: bytes, lines: list[bytes]) -> None:
    assert lines_of(stream) == lines


def test_a_line_may_be_as_long_as_the_cap_and_no_longer() -> None:
    assert lines_of(b"1234\n12345\n1234\n", cap=4) == [b"1234", "too long", b"1234"]


def test_a_giant_is_reported_the_moment_it_is_too_long_and_only_once() -> None:
    framing = Framing(4)
    assert framing.feed(b"123") == []
    (frame,) = framing.feed(b"45")
    assert isinstance(frame, TooLong)
    assert (frame.cap, frame.beginning) == (4, b"12345")
    assert framing.feed(b"6789" * 1000) == []
    assert framing.feed(b"0\nnext\n") == [b"next"]


@given(st.integers(0, 3000), st.integers(1, 1500), st.booleans())
def test_of_a_giant_the_end_is_told_where_it_is_wanted(size: int, chunk: int, has_line_feed: bool) -> None:
    line = bytes(index % 10 + 48 for index in range(9 + size))
    stream = line + b"\nnext\n" if has_line_feed else line
    framing = Framing(8, tells_ends=True)
    frames = [frame for at in range(0, len(stream), chunk) for frame in framing.feed(stream[at : at + chunk])]
    first, last, *rest = [*frames, *framing.finish_input()]
    assert isinstance(first, TooLong)
    assert isinstance(last, SkippedEnd)
    assert last.beginning == first.beginning == line[: len(first.beginning)]
    assert last.ending == line[-ENDING:]
    assert rest == ([b"next"] if has_line_feed else [])


def test_a_giant_at_the_end_of_the_input_leaves_nothing() -> None:
    framing = Framing(4)
    framing.feed(b"12345")
    assert framing.finish_input() == []


def test_a_giant_costs_no_memory_once_it_is_too_long() -> None:
    tracemalloc.start()
    try:
        framing = Framing(1 << 20)
        for _ in range(100):
            framing.feed(b"x" * (1 << 16))
        assert tracemalloc.get_traced_memory()[0] < 1 << 17
    finally:
        tracemalloc.stop()
