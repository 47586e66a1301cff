"""What is left of an answer: read in time, so that its connection serves again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fakes.bare_server import BareServer, Peer, reply, whole
from fakes.http_server import Hold, HttpServer, Reply, plain
from pigeon.providers.http import client as http
from pigeon.providers.http.client import Http, Incoming, Outgoing


@pytest.fixture
async def client() -> AsyncIterator[Http]:
    made = Http()
    yield made
    await made.aclose()


def to(url: str) -> Outgoing:
    return Outgoing(url, {}, b"{}")


async def asked(client: Http, server: BareServer) -> tuple[Peer, Incoming]:
    """An answer of which the first piece has come."""
    task = asyncio.ensure_future(client.send(to(server.url)))
    peer = await server.accept()
    await peer.request()
    await peer.send(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
    answer = await task
    assert await answer.chunk() == b"hi"
    return peer, answer


def idle(client: Http) -> list[bool]:
    """Which of the kept connections can be used again."""
    [pool] = client._pools.values()
    return [one.is_idle() for one in pool.connections]


async def test_the_rest_of_a_released_answer_is_read_before_the_next_request(client: Http) -> None:
    async with BareServer() as server:
        peer, answer = await asked(client, server)
        answer.release()
        task = asyncio.ensure_future(client.send(to(server.url)))
        await peer.request()
        await peer.send(reply(b"two"))
        assert await whole(await task) == b"two"
        assert not server.has_another_client()


async def test_nobody_waits_for_the_end_of_a_released_answer(client: Http) -> None:
    hold = Hold()
    async with HttpServer([Reply([b"hi", hold]), plain(200, {})]) as server:
        first = await client.send(to(server.url))
        assert await first.chunk() == b"hi"
        first.release()
        second = await client.send(to(server.url))
        assert not hold.released.is_set()
        assert [request.connection for request in server.requests] == [1, 2]
        hold.released.set()
        await whole(second)
        await asyncio.gather(*client._background)
        assert idle(client) == [True, True]


async def test_a_released_answer_is_tidied_up_without_another_request(
    client: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = asyncio.Event()
    drain = Incoming.drain

    async def watched(answer: Incoming) -> None:
        await drain(answer)
        done.set()

    monkeypatch.setattr(Incoming, "drain", watched)
    async with BareServer() as server:
        _, answer = await asked(client, server)
        answer.release()
        assert not done.is_set()
        async with asyncio.timeout(http.TIDY_AFTER_S + 5):
            await done.wait()
        assert idle(client) == [True]


async def test_too_much_left_or_left_too_late_closes_the_connection(
    client: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    for much in (True, False):
        monkeypatch.setattr(http, "DRAIN_SECONDS", 100 if much else 0.01)
        async with BareServer() as server:
            task = asyncio.ensure_future(client.send(to(server.url)))
            peer = await server.accept()
            await peer.request()
            await peer.send(b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n" + b"x" * (200_000 if much else 1))
            (await task).release()
            try:
                assert await peer.some() == b""
            except ConnectionResetError:
                assert much


async def test_closing_the_client_closes_what_was_released(client: Http) -> None:
    async with BareServer() as server:
        peer, answer = await asked(client, server)
        answer.release()
        await client.aclose()
        assert await peer.some() == b""
        assert client._read == []
