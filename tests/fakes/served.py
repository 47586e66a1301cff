"""A `pigeon serve` of its own for tests, with what clients need: addresses, the token, and requests over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fakes.agent_folders import AgentFolders
from fakes.processes import eventually, is_alive
from fakes.rpc_process import start_server

STOPS_WITHIN = 20.0


class ServedConversations:
    """A server; conversations may work anywhere below `root`. Its agent's folder is that of `folders`."""

    def __init__(self, root: Path, *options: str) -> None:
        self.folders = AgentFolders(root)
        self.folders.configure({"providers": {}})
        self.root = root
        self.socket = root / "serve.sock"
        self._options = options
        self._port = 0
        self._process: Any = None
        self.start()

    def start(self) -> None:
        """Serve, at the same port as before."""
        words = ["serve", "--port", str(self._port), "--root", "/", "--socket", str(self.socket)]
        # Runs that tests have left are not waited for at the end.
        words += ["--drain-seconds", "0", *self._options]
        with (self.root / "stderr.txt").open("ab") as stderr:
            self._process = start_server(words, self.folders, stderr.fileno())
        self.url = self._process.stdout.readline().decode().split()[-1]
        self._port = urlsplit(self.url).port or 0
        assert eventually(self.socket.exists)
        lines = (self.folders.agent / "serve.token").read_text().splitlines()
        self.token = next(line for line in lines if line.startswith("admin ")).split()[1]

    @property
    def ws(self) -> str:
        """The server's address for WebSockets."""
        return self.url.replace("http", "ws", 1)

    @property
    def pid(self) -> int:
        """The supervisor."""
        assert self._process is not None
        return self._process.pid

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A request over HTTP that succeeds."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            data = response.read()
            assert response.status < 300, (response.status, data)
            return json.loads(data) if data else None
        finally:
            connection.close()

    def new(self, model: str = "demo", cwd: Path | None = None) -> str:
        """The id of a new conversation."""
        made = self.call("POST", "/api/sessions", {"cwd": str(cwd or self.folders.work), "model": model})
        return str(made["id"])

    def worker_of(self, id: str) -> int:
        """The process of a conversation."""
        return int(self.call("GET", f"/api/sessions/{id}")["pid"])

    def kill(self) -> None:
        """End the supervisor by force; its workers go on."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order, with all workers."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.kill(process.pid, number)
            try:
                process.wait(STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                # Another signal ends everything at once; a test that stops a server wants it gone in any case.
                os.kill(process.pid, number)
                process.wait(STOPS_WITHIN)
                raise
            process.stdout.close()


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


def gone(pid: int) -> bool:
    """Whether a process has ended, soon."""
    return eventually(lambda: not is_alive(pid))
