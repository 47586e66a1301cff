"""Where a request goes: the parts of a URL, in ASCII."""

from __future__ import annotations

from typing import NamedTuple

from pigeon.providers.http.network_errors import InvalidURL

_URL_SIGNS = "/%:@!$&'()*+,;=~?"
_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """The server that a connection leads to; requests to one origin can share connections."""

    scheme: str
    host: str
    port: int


class Address(NamedTuple):
    """A URL as a request needs it; the port is None where the URL has none."""

    scheme: str
    host: str
    port: int | None
    target: str

    @property
    def origin(self) -> Origin:
        return Origin(self.scheme, self.host, self.port or _PORTS[self.scheme])

    @property
    def authority(self) -> str:
        """Host and port, as the header `host` has them."""
        return format_authority(self.host, self.port)


def format_authority(host: str, port: int | None) -> str:
    """HOST:PORT, or the host alone; an IPv6 address in brackets."""
    written = f"[{host}]" if ":" in host else host
    return written if port is None else f"{written}:{port}"


def parse_address(url: str) -> Address:
    """The URL in ASCII: international names in their wire form, other non-ASCII letters escaped."""
    address = split_url(url)
    if address.scheme not in _PORTS:
        raise InvalidURL(f"{hide_credentials(url)}: only http:// and https:// can be used")
    return address


def split_url(url: str) -> Address:
    """Like `parse_address`, for any scheme."""
    from urllib.parse import quote, urlsplit

    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna").decode("ascii")
        port = parts.port
        target = quote(parts.path or "/", safe=_URL_SIGNS) + (
            f"?{quote(parts.query, safe=_URL_SIGNS)}" if parts.query else ""
        )
    except ValueError as error:
        raise InvalidURL(f"{hide_credentials(url)}: {error}") from None
    if not host:
        raise InvalidURL(f"{hide_credentials(url)} names no host")
    return Address(parts.scheme, host, port, target)


def hide_credentials(url: str) -> str:
    """A URL without its user and password, for messages."""
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes else url.rpartition("@")[2]
