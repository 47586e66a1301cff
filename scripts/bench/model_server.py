"""A scripted model server in a process of its own, so that its work is not counted as that of an agent.

    python -m bench.model_server      prints its port; its end of input ends it

`POST /script` sets what it answers: `replies` in their order, then `last` for ever; `aside` for requests that offer no
tools, which are for titles and the like; `parts` for conversations that begin with a certain text. `GET /requests`
says what has been asked since then. Every API of `model_formats` is served at every address.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.model_formats import Record, api_of, encode_stream, encode_whole, is_streamed

SCRIPTS = Path(__file__).parent.parent
TEXT = "The answer is 42."


class Script:
    """What is answered, and what was asked."""

    def __init__(self, script: Record) -> None:
        self._lock = threading.Lock()
        self._replies = list(script.get("replies", []))
        self._last: Record = script.get("last", {"text": TEXT})
        self._aside: Record = script.get("aside", {"text": TEXT})
        self._parts: Record = script.get("parts", {})
        self._needles: list[str] = script.get("needles", [])
        self.requests: list[Record] = []

    def next_reply(self, raw: str, request: Record) -> tuple[int, Record]:
        """The number of this request and what to answer."""
        with self._lock:
            found = sum(needle in raw for needle in self._needles)
            self.requests.append({"bytes": len(raw), "found": found, "tools": _count_tools(request)})
            number = len(self.requests)
            if not _count_tools(request):
                return number, self._aside
            first = _first_text(request) if self._parts else ""
            for begin, reply in self._parts.items():
                if begin in first:
                    return number, reply
            return number, self._replies.pop(0) if self._replies else self._last


def _count_tools(request: Record) -> int:
    return sum(len(tool.get("functionDeclarations", [0])) for tool in request.get("tools") or [])


def _first_text(request: Record) -> str:
    """What the conversation of a request begins with."""
    for message in request.get("messages", []):
        if message.get("role") == "user":
            return json.dumps(message.get("content"))
    return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    script = Script({})

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        if self.path == "/requests":
            self._send_json(_Handler.script.requests)
        else:
            self._send_json({"object": "list", "data": [{"id": "bench", "object": "model"}], "models": []})

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        api = api_of(self.path)
        if self.path == "/script":
            _Handler.script = Script(json.loads(raw))
            self._send_json({})
        elif not api:
            self._send_json({"input_tokens": 100, "totalTokens": 100})
        else:
            request = json.loads(raw)
            model = str(request.get("model", "bench"))
            number, reply = _Handler.script.next_reply(raw.decode(), request)
            if is_streamed(api, self.path, request):
                self._send(b"".join(encode_stream(api, model, number, reply)), "text/event-stream")
            else:
                self._send_json(encode_whole(api, model, number, reply))

    def _send_json(self, answer: Any) -> None:
        self._send(json.dumps(answer).encode(), "application/json")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Agents drop connections when they end."""


class ModelServer:
    """The server as a child process."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "bench.model_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=SCRIPTS,
        )
        assert self._program.stdout is not None
        self.port = int(self._program.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def play(self, **script: Any) -> None:
        """Answer like this from now on, and forget what was asked."""
        urllib.request.urlopen(f"{self.url}/script", json.dumps(script).encode(), timeout=30).close()

    def requests(self) -> list[Record]:
        """What was asked since `play`."""
        with urllib.request.urlopen(f"{self.url}/requests", timeout=30) as answer:
            found: list[Record] = json.load(answer)
            return found

    def stop(self) -> None:
        assert self._program.stdin is not None
        self._program.stdin.close()
        self._program.wait(30)
        assert self._program.stdout is not None
        self._program.stdout.close()


def main() -> None:
    server = _Http(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
