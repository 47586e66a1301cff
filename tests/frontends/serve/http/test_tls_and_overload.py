"""A server with TLS and narrow limits: what is too much is refused with a word, and what runs goes on."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from support.agent_process import command_line
from support.pigeon_serve import TOKENS, AttackedServer, reply
from support.processes import eventually

DATA = Path(__file__).parents[3] / "providers" / "data"
CERTIFICATE, KEY = DATA / "localhost.cert.pem", DATA / "localhost.key.pem"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    limits = ["--max-awake", "1", "--max-connections", "4", "--drain-seconds", "0"]
    files = ["--tls-cert", str(CERTIFICATE), "--tls-key", str(KEY)]
    with AttackedServer(tmp_path_factory.mktemp("tls"), *files, *limits, certificate=CERTIFICATE) as server:
        yield server


def test_it_is_called_by_https_and_its_cookie_is_for_https_alone(server: AttackedServer) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    entered = server.ask("GET", server.link.removeprefix(server.url))
    assert (entered.status, "Secure" in entered.headers["set-cookie"].split("; ")) == (303, True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not link.recv(1 << 16).startswith(b"HTTP")
    assert server.ask("GET", "/healthz").status == 200


def test_our_origin_is_that_of_https(server: AttackedServer) -> None:
    for scheme, status in (("https", 200), ("http", 403)):
        headers = {"Origin": f"{scheme}://{server.host}"}
        assert server.ask("GET", "/api/sessions", scope="read", headers=headers).status == status


def test_a_link_is_had_over_tls(server: AttackedServer) -> None:
    words = [*command_line(), "serve", "--link"]
    environment = server.folders.environment()
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert server.ask("GET", ran.stdout.strip().removeprefix(server.url)).status == 303


def is_known(server: AttackedServer, count: int) -> bool:
    """Whether so many connections are counted besides the one that asks; those that were closed go after a while."""
    said = server.ask("GET", "/metrics", scope="read").body
    return f'pigeon_connections{{kind="known"}} {count + 1}\n'.encode() in said


def test_too_many_conversations_and_connections_are_refused_with_a_word(server: AttackedServer) -> None:
    waiting, running = server.new(), server.new()
    with server.socket_of(running, "admin") as link:
        assert reply(link, type="prompt", message="run tail -f /dev/null")["success"]
        while json.loads(link.recv(20))["type"] != "tool_execution_start":
            pass
        refused = server.ask("POST", "/api/sessions", {"cwd": str(server.folders.work)}, scope="talk")
        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert "--max-awake 1" in refused.json()["error"]
        with server.socket_of(waiting, "talk") as other, pytest.raises(ConnectionClosed) as closed:
            other.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        assert eventually(lambda: is_known(server, 1))
        with ExitStack() as more:
            for _ in range(3):
                more.enter_context(server.socket_of(running, "read"))
            refused = server.ask("GET", "/api/sessions", scope="admin")
            assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
            with pytest.raises(InvalidStatus) as status:
                server.socket(running, {"Authorization": f"Bearer {TOKENS['admin']}"})
            assert status.value.response.status_code == 503
            assert server.ask("GET", "/healthz").status == 200
        assert reply(link, type="abort")["success"]
    assert eventually(lambda: server.ask("GET", "/api/sessions", scope="read").status == 200)


def test_a_client_that_goes_while_its_conversation_wakes_is_no_client_any_more(server: AttackedServer) -> None:
    asleep, _ = server.new(), server.new()
    headers = {
        "Host": server.host,
        "Authorization": f"Bearer {TOKENS['admin']}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    request = [f"GET /api/sessions/{asleep}/rpc HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as link,
        trusting.wrap_socket(link, server_hostname="localhost") as tls,
    ):
        tls.sendall("\r\n".join((*request, "", "")).encode())

    def clients() -> tuple[str, int]:
        row = server.ask("GET", f"/api/sessions/{asleep}", scope="read").json()
        return row["state"], row["clients"]

    assert eventually(lambda: clients() == ("awake", 0))
