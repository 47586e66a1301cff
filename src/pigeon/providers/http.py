"""The way out over HTTP: made when first needed, pooled, with proxies from the environment.

Importing the HTTP library and loading the certificate store cost a tenth of a second, so both happen in a worker
thread: in the background after the first answer (`warm`), or when the first request cannot wait any longer. Plain
`http` base URLs (local servers) do without a certificate store. The library's transports are used directly: cookies,
redirects and authentication flows are not for model servers, and cost a fifth of the time to the first byte.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 15.0
DRAIN_SECONDS = 1.0
DRAIN_BYTES = 64 * 1024
MAX_ERROR_BYTES = 256 * 1024
_Way = tuple[bool, str | None]
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class Outgoing(Struct, frozen=True):
    """A request that is ready to be sent."""

    url: str
    headers: dict[str, str]
    body: bytes


class Incoming:
    """An answer whose body is still arriving."""

    def __init__(self, response: httpx2.Response, http: Http) -> None:
        self._response = response
        self._http = http
        self._chunks: AsyncIterator[bytes] | None = None
        self.status: int = response.status_code
        self.headers: dict[str, str] = {name.lower(): value for name, value in response.headers.items()}

    @property
    def ok(self) -> bool:
        """True for a success."""
        return 200 <= self.status < 300

    @property
    def content_type(self) -> str:
        """The media type without parameters, in lower case."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()

    async def chunk(self) -> bytes | None:
        """The next piece of the body; None at its end."""
        if self._chunks is None:
            self._chunks = self._response.aiter_bytes()
        try:
            return await self._chunks.__anext__()
        except StopAsyncIteration:
            return None

    async def text(self, limit: int = MAX_ERROR_BYTES) -> bytes:
        """The body as far as the limit; what a broken connection gave, if it breaks."""
        parts: list[bytes] = []
        size = 0
        try:
            while size < limit:
                piece = await self.chunk()
                if piece is None:
                    break
                parts.append(piece)
                size += len(piece)
        except Exception:
            return b"".join(parts)
        return b"".join(parts)[:limit]

    async def drop(self) -> None:
        """Close the connection now."""
        await self._response.aclose()

    def release(self) -> None:
        """The answer is complete: read what is left in the background, so that the connection can be used again."""
        self._http.keep(self._drain())

    async def _drain(self) -> None:
        left = DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while left > 0:
                    piece = await self.chunk()
                    if piece is None:
                        break
                    left -= len(piece)
        except Exception:
            return
        finally:
            await self._response.aclose()


class Http:
    """Sends requests; closed once, at the end of the process."""

    def __init__(
        self, *, user_agent: str = "pigeon", connect_timeout_s: float = CONNECT_TIMEOUT_S, proxy: str | None = None
    ) -> None:
        self._always = {"user-agent": user_agent, "accept-encoding": "identity"}
        # Silence is watched over by the reader of the stream, who alone knows what content is.
        self._patience = {"timeout": {"connect": connect_timeout_s, "read": None, "write": None, "pool": None}}
        self._proxy = proxy
        self._transports: dict[_Way, httpx2.AsyncHTTPTransport] = {}
        self._making: dict[_Way, asyncio.Task[httpx2.AsyncHTTPTransport]] = {}
        self._background: set[asyncio.Task[Any]] = set()

    async def warm(self, base_url: str = "https://localhost") -> None:
        """Load the library and make the pool for such URLs, without disturbing the event loop."""
        await self._transport(base_url)

    async def send(self, request: Outgoing) -> Incoming:
        """Post the request and return when the headers of the answer are there."""
        transport = await self._transport(request.url)
        import httpx2

        outgoing = httpx2.Request(
            "POST",
            request.url,
            headers={**self._always, **request.headers},
            content=request.body,
            extensions=self._patience,
        )
        response = await transport.handle_async_request(outgoing)
        response.request = outgoing
        return Incoming(response, self)

    async def aclose(self) -> None:
        """Close all connections."""
        tasks = [*self._background, *self._making.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in self._transports.values():
            await transport.aclose()
        self._transports.clear()

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a small piece of work to its end in the background."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _transport(self, url: str) -> httpx2.AsyncHTTPTransport:
        way = (not url.startswith("http:"), self._proxy or (_proxy_for(url) if _has_proxy() else None))
        transport = self._transports.get(way)
        if transport is not None:
            return transport
        making = self._making.get(way)
        if making is None:
            making = asyncio.ensure_future(self._make(way))
            self._making[way] = making
        try:
            return await asyncio.shield(making)
        finally:
            if making.done():
                self._making.pop(way, None)

    async def _make(self, way: _Way) -> httpx2.AsyncHTTPTransport:
        transport = await asyncio.to_thread(_new_transport, *way)
        self._transports[way] = transport
        return transport


def _has_proxy() -> bool:
    return any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXY_VARIABLES)


def _proxy_for(url: str) -> str | None:
    """What the environment says for this URL, exceptions included."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return None if not proxy or proxy_bypass(parts.netloc) else proxy


def _new_transport(secure: bool, proxy: str | None) -> httpx2.AsyncHTTPTransport:
    import httpx2

    return httpx2.AsyncHTTPTransport(
        verify=secure or proxy is not None,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=60.0),
        proxy=proxy,
    )
