"""A model server on loopback: it plays prepared answers as Anthropic Messages and remembers what it was asked.

Nothing here sleeps: where a test wants an answer to stand still it puts a `Gate` into it, waits until it is reached,
does what it came for, and opens the gate. Answers are used in the order in which they were queued; a request that finds
none is refused with status 400 and a text that says so.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from types import TracebackType
from typing import Any

PATIENCE = 30.0


class Signal:
    """Something that happens once; a thread that waits in `select` sees it as a readable socket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._happened = False
        self._watchers: list[socket.socket] = []

    def set(self) -> None:
        with self._lock:
            self._happened = True
            for watcher in self._watchers:
                watcher.send(b"!")

    @contextlib.contextmanager
    def watch(self) -> Iterator[socket.socket]:
        """A socket that is readable as soon as it has happened."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with self._lock:
                self._watchers.append(theirs)
                if self._happened:
                    theirs.send(b"!")
            try:
                yield ours
            finally:
                with self._lock:
                    self._watchers.remove(theirs)


class Gate:
    """A place in an answer where the server stands still until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = Signal()

    def open(self) -> None:
        self.opened.set()

    def wait_reached(self, timeout: float = PATIENCE) -> None:
        assert self.reached.wait(timeout), "the model server never came to this gate"


@dataclass
class Text:
    text: str
    piece: int = 0
    closes: bool = True


@dataclass
class Thinking:
    text: str
    signature: str = "sig"


@dataclass
class Call:
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    raw: str | None = None
    piece: int = 7


@dataclass
class Flood:
    """These bytes of the body again and again, until the client goes away if no number is given."""

    piece: bytes
    times: int | None = None


class Cut:
    """Drop the connection here, in the middle of the answer."""


class Hang:
    """Say nothing more and keep the connection, until the client goes away or the server stops."""


Part = Text | Thinking | Call | Flood | Gate | Cut | Hang


@dataclass
class Answer:
    """One prepared answer, and what became of it."""

    parts: list[Part]
    stop: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    status: int = 200
    error: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    arrived: threading.Event = field(default_factory=threading.Event)
    dropped: threading.Event = field(default_factory=threading.Event)

    def wait_arrived(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """The request that this answer is for."""
        assert self.arrived.wait(timeout), "no request came for this answer"
        return self.request

    def wait_dropped(self, timeout: float = PATIENCE) -> None:
        assert self.dropped.wait(timeout), "the client kept the connection"


class _Gone(Exception):
    """The client closed the connection, or the test ended it."""


class ModelServer:
    """Use as a context manager; `url` is the base URL for the agent's models.json."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._queue: deque[Answer] = deque()
        self._lock = threading.Lock()
        self.stopping = Signal()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopping.set()
        self._thread.join()
        self._http.server_close()

    def answers(self, *parts: Part | str, stop: str | None = None, usage: dict[str, int] | None = None) -> Answer:
        """Queue an answer; a bare string is text."""
        built: list[Part] = [Text(part) if isinstance(part, str) else part for part in parts]
        return self._queue_answer(Answer(parts=built, stop=stop, usage=usage or {}))

    def fails(
        self, status: int, message: str, kind: str = "api_error", headers: dict[str, str] | None = None
    ) -> Answer:
        """Queue a refusal with an HTTP status."""
        error = {"type": "error", "error": {"type": kind, "message": message}}
        return self._queue_answer(Answer(parts=[], status=status, error=error, headers=headers or {}))

    def count_unused_answers(self) -> int:
        """How many prepared answers were not asked for."""
        return len(self._queue)

    def forget(self) -> None:
        """Drop the prepared answers that were not asked for."""
        with self._lock:
            self._queue.clear()

    def _queue_answer(self, answer: Answer) -> Answer:
        with self._lock:
            self._queue.append(answer)
        return answer

    def next_answer(self, request: dict[str, Any], headers: dict[str, str]) -> Answer:
        """The answer for a request that has come; called by the handler."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            answer = self._queue.popleft() if self._queue else _nothing_prepared()
        answer.request = request
        answer.arrived.set()
        return answer


def _nothing_prepared() -> Answer:
    message = "the test prepared no answer for this request"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return Answer(parts=[], status=400, error=error)


class _Http(ThreadingHTTPServer):
    owner: ModelServer
    daemon_threads = False
    block_on_close = True

    def serve(self) -> None:
        """Take connections until the owner stops."""
        with self.owner.stopping.watch() as stopping:
            while stopping not in select.select([self, stopping], [], [])[0]:
                self.handle_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 0.5
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        answer = self.server.owner.next_answer(
            json.loads(body), {key.lower(): value for key, value in self.headers.items()}
        )
        self.close_connection = True
        try:
            if answer.error is not None:
                self._refuse(answer)
            else:
                self._stream(answer)
        except (_Gone, OSError):
            answer.dropped.set()

    def _refuse(self, answer: Answer) -> None:
        body = json.dumps(answer.error).encode()
        self.send_response(answer.status)
        about = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        for name, value in {**about, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: Answer) -> None:
        self.send_response(200)
        for name, value in {
            "content-type": "text/event-stream",
            "transfer-encoding": "chunked",
            **answer.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        self.connection.settimeout(PATIENCE)
        for step in _script(answer):
            if isinstance(step, bytes):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(step), step))
                self.wfile.flush()
            elif isinstance(step, Gate):
                step.reached.set()
                self._stand_still(step.opened)
            elif isinstance(step, Hang):
                self._stand_still(Signal())
            else:
                raise _Gone
        self.wfile.write(b"0\r\n\r\n")

    def _stand_still(self, opened: Signal) -> None:
        """Wait for the gate, for the client to go away, or for the end of the test."""
        with opened.watch() as gate, self.server.owner.stopping.watch() as stopping:
            while gate not in (ready := select.select([self.connection, gate, stopping], [], [])[0]):
                if stopping in ready or not self.connection.recv(1):
                    raise _Gone


def _script(answer: Answer) -> Iterator[bytes | Gate | Cut | Hang]:
    """The body of an answer: server-sent events, and the places where something else happens."""
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    usage.update({key: value for key, value in answer.usage.items() if key != "output_tokens"})
    model = answer.request.get("model", "fake-1")
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield event_bytes("message_start", message={**head, "stop_reason": None, "stop_sequence": None})
    index = 0
    for part in answer.parts:
        if isinstance(part, Gate | Cut | Hang):
            yield part
            continue
        if isinstance(part, Flood):
            yield from repeat(part.piece) if part.times is None else repeat(part.piece, part.times)
            continue
        yield from _block(index, part)
        index += 1
    stop = answer.stop or ("tool_use" if any(isinstance(part, Call) for part in answer.parts) else "end_turn")
    output = {"output_tokens": answer.usage.get("output_tokens", 5)}
    yield event_bytes("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=output)
    yield event_bytes("message_stop")


def _block(index: int, part: Text | Thinking | Call) -> Iterator[bytes]:
    if isinstance(part, Text):
        yield event_bytes("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in _pieces(part.text, part.piece):
            yield event_bytes("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
    elif isinstance(part, Thinking):
        yield event_bytes(
            "content_block_start", index=index, content_block={"type": "thinking", "thinking": "", "signature": ""}
        )
        for piece in _pieces(part.text, 0):
            yield event_bytes("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": piece})
        yield event_bytes(
            "content_block_delta", index=index, delta={"type": "signature_delta", "signature": part.signature}
        )
    else:
        start: dict[str, Any] = {"type": "tool_use", "id": part.id or f"toolu_{index}", "name": part.name, "input": {}}
        yield event_bytes("content_block_start", index=index, content_block=start)
        text = json.dumps(part.arguments) if part.raw is None else part.raw
        for piece in _pieces(text, part.piece):
            yield event_bytes(
                "content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece}
            )
    if not isinstance(part, Text) or part.closes:
        yield event_bytes("content_block_stop", index=index)


def _pieces(text: str, size: int) -> Iterable[str]:
    size = size or max(1, -(-len(text) // 3))
    return [text[at : at + size] for at in range(0, len(text), size)]


def event_bytes(kind: str, **fields: Any) -> bytes:
    """One server-sent event of the Messages API."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def said_in(request: dict[str, Any]) -> list[tuple[str, str]]:
    """The conversation in a request as (role, text): what the model was told, whatever the form of its blocks."""
    return [(message["role"], _flat(message["content"])) for message in request["messages"]]


def _flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        if block["type"] == "text":
            texts.append(block["text"])
        elif block["type"] == "tool_result":
            texts.append(_flat(block["content"]))
    return "".join(texts)
