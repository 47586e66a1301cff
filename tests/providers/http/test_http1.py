"""The parser of responses, beside another implementation of HTTP/1.1."""

from __future__ import annotations

import itertools
import tracemalloc

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fakes.clock import within
from pigeon.providers.http.http1 import ChunkedBody, body_of, encode_head, split_head
from pigeon.providers.http.network_errors import InvalidHeader, ProtocolError

Parsed = tuple[int, list[tuple[bytes, bytes]], bytes, bool, bool]


def parse(pieces: list[bytes]) -> Parsed:
    """Status, headers, body, whether it was complete before the end, whether the connection can be kept."""
    buffer = b""
    waiting = list(pieces)
    while True:
        if not waiting:
            raise ProtocolError("no head")
        buffer += waiting.pop(0)
        while (found := split_head(buffer)) is not None and found[0].status < 200:
            buffer = found[1]
        if found is not None:
            break
    head, first = found
    body = body_of(head)
    content = body.feed(first)
    while waiting and not body.complete:
        content += body.feed(waiting.pop(0))
    complete = body.complete
    body.end()
    return head.status, head.headers, content, complete, head.is_kept_alive and complete and not (body.rest or waiting)


def parse_with_h11(data: bytes) -> Parsed:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=100 * 1024)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    head: h11.Response | None = None
    content = b""
    ended = False
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if ended:
                raise ProtocolError("no end")
            connection.receive_data(b"")
            ended = True
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            content += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            kept = not ended and connection.their_state is h11.DONE and not connection.trailing_data[0]
            return head.status_code, [*head.headers], content, not ended, kept
        elif isinstance(event, h11.ConnectionClosed):
            raise ProtocolError("closed")


def outcome_of_h11(data: bytes) -> Parsed | None:
    try:
        return parse_with_h11(data)
    except (h11.RemoteProtocolError, ProtocolError):
        return None


def outcome(pieces: list[bytes]) -> Parsed | None:
    try:
        return parse(pieces)
    except ProtocolError:
        return None


def fold_framing(parsed: Parsed) -> Parsed:
    """h11 shows this one header in lower case."""
    status, headers, *rest = parsed
    folded = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in headers]
    return (status, folded, *rest)  # type: ignore[return-value]


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


BODIES = st.binary(max_size=200)
LINE_ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\n"])


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    out = b""
    for piece in draw(st.lists(st.binary(min_size=1, max_size=60), max_size=6)):
        size = draw(st.sampled_from([b"%x", b"%X", b"00%x"])) % len(piece)
        out += size + draw(st.sampled_from([b"", b"", b";a=b", b" "])) + b"\r\n" + piece + b"\r\n"
    return out + b"0\r\n" + draw(st.sampled_from([b"", b"x-trailer: 1\r\n"])) + b"\r\n"


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    end = draw(LINE_ENDS)
    status = draw(st.sampled_from([200, 200, 200, 201, 204, 304, 400, 413, 429, 500, 529]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"]))
    reason = draw(st.sampled_from([b" OK", b" Not so good", b" ", b""]))
    headers = draw(
        st.lists(
            st.sampled_from(
                [
                    b"Content-Type: text/event-stream",
                    b"x:1",
                    b"X-Empty:",
                    b"x-a: b, c",
                    b"Connection: close",
                    b"Connection: keep-alive",
                    b"x-odd: \xe9",
                    b"x-folded: a" + end + b" b",
                ]
            ),
            max_size=4,
        )
    )
    form = draw(st.sampled_from(["length", "chunked", "open", "both"]))
    body = draw(chunked() if form in ("chunked", "both") else BODIES)
    if form in ("length", "both"):
        headers.append(b"Content-Length: %d" % len(body))
    if form in ("chunked", "both"):
        headers.append(draw(st.sampled_from([b"Transfer-Encoding: chunked", b"transfer-encoding:  CHUNKED "])))
    continued = draw(st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue" + end * 2, b"HTTP/1.1 103 X" + end * 2]))
    head = b"HTTP/%b %d%b" % (version, status, reason) + end + b"".join(one + end for one in headers) + end
    return continued + head + body


@given(data=responses(), cuts=st.lists(st.integers(0, 600), max_size=10))
def test_a_response_is_read_like_another_implementation_reads_it_wherever_it_is_cut(
    data: bytes, cuts: list[int]
) -> None:
    theirs = outcome_of_h11(data)
    ours = outcome(cut(data, cuts))
    assert ours is not None
    assert theirs is not None
    assert fold_framing(ours) == fold_framing(theirs)


# What the other one refuses and we take: trailers are ignored here, so their form does not count.
@given(
    data=responses(),
    change=st.tuples(st.integers(0, 400), st.sampled_from([b"", b"\0", b"\r", b"\n", b" ", b":", b"z", b"\xff", b"9"])),
    cuts=st.lists(st.integers(0, 600), max_size=6),
)
def test_a_damaged_response_never_becomes_another_content_than_elsewhere(
    data: bytes, change: tuple[int, bytes], cuts: list[int]
) -> None:
    place, damage = change
    damaged = data[:place] + damage + data[place + 1 :]
    ours, theirs = outcome(cut(damaged, cuts)), outcome_of_h11(damaged)
    if ours is not None and theirs is not None:
        assert (ours[0], ours[2]) == (theirs[0], theirs[2])


@given(st.lists(st.binary(max_size=60), max_size=12))
@example([b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n"])
@example([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"-1\r\n"])
def test_any_bytes_are_a_response_or_a_protocol_error(pieces: list[bytes]) -> None:
    outcome(pieces)


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30_000, b"HTTP/1.1 200 " + b"x" * 200_000])
def test_a_head_without_an_end_is_given_up(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="longer than"):
        split_head(data)


def test_a_server_that_speaks_something_else_is_quoted() -> None:
    with pytest.raises(ProtocolError, match=r"SSH-2\.0-OpenSSH"):
        split_head(b"SSH-2.0-OpenSSH_9.2\r\n")


@pytest.mark.parametrize(
    "data", [b"x" * 20_000, b"5\r\nhello!\r\n", b"5;" + b"x" * 20_000, b"0\r\n" + b"x: y\r\n" * 30_000]
)
def test_chunks_that_are_none_are_an_error(data: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    with pytest.raises(ProtocolError):
        parse([head, *(data[at : at + 1000] for at in range(0, len(data), 1000))])


def test_many_small_chunks_take_linear_time_and_no_memory() -> None:
    body = ChunkedBody()
    piece = b"6\r\nabcdef\r\n" * 10_000
    tracemalloc.start()
    with within(3):
        for _ in range(10):
            assert len(body.feed(piece)) == 60_000
    assert tracemalloc.get_traced_memory()[0] < 1_000_000
    tracemalloc.stop()
    for byte in b"3\r\nabc\r\n0\r\n\r\n":
        body.feed(bytes([byte]))
    assert body.complete


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "\u00e9"])
def test_a_header_name_that_cannot_be_sent_is_refused(name: str) -> None:
    with pytest.raises(InvalidHeader, match="Check headers"):
        encode_head("POST", "/", [(name, "x")])
