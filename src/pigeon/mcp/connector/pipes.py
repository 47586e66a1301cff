"""The message streams of a server that runs as a program, with limits on everything that it writes.

Lines that are not messages are skipped and counted; a line longer than `LARGEST_MESSAGE` is discarded as it arrives;
notifications that are not used are dropped before they are parsed, and the others are rate-limited. So a flood costs
time of this process but no memory, and a server that keeps writing garbage is disconnected.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.shared.message import SessionMessage

from pigeon.mcp.connector.trimming import trim_message
from pigeon.wire import codec

LARGEST_MESSAGE = 32 * 1024 * 1024
MOST_GARBAGE = 2_000
MOST_NOTICES_PER_SECOND = 50
MOST_REQUESTS_PER_SECOND = 50
CHUNK = 256 * 1024
LAST_LINES = 20
LONGEST_LINE = 500
# The notifications that are used; all others are dropped.
HEARD = (
    "notifications/progress",
    "notifications/cancelled",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/elicitation/complete",
)
Streams = tuple[Any, Any]


class _Head(msgspec.Struct):
    """The members that distinguish the kinds of messages."""

    method: str | None = None
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET


class Thinning:
    """Decides which notifications pass: only those that are used, and a limited number per second."""

    def __init__(self) -> None:
        self._second = 0
        self._count = 0

    def count_and_check_allowed(self, method: str) -> bool:
        """Counts a notification; returns False if its method is not used, or too many came this second."""
        if method not in HEARD and not method.startswith("notifications/subscriptions"):
            return False
        second = int(time.monotonic())
        self._count = self._count + 1 if second == self._second else 1
        self._second = second
        return self._count <= MOST_NOTICES_PER_SECOND


def _error_response_of(line: bytes) -> SessionMessage | None:
    """An error response in place of one that cannot be read, so that its call does not have to time out."""
    members = codec.parse_outer_members(line[:200])
    id = members.get("id")
    if type(id) is not int or not members.keys() & {"result", "error"}:
        return None
    error = types.ErrorData(code=types.PARSE_ERROR, message="the answer cannot be read")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id, error=error))


class RequestPace:
    """Limits how fast a server may send requests: beyond that, reading pauses."""

    def __init__(self) -> None:
        self._left = float(MOST_REQUESTS_PER_SECOND)
        self._since = time.monotonic()

    def count_and_get_pause(self) -> float:
        """Count a request; returns how long to wait before the next message is read."""
        now = time.monotonic()
        self._left = min(self._left + (now - self._since) * MOST_REQUESTS_PER_SECOND, MOST_REQUESTS_PER_SECOND) - 1
        self._since = now
        return max(0.0, -self._left / MOST_REQUESTS_PER_SECOND)


class ServerPipes:
    """The pipes of one program. `overflowed` is called when a message was too large to be read."""

    def __init__(self, stdin: int, stdout: int, stderr: int, overflowed: Callable[[], None]) -> None:
        self._descriptors = (stdin, stdout, stderr)
        self._overflowed = overflowed
        self._thinning = Thinning()
        self._pace = RequestPace()
        self._errors: deque[str] = deque(maxlen=LAST_LINES)
        self._garbage = 0
        self.first_garbage = ""
        self.lost = asyncio.Event()
        self.why_lost = "it has closed its output"

    @property
    def last_words(self) -> str:
        """The last lines of its stderr."""
        return "\n".join(self._errors).strip()

    @asynccontextmanager
    async def open_streams(self) -> AsyncIterator[Streams]:
        """Messages from and to the server; the pipes are closed when the context ends."""
        loop = asyncio.get_running_loop()
        stdin, stdout, stderr = self._descriptors
        to_us, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, to_server = anyio.create_memory_object_stream[Any](0)
        output, errors = asyncio.StreamReader(CHUNK), asyncio.StreamReader(LONGEST_LINE * 4)
        pipes: list[asyncio.BaseTransport] = []
        tasks: list[asyncio.Task[None]] = []
        try:
            for reader, descriptor in ((output, stdout), (errors, stderr)):
                made = partial(asyncio.StreamReaderProtocol, reader)
                source, _ = await loop.connect_read_pipe(made, os.fdopen(descriptor, "rb", 0))
                pipes.append(source)
            into, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(stdin, "wb", 0))
            pipes.append(into)
            tasks = [
                asyncio.ensure_future(self._forward_messages(output, to_us)),
                asyncio.ensure_future(self._read_stderr(errors)),
                asyncio.ensure_future(self._write(asyncio.StreamWriter(into, flow, None, loop), to_server)),
            ]
            yield incoming, outgoing
        finally:
            for pipe in pipes:
                pipe.close()
            for task in tasks:
                task.cancel()
            for stream in (to_us, incoming, outgoing, to_server):
                stream.close()

    async def _forward_messages(self, output: asyncio.StreamReader, to_us: Any) -> None:
        try:
            async for line in self._read_lines(output):
                message = self._parse_message(line)
                if message is not None:
                    await to_us.send(message)
                    if isinstance(message.message, types.JSONRPCRequest):
                        await asyncio.sleep(self._pace.count_and_get_pause())
                if self._garbage > MOST_GARBAGE:
                    self.why_lost = f"it writes something other than messages to stdout, such as {self.first_garbage!r}"
                    return
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return
        finally:
            self.lost.set()
            with suppress(anyio.ClosedResourceError):
                to_us.close()

    async def _read_lines(self, output: asyncio.StreamReader) -> AsyncIterator[bytes]:
        held = bytearray()
        dropping = False
        while chunk := await output.read(CHUNK):
            *whole, rest = chunk.split(b"\n")
            for piece in whole:
                if not dropping:
                    held += piece
                    yield bytes(held)
                dropping = False
                held.clear()
            if not dropping:
                held += rest
                if len(held) > LARGEST_MESSAGE:
                    dropping = True
                    held.clear()
                    self._overflowed()

    def _parse_message(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            head = msgspec.json.decode(line, type=_Head)
            if (
                head.method is not None
                and head.id is msgspec.UNSET
                and not self._thinning.count_and_check_allowed(head.method)
            ):
                return None
            message = types.jsonrpc_message_adapter.validate_python(msgspec.json.decode(line), by_name=False)
            return SessionMessage(trim_message(message))
        except (ValueError, RecursionError):
            self._garbage += 1
            if not self.first_garbage:
                self.first_garbage = line[:80].decode("utf-8", "replace")
            return _error_response_of(line)

    async def _read_stderr(self, errors: asyncio.StreamReader) -> None:
        held = b""
        while chunk := await errors.read(4096):
            *lines, held = (held + chunk).split(b"\n")
            held = held[:LONGEST_LINE]
            for line in lines[-LAST_LINES:]:
                self._errors.append(line[:LONGEST_LINE].decode("utf-8", "replace").rstrip())
        if held:
            self._errors.append(held.decode("utf-8", "replace"))

    async def _write(self, writer: asyncio.StreamWriter, to_server: Any) -> None:
        try:
            async for message in to_server:
                data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(data.encode("utf-8", "replace") + b"\n")
                await writer.drain()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            self.lost.set()
