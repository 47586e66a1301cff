"""An HTTP server on loopback that plays prepared replies, and answers of models in the words of four APIs for it.

It runs in the test's own event loop and never sleeps: a `Hold` in a reply stands still until the test releases it or
the client goes away, and `Cut` drops the connection. `answer` makes the body of an answer: texts, tool calls, its end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any, NamedTuple

PATIENCE = 10.0
APIS = ("anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai")
PATHS = {"anthropic-messages": "", "openai-completions": "/v1", "openai-responses": "/v1", "google-generative-ai": ""}


class Cut:
    """Drop the connection here."""


class Hold:
    """Stand still here."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


@dataclass
class Reply:
    """One reply; its parts are sent as chunks of their own."""

    parts: list[Any] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    held_headers: Hold | None = None


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: Any
    connection: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)


def sse(*payloads: Any, named: bool = False) -> list[bytes]:
    """Events with JSON data; the name is the payload's type."""
    return [
        (f"event: {payload['type']}\n".encode() if named else b"")
        + b"data: "
        + (payload.encode() if isinstance(payload, str) else json.dumps(payload).encode())
        + b"\n\n"
        for payload in payloads
    ]


def plain(status: int, body: Any, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply([data], status, {name.replace("_", "-"): value for name, value in headers.items()}, "application/json")


Answering = Callable[[Any], Reply]  # a reply that depends on what the request says


class HttpServer:
    """Use as an asynchronous context manager."""

    def __init__(self, replies: Iterable[Reply | Answering], port: int = 0, ssl: SSLContext | None = None) -> None:
        self._port = port
        self._ssl = ssl
        self._replies: list[Reply | Answering] = list(replies)
        self.requests: list[Received] = []
        self._connections = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> HttpServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._ssl)
        scheme = "http" if self._ssl is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def prepare(self, replies: Iterable[Reply | Answering]) -> None:
        """Play these replies from now on, and nothing that is left of those before."""
        self._replies = list(replies)

    @property
    def body(self) -> Any:
        return self.requests[-1].body

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        number = self._connections
        try:
            while await self._one(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:] if ": " in line)
        headers = {name.lower(): value for name, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(lines[0].split(" ")[1], headers, json.loads(raw or b"null"), number)
        self.requests.append(received)
        reply = self._replies.pop(0) if self._replies else plain(500, {"error": {"message": "no reply prepared"}})
        if not isinstance(reply, Reply):
            reply = reply(received.body)
        watch = asyncio.ensure_future(reader.read(1))
        watch.add_done_callback(lambda _: received.gone.set())
        try:
            if reply.held_headers is not None:
                await self._hold(reply.held_headers, received)
            return await self._send(reply, writer, received)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter, received: Received) -> bool:
        extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        writer.write(
            f"HTTP/1.1 {reply.status} X\r\ncontent-type: {reply.content_type}\r\n"
            f"transfer-encoding: chunked\r\n{extra}\r\n".encode()
        )
        for part in reply.parts:
            if isinstance(part, Cut):
                await writer.drain()
                writer.transport.abort()
                return False
            if isinstance(part, Hold):
                await writer.drain()
                await self._hold(part, received)
            elif part:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _hold(self, hold: Hold, received: Received) -> None:
        hold.reached.set()
        waits = [asyncio.ensure_future(hold.released.wait()), asyncio.ensure_future(received.gone.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


class Calling(NamedTuple):
    """A tool call; `raw` instead of the arguments as JSON, where the API has them as a text."""

    name: str
    arguments: dict[str, Any]


Part = str | Calling


def answer(api: str, *parts: Part, stop: str = "stop") -> Reply:
    """An answer; `stop` is "stop", "length" or "refusal"."""
    calls = any(isinstance(part, Calling) for part in parts)
    if api == "anthropic-messages":
        return Reply(sse(*_anthropic(parts, calls, stop), named=True))
    if api == "openai-completions":
        return Reply(sse(*_chat(parts, calls, stop), "[DONE]"))
    if api == "openai-responses":
        return Reply(sse(*_responses(parts, stop), named=True))
    return Reply(sse(_google(parts, stop)))


def tool_names(api: str, body: dict[str, Any]) -> list[str]:
    """The tools that a request offers."""
    tools = body.get("tools", [])
    if api == "openai-completions":
        return [tool["function"]["name"] for tool in tools]
    if api == "google-generative-ai":
        return [one["name"] for tool in tools for one in tool["functionDeclarations"]]
    return [tool["name"] for tool in tools]


def asked_schema(api: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that a request has for its answer by a field of the API."""
    found: Any
    if api == "anthropic-messages":
        found = body.get("output_config", {}).get("format", {}).get("schema")
    elif api == "openai-completions":
        found = body.get("response_format", {}).get("json_schema", {}).get("schema")
    elif api == "openai-responses":
        found = body.get("text", {}).get("format", {}).get("schema")
    else:
        found = body.get("generationConfig", {}).get("responseJsonSchema")
    return found


def _anthropic(parts: tuple[Part, ...], calls: bool, stop: str) -> list[dict[str, Any]]:
    usage = {"input_tokens": 5, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "usage": usage}}]
    for index, part in enumerate(parts):
        if isinstance(part, str):
            block: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": part}
        else:
            block = {"type": "tool_use", "id": f"c{index}", "name": part.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(part.arguments)}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    reason = {"length": "max_tokens", "refusal": "refusal"}.get(stop, "tool_use" if calls else "end_turn")
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})
    return [*events, {"type": "message_stop"}]


def _chat(parts: tuple[Part, ...], calls: bool, stop: str) -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            delta: dict[str, Any] = {"refusal" if stop == "refusal" else "content": part}
        else:
            function = {"name": part.name, "arguments": json.dumps(part.arguments)}
            delta = {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}
        chunks.append({"id": "r", "choices": [{"index": 0, "delta": delta}]})
    reason = "length" if stop == "length" else "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    return [*chunks, {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}]


def _responses(parts: tuple[Part, ...], stop: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r", "model": "m"}}]
    for index, part in enumerate(parts):
        if isinstance(part, str):
            kind = "refusal" if stop == "refusal" else "output_text"
            item: dict[str, Any] = {"type": "message", "id": f"msg_{index}", "content": []}
            name, grown = f"response.{kind}.delta", part
            key = "refusal" if stop == "refusal" else "text"
            whole = {**item, "content": [{"type": kind, key: part}]}
        else:
            item = {"type": "function_call", "id": f"fc_{index}", "call_id": f"c{index}", "name": part.name}
            name, grown = "response.function_call_arguments.delta", json.dumps(part.arguments)
            whole, item = {**item, "arguments": grown}, {**item, "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": name, "output_index": index, "delta": grown})
        events.append({"type": "response.output_item.done", "output_index": index, "item": whole})
    status = "incomplete" if stop == "length" else "completed"
    response: dict[str, Any] = {"id": "r", "status": status, "usage": {"input_tokens": 5, "output_tokens": 1}}
    if stop == "length":
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    return [*events, {"type": f"response.{status}", "response": response}]


def _google(parts: tuple[Part, ...], stop: str) -> dict[str, Any]:
    sent: list[dict[str, Any]] = [
        {"text": part} if isinstance(part, str) else {"functionCall": {"name": part.name, "args": part.arguments}}
        for part in parts
    ]
    reason = {"length": "MAX_TOKENS", "refusal": "SAFETY"}.get(stop, "STOP")
    candidate = {"content": {"role": "model", "parts": sent}, "finishReason": reason}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 1}}
