"""Where a request goes: its address, through which proxy, and whose certificates are believed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    import httpcore2

KEPT_CONNECTIONS = 20
KEPT_SECONDS = 60.0
Way = tuple[bool, str | None]
_URL_SIGNS = "/%:@!$&'()*+,;=~?"
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


class InvalidURL(ValueError):
    """A base URL that no request can be sent to."""


class InvalidProxy(ValueError):
    """A proxy that no request can be sent through."""


def way_to(url: str, proxy: str = "") -> Way:
    """The way to this URL: the proxy of the environment, else the given one, unless an exception is made for it."""
    return not url.startswith("http:"), _proxy_for(url, proxy)


def _proxy_for(url: str, otherwise: str) -> str | None:
    if not otherwise and not any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXY_VARIABLES):
        return None
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    try:
        parts = urlsplit(url)
    except ValueError:
        # The request is refused for this reason, with its name.
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy and not _is_here(parts.hostname or ""):
        proxy = otherwise
    return None if not proxy or proxy_bypass(parts.netloc) else proxy


def _is_here(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def new_pool(way: Way) -> httpcore2.AsyncConnectionPool:
    """Connections of one way; imports the library and loads certificates, so call it in a thread."""
    import httpcore2

    from pigeon.providers.http.network import Network

    secure, proxy = way
    certificates = _certificates() if secure or proxy is not None else None
    return httpcore2.AsyncConnectionPool(
        ssl_context=certificates,
        proxy=None if proxy is None else _proxy_at(proxy, certificates),
        max_connections=None,
        max_keepalive_connections=KEPT_CONNECTIONS,
        keepalive_expiry=KEPT_SECONDS,
        network_backend=Network(),
    )


def _certificates() -> ssl.SSLContext:
    import httpcore2

    try:
        return httpcore2.default_ssl_context()
    except OSError as error:
        place = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR") or "the system's store"
        raise OSError(f"the certificates in {place} cannot be loaded (SSL_CERT_FILE, SSL_CERT_DIR): {error}") from None


def _proxy_at(url: str, certificates: ssl.SSLContext | None) -> httpcore2.Proxy:
    from importlib.util import find_spec
    from urllib.parse import unquote

    import httpcore2

    scheme, _, rest = url.partition("://") if "://" in url else ("http", "", url)
    person, _, place = rest.rpartition("@")
    # What is said of a proxy says nothing of its password.
    try:
        address = address_of(f"{scheme.lower()}://{place}")
    except InvalidURL as error:
        raise InvalidProxy(f"the proxy cannot be used: {error}") from None
    if address.scheme.decode() not in _PROXY_SCHEMES:
        raise InvalidProxy(f"the proxy {scheme}://{place} cannot be used: only {', '.join(_PROXY_SCHEMES)} can")
    if address.scheme.startswith(b"socks") and find_spec("socksio") is None:
        raise InvalidProxy(f"the proxy {scheme}://{place} cannot be used: first install the package socksio with pip")
    user, _, password = person.partition(":")
    auth = (unquote(user).encode(), unquote(password).encode()) if user else None
    secure = address.scheme == b"https"
    return httpcore2.Proxy(address, auth=auth, ssl_context=certificates if secure else None)


def _without_person(url: str) -> str:
    """What may be shown of a URL that cannot be read: not the user and the password in it."""
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes else url.rpartition("@")[2]


def address_of(url: str) -> httpcore2.URL:
    """The URL in ASCII: international names in their wire form, other letters of the path escaped."""
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
        raise InvalidURL(f"{_without_person(url)}: {error}") from None
    if not host:
        raise InvalidURL(f"{_without_person(url)} names no host")
    return httpcore2.URL(scheme=parts.scheme, host=host, port=port, target=target)
