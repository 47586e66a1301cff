"""Proxies: which one a URL goes through, and how a connection through it is opened.

Proxies are named by the variables of the agent's own environment, never by the process's.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

from pigeon.providers.http.addresses import Origin, format_authority, split_url
from pigeon.providers.http.http1 import encode_head, split_head
from pigeon.providers.http.network import NetworkStream, connect
from pigeon.providers.http.network_errors import (
    ConnectError,
    InvalidProxy,
    InvalidURL,
    ProtocolError,
    ProxyError,
    ProxyUnreachable,
)

_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_SOCKS_VERSION = 5
_SOCKS_REFUSALS = {
    1: "general failure",
    2: "not allowed",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "expired",
    7: "command not supported",
    8: "kind of address not supported",
}


class Proxy(NamedTuple):
    """Where a proxy listens, and the login for it."""

    origin: Origin
    user: str = ""
    password: str = ""
    has_credentials: bool = False

    @property
    def is_socks(self) -> bool:
        return self.origin.scheme.startswith("socks")

    @property
    def authorization(self) -> dict[str, str]:
        """The header that tells an HTTP proxy who asks."""
        if not self.has_credentials:
            return {}
        return {"Proxy-Authorization": f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"}


def find_proxy(url: str, environment: Mapping[str, str], otherwise: str) -> str | None:
    """The environment's proxy for this URL, else the given one, unless the host is excepted."""
    if not otherwise and not any(environment.get(name) or environment.get(name.lower()) for name in _VARIABLES):
        return None
    from urllib.parse import urlsplit
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    try:
        parts = urlsplit(url)
    except ValueError:
        # The request itself fails for this reason, naming it.
        return None
    proxies = _read_variables(environment)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy and not _is_local_host(parts.hostname or ""):
        proxy = otherwise
    return None if not proxy or proxy_bypass_environment(parts.netloc, proxies) else proxy


def _read_variables(environment: Mapping[str, str]) -> dict[str, str]:
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


def parse_proxy(url: str) -> Proxy:
    """The proxy that a URL names; no error text shows its password."""
    from urllib.parse import unquote

    scheme, _, rest = url.partition("://") if "://" in url else ("http", "", url)
    credentials, at, place = rest.rpartition("@")
    try:
        address = split_url(f"{scheme.lower()}://{place}")
    except InvalidURL as error:
        raise InvalidProxy(f"the proxy cannot be used: {error}") from None
    if address.scheme not in _PORTS:
        raise InvalidProxy(f"the proxy {scheme}://{place} cannot be used: only {', '.join(_PORTS)} can")
    user, _, password = credentials.partition(":")
    origin = Origin(address.scheme, address.host, address.port or _PORTS[address.scheme])
    return Proxy(origin, unquote(user), unquote(password), bool(at and user))


async def connect_to_proxy(proxy: Proxy, certificates: ssl.SSLContext | None, timeout: float) -> NetworkStream:
    """A connection to the proxy itself."""
    try:
        stream = await connect(proxy.origin.host, proxy.origin.port, timeout)
    except ConnectError as error:
        raise ProxyUnreachable(str(error)) from error
    if proxy.origin.scheme == "https":
        assert certificates is not None
        return await stream.start_tls(certificates, proxy.origin.host, timeout)
    return stream


async def open_tunnel(stream: NetworkStream, proxy: Proxy, origin: Origin) -> None:
    """Have the proxy connect to the origin; from then on the bytes are the origin's."""
    try:
        if proxy.is_socks:
            await _open_socks_tunnel(_ExactReader(stream), stream, proxy, origin)
        else:
            await _open_http_tunnel(stream, proxy, origin)
    except BaseException:
        stream.abort()
        raise


async def _open_http_tunnel(stream: NetworkStream, proxy: Proxy, origin: Origin) -> None:
    target = format_authority(origin.host, origin.port)
    stream.write(encode_head("CONNECT", target, {"Host": target, **proxy.authorization}.items()))
    buffer = b""
    while True:
        data = await stream.read()
        if not data:
            raise ProxyError("it closed the connection")
        buffer += data
        try:
            found = split_head(buffer)
        except ProtocolError as error:
            raise ProxyError(str(error)) from None
        if found is not None and found[0].status >= 200:
            break
        if found is not None:
            buffer = found[1]
    head, rest = found
    if head.status >= 300:
        raise ProxyError(f"{head.status} {head.reason}".strip())
    if rest:
        raise ProxyError("it sent data before the server could have")


class _ExactReader:
    """Reads exact numbers of bytes; the proxy sends nothing beyond them before it is asked."""

    def __init__(self, stream: NetworkStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = await self._stream.read()
            if not data:
                raise ProxyError("it closed the connection")
            self._buffer += data
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data


async def _open_socks_tunnel(reader: _ExactReader, stream: NetworkStream, proxy: Proxy, origin: Origin) -> None:
    """SOCKS version 5 (RFC 1928, RFC 1929); names are resolved by the proxy."""
    user, password, host = proxy.user.encode(), proxy.password.encode(), origin.host.encode()
    if max(len(user), len(password), len(host)) > 255:
        raise InvalidProxy("the proxy cannot be used: SOCKS takes names and passwords of at most 255 bytes")
    methods = b"\x00\x02" if proxy.has_credentials else b"\x00"
    stream.write(bytes([_SOCKS_VERSION, len(methods)]) + methods)
    version, method = await reader.read(2)
    if version != _SOCKS_VERSION or method not in methods:
        raise ProxyError("it is no SOCKS 5 proxy, or wants another login than the URL has")
    if method:
        stream.write(bytes([1, len(user)]) + user + bytes([len(password)]) + password)
        if (await reader.read(2))[1]:
            raise ProxyError("user or password are wrong")
    stream.write(bytes([_SOCKS_VERSION, 1, 0]) + _socks_host(origin.host) + origin.port.to_bytes(2, "big"))
    version, refused, _, kind = await reader.read(4)
    if version != _SOCKS_VERSION or refused:
        raise ProxyError(_SOCKS_REFUSALS.get(refused, f"code {refused}"))
    size = (await reader.read(1))[0] if kind == 3 else {1: 4, 4: 16}.get(kind, 0)
    await reader.read(size + 2)


def _socks_host(host: str) -> bytes:
    import socket

    for kind, family in ((1, socket.AF_INET), (4, socket.AF_INET6)):
        try:
            return bytes([kind]) + socket.inet_pton(family, host)
        except OSError:
            continue
    return bytes([3, len(host)]) + host.encode("ascii")
