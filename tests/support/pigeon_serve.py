"""A `pigeon serve` of its own for tests: addresses, tokens, requests over HTTP, and the same server under attack."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from websockets import Subprotocol
from websockets.sync.client import ClientConnection, connect

from support.agent_folders import AgentFolders
from support.agent_process import start_program
from support.processes import eventually, is_alive

STOPS_WITHIN = 20.0
TOKENS = {scope: f"{scope}-token-0123456789abcdef" for scope in ("read", "talk", "admin")}
WAIT = 30.0


class PigeonServer:
    """A running `pigeon serve`; use as a context manager. `link` is the one that signs in, `log` what it logs."""

    def __init__(self, folders: AgentFolders, *options: str) -> None:
        self.folders = folders
        self.log = folders.agent.parent / "serve.log"
        self.port = 0
        self._options = options
        self.process: Any = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve, at the same port as before."""
        words = ["serve", "--port", str(self.port), *self._options]
        with self.log.open("ab") as log:
            self.process = start_program(words, log.fileno(), self.folders)
        self.process.stdin.close()
        printed = "".join(self.process.stdout.readline().decode() for _ in range(2))
        links = re.findall(r"https?://\S+", printed)
        assert len(links) == 2, (printed, self.log.read_text("utf-8")[-2000:])
        self.url, self.link = links
        self.port = urlsplit(self.url).port or 0

    @property
    def pid(self) -> int:
        """The supervisor."""
        return int(self.process.pid)

    @property
    def token(self) -> str:
        """The token with all rights."""
        lines = (self.folders.agent / "serve.token").read_text().splitlines()
        return next(line for line in lines if line.startswith("admin ")).split()[1]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A request over HTTP with that token; raises `HTTPError` if it does not succeed."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            return json.loads(answer.read() or b"null")

    def kill(self) -> None:
        """End the supervisor by force; its workers go on."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order, with all workers."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                # Another signal ends everything at once; a test that stops a server wants it gone in any case.
                process.send_signal(number)
                process.wait(STOPS_WITHIN)
                raise
            process.stdout.close()


class ServedConversations(PigeonServer):
    """A server with the demo model; conversations may work anywhere."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        self.socket = root / "serve.sock"
        folders = AgentFolders(root)
        folders.configure({"providers": {}})
        # Runs that tests have left are not waited for at the end.
        words = ["--root", "/", "--socket", str(self.socket), "--drain-seconds", "0"]
        super().__init__(folders, *words, *options)

    def start(self) -> None:
        super().start()
        assert eventually(self.socket.exists)

    @property
    def ws(self) -> str:
        """The server's address for WebSockets."""
        return self.url.replace("http", "ws", 1)

    def new(self, model: str = "demo", cwd: Path | None = None, agents: bool = False) -> str:
        """The id of a new conversation; with `agents`, its clients show those that it starts."""
        asked = {"cwd": str(cwd or self.folders.work), "model": model, "agents": agents}
        made = self.call("POST", "/api/sessions", asked)
        return str(made["id"])

    def worker_of(self, id: str) -> int:
        """The process of a conversation."""
        return int(self.call("GET", f"/api/sessions/{id}")["pid"])


_shared: list[ServedConversations] = []


def shared_server() -> ServedConversations:
    """The server of this pytest worker, started when it is asked for first."""
    if not _shared:
        _shared.append(ServedConversations(Path(tempfile.mkdtemp(prefix="pigeon-served-"))))
    return _shared[0]


def stop_shared_server() -> None:
    """At the end of the pytest run."""
    while _shared:
        server = _shared.pop()
        server.stop()
        shutil.rmtree(server.root, ignore_errors=True)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, soon."""
    return eventually(lambda: not is_alive(pid))


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)


class AttackedServer(PigeonServer):
    """A server of a folder `work`, with tokens of each scope, requests with any header, and raw bytes."""

    def __init__(self, root: Path, *options: str, certificate: Path | None = None) -> None:
        """`certificate` is what the clients trust, for a server whose options say that it has one."""
        self._tls = self._socket_tls = None
        if certificate is not None:
            self._tls = ssl.create_default_context(cafile=certificate)
            self._socket_tls = ssl.create_default_context(cafile=certificate)
            # These clients read and write in two threads, which OpenSSL does not allow: tickets of TLS 1.3 that come
            # while the request is written can hold it back for ever.
            self._socket_tls.maximum_version = ssl.TLSVersion.TLSv1_2
        folders = AgentFolders(root)
        folders.configure({"providers": {}})
        self.token_file = folders.agent / "serve.token"
        self.write_tokens(TOKENS)
        super().__init__(folders, "--root", str(folders.work), "--model", "demo", *options)
        self.host = f"127.0.0.1:{self.port}"

    def write_tokens(self, tokens: dict[str, str]) -> None:
        """The tokens from now on, by scope."""
        self.token_file.write_text("".join(f"{scope} {token} {scope}\n" for scope, token in tokens.items()))
        self.token_file.chmod(0o600)

    def ask(
        self, method: str, path: str, body: Any = None, *, scope: str = "", headers: dict[str, str] | None = None
    ) -> Answer:
        """One request, with the token of a scope if one is named."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        if self._tls is not None:
            link = http.client.HTTPSConnection("localhost", self.port, timeout=WAIT, context=self._tls)
        sent = {"Host": self.host, **({"Authorization": f"Bearer {TOKENS[scope]}"} if scope else {}), **(headers or {})}
        try:
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            if data is not None and "Content-Type" not in sent:
                sent["Content-Type"] = "application/json"
            link.request(method, path, data, sent)
            answer = link.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            link.close()

    def raw(self, data: bytes) -> bytes:
        """Bytes to the server on a connection of their own, and all that it says until it closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT) as link:
            link.sendall(data)
            said = b""
            try:
                while more := link.recv(1 << 16):
                    said += more
            except ConnectionResetError:
                pass
            return said

    def new(self) -> str:
        """The id of a new conversation."""
        answer = self.ask("POST", "/api/sessions", {"cwd": str(self.folders.work)}, scope="admin")
        assert answer.status == 201, answer.body
        return str(answer.json()["id"])

    def socket(self, id: str, headers: dict[str, str] | None = None, query: str = "") -> ClientConnection:
        """A WebSocket to a conversation; raises what `websockets` raises."""
        address = f"ws://{self.host}/api/sessions/{id}/rpc{query}"
        if self._socket_tls is not None:
            address = f"wss://localhost:{self.port}/api/sessions/{id}/rpc{query}"
        more = dict(headers or {})
        # The library offers nothing but what it is told to, and takes nothing else for an answer.
        offered = [Subprotocol(one) for one in more.pop("Sec-WebSocket-Protocol", "").split(", ") if one]
        times = {"open_timeout": WAIT, "close_timeout": 1}
        return connect(
            address, additional_headers=more, max_size=None, ssl=self._socket_tls, subprotocols=offered or None, **times
        )

    def socket_of(self, id: str, scope: str) -> ClientConnection:
        """A WebSocket with the token of a scope."""
        return self.socket(id, {"Authorization": f"Bearer {TOKENS[scope]}"})

    def lives(self) -> bool:
        """Whether it still serves: requests and conversations."""
        return (
            self.ask("GET", "/healthz").status == 200 and self.ask("GET", "/api/sessions", scope="read").status == 200
        )


def reply(link: ClientConnection, **command: Any) -> dict[str, Any]:
    link.send(json.dumps({"id": "asked", **command}))
    while True:
        record: dict[str, Any] = json.loads(link.recv(WAIT))
        if record.get("type") == "response" and record.get("id") == "asked":
            return record
