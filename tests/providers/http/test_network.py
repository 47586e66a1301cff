"""Connections over real sockets on loopback."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.network_peers import BareServer, Peer, reply, whole
from pigeon.agent.inference import Failure
from pigeon.providers.errors import from_exception
from pigeon.providers.http import network
from pigeon.providers.http.client import HttpClient, HttpResponse
from pigeon.providers.http.network import READ_AHEAD_BYTES, connect
from pigeon.providers.http.network_errors import ConnectError, ConnectTimeout, ProtocolError, ReadError
from pigeon.providers.http.recorders import HttpRequest

ONE_READ = 256 * 1024
CERTIFICATE = Path(__file__).parents[1] / "data" / "localhost.cert.pem"


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient({})
    await client.warm("http://127.0.0.1")
    yield client
    await client.aclose()


@pytest.fixture
async def server() -> AsyncIterator[BareServer]:
    async with BareServer() as listening:
        yield listening


def asking(http: HttpClient, server: BareServer, body: bytes = b"{}") -> asyncio.Task[HttpResponse]:
    return asyncio.ensure_future(http.send(HttpRequest(f"{server.url}/v1", {"x-a": "b"}, body)))


async def serve_once(http: HttpClient, server: BareServer, body: bytes) -> Peer:
    """The server's end of a new connection, on which one request was answered."""
    task = asking(http, server)
    peer = await server.accept()
    await peer.request()
    await peer.send(reply(body))
    assert await whole(await task) == body
    return peer


async def several_turns() -> None:
    """Enough for everything that is ready to happen."""
    for _ in range(50):
        await asyncio.sleep(0)


async def failure_of(http: HttpClient, url: str) -> Failure:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the failure says what it is
        await http.send(HttpRequest(url, {}, b"{}"))
    return from_exception(caught.value)


async def test_a_whole_request_arrives_in_one_piece(
    http: HttpClient, server: BareServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = asyncio.selector_events._SelectorSocketTransport
    write = kind.write
    pieces: list[bytes] = []

    def watch(transport: Any, data: bytes) -> None:
        pieces.append(bytes(data))
        write(transport, data)

    monkeypatch.setattr(kind, "write", watch)
    task = asking(http, server, b'{"n":1}' * 1000)
    peer = await server.accept()
    first = await peer.some()
    assert [first] == pieces
    assert first.startswith(b"POST /v1 HTTP/1.1\r\n")
    assert first.endswith(b"\r\n\r\n" + b'{"n":1}' * 1000)
    await peer.send(reply(b"ok"))
    assert await whole(await task) == b"ok"


async def test_two_requests_in_a_row_use_one_connection(http: HttpClient, server: BareServer) -> None:
    task = asking(http, server)
    peer = await server.accept()
    for number in range(3):
        assert b"x-a: b" in await peer.request()
        await peer.send(reply(b"%d" % number))
        assert await whole(await task) == b"%d" % number
        task = asking(http, server)
    await peer.request()
    assert not server.has_another_client()
    task.cancel()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_was_closed_while_idle_is_not_used_again(
    http: HttpClient, server: BareServer, reset: bool
) -> None:
    peer = await serve_once(http, server, b"one")
    # The event loop has not seen it yet when the next request is sent.
    peer.close(reset=reset)
    peer = await serve_once(http, server, b"two")
    # This time it has.
    peer.close(reset=reset)
    await several_turns()
    peer = await serve_once(http, server, b"three")


@pytest.mark.parametrize("reset", [False, True])
async def test_a_request_that_met_a_closing_connection_is_sent_again_on_a_new_one(
    http: HttpClient, server: BareServer, reset: bool
) -> None:
    peer = await serve_once(http, server, b"one")
    task = asking(http, server)
    await peer.request()
    peer.close(reset=reset)
    peer = await server.accept()
    await peer.request()
    await peer.send(reply(b"two"))
    assert await whole(await task) == b"two"


async def test_a_new_connection_that_is_closed_is_an_error(http: HttpClient, server: BareServer) -> None:
    task = asking(http, server)
    peer = await server.accept()
    await peer.request()
    peer.close()
    with pytest.raises(ProtocolError):
        await task
    assert not server.has_another_client()


async def test_an_answer_that_has_begun_is_not_asked_for_again(http: HttpClient, server: BareServer) -> None:
    peer = await serve_once(http, server, b"one")
    task = asking(http, server)
    await peer.request()
    await peer.send(b"HTTP/1.1 ")
    peer.close(reset=True)
    with pytest.raises((ReadError, ProtocolError)):
        await task
    assert not server.has_another_client()


async def test_a_connection_on_which_something_came_unasked_is_not_used_again(
    http: HttpClient, server: BareServer
) -> None:
    peer = await serve_once(http, server, b"one")
    await peer.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await several_turns()
    peer = await serve_once(http, server, b"two")


@pytest.mark.parametrize("reads_first", [True, False])
async def test_a_server_that_refuses_before_it_has_read_all_is_understood(
    http: HttpClient, server: BareServer, reads_first: bool
) -> None:
    task = asking(http, server, b"x" * 20_000_000)
    peer = await server.accept()
    if reads_first:
        await peer.some()
    await peer.send(reply(b"too much", "connection: close", status=413))
    peer.close()
    answer = await task
    assert answer.status == 413
    assert await answer.read_body() == b"too much"
    await answer.drop()


async def test_a_connection_that_still_owes_a_part_of_its_request_is_not_used_again(
    http: HttpClient, server: BareServer
) -> None:
    task = asking(http, server, b"x" * 20_000_000)
    peer = await server.accept()
    await peer.send(reply(b"too much", status=413))
    assert await whole(await task) == b"too much"
    peer = await serve_once(http, server, b"two")


async def test_a_big_body_arrives_whole_at_a_server_that_reads_late(http: HttpClient, server: BareServer) -> None:
    body = bytes(range(256)) * 80_000
    task = asking(http, server, body)
    peer = await server.accept()
    await several_turns()
    received = await peer.request()
    assert received.partition(b"\r\n\r\n")[2] == body
    await peer.send(reply(b"ok"))
    assert await whole(await task) == b"ok"


async def test_what_nobody_reads_stays_with_the_server(
    http: HttpClient, server: BareServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    full = asyncio.Event()

    class Watched(network._ReceiveBuffer):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self.transport.is_reading():
                full.set()

    monkeypatch.setattr(network, "_ReceiveBuffer", Watched)
    task = asking(http, server)
    peer = await server.accept()
    await peer.request()
    sending = asyncio.ensure_future(peer.send(reply(b"x" * 50_000_000)))
    answer = await task
    async with asyncio.timeout(30):
        await full.wait()
    await several_turns()
    assert not sending.done()
    assert not made[0].transport.is_reading()
    assert READ_AHEAD_BYTES < made[0]._size <= READ_AHEAD_BYTES + ONE_READ
    assert len(await whole(answer)) == 50_000_000
    await sending
    assert made[0].transport.is_reading()


async def test_cancelling_a_wait_drops_the_connection_at_once(http: HttpClient, server: BareServer) -> None:
    for begun in (False, True):
        task = asking(http, server)
        peer = await server.accept()
        await peer.request()
        waiting: asyncio.Task[Any] = task
        if begun:
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
            waiting = asyncio.ensure_future((await task).read_chunk())
        await several_turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await peer.some() == b""


async def test_an_answer_that_breaks_off_is_a_lost_connection(http: HttpClient, server: BareServer) -> None:
    for reset in (False, True):
        task = asking(http, server)
        peer = await server.accept()
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nab")
        answer = await task
        assert await answer.read_chunk() == b"ab"
        peer.close(reset=reset)
        with pytest.raises((ReadError, ProtocolError)) as caught:
            await answer.read_chunk()
        failure = from_exception(caught.value)
        assert (failure.code, failure.retryable) == ("connection_lost", True)
        await answer.drop()


async def test_nobody_at_the_port_is_a_connection_failure_that_names_it(http: HttpClient) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        failure = await failure_of(http, f"http://127.0.0.1:{port}/v1")
    assert (failure.code, failure.retryable) == ("connection_failed", True)
    assert f"127.0.0.1:{port}" in failure.message


async def test_a_name_that_nobody_knows_is_a_connection_failure_that_names_it(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    failure = await failure_of(http, "http://models.invalid/v1")
    assert (failure.code, failure.retryable) == ("connection_failed", True)
    assert "models.invalid" in failure.message
    assert "Name or service not known" in failure.message


async def test_a_server_that_does_not_answer_the_call_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    http = HttpClient({}, connect_timeout_s=0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    failure = await failure_of(http, "http://127.0.0.1:8/v1")
    await http.aclose()
    assert (failure.code, failure.retryable) == ("connection_timeout", True)
    assert failure.message.endswith("127.0.0.1:8 did not answer within 0.01 s")


async def test_a_timeout_of_the_system_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_late(*_: Any, **__: Any) -> Any:
        raise TimeoutError(110, "Connection timed out")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", too_late)
    with pytest.raises(ConnectTimeout, match=r"127\.0\.0\.1:8 did not answer"):
        await connect("127.0.0.1", 8)


async def test_a_handshake_that_fails_says_why_and_leaves_nothing_open(server: BareServer) -> None:
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    words = {"silent": "did not finish", "closes": "closed during the TLS handshake", "talks": "SSL"}
    for manner, said in words.items():
        stream = await connect("127.0.0.1", server.port)
        peer = await server.accept()
        patience = 0.01 if manner == "silent" else 5
        greeting = asyncio.ensure_future(stream.start_tls(context, "localhost", timeout=patience))
        if manner != "silent":
            await peer.some()
            if manner == "talks":
                await peer.send(b"HTTP/1.1 400 Plain text only\r\n\r\n")
            else:
                peer.close()
        with pytest.raises((ConnectError, ConnectTimeout), match=said) as caught:
            await greeting
        assert "localhost" in str(caught.value)
        assert from_exception(caught.value).retryable
        if manner != "closes":
            while await peer.some():
                pass
