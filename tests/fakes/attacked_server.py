"""A `pigeon serve` that is attacked: tokens of each scope, requests with any header, and raw bytes."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from fakes.agent_folders import AgentFolders
from fakes.rpc_process import start_server

TOKENS = {scope: f"{scope}-token-0123456789abcdef" for scope in ("read", "talk", "admin")}
WAIT = 30.0


class Answer:
    """One answer over HTTP."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        """Its body as JSON."""
        return json.loads(self.body)


class AttackedServer:
    """A server of a folder `work`; use as a context manager. What it logs is in `log`."""

    def __init__(self, root: Path, *options: str, certificate: Path | None = None) -> None:
        """`certificate` is what the clients trust, for a server whose options say that it has one."""
        self._tls = self._socket_tls = None
        if certificate is not None:
            self._tls = ssl.create_default_context(cafile=certificate)
            self._socket_tls = ssl.create_default_context(cafile=certificate)
            # These clients read and write in two threads, which OpenSSL does not allow: tickets of TLS 1.3 that come
            # while the request is written can hold it back for ever.
            self._socket_tls.maximum_version = ssl.TLSVersion.TLSv1_2
        self.folders = AgentFolders(root)
        self.folders.configure({"providers": {}})
        self.log = root / "stderr.log"
        self.token_file = self.folders.agent / "serve.token"
        self.write_tokens(TOKENS)
        words = ["serve", "--port", "0", "--root", str(self.folders.work), "--model", "demo", *options]
        with self.log.open("wb") as log:
            self.process = start_server(words, self.folders, log.fileno())
        said = self.process.stdout.readline().decode() + self.process.stdout.readline().decode()
        found = re.findall(r"https?://\S+", said)
        assert len(found) == 2, (said, self.log.read_text())
        self.url, self.link = found
        self.port = urlsplit(self.url).port or 0
        self.host = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=WAIT)

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
        more = headers or {}
        times = {"open_timeout": WAIT, "close_timeout": 1}
        return connect(address, additional_headers=more, max_size=None, ssl=self._socket_tls, **times)

    def socket_of(self, id: str, scope: str) -> ClientConnection:
        """A WebSocket with the token of a scope."""
        return self.socket(id, {"Authorization": f"Bearer {TOKENS[scope]}"})

    def lives(self) -> bool:
        """Whether it still serves: requests and conversations."""
        return (
            self.ask("GET", "/healthz").status == 200 and self.ask("GET", "/api/sessions", scope="read").status == 200
        )


def reply(link: ClientConnection, **command: Any) -> dict[str, Any]:
    """The response to a command."""
    link.send(json.dumps({"id": "asked", **command}))
    while True:
        record: dict[str, Any] = json.loads(link.recv(WAIT))
        if record.get("type") == "response" and record.get("id") == "asked":
            return record
