from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.providers.http.sse import EventTooLong, SseParser

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
    began = time.perf_counter()
    for _ in range(40_000):
        assert parser.feed(b"data: xxxxxxxxxxxxxxxxxxxxxxxx\n") == []
    assert len(parser.feed(b"\n")) == 1
    assert time.perf_counter() - began < 1.5


def test_ten_thousand_events_pass_quickly() -> None:
    parser = SseParser()
    chunk = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{}}\n\n'
    began = time.perf_counter()
    count = sum(len(parser.feed(chunk)) for _ in range(10_000))
    assert count == 10_000
    assert time.perf_counter() - began < 0.5
