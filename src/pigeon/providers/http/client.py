"""The HTTP client: connection pools, one per route, with proxies and certificates; and decompression of bodies.

Importing the HTTP library and loading the certificate store cost a tenth of a second, so both happen in a worker
thread: in the background after the first answer (`warm`), or when the first request cannot wait any longer. Plain
`http` base URLs (local servers) do without a certificate store. Only the library's connection pool is used: model
servers need no cookies, redirects or authentication flows, which cost a third of the time to the first byte.

Proxies and certificate stores are named by the variables of the agent's own environment, never by the process's, so
that two agents in one process do not share them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pigeon.providers.http.recorders import AnswerSource, ExchangeRecorder, HttpRequest, RawAnswer, ShownExchange

if TYPE_CHECKING:
    import ssl
    import zlib

    import httpcore2

USER_AGENT = "pigeon"
CONNECT_TIMEOUT_S = 15.0
KEPT_CONNECTIONS = 20
KEPT_SECONDS = 60.0
# The rest of a released answer: when it is read, how much of it, for how long, and how long the next request waits for
# that.
DRAIN_AFTER_S = 0.001
DRAIN_BYTES = 64 * 1024
DRAIN_SECONDS = 1.0
REUSE_WAIT_S = 0.03
MAX_ERROR_BYTES = 256 * 1024
PIECE_BYTES = 1024 * 1024
# Window sizes of zlib: with a gzip or zlib header, and without one.
_EITHER_HEADER = 47
_NO_HEADER = -15
_GZIP = b"\x1f\x8b"
Route = tuple[bool, str | None]  # whether certificates are needed, and the proxy
_URL_SIGNS = "/%:@!$&'()*+,;=~?"
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


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
        self._timeouts = {"timeout": {"connect": connect_timeout_s, "read": None, "write": None, "pool": None}}
        self._proxy = proxy
        self._pools: dict[Route, httpcore2.AsyncConnectionPool] = {}
        self._making: dict[Route, asyncio.Task[httpcore2.AsyncConnectionPool]] = {}
        self._addresses: dict[str, httpcore2.URL] = {}
        self._routes: dict[str, Route] = {}
        self._released: list[HttpResponse] = []
        self._background: set[asyncio.Task[None]] = set()

    async def warm(self, base_url: str = "https://localhost") -> None:
        """Load the library and make the pool for such URLs, without disturbing the event loop."""
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
        import httpcore2

        address = self._addresses.get(request.url)
        if address is None:
            address = self._addresses[request.url] = to_ascii_url(request.url)
        outgoing = httpcore2.Request(
            request.method.encode(),
            address,
            headers=_header_lines(address, {**self._default_headers, **request.headers}, len(request.body)),
            content=request.body,
            extensions=self._timeouts,
        )
        return await _send_with_retry(pool, outgoing)

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

    async def _ensure_pool(self, url: str) -> httpcore2.AsyncConnectionPool:
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

    async def _make_pool(self, route: Route) -> httpcore2.AsyncConnectionPool:
        pool = await asyncio.to_thread(_new_pool, route, self._environment)
        self._pools[route] = pool
        return pool


async def _send_with_retry(pool: httpcore2.AsyncConnectionPool, outgoing: httpcore2.Request) -> httpcore2.Response:
    """Send, and send again if a kept connection is closed without a byte of an answer.

    The server may have read the request before, but asking a model twice does no harm. Every kept connection may be
    stale.
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


def _header_lines(address: httpcore2.URL, headers: dict[str, str], length: int) -> list[tuple[bytes, bytes]]:
    """The header lines, including those that every request must have."""
    host = b"[%b]" % address.host if b":" in address.host else address.host
    lines = {
        b"host": host if address.port is None else b"%b:%d" % (host, address.port),
        b"content-length": b"%d" % length,
    }
    for name, value in headers.items():
        lines[name.lower().encode("ascii")] = value.encode("ascii")
    return list(lines.items())


class InvalidURL(ValueError):
    """A base URL that no request can be sent to."""


class InvalidProxy(ValueError):
    """A proxy that no request can be sent through."""


def route_to(url: str, environment: Mapping[str, str], otherwise: str = "") -> Route:
    """The route to this URL: the environment's proxy, else the given one, unless the host is excepted."""
    return not url.startswith("http:"), _proxy_for(url, environment, otherwise)


def _proxy_for(url: str, environment: Mapping[str, str], otherwise: str) -> str | None:
    if not otherwise and not any(environment.get(name) or environment.get(name.lower()) for name in _PROXY_VARIABLES):
        return None
    from urllib.parse import urlsplit
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    try:
        parts = urlsplit(url)
    except ValueError:
        # The request itself fails for this reason, naming it.
        return None
    proxies = _read_proxies(environment)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy and not _is_local_host(parts.hostname or ""):
        proxy = otherwise
    return None if not proxy or proxy_bypass_environment(parts.netloc, proxies) else proxy


def _read_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Proxies by scheme, and the exceptions as `no`; like `urllib.request.getproxies_environment` for this mapping."""
    proxies: dict[str, str] = {}
    names = [name for name in environment if name.lower().endswith("_proxy")]
    # Lower-case names come last and win; an empty one removes the other.
    for name in sorted(names, key=lambda name: name.endswith("_proxy")):
        scheme, value, is_lower = name[:-6].lower(), environment[name], name.endswith("_proxy")
        if scheme == "http" and not is_lower and "REQUEST_METHOD" in environment:
            continue  # in a CGI program, `HTTP_PROXY` comes from a header of its client
        if value:
            proxies[scheme] = value
        elif is_lower:
            proxies.pop(scheme, None)
    return proxies


def _is_local_host(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _new_pool(route: Route, environment: Mapping[str, str]) -> httpcore2.AsyncConnectionPool:
    """A pool for one route; imports the library and loads certificates, so call it in a thread."""
    import httpcore2

    from pigeon.providers.http.network import Network

    secure, proxy = route
    certificates = _load_certificates(environment) if secure or proxy is not None else None
    return httpcore2.AsyncConnectionPool(
        ssl_context=certificates,
        proxy=None if proxy is None else _make_proxy(proxy, certificates),
        max_connections=None,
        max_keepalive_connections=KEPT_CONNECTIONS,
        keepalive_expiry=KEPT_SECONDS,
        network_backend=Network(),
    )


@cache
def load_default_certificates() -> ssl.SSLContext:
    """The trusted certificates, unless the environment names others; loaded once in a process."""
    import httpcore2

    # Otherwise the library would read the two variables from the environment of the process.
    return httpcore2.default_ssl_context(_trust_env=False)


def _load_certificates(environment: Mapping[str, str]) -> ssl.SSLContext:
    import ssl

    file, folder = environment.get("SSL_CERT_FILE"), environment.get("SSL_CERT_DIR")
    try:
        if file:
            return ssl.create_default_context(cafile=file)
        if folder:
            return ssl.create_default_context(capath=folder)
        return load_default_certificates()
    except OSError as error:
        place = file or folder or "the system's store"
        raise OSError(f"the certificates in {place} cannot be loaded (SSL_CERT_FILE, SSL_CERT_DIR): {error}") from None


def _make_proxy(url: str, certificates: ssl.SSLContext | None) -> httpcore2.Proxy:
    from importlib.util import find_spec
    from urllib.parse import unquote

    import httpcore2

    scheme, _, rest = url.partition("://") if "://" in url else ("http", "", url)
    credentials, _, place = rest.rpartition("@")
    # No error text may show the password of a proxy.
    try:
        address = to_ascii_url(f"{scheme.lower()}://{place}")
    except InvalidURL as error:
        raise InvalidProxy(f"the proxy cannot be used: {error}") from None
    if address.scheme.decode() not in _PROXY_SCHEMES:
        raise InvalidProxy(f"the proxy {scheme}://{place} cannot be used: only {', '.join(_PROXY_SCHEMES)} can")
    if address.scheme.startswith(b"socks") and find_spec("socksio") is None:
        raise InvalidProxy(f"the proxy {scheme}://{place} cannot be used: first install the package socksio with pip")
    user, _, password = credentials.partition(":")
    auth = (unquote(user).encode(), unquote(password).encode()) if user else None
    secure = address.scheme == b"https"
    return httpcore2.Proxy(address, auth=auth, ssl_context=certificates if secure else None)


def _without_credentials(url: str) -> str:
    """An invalid URL without its user and password, for messages."""
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes else url.rpartition("@")[2]


def to_ascii_url(url: str) -> httpcore2.URL:
    """The URL in ASCII: international names in their wire form, other non-ASCII letters escaped."""
    from urllib.parse import quote, urlsplit

    import httpcore2

    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna")
        port = parts.port
        target = quote(parts.path or "/", safe=_URL_SIGNS) + (
            f"?{quote(parts.query, safe=_URL_SIGNS)}" if parts.query else ""
        )
    except ValueError as error:
        raise InvalidURL(f"{_without_credentials(url)}: {error}") from None
    if not host:
        raise InvalidURL(f"{_without_credentials(url)} names no host")
    return httpcore2.URL(scheme=parts.scheme, host=host, port=port, target=target)


class DecodingError(Exception):
    """The body does not match its header."""


async def decompress_body(packed: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The decompressed body; all output of a chunk is yielded before the next chunk is read.

    It comes in pieces, so that a small body cannot expand to a large one in memory at once.
    """
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise DecodingError(f"the server sent content-encoding {encoding}, though it was asked for none")
    body = _Decompressor(encoding)
    async for chunk in packed:
        for piece in body.decompress(chunk):
            yield piece
            await asyncio.sleep(0)  # one chunk may expand to a thousand pieces
    if not body.complete:
        raise DecodingError(f"the {encoding} body ended too early")


class _Decompressor:
    """One compressed stream, or several gzip ones in a row."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflater: zlib._Decompress | None = None
        self._head = b""
        self._ignored = False
        self.complete = False

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        """The output of this chunk, in pieces of limited size."""
        rest, self._head = self._head + chunk, b""
        while rest and not self._ignored:
            if self._inflater is None:
                if len(rest) < 2:
                    self._head = rest
                    return
                if self.complete and (self._encoding == "deflate" or not rest.startswith(_GZIP)):
                    self._ignored = True
                    return
                self._inflater = self._new_inflater(rest)
                self.complete = False
            yield from self._inflate(self._inflater, rest)
            rest = self._inflater.unused_data
            if self._inflater.eof:
                self._inflater, self.complete = None, True

    def _new_inflater(self, head: bytes) -> zlib._Decompress:
        """Some servers omit the frame that the standard requires for `deflate`."""
        framed = head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        bare = self._encoding == "deflate" and not framed and not head.startswith(_GZIP)
        import zlib

        return zlib.decompressobj(_NO_HEADER if bare else _EITHER_HEADER)

    def _inflate(self, inflater: zlib._Decompress, rest: bytes) -> Iterator[bytes]:
        import zlib

        full = False
        # Bytes behind the end stay in the tail for ever.
        while (rest or full) and not inflater.eof:
            try:
                piece = inflater.decompress(rest, PIECE_BYTES)
            except zlib.error as error:
                raise DecodingError(f"the body is not {self._encoding}: {error}") from None
            if piece:
                yield piece
            rest = inflater.unconsumed_tail
            # The inflater may have taken all bytes and still have output left.
            full = len(piece) == PIECE_BYTES
