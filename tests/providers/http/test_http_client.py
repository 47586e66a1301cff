"""Requests as the library's pool sends them: addresses, headers, TLS, proxies, compressed answers."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import getproxies_environment, proxy_bypass_environment

import pytest

from fakes.http_server import Hold, HttpServer, Reply, plain
from fakes.network_peers import BareServer, Peer, SocksProxy, TunnelProxy, reply, whole
from pigeon.agent.inference import Failure
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.errors import from_exception
from pigeon.providers.http import client as http
from pigeon.providers.http import connection_pool
from pigeon.providers.http.client import HttpClient, HttpResponse, route_to
from pigeon.providers.http.connection_pool import ServerConnection
from pigeon.providers.http.network_errors import InvalidProxy, InvalidURL
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.request import RequestPolicy
from support.model_requests import KEY, a_model, a_request, collect_answer, request_setup

DATA = Path(__file__).parents[1] / "data"
CERTIFICATE = DATA / "localhost.cert.pem"


@pytest.fixture
def environment() -> dict[str, str]:
    return {}


@pytest.fixture
async def client(environment: dict[str, str]) -> AsyncIterator[HttpClient]:
    made = HttpClient(environment)
    yield made
    await made.aclose()


@pytest.fixture
def trusted(environment: dict[str, str]) -> ssl.SSLContext:
    """The server's half of a certificate that the client knows."""
    environment["SSL_CERT_FILE"] = str(CERTIFICATE)
    return server_side()


def server_side() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, DATA / "localhost.key.pem")
    return context


def to(url: str, body: bytes = b"{}", **headers: str) -> HttpRequest:
    return HttpRequest(url, {name.replace("_", "-"): value for name, value in headers.items()}, body)


async def failure_of(client: HttpClient, request: HttpRequest) -> Failure:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the failure says what it is
        await client.send(request)
    return from_exception(caught.value)


def redirect_connections(monkeypatch: pytest.MonkeyPatch, port: int) -> list[tuple[str, int]]:
    """Every connection goes to this port of loopback; where it should have gone."""
    loop = asyncio.get_running_loop()
    original = loop.create_connection
    wanted: list[tuple[str, int]] = []

    async def connect(factory: Any, host: str, at: int, **_: Any) -> Any:
        wanted.append((host, at))
        return await original(factory, "127.0.0.1", port)

    monkeypatch.setattr(loop, "create_connection", connect)
    return wanted


async def test_a_request_says_what_every_request_must_say(client: HttpClient) -> None:
    async with HttpServer([plain(200, {"a": 1}, x_two="2")]) as server:
        answer = await client.send(to(f"{server.url}/v1?x=1", b'{"q": 1}', X_Mine="yes", User_Agent="me"))
        assert (answer.status, answer.is_success, answer.content_type) == (200, True, "application/json")
        assert answer.headers["x-two"] == "2"
        assert await whole(answer) == b'{"a": 1}'
        [request] = server.requests
    assert request.path == "/v1?x=1"
    assert request.body == {"q": 1}
    assert request.headers == {
        "host": server.url.removeprefix("http://"),
        "content-length": "8",
        "user-agent": "me",
        "accept-encoding": "identity",
        "x-mine": "yes",
    }


@pytest.mark.parametrize(
    ("url", "place", "host", "path"),
    [
        ("http://[::1]:8080/v1", ("::1", 8080), "[::1]:8080", "/v1"),
        ("http://[fe80::1]", ("fe80::1", 80), "[fe80::1]", "/"),
        ("http://Bücher.example/v1", ("xn--bcher-kva.example", 80), "xn--bcher-kva.example", "/v1"),
        ("http://models.example/ü b/%20?q=é&r=a%2Fb", ("models.example", 80), "models.example", None),
        ("http://user:word@models.example:81/v1#part", ("models.example", 81), "models.example:81", "/v1"),
    ],
)
async def test_any_letters_may_stand_in_an_address(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch, url: str, place: tuple[str, int], host: str, path: str | None
) -> None:
    async with HttpServer([plain(200, {})]) as server:
        wanted = redirect_connections(monkeypatch, int(server.url.rpartition(":")[2]))
        await whole(await client.send(to(url)))
        assert wanted == [place]
        assert server.requests[0].headers["host"] == host
        assert server.requests[0].path == (path or "/%C3%BC%20b/%20?q=%C3%A9&r=a%2Fb")


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize(
    "url",
    [
        "http:///v1",
        "nonsense",
        "localhost:8080/v1",
        "http://x:port/v1",
        "http://x:99999/v1",
        "http://[::1/v1",
        "http://é..x/v1",
        "http://x/half\ud83d",
    ],
)
async def test_an_address_that_is_none_is_an_error_that_shows_it(
    client: HttpClient, environment: dict[str, str], url: str, proxied: bool
) -> None:
    if proxied:
        environment["HTTP_PROXY"] = "http://127.0.0.1:1"
    with pytest.raises(InvalidURL) as caught:
        await client.send(to(url))
    assert url in str(caught.value)
    failure = from_exception(caught.value)
    assert (failure.code, failure.retryable) == ("bad_url", False)


async def test_an_address_that_is_none_is_shown_without_its_password(client: HttpClient) -> None:
    with pytest.raises(InvalidURL, match=r"models\.example:port") as caught:
        await client.send(to("http://me:word@models.example:port/v1"))
    assert "word" not in str(caught.value)


async def test_another_scheme_than_http_is_refused(client: HttpClient) -> None:
    failure = await failure_of(client, to("ftp://models.example/v1"))
    assert (failure.code, failure.retryable) == ("bad_url", False)
    assert "ftp://" in failure.message


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\r\nx-other: 1", f"\0{KEY}", f"{KEY}é", f"{KEY}\u2026"])
async def test_a_header_that_cannot_be_sent_is_an_error_without_the_key(client: HttpClient, key: str) -> None:
    async with HttpServer([]) as server:
        failure = await failure_of(client, to(server.url, authorization=f"Bearer {key}"))
        assert server.requests == []
    assert "Check apiKey and headers" in failure.message
    assert KEY not in failure.message
    assert (failure.code, failure.retryable) == ("bad_request", False)


async def test_a_server_with_a_known_certificate_is_talked_to(client: HttpClient, trusted: ssl.SSLContext) -> None:
    big = "x" * 1_000_000
    async with HttpServer([plain(200, {"big": big}), plain(200, {})], ssl=trusted) as server:
        for url in (server.url, server.url, server.url.replace("127.0.0.1", "localhost")):
            answer = await client.send(to(url, b'"%b"' % big.encode()))
            await whole(answer)
        assert [request.connection for request in server.requests] == [1, 1, 2]
        assert all(request.body == big for request in server.requests)


async def test_an_unknown_certificate_is_an_error_that_is_not_tried_again(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    connect = connection_pool.connect

    def count_call(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        return connect(*arguments, **more)

    monkeypatch.setattr(connection_pool, "connect", count_call)
    async with HttpServer([], ssl=server_side()) as server:
        line = request_setup(client, policy=RequestPolicy(max_retries=3))
        refused = await collect_answer(anthropic.stream(a_request(a_model(base_url=server.url)), line))
    assert refused.failure.message.startswith("TLS failed: 127.0.0.1: ")
    assert "certificate verify failed" in refused.failure.message
    assert (refused.failure.code, refused.failure.retryable, len(calls)) == ("tls_failed", False, 1)


async def test_a_certificate_for_another_name_is_an_error_that_says_so(
    client: HttpClient, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with HttpServer([], ssl=trusted) as server:
        redirect_connections(monkeypatch, int(server.url.rpartition(":")[2]))
        failure = await failure_of(client, to("https://models.example/v1"))
    assert failure.code == "tls_failed"
    assert "models.example" in failure.message


async def test_certificates_that_cannot_be_read_are_an_error_that_names_them(
    client: HttpClient, environment: dict[str, str], tmp_path: Path
) -> None:
    missing, wrong = tmp_path / "missing.pem", tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for path in (missing, wrong):
        environment["SSL_CERT_FILE"] = str(path)
        failure = await failure_of(client, to("https://127.0.0.1:1"))
        assert str(path) in failure.message
        assert "SSL_CERT_FILE" in failure.message
        assert not failure.retryable


async def test_https_goes_through_a_tunnel_with_the_password_of_the_proxy(
    client: HttpClient, trusted: ssl.SSLContext, environment: dict[str, str]
) -> None:
    async with TunnelProxy() as proxy, HttpServer([plain(200, {"n": 1})] * 2, ssl=trusted) as server:
        environment["HTTPS_PROXY"] = f"http://us%C3%A9r:p%40ss@127.0.0.1:{proxy.port}"
        url = server.url.replace("127.0.0.1", "localhost")
        for _ in range(2):
            assert await whole(await client.send(to(f"{url}/v1", authorization=KEY))) == b'{"n": 1}'
        [head] = proxy.heads
        assert head[0] == f"CONNECT {url.removeprefix('https://')} HTTP/1.1"
        assert f"Proxy-Authorization: Basic {base64.b64encode('usér:p@ss'.encode()).decode()}" in head
        assert KEY not in "".join(head)
        assert [request.connection for request in server.requests] == [1, 1]
        assert server.requests[0].path == "/v1"
        assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("person", "expected"), [("http://", None), ("me:word@", f"Basic {base64.b64encode(b'me:word').decode()}")]
)
async def test_plain_http_goes_through_a_proxy_too(
    client: HttpClient, environment: dict[str, str], person: str, expected: str | None
) -> None:
    async with HttpServer([plain(200, {})]) as proxy:
        environment["ALL_PROXY"] = proxy.url.replace("http://", person)
        await whole(await client.send(to("http://models.invalid:81/v1")))
        [request] = proxy.requests
    assert request.path == "http://models.invalid:81/v1"
    assert request.headers["host"] == "models.invalid:81"
    assert request.headers.get("proxy-authorization") == expected


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        ("https://models.invalid/v1", {}, "http://set"),
        ("http://models.invalid/v1", {"HTTP_PROXY": "http://named"}, "http://named"),
        ("http://models.invalid/v1", {"NO_PROXY": "models.invalid"}, None),
        ("http://localhost:8080/v1", {}, None),
        ("http://127.0.0.1:8080/v1", {}, None),
        ("http://[::1]:8080/v1", {}, None),
    ],
)
def test_a_proxy_of_the_settings_is_for_when_the_environment_names_none(
    url: str, variables: dict[str, str], proxy: str | None
) -> None:
    assert route_to(url, variables, "http://set") == (url.startswith("https"), proxy)


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({"HTTP_PROXY": "http://upper", "http_proxy": "http://lower"}, "http://lower"),
        ({"http_proxy": "http://lower", "HTTP_PROXY": "http://upper"}, "http://lower"),
        ({"HTTP_PROXY": "http://upper", "http_proxy": ""}, None),
        ({"ALL_PROXY": "http://all", "HTTPS_PROXY": "http://other"}, "http://all"),
        ({"HTTP_PROXY": "http://header", "REQUEST_METHOD": "GET"}, None),
        ({"http_proxy": "http://lower", "REQUEST_METHOD": "GET"}, "http://lower"),
        ({"HTTP_PROXY": "http://upper", "no_proxy": ".invalid"}, None),
        ({"HTTP_PROXY": "http://upper", "NO_PROXY": "*"}, None),
        ({"FTP_PROXY": "http://other"}, None),
    ],
)
def test_the_variables_of_proxies_count_as_other_programs_read_them(
    variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert route_to("http://models.invalid/v1", variables) == (False, proxy)
    for name in [*os.environ]:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    named = getproxies_environment()
    assert proxy == (None if proxy_bypass_environment("models.invalid") else named.get("http") or named.get("all"))


async def test_two_clients_of_one_process_have_their_own_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with HttpServer([plain(200, {"n": 1})] * 2) as one, HttpServer([plain(200, {"n": 2})]) as other:
        clients = [HttpClient({"HTTP_PROXY": proxy.url}) for proxy in (one, other)]
        answers = [await whole(await client.send(to("http://models.invalid/v1"))) for client in clients]
        assert answers == [b'{"n": 1}', b'{"n": 2}']
        direct = HttpClient({})
        answer = await direct.send(to(one.url))
        assert (answer.status, len(one.requests)) == (200, 2)
        await answer.drop()
        for client in (*clients, direct):
            await client.aclose()


async def test_two_clients_of_one_process_believe_their_own_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    knowing, other = HttpClient({"SSL_CERT_FILE": str(CERTIFICATE)}), HttpClient({})
    async with HttpServer([plain(200, {})], ssl=server_side()) as server:
        await whole(await knowing.send(to(server.url)))
        assert (await failure_of(other, to(server.url))).code == "tls_failed"
    for client in (knowing, other):
        await client.aclose()


@pytest.mark.parametrize(("login", "expected"), [("", None), ("me:w%40rd@", ("me", "w@rd"))])
@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
async def test_a_socks_proxy_resolves_names_and_takes_a_login(
    environment: dict[str, str], trusted: ssl.SSLContext, scheme: str, login: str, expected: tuple[str, str] | None
) -> None:
    async with HttpServer([plain(200, {"n": 1})]) as server, HttpServer([plain(200, {"n": 2})], ssl=trusted) as secure:
        ports = [int(one.url.rpartition(":")[2]) for one in (server, secure)]
        async with SocksProxy(login=expected) as proxy:
            client = HttpClient(environment, proxy=f"{scheme}://{login}127.0.0.1:{proxy.port}")
            assert await whole(await client.send(to(f"http://localhost.:{ports[0]}/v1"))) == b'{"n": 1}'
            # The certificate names localhost; the environment says which certificates count.
            environment["ALL_PROXY"] = f"{scheme}://{login}127.0.0.1:{proxy.port}"
            assert await whole(await client.send(to(f"https://localhost:{ports[1]}/v1"))) == b'{"n": 2}'
            await client.aclose()
            assert proxy.targets == [("localhost.", ports[0]), ("localhost", ports[1])]
            assert proxy.logins == ([expected] * 2 if expected else [])


@pytest.mark.parametrize(
    ("login", "refusal", "said"),
    [
        ("", 5, "connection refused"),
        ("", 99, "code 99"),
        ("me:wrong@", 0, "user or password are wrong"),
    ],
)
async def test_a_socks_proxy_that_refuses_is_quoted(login: str, refusal: int, said: str) -> None:
    async with SocksProxy(login=("me", "word") if login else None, refusal=refusal) as proxy:
        client = HttpClient({}, proxy=f"socks5://{login}127.0.0.1:{proxy.port}")
        failure = await failure_of(client, to("https://models.invalid/v1"))
        await client.aclose()
    assert (failure.code, failure.retryable) == ("proxy_failed", True)
    assert said in failure.message
    assert "wrong@" not in failure.message


async def test_a_socks_proxy_that_wants_a_login_says_so_when_there_is_none() -> None:
    async with SocksProxy(login=("me", "word")) as proxy:
        client = HttpClient({}, proxy=f"socks5://127.0.0.1:{proxy.port}")
        failure = await failure_of(client, to("https://models.invalid/v1"))
        await client.aclose()
    assert "another login" in failure.message


async def test_a_proxy_that_refuses_is_quoted() -> None:
    async with TunnelProxy(refusal="407 Who are you") as proxy:
        client = HttpClient({}, proxy=f"http://127.0.0.1:{proxy.port}")
        failure = await failure_of(client, to("https://models.invalid/v1"))
        await client.aclose()
    assert failure.code == "proxy_failed"
    assert "407 Who are you" in failure.message


@pytest.mark.parametrize("place", ["ftp://me:word@x:21", "http://me:word@:80", "http://me:word@x:port", "me:word@"])
async def test_a_proxy_that_is_none_is_an_error_without_its_password(place: str) -> None:
    client = HttpClient({}, proxy=place)
    with pytest.raises(InvalidProxy, match="proxy") as caught:
        await client.send(to("http://models.invalid/v1"))
    await client.aclose()
    assert "word" not in str(caught.value)
    assert not from_exception(caught.value).retryable


async def test_a_compressed_answer_is_read_as_if_it_was_not(client: HttpClient) -> None:
    packed = gzip.compress(b"hello" * 1000)
    replies = [
        Reply([packed[:9], packed[9:]], headers={"Content-Encoding": " GZIP "}),
        Reply([b"plain"], headers={"content-encoding": "identity"}),
        Reply([packed[:-1]], headers={"content-encoding": "gzip"}, status=500),
        Reply([b"?"], headers={"content-encoding": "br"}),
    ]
    async with HttpServer(replies) as server:
        assert await whole(await client.send(to(server.url))) == b"hello" * 1000
        assert await whole(await client.send(to(server.url))) == b"plain"
        # What can be read of an error is worth more than the reason why the rest cannot.
        broken = await client.send(to(server.url))
        assert await broken.read_body() == b"hello" * 1000
        await broken.drop()
        unknown = await client.send(to(server.url))
        with pytest.raises(Exception, match="content-encoding br"):
            await unknown.read_chunk()
        await unknown.drop()


async def test_a_text_has_a_limit(client: HttpClient) -> None:
    async with HttpServer([Reply([b"x" * 1000] * 10)]) as server:
        answer = await client.send(to(server.url))
        assert await answer.read_body(limit=2500) == b"x" * 2500
        await answer.drop()


async def begin_answer(client: HttpClient, server: BareServer, rest: bytes = b"0\r\n\r\n") -> tuple[Peer, HttpResponse]:
    """An answer of which the first piece has come, and this after it."""
    task = asyncio.ensure_future(client.send(to(server.url)))
    peer = await server.accept()
    await peer.request()
    await peer.send(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n" + rest)
    answer = await task
    assert await answer.read_chunk() == b"hi"
    return peer, answer


def idle_count(client: HttpClient) -> int:
    """How many connections wait for the next request."""
    [pool] = client._pools.values()
    return len(pool._idle)


async def test_the_rest_of_a_released_answer_is_read_before_the_next_request(client: HttpClient) -> None:
    async with BareServer() as server:
        peer, answer = await begin_answer(client, server)
        answer.release()
        task = asyncio.ensure_future(client.send(to(server.url)))
        await peer.request()
        await peer.send(reply(b"two"))
        assert await whole(await task) == b"two"
        assert not server.has_another_client()


async def test_nobody_waits_for_the_end_of_a_released_answer(client: HttpClient) -> None:
    hold = Hold()
    async with HttpServer([Reply([b"hi", hold]), plain(200, {})]) as server:
        first = await client.send(to(server.url))
        assert await first.read_chunk() == b"hi"
        first.release()
        second = await client.send(to(server.url))
        assert not hold.released.is_set()
        assert [request.connection for request in server.requests] == [1, 2]
        hold.released.set()
        await whole(second)
        await asyncio.gather(*client._background)
        assert idle_count(client) == 2


async def test_a_released_answer_is_drained_without_another_request(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = asyncio.Event()
    drain = HttpResponse.drain

    async def watch(answer: HttpResponse) -> None:
        await drain(answer)
        done.set()

    monkeypatch.setattr(HttpResponse, "drain", watch)
    async with BareServer() as server:
        _, answer = await begin_answer(client, server)
        answer.release()
        assert not done.is_set()
        async with asyncio.timeout(http.DRAIN_AFTER_S + 5):
            await done.wait()
        assert idle_count(client) == 1


async def test_too_much_left_or_left_too_late_closes_the_connection(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
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


async def test_closing_the_client_closes_what_was_released(client: HttpClient) -> None:
    async with BareServer() as server:
        peer, answer = await begin_answer(client, server)
        answer.release()
        await client.aclose()
        assert await peer.some() == b""


async def test_connections_that_are_over_are_forgotten(client: HttpClient) -> None:
    async with BareServer() as server:
        for _ in range(5):
            peer, answer = await begin_answer(client, server, rest=b"")
            await answer.drop()
            assert await peer.some() == b""
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, ServerConnection)]
        assert len(left) <= 1, "the last one may still be known to the task that closes it"


async def test_a_recorder_learns_of_an_answer_that_was_released_before_the_client_closed() -> None:
    seen: list[str] = []

    class Recorder:
        def on_request_start(self, request: HttpRequest) -> int:
            return 1

        def on_response_started(self, number: int, status: int, headers: Mapping[str, str]) -> None:
            seen.append("started")

        def on_body_piece(self, number: int, piece: bytes | None) -> None:
            seen.append("piece" if piece else "end")

        def on_exchange_failed(self, number: int, error: Exception) -> None:
            seen.append("failed")

        def on_response_dropped(self, number: int) -> None:
            seen.append("dropped")

        def on_client_closed(self) -> None:
            seen.append("closed")

    client = HttpClient({}, recorders=[Recorder()])
    async with BareServer() as server:
        _, answer = await begin_answer(client, server)
        answer.release()
        await client.aclose()
    assert seen == ["started", "piece", "dropped", "closed"]
