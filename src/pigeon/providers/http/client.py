"""The HTTP client of an agent: connection pools, one per route, and the answers that arrive through them.

Loading the certificate store takes long, so it happens in a worker thread: in the background after the first answer
(`warm`), or when the first request cannot wait any longer. Plain `http` base URLs (local servers) do without. Model
servers need no cookies, redirects or authentication flows, so there are none.

Proxies and certificate stores are named by the variables of the agent's own environment, never by the process's, so
that two agents in one process do not share them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from pigeon.providers.http.addresses import Address, parse_address
from pigeon.providers.http.connection_pool import ConnectionPool
from pigeon.providers.http.decompression import decompress_body
from pigeon.providers.http.proxies import find_proxy, parse_proxy
from pigeon.providers.http.recorders import AnswerSource, ExchangeRecorder, HttpRequest, RawAnswer, ShownExchange

USER_AGENT = "pigeon"
CONNECT_TIMEOUT_S = 15.0
# The rest of a released answer: when it is read, how much of it, for how long, and how long the next request waits for
# that.
DRAIN_AFTER_S = 0.001
DRAIN_BYTES = 64 * 1024
DRAIN_SECONDS = 1.0
REUSE_WAIT_S = 0.03
MAX_ERROR_BYTES = 256 * 1024
Route = tuple[bool, str | None]  # whether certificates are needed, and the proxy


class HttpResponse:
    """An answer whose body is still arriving."""

    def __init__(self, response: RawAnswer, http: HttpClient, shown: ShownExchange | None = None) -> None:
        self._shown = shown
        self._response = response
        self._http = http
        self._chunks: AsyncIterator[bytes] | None = None
        self.status: int = response.status
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def content_type(self) -> str:
        """The media type without parameters, in lower case."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()

    async def read_chunk(self) -> bytes | None:
        """The next piece of the body; None at its end."""
        if self._chunks is None:
            self._chunks = self._unpacked_body()
        try:
            piece: bytes | None = await self._chunks.__anext__()
        except StopAsyncIteration:
            piece = None
        except Exception as error:
            if self._shown is not None:
                self._shown.on_exchange_failed(error)
            raise
        if self._shown is not None:
            self._shown.on_body_piece(piece)
        return piece

    def _unpacked_body(self) -> AsyncIterator[bytes]:
        """The body, decompressed if the server compressed it although it was asked not to."""
        packed = self._response.aiter_stream()
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("", "identity"):
            return packed
        return decompress_body(packed, encoding)

    async def read_body(self, limit: int = MAX_ERROR_BYTES) -> bytes:
        """The body up to the limit, or what arrived before a broken connection."""
        parts: list[bytes] = []
        size = 0
        try:
            while size < limit:
                piece = await self.read_chunk()
                if piece is None:
                    break
                parts.append(piece)
                size += len(piece)
        except Exception:
            return b"".join(parts)
        return b"".join(parts)[:limit]

    async def drop(self) -> None:
        if self._shown is not None:
            self._shown.on_response_dropped()
        await self._response.aclose()

    def release(self) -> None:
        """Release a complete answer: the client reads the rest later, so that the connection can be reused."""
        self._http.release(self)

    async def drain(self) -> None:
        """Read the rest if it is short and arrives soon, and close the answer."""
        left = DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while left > 0:
                    piece = await self.read_chunk()
                    if piece is None:
                        break
                    left -= len(piece)
        except Exception:
            return
        finally:
            await self.drop()


class HttpClient:
    """Sends requests of one agent; closed once, at its end.

    `proxy` is used if the environment names none. `recorders` see every exchange. With `answers`, nothing goes to the
    network: it answers each request instead.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        proxy: str = "",
        recorders: Sequence[ExchangeRecorder] = (),
        answers: AnswerSource | None = None,
    ) -> None:
        self._recorders = recorders
        self._answers = answers
        self._environment = environment
        self._default_headers = {"user-agent": USER_AGENT, "accept-encoding": "identity"}
        # Only the watchdog of `exchange` ends a silence, because it can distinguish pings from content.
        self._connect_timeout_s = connect_timeout_s
        self._proxy = proxy
        self._pools: dict[Route, ConnectionPool] = {}
        self._making: dict[Route, asyncio.Task[ConnectionPool]] = {}
        self._addresses: dict[str, Address] = {}
        self._routes: dict[str, Route] = {}
        self._released: list[HttpResponse] = []
        self._background: set[asyncio.Task[None]] = set()

    async def warm(self, base_url: str = "https://localhost") -> None:
        """Make the pool for such URLs, without disturbing the event loop."""
        if self._answers is None:
            await self._ensure_pool(base_url)

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send the request and return when the headers of the answer have arrived."""
        if not self._recorders:
            return HttpResponse(await self._send_raw(request), self)
        shown = ShownExchange(self._recorders, request)
        try:
            answer = HttpResponse(await self._send_raw(request), self, shown)
        except Exception as error:
            shown.on_exchange_failed(error)
            raise
        except asyncio.CancelledError:
            shown.on_response_dropped()
            raise
        shown.on_response_started(answer.status, answer.headers)
        return answer

    async def _send_raw(self, request: HttpRequest) -> RawAnswer:
        if self._answers is not None:
            return await self._answers.answer(request)
        if self._released:
            await self._wait_for_drain(request.url)
        pool = await self._ensure_pool(request.url)
        address = self._addresses.get(request.url)
        if address is None:
            address = self._addresses[request.url] = parse_address(request.url)
        headers = {
            "host": address.authority,
            "content-length": str(len(request.body)),
            **self._default_headers,
            **{name.lower(): value for name, value in request.headers.items()},
        }
        return await pool.send(request.method, address, headers, request.body)

    async def aclose(self) -> None:
        """Close all connections and notify the recorders that no exchange follows."""
        tasks = [*self._background, *self._making.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        answers, self._released = self._released, []
        for answer in answers:
            await answer.drop()
        for pool in self._pools.values():
            await pool.aclose()
        self._pools.clear()
        for recorder in self._recorders:
            recorder.on_client_closed()
        if self._answers is not None:
            self._answers.close()

    def release(self, answer: HttpResponse) -> None:
        """Drain an answer when the loop has time, at the latest before the next request."""
        if not self._released:
            asyncio.get_running_loop().call_later(DRAIN_AFTER_S, self._drain_released)
        self._released.append(answer)

    async def _wait_for_drain(self, url: str) -> None:
        """Read what has arrived of released answers; a TLS connection is worth a short wait for the rest."""
        self._drain_released()
        if url.startswith("https:"):
            await asyncio.wait(self._background, timeout=REUSE_WAIT_S)
        else:
            await asyncio.sleep(0)

    def _drain_released(self) -> None:
        answers, self._released = self._released, []
        for answer in answers:
            task = asyncio.ensure_future(answer.drain())
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _ensure_pool(self, url: str) -> ConnectionPool:
        route = self._routes.get(url)
        if route is None:
            route = self._routes[url] = route_to(url, self._environment, self._proxy)
        pool = self._pools.get(route)
        if pool is not None:
            return pool
        making = self._making.get(route)
        if making is None:
            making = asyncio.ensure_future(self._make_pool(route))
            self._making[route] = making
        try:
            return await asyncio.shield(making)
        finally:
            if making.done():
                self._making.pop(route, None)

    async def _make_pool(self, route: Route) -> ConnectionPool:
        needs_certificates, proxy_url = route
        proxy = None if proxy_url is None else parse_proxy(proxy_url)
        certificates = None
        if needs_certificates or (proxy is not None and proxy.origin.scheme == "https"):
            from pigeon.providers.http.certificates import load_certificates

            certificates = await asyncio.to_thread(load_certificates, self._environment)
        pool = self._pools[route] = ConnectionPool(certificates, proxy, self._connect_timeout_s)
        return pool


def route_to(url: str, environment: Mapping[str, str], otherwise: str = "") -> Route:
    """The route to this URL: whether it needs certificates, and its proxy."""
    return not url.startswith("http:"), find_proxy(url, environment, otherwise)
