"""The way out over HTTP: made when first needed, pooled, with proxies from the environment.

Importing the HTTP library and loading the certificate store cost a tenth of a second, so both happen in a worker
thread: in the background after the first answer (`warm`), or when the first request cannot wait any longer. Plain
`http` base URLs (local servers) do without a certificate store. The library is the pool alone: cookies, redirects and
authentication flows are not for model servers, and cost a third of the time to the first byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.providers.http.routes import KEPT_CONNECTIONS, Way, address_of, new_pool, way_to

if TYPE_CHECKING:
    import httpcore2

CONNECT_TIMEOUT_S = 15.0
TIDY_AFTER_S = 0.001
REUSE_PATIENCE_S = 0.03
DRAIN_SECONDS = 1.0
DRAIN_BYTES = 64 * 1024
MAX_ERROR_BYTES = 256 * 1024


class Outgoing(Struct, frozen=True):
    """A request that is ready to be sent."""

    url: str
    headers: dict[str, str]
    body: bytes


class Incoming:
    """An answer whose body is still arriving."""

    def __init__(self, response: httpcore2.Response, http: Http) -> None:
        self._response = response
        self._http = http
        self._chunks: AsyncIterator[bytes] | None = None
        self.status: int = response.status
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}

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
            self._chunks = self._plain()
        try:
            return await self._chunks.__anext__()
        except StopAsyncIteration:
            return None

    def _plain(self) -> AsyncIterator[bytes]:
        """The body; unpacked, if the server compressed it although it was asked not to."""
        packed = self._response.aiter_stream()
        how = self.headers.get("content-encoding", "identity").strip().lower()
        if how in ("", "identity"):
            return packed
        from pigeon.providers.http.decompression import unpacked

        return unpacked(packed, how)

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
        """The answer is complete; soon, what is left of it is read, so that the connection can be used again."""
        self._http.release(self)

    async def drain(self) -> None:
        """Read what is left, if that is little and comes soon, and close the answer."""
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
    """Sends requests; closed once, at the end of the process. `proxy` is for when the environment names none."""

    def __init__(
        self, *, user_agent: str = "pigeon", connect_timeout_s: float = CONNECT_TIMEOUT_S, proxy: str = ""
    ) -> None:
        self._always = {"user-agent": user_agent, "accept-encoding": "identity"}
        # Silence is watched over by the reader of the stream, who alone knows what content is.
        self._patience = {"timeout": {"connect": connect_timeout_s, "read": None, "write": None, "pool": None}}
        self._proxy = proxy
        self._pools: dict[Way, httpcore2.AsyncConnectionPool] = {}
        self._making: dict[Way, asyncio.Task[httpcore2.AsyncConnectionPool]] = {}
        self._addresses: dict[str, httpcore2.URL] = {}
        self._ways: dict[str, Way] = {}
        self._read: list[Incoming] = []
        self._background: set[asyncio.Task[None]] = set()

    async def warm(self, base_url: str = "https://localhost") -> None:
        """Load the library and make the pool for such URLs, without disturbing the event loop."""
        await self._pool(base_url)

    async def send(self, request: Outgoing) -> Incoming:
        """Post the request and return when the headers of the answer are there."""
        if self._read:
            await self._tidied_up(request.url)
        pool = await self._pool(request.url)
        import httpcore2

        address = self._addresses.get(request.url)
        if address is None:
            address = self._addresses[request.url] = address_of(request.url)
        outgoing = httpcore2.Request(
            b"POST",
            address,
            headers=_lines(address, {**self._always, **request.headers}, len(request.body)),
            content=request.body,
            extensions=self._patience,
        )
        return Incoming(await _answer(pool, outgoing), self)

    async def aclose(self) -> None:
        """Close all connections."""
        tasks = [*self._background, *self._making.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        answers, self._read = self._read, []
        for answer in answers:
            await answer.drop()
        for pool in self._pools.values():
            await pool.aclose()
        self._pools.clear()

    def release(self, answer: Incoming) -> None:
        """Tidy up after an answer when there is time, at the latest before the next request."""
        if not self._read:
            asyncio.get_running_loop().call_later(TIDY_AFTER_S, self._tidy_up)
        self._read.append(answer)

    async def _tidied_up(self, url: str) -> None:
        """What came already is read in one step; for a connection that was dear to make, wait a little for the rest."""
        self._tidy_up()
        if url.startswith("https:"):
            await asyncio.wait(self._background, timeout=REUSE_PATIENCE_S)
        else:
            await asyncio.sleep(0)

    def _tidy_up(self) -> None:
        answers, self._read = self._read, []
        for answer in answers:
            task = asyncio.ensure_future(answer.drain())
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _pool(self, url: str) -> httpcore2.AsyncConnectionPool:
        way = self._ways.get(url)
        if way is None:
            way = self._ways[url] = way_to(url, self._proxy)
        pool = self._pools.get(way)
        if pool is not None:
            return pool
        making = self._making.get(way)
        if making is None:
            making = asyncio.ensure_future(self._make(way))
            self._making[way] = making
        try:
            return await asyncio.shield(making)
        finally:
            if making.done():
                self._making.pop(way, None)

    async def _make(self, way: Way) -> httpcore2.AsyncConnectionPool:
        pool = await asyncio.to_thread(new_pool, way)
        self._pools[way] = pool
        return pool


async def _answer(pool: httpcore2.AsyncConnectionPool, outgoing: httpcore2.Request) -> httpcore2.Response:
    """Send, and send again where a kept connection is closed without a byte of an answer.

    The server may have read the request before; to ask a model twice does no harm. Every kept connection may be old.
    """
    from pigeon.providers.http.network import StaleConnection

    tries = 0
    while True:
        try:
            return await pool.handle_async_request(outgoing)
        except StaleConnection:
            tries += 1
            if tries > KEPT_CONNECTIONS:
                raise


def _lines(address: httpcore2.URL, headers: dict[str, str], length: int) -> list[tuple[bytes, bytes]]:
    """The header lines, with what every request must say."""
    host = b"[%b]" % address.host if b":" in address.host else address.host
    lines = {
        b"host": host if address.port is None else b"%b:%d" % (host, address.port),
        b"content-length": b"%d" % length,
    }
    for name, value in headers.items():
        lines[name.lower().encode("ascii")] = value.encode("ascii")
    return list(lines.items())
