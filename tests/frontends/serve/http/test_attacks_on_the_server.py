"""What is tried against servers on one's own machine, against the real program: each is refused, and it goes on."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import pigeon
from stress.connection_flood import flood
from support.pigeon_serve import TOKENS, AttackedServer, reply
from support.processes import eventually

ADMIN = f"Authorization: Bearer {TOKENS['admin']}\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    root = tmp_path_factory.mktemp("attacked")
    with AttackedServer(root, "--request-seconds", "1", "--max-frame-mb", "1", "--log-level", "debug") as server:
        yield server


@pytest.fixture(scope="module")
def session(server: AttackedServer) -> str:
    return server.new()


@pytest.fixture(autouse=True)
def _lives(server: AttackedServer) -> Iterator[None]:
    yield
    assert server.lives()


def cookie(server: AttackedServer) -> dict[str, str]:
    """What our page sends in a browser that has used a link: the cookie, and its own key."""
    path = server.ask("POST", "/api/links", {}, scope="admin").json()["path"]
    entered = server.ask("GET", path)
    assert entered.status == 303
    place, _, key = entered.headers["location"].partition("#key=")
    assert place == "/"
    return {"Cookie": entered.headers["set-cookie"].partition(";")[0], "Pigeon-Page-Key": key}


def refused_socket(server: AttackedServer, session: str, headers: dict[str, str], query: str = "") -> int:
    with pytest.raises(InvalidStatus) as refusal:
        server.socket(session, headers, query)
    return refusal.value.response.status_code


# --- without a token -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/sessions"),
        ("POST", "/api/sessions"),
        ("GET", "/api/sessions/x"),
        ("DELETE", "/api/sessions/x"),
        ("GET", "/api/sessions/x/export"),
        ("GET", "/api/folders"),
        ("POST", "/api/links"),
        ("GET", "/metrics"),
    ],
)
def test_nothing_is_answered_without_a_token(server: AttackedServer, method: str, path: str) -> None:
    answer = server.ask(method, path, {} if method == "POST" else None)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["error"].startswith("A token is needed")


def test_health_needs_no_token(server: AttackedServer) -> None:
    assert server.ask("GET", "/healthz").body == b"ok\n"


@pytest.mark.parametrize("kind", ["Bearer wrong-token-0123456789", "Basic YTpi", "Bearer", "", "Bearer é"])
def test_a_wrong_token_is_refused(server: AttackedServer, kind: str) -> None:
    lines = f"GET /api/sessions HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: {kind}\r\nConnection: close\r\n\r\n"
    assert server.raw(lines.encode())[9:12] in (b"401", b"429")


def test_a_token_in_the_address_is_no_token(server: AttackedServer, session: str) -> None:
    token = TOKENS["admin"]
    assert server.ask("GET", f"/api/sessions?token={token}").status == 401
    assert server.ask("GET", f"/?token={token}").status in (401, 429)
    assert server.ask("GET", "/api/sessions", headers={"Host": f"{token}@{server.host}"}).status == 403
    assert refused_socket(server, session, {}, f"?token={token}") == 401


def test_a_websocket_without_a_token_is_refused(server: AttackedServer, session: str) -> None:
    assert refused_socket(server, session, {}) == 401


def test_two_authorizations_are_one_too_many(server: AttackedServer) -> None:
    lines = f"GET /api/sessions HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}{ADMIN}Connection: close\r\n\r\n"
    assert server.raw(lines.encode())[9:12] == b"400"


# --- from elsewhere --------------------------------------------------------------------------------------------------

ELSEWHERE = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://{host}"},
    {"Origin": "http://localhost:1"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://{host}.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
]


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_a_page_of_another_site_is_refused_whatever_it_has(
    server: AttackedServer, session: str, headers: dict[str, str]
) -> None:
    sent = {name: value.format(host=server.host) for name, value in headers.items()}
    for proof in (cookie(server), {"Authorization": f"Bearer {TOKENS['admin']}"}):
        assert server.ask("GET", "/api/sessions", headers={**sent, **proof}).status == 403
        assert server.ask("POST", "/api/links", {}, headers={**sent, **proof}).status == 403
        assert refused_socket(server, session, {**sent, **proof}) == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "localhost", "127.0.0.1", "127.0.0.1:1", "", "x" * 300]
)
def test_a_name_that_was_bound_to_us_by_others_is_refused(server: AttackedServer, session: str, host: str) -> None:
    host = host.format(port=server.port)
    headers = {"Host": host, "Authorization": f"Bearer {TOKENS['admin']}", "Origin": f"http://{host}"}
    for path in ("/", "/api/sessions", "/metrics"):
        assert server.ask("GET", path, headers=headers).status == 403
    assert server.ask("GET", "/?token=x", headers=headers).status == 403


@pytest.mark.parametrize("name", ["X-Forwarded-Host", "Forwarded", "X-Forwarded-For"])
def test_what_a_proxy_would_say_is_not_believed_without_one(server: AttackedServer, name: str) -> None:
    headers = {"Host": "evil.example", name: server.host}
    assert server.ask("GET", "/api/sessions", scope="admin", headers=headers).status == 403


def test_a_browser_asks_in_vain_whether_another_site_may(server: AttackedServer) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = server.ask("OPTIONS", "/api/sessions", headers=asked)
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_cookie_needs_our_origin_to_change_anything(server: AttackedServer, session: str) -> None:
    mine = cookie(server)
    ours = {"Origin": f"http://{server.host}"}
    assert server.ask("GET", "/api/sessions", headers=mine).status == 200
    assert refused_socket(server, session, mine) == 403
    with server.socket(session, {**mine, **ours}):
        pass
    form = {"Content-Type": "text/plain"}
    assert server.ask("POST", "/api/links", {}, headers={**mine, **form}).status == 403
    assert server.ask("POST", "/api/links", {}, headers={**mine, **form, **ours}).status == 201
    assert server.ask("POST", "/api/links", {}, headers=mine).status == 201


def test_a_link_is_followed_once_and_from_anywhere(server: AttackedServer) -> None:
    path = server.ask("POST", "/api/links", {"scope": "read"}, scope="admin").json()["path"]
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert server.ask("HEAD", path).status != 303
    entered = server.ask("GET", path, headers=followed)
    assert entered.status == 200
    place, _, key = entered.headers["refresh"].partition("#key=")
    assert place == "0; url=/"
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(entered.headers["set-cookie"].split("; "))
    assert TOKENS["read"] not in entered.headers["set-cookie"]
    assert server.ask("GET", path).status in (401, 429)
    mine = {"Cookie": entered.headers["set-cookie"].partition(";")[0], "Pigeon-Page-Key": key}
    assert server.ask("GET", "/api/sessions", headers=mine).status == 200
    assert server.ask("POST", "/api/links", {}, headers=mine).status == 403


@pytest.mark.parametrize("name", ["Cookie", "Pigeon-Page-Key"])
def test_what_is_in_a_half_of_the_secret_is_no_token(server: AttackedServer, name: str) -> None:
    headers = {"Authorization": f"Bearer {cookie(server)[name].rpartition('=')[2]}"}
    assert server.ask("GET", "/api/sessions", headers=headers).status in (401, 429)


def test_a_cookie_that_another_server_has_received_lets_nobody_in(server: AttackedServer, session: str) -> None:
    """Browsers send it to every port of the host; the page's key goes nowhere else."""
    received = {"Cookie": cookie(server)["Cookie"], "Origin": f"http://{server.host}"}
    of_another_link = cookie(server)["Pigeon-Page-Key"]
    # A second later, the key would be another one even for the same token.
    keys = ["", "x", of_another_link[:-1], of_another_link[::-1], received["Cookie"].rpartition(".")[2]]
    for key in keys:
        headers = {**received, "Pigeon-Page-Key": key}
        for method, path in (("GET", "/api/sessions"), ("GET", f"/api/sessions/{session}/export"), ("GET", "/metrics")):
            refused = server.ask(method, path, headers=headers)
            assert refused.status == 401, (key, path)
            assert "pigeon_token=" in refused.headers["set-cookie"]
        assert server.ask("POST", "/api/links", {}, headers=headers).status == 401
        assert refused_socket(server, session, headers) == 401
        offered = {**received, "Sec-WebSocket-Protocol": f"pigeon, pigeon-page-key.{key or 'x'}"}
        assert refused_socket(server, session, offered) == 401
    page = server.ask("GET", "/", headers=received)
    assert (page.status, b"app.js" in page.body) == (200, True)


def test_a_socket_of_our_page_brings_its_key_as_a_subprotocol(server: AttackedServer, session: str) -> None:
    mine = cookie(server)
    headers = {"Cookie": mine["Cookie"], "Origin": f"http://{server.host}"}
    protocols = f"pigeon, pigeon-page-key.{mine['Pigeon-Page-Key']}"
    with server.socket(session, {**headers, "Sec-WebSocket-Protocol": protocols}) as socket:
        assert socket.subprotocol == "pigeon"


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/etc", "/", "{work}/..", "{work}/../..", "{work}/out", "work", "{work}\0", "{work}2", "\ud800", "~"]
)
def test_no_folder_outside_of_the_roots_is_opened_or_listed(server: AttackedServer, path: str) -> None:
    work = server.folders.work
    if not (work / "out").is_symlink():
        (work / "out").symlink_to("/etc")
        (work.parent / "work2").mkdir()
    asked = path.format(work=work)
    answer = server.ask("POST", "/api/sessions", {"cwd": asked}, scope="admin")
    assert answer.status == 403
    assert "is not below a folder that may be opened" in answer.json()["error"]
    if path.isprintable():
        assert server.ask("GET", f"/api/folders?path={asked}", scope="admin").status == 403
        assert server.ask("GET", f"/api/sessions?cwd={asked}", scope="admin").status == 403
    listed = server.ask("GET", "/api/folders", scope="admin").json()
    assert (listed["path"], listed["parent"], "out" in listed["folders"]) == (str(work), None, False)


@pytest.mark.parametrize("id", ["..", "../../x", "..%2f..%2fetc", "%2e%2e", "a%00b", "x" * 200, "%ff", "~", ".hidden"])
def test_an_id_is_no_path(server: AttackedServer, id: str) -> None:
    for method in ("GET", "DELETE"):
        request = f"{method} /api/sessions/{id} HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}Connection: close\r\n\r\n"
        assert server.raw(request.encode())[9:12] == b"404"
    assert server.ask("POST", "/api/sessions", {"sessionId": id}, scope="admin").status in (400, 404)


def test_commands_name_no_file_outside_of_the_roots(server: AttackedServer, session: str) -> None:
    work, outside = server.folders.work, server.folders.home / "outside"
    outside.mkdir(exist_ok=True)
    away = work / "away.jsonl"
    away.write_text('{"type":"session","version":3,"id":"a","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/etc"}\n')
    (work / "link.html").symlink_to(outside / "page.html")
    with server.socket_of(session, "admin") as link:
        for command in (
            {"type": "switch_session", "sessionPath": "/etc/passwd"},
            {"type": "switch_session", "sessionPath": "../home/x.jsonl"},
            {"type": "switch_session", "sessionPath": str(away)},
            {"type": "switch_session", "sessionPath": "away.jsonl"},
            {"type": "switch_session", "sessionPath": str(server.token_file)},
            {"type": "open_session", "sessionDir": str(outside)},
            {"type": "open_session", "sessionDir": "~"},
            {"type": "new_session", "parentSession": "/etc/passwd"},
            {"type": "reset", "parentSession": "/etc/passwd"},
            {"type": "export_html", "outputPath": str(outside / "page.html")},
            {"type": "export_html", "outputPath": "../page.html"},
            {"type": "export_html", "outputPath": "~/page.html"},
            {"type": "export_html", "outputPath": "link.html"},
            {"type": "export_html", "outputPath": str(server.folders.agent / "settings.json")},
            {"type": "export_html", "outputPath": "a\0b"},
        ):
            answer = reply(link, **command)
            assert (answer["success"], command) == (False, command)
            assert any(word in answer["error"] for word in ("folders that may", "folder that may", "NUL")), answer
    assert list(outside.iterdir()) == []


def test_all_sessions_are_those_of_the_roots(server: AttackedServer, session: str) -> None:
    elsewhere = server.folders.agent / "sessions" / "--etc--"
    elsewhere.mkdir(parents=True, exist_ok=True)
    head = '{"type":"session","version":3,"id":"hidden","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/etc"}\n'
    (elsewhere / "2026-01-01T00-00-00-000Z_hidden.jsonl").write_text(head)
    with server.socket_of(session, "read") as link:
        answer = reply(link, type="list_sessions", scope="all")
    assert answer["success"]
    assert "hidden" not in [row["id"] for row in answer["data"]["sessions"]]
    listed = server.ask("GET", "/api/sessions", scope="read").json()["sessions"]
    assert "hidden" not in [row["id"] for row in listed]
    assert server.ask("GET", "/api/sessions/hidden", scope="admin").status == 403


# --- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_text",
    [
        "POST / HTTP/1.1\r\nHost: {host}\r\n{admin}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /api/sessions HTTP/1.1\r\nHost: {host}\r\n{admin}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}",
        "POST /api/sessions HTTP/1.1\r\nHost: {host}\r\n{admin}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST /api/sessions HTTP/1.1\r\nHost: {host}\r\n{admin}Content-Length: +2\r\n\r\n{{}}",
        "POST /api/sessions HTTP/1.1\r\nHost: {host}\r\n{admin}Content-Length : 2\r\n\r\n{{}}",
        "GET /api/sessions HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n{admin}\r\n",
        "GET /api/sessions HTTP/1.1\r\n{admin}\r\n",
        "GET /api/sessions HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n",
        "GET  /api/sessions  HTTP/1.1\r\n\r\n",
        "GET /api/sessions HTTP/9.9\r\n\r\n",
        "GET /\u00e9 HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "{{\"type\":\"get_state\"}}\n",
        "GET /api/sessions HTTP/1.1\r\nHost: {host}\r\nX: {long}\r\n\r\n",
        "GET /{long} HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {host}\r\n{many}\r\n",
    ],
)  # fmt: skip
def test_what_is_no_proper_request_is_refused_and_the_connection_closed(
    server: AttackedServer, request_text: str
) -> None:
    many = "".join(f"X-{number}: y\r\n" for number in range(10_000))
    filled = request_text.format(host=server.host, admin=ADMIN, long="x" * 100_000, many=many)
    said = server.raw(filled.encode("latin-1"))
    assert said == b"" or said[9:12] in (b"400", b"408", b"431", b"505"), said[:200]
    assert said.count(b"HTTP/1.1 ") <= 1


def test_a_second_request_hidden_in_a_body_is_not_answered(server: AttackedServer) -> None:
    hidden = f"GET /metrics HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}\r\n"
    head = f"GET /healthz HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: {len(hidden)}\r\nConnection: close\r\n\r\n"
    said = server.raw((head + hidden).encode())
    assert said.count(b"HTTP/1.1 ") == 1


def test_a_request_that_does_not_end_is_ended(server: AttackedServer) -> None:
    beginnings = [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-a: ",
        f"POST /api/sessions HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}Content-Length: 100\r\n\r\n{{".encode(),
        f"GET /healthz HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: 100\r\n\r\nx".encode(),
        f"GET /healthz HTTP/1.1\r\nHost: {server.host}\r\n\r\nGET / HT".encode(),
    ]
    links = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in beginnings]
    for link, beginning in zip(links, beginnings, strict=True):
        link.sendall(beginning)
    said = []
    for link in links:
        with link:
            said.append(b"".join(iter(lambda link=link: link.recv(1 << 16), b"")))
    assert [one.count(b"HTTP/1.1 408 ") for one in said] == [1, 1, 1, 0, 0]
    assert said[3].count(b"HTTP/1.1 ") == 1, "an answer that has begun is not followed by another one"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "FOO"])
def test_a_wrong_method_is_answered_with_the_right_ones(server: AttackedServer, method: str) -> None:
    request = f"{method} /api/sessions HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}Connection: close\r\n\r\n"
    said = server.raw(request.encode()).decode()
    assert said[9:12] == "405"
    allowed = next(line for line in said.lower().splitlines() if line.startswith("allow:"))
    assert set(allowed.partition(": ")[2].upper().split(", ")) == {"GET", "HEAD", "POST", "OPTIONS"}


def test_a_body_that_is_too_long_is_refused(server: AttackedServer) -> None:
    answer = server.ask("POST", "/api/sessions", b"[" * 100_000, scope="admin")
    assert answer.status == 413
    for body in (b"", b"{", b"[]", b"null", b"\xff", b'{"cwd":1}', b'{"nothing":1}', b"[" * 60_000, b'{"cwd":null}'):
        answer = server.ask("POST", "/api/sessions", body, scope="admin")
        assert (answer.status, bool(answer.json()["error"])) == (400, True)


def test_every_answer_keeps_browsers_strict(server: AttackedServer) -> None:
    for path, status in (("/api/sessions", 200), ("/nothing", 404), ("/api/sessions/x", 404), ("/healthz", 200)):
        answer = server.ask("GET", path, scope="read")
        assert answer.status == status
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


# --- frames ----------------------------------------------------------------------------------------------------------


def test_frames_that_are_no_records_are_refused(server: AttackedServer, session: str) -> None:
    with server.socket_of(session, "admin") as link:
        for text in ("", "{", "[]", "null", '{"type":1}', '{"type":"nothing"}', "\0", '"\\ud800"', "[" * 10_000):
            link.send(text)
            assert '"success":false' in link.recv(20)
        assert reply(link, type="get_state")["success"]


def test_a_binary_frame_ends_the_connection(server: AttackedServer, session: str) -> None:
    with server.socket_of(session, "admin") as link:
        link.send(b'{"type":"get_state"}')
        with pytest.raises(ConnectionClosed) as closed:
            link.recv(20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1003


def test_a_frame_that_is_too_long_ends_the_connection(server: AttackedServer, session: str) -> None:
    with server.socket_of(session, "admin") as link:
        link.send('{"type":"prompt","message":"' + "x" * 2_000_000 + '"}')
        with pytest.raises(ConnectionClosed) as closed:
            link.recv(20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),
        (b"\x81\x02{}", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\xf1\x80\0\0\0\0", 1002),
        (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009),
        (b"\x80\x80\0\0\0\0", 1002),
    ],
)
def test_bytes_that_are_no_frames_end_the_connection(
    server: AttackedServer, session: str, frame: bytes, code: int
) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
    head = f"GET /api/sessions/{session}/rpc HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}{upgrade}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(head.encode())
        said = b""
        while b"\r\n\r\n" not in said:
            said += link.recv(1 << 16)
        assert said.startswith(b"HTTP/1.1 101")
        link.sendall(frame)
        said = said.partition(b"\r\n\r\n")[2]
        while b"\x88" not in said or len(said) < said.index(b"\x88") + 4:
            more = link.recv(1 << 16)
            assert more, said
            said += more
    at = said.index(b"\x88")
    assert int.from_bytes(said[at + 2 : at + 4], "big") == code


def test_an_upgrade_that_is_none_is_refused(server: AttackedServer, session: str) -> None:
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    path = f"/api/sessions/{session}/rpc"
    for head in (
        f"POST {path} HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}{upgrade}\r\n",
        f"GET {path} HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}{upgrade}Sec-WebSocket-Version: 99\r\n\r\n",
        f"GET {path} HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}{upgrade}Sec-WebSocket-Key: x\r\n\r\n",
    ):
        said = server.raw(head.encode())
        assert not said.startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize("query", ["?after=-1", "?after=x", "?after=1e3", "?after=" + "9" * 30, "?after=\u0663"])
def test_a_number_that_is_none_is_refused_with_a_reason(server: AttackedServer, session: str, query: str) -> None:
    mine = {"Authorization": f"Bearer {TOKENS['read']}"}
    with server.socket(session, mine, query) as link, pytest.raises(ConnectionClosed) as closed:
        link.recv(20)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, "after" in closed.value.rcvd.reason) == (4000, True)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_connections_that_say_nothing_lock_no_client_out(server: AttackedServer, session: str) -> None:
    with server.socket_of(session, "admin") as link, flood(server.port, 1_200) as opened:
        assert opened == 1_200
        assert server.lives()
        assert reply(link, type="get_state")["success"]
        figures = server.ask("GET", "/metrics", scope="read").body.decode()
    # Some gave way to others, and some were silent for too long, which depends on how fast they came.
    figures_of = dict(line.rsplit(" ", 1) for line in figures.splitlines() if not line.startswith("#"))
    reasons = (f'pigeon_refused_total{{reason="{reason}"}}' for reason in ("connections", "slow"))
    assert sum(int(figures_of.get(reason, "0")) for reason in reasons) >= 150


def test_commands_of_a_client_that_does_not_read_are_not_taken_without_end(
    server: AttackedServer, session: str
) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
    head = f"GET /api/sessions/{session}/rpc HTTP/1.1\r\nHost: {server.host}\r\n{ADMIN}{upgrade}\r\n"
    command = b'{"type":"get_available_models"}'
    frames = (bytes([0x81, 0x80 | len(command), 0, 0, 0, 0]) + command) * 1_000
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(head.encode())
        link.recv(1 << 16)
        link.settimeout(1)
        # As long as something is taken, it may take its time.
        sent = 0
        with suppress(TimeoutError):
            while sent < 500 * len(frames):
                sent += link.send(frames[sent % len(frames) :])
        assert sent < 500 * len(frames)


def test_wrong_tokens_are_slowed_down_and_right_ones_are_not(server: AttackedServer) -> None:
    headers = {"Authorization": "Bearer wrong-token-0123456789"}
    answers = [server.ask("GET", "/api/sessions", headers=headers) for _ in range(25)]
    assert answers[-1].status == 429
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert server.ask("GET", "/api/sessions", scope="read").status == 200


def test_no_secret_is_in_the_log_or_in_a_command_line(server: AttackedServer) -> None:
    assert server.ask("GET", "/api/sessions", scope="read").status == 200
    assert eventually(lambda: '"event":"request"' in server.log.read_text())
    logged = server.log.read_text()
    for secret in (*TOKENS.values(), "?token=", "pigeon_token", "Bearer"):
        assert secret not in logged
    lines = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert not any(token.encode() in lines for token in TOKENS.values())


async def test_a_client_whose_message_is_too_long_is_told_and_goes_on(server: AttackedServer, session: str) -> None:
    async with pigeon.Client(f"ws://{server.host}/{session}", token=TOKENS["talk"]) as client:
        with pytest.raises(pigeon.PigeonError, match="prompt is larger than the server accepts: 2 MB"):
            await client.run("x" * 2_000_000)
        assert (await client.get_state()).session_id == session
