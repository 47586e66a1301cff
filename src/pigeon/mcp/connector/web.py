"""The streams of a server behind HTTP: the streamable form, and the older one with server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import JSONRPCNotification, JSONRPCRequest

from pigeon.mcp.connector.pipes import LARGEST_MESSAGE, RequestPace, Streams, Thinning
from pigeon.mcp.connector.trimming import trim_message

CONNECT_SECONDS = 30.0
# The longest silence in a stream of events, after which it is reopened.
SILENCE_SECONDS = 3600.0


class TooLarge(httpx2.TransportError):
    """An answer exceeds the size limit."""


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer with a size limit; in a stream of events, the limit applies to each event."""

    def __init__(self, body: Any, status: WebStatus) -> None:
        self._body = body
        self._status = status

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > LARGEST_MESSAGE:
                self._status.record_overflow()
                raise TooLarge("the answer is too large")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class WebStatus:
    """The server's last HTTP failure, which the message streams do not carry."""

    def __init__(self, answered: bool = False) -> None:
        """`answered` if it has answered something before."""
        self.answered = answered
        # The status of the last message that was posted in the streamable form.
        self.posted = 0
        self.code = 0
        self.reason = ""
        self.text = ""

    def record_overflow(self) -> None:
        """Note that an answer exceeded the size limit."""
        self.text = f"the server has sent an answer larger than {LARGEST_MESSAGE >> 20} MB"

    @property
    def failure(self) -> str:
        """What the server answered last that was a failure, as part of a sentence; empty if nothing was."""
        return self.text or (f"the server answered {self.code} {self.reason}".rstrip() if self.code else "")

    async def on_response(self, response: httpx2.Response) -> None:
        """Called for each answer, before its body is read."""
        self.answered = True
        asked = response.request
        if asked.method == "POST" and "text/event-stream" in asked.headers.get("accept", ""):
            self.posted = response.status_code
        # A server need not offer a stream for its own events.
        if response.status_code >= 400 and (response.status_code, asked.method) != (405, "GET"):
            self.code, self.reason = response.status_code, response.reason_phrase
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Bounded(response.stream, self)


def make_http_client(
    status: WebStatus,
    headers: dict[str, str] | None = None,
    auth: httpx2.Auth | None = None,
    silence: float = CONNECT_SECONDS,
) -> httpx2.AsyncClient:
    """An HTTP client that limits the size of answers; `silence` is the longest wait for data."""
    return httpx2.AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=silence),
        auth=auth,
        event_hooks={"response": [status.on_response]},
    )


@asynccontextmanager
async def open_web_streams(
    kind: str, url: str, headers: dict[str, str], auth: httpx2.Auth | None, status: WebStatus, lost: asyncio.Event
) -> AsyncIterator[Streams]:
    """Messages from and to the server; `lost` is set when nothing more can come."""

    def make_client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        return make_http_client(status, headers, auth, SILENCE_SECONDS)

    async with AsyncExitStack() as stack:
        if kind == "sse":
            opened = sse_client(url, headers, httpx_client_factory=make_client, auth=auth)
        else:
            http = await stack.enter_async_context(make_client(headers, auth=auth))
            opened = streamable_http_client(url, http_client=http, max_sse_event_size=LARGEST_MESSAGE)
        streams = await stack.enter_async_context(opened)
        yield await stack.enter_async_context(_open_filtered_streams(streams, lost))


@asynccontextmanager
async def _open_filtered_streams(streams: Streams, lost: asyncio.Event) -> AsyncIterator[Streams]:
    """The same streams without unused notifications; `lost` is set at their end."""
    incoming, outgoing = streams
    to_us, thinned = anyio.create_memory_object_stream[Any](0)
    thinning, pace = Thinning(), RequestPace()

    async def forward_messages() -> None:
        try:
            async for item in incoming:
                message = getattr(item, "message", None)
                if isinstance(message, JSONRPCNotification) and not thinning.count_and_check_allowed(message.method):
                    continue
                trim_message(message)
                await to_us.send(item)
                if isinstance(message, JSONRPCRequest):
                    await asyncio.sleep(pace.count_and_get_pause())
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        finally:
            lost.set()
            with suppress(anyio.ClosedResourceError):
                to_us.close()

    task = asyncio.ensure_future(forward_messages())
    try:
        yield thinned, outgoing
    finally:
        task.cancel()
        to_us.close()
        thinned.close()
