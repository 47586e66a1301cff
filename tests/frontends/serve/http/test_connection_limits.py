"""How many connections there may be: those that ended make room, and who waits longest gives way."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.http.connections import RETRY_SECONDS, ConnectionLimits, Connections, PeerConnection
from pigeon.frontends.serve.http.entrance import HttpRefusal


class Transport:
    """One end of a connection that is only counted."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.written = b""
        self.closing = False

    def get_extra_info(self, name: str) -> Any:
        return (self._peer, 1234) if name == "peername" else None

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True


class Server:
    """The connections of a server with room for few."""

    def __init__(self, by_peer: bool = True) -> None:
        self.counts = ServeCounts()
        limits = ConnectionLimits(known=2, unknown=4, unknown_per_peer=3)
        self.all = Connections(limits, self.counts, by_peer)

    def connect(self, peer: str = "10.0.0.1") -> PeerConnection:
        return self.all.add(cast("Any", Transport(peer)))


def was_refused(connection: PeerConnection) -> bool:
    transport = cast("Transport", connection.transport)
    if transport.closing:
        head, _, body = transport.written.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 Busy\r\n")
        assert f"retry-after: {RETRY_SECONDS}".encode() in head
        assert b"too many connections" in body
    return transport.closing


async def test_connections_that_have_ended_make_room_for_others() -> None:
    server = Server()
    for _ in range(20):
        server.connect().on_connection_lost()
    assert [was_refused(one) for one in [server.connect() for _ in range(3)]] == [False] * 3
    assert server.counts.refused == {}


async def test_known_connections_that_have_ended_make_room_for_others() -> None:
    server = Server()
    for _ in range(20):
        connection = server.connect()
        connection.mark_known()
        connection.mark_known()
        assert (server.all.known_count, server.all.unknown_count) == (1, 0)
        connection.on_connection_lost()
    assert (server.all.known_count, server.all.unknown_count) == (0, 0)


@pytest.mark.leaves_running
async def test_of_one_peer_the_oldest_unknown_connection_gives_way() -> None:
    server = Server()
    first, *others = [server.connect() for _ in range(3)]
    assert not was_refused(first)
    newest = server.connect()
    assert was_refused(first)
    assert not any(was_refused(one) for one in (*others, newest, server.connect("10.0.0.2")))
    assert server.counts.refused == {"connections": 1}


@pytest.mark.leaves_running
async def test_of_all_peers_the_oldest_unknown_connection_gives_way() -> None:
    server = Server()
    first, *others = [server.connect(f"10.0.0.{number}") for number in range(4)]
    assert not was_refused(first)
    newest = server.connect("10.0.0.9")
    assert was_refused(first)
    assert not any(was_refused(one) for one in (*others, newest))


@pytest.mark.leaves_running
async def test_behind_a_proxy_all_connections_have_one_peer_and_are_not_limited_by_it() -> None:
    server = Server(by_peer=False)
    first, *others = [server.connect() for _ in range(4)]
    assert not any(was_refused(one) for one in (first, *others))
    server.connect()
    assert was_refused(first)


async def test_a_known_connection_gives_way_to_none_and_there_is_a_limit_for_them() -> None:
    server = Server()
    known = [server.connect() for _ in range(2)]
    for connection in known:
        connection.mark_known()
    unknown = [server.connect() for _ in range(3)]
    assert not any(was_refused(one) for one in (*known, *unknown))
    with pytest.raises(HttpRefusal, match="too many connections") as refused:
        unknown[0].mark_known()
    assert (refused.value.status, refused.value.retry_after) == (503, RETRY_SECONDS)
    assert server.all.known_count == 2
    known[0].on_connection_lost()
    unknown[0].mark_known()
    assert (server.all.known_count, server.all.unknown_count) == (2, 2)
