"""Where a conversation of `pigeon serve` is: parses the addresses that programs and people write.

ws://HOST:PORT/ID   http(s)://..., wss://...     a conversation; .../api/sessions/ID and .../api/sessions/ID/rpc too
http://HOST:PORT                                 a server, for a new conversation
unix:PATH?session=ID                             a conversation behind the socket of a server
unix:PATH                                        a server's socket, for a new conversation; else an agent's own
"""

from __future__ import annotations

from urllib.parse import parse_qs, quote, unquote, urlsplit

from msgspec import Struct

_SCHEMES = {"ws": "ws", "http": "ws", "wss": "wss", "https": "wss"}
_SESSIONS = "/api/sessions"
KNOWN = "ws://, wss://, http://, https:// or unix:"


class ServedAddress(Struct, frozen=True):
    """A server, by `origin` (`ws://host:port`, with the path that a proxy may have put before ours) or by the path of
    its socket, and one of its conversations, or none."""

    origin: str = ""
    path: str = ""
    session: str | None = None

    @property
    def text(self) -> str:
        """The address in its long form."""
        if self.path:
            return f"unix:{self.path}" + ("" if self.session is None else f"?session={self.session}")
        return self.origin if self.session is None else f"{self.origin}{_SESSIONS}/{quote(self.session)}/rpc"

    @property
    def http_origin(self) -> str:
        """The server's address for requests."""
        return self.origin.replace("ws", "http", 1)


def parse_address(url: str) -> ServedAddress:
    """Parse an address; raises `ValueError` with the error."""
    if url.startswith("unix:"):
        return _parse_socket_address(url.removeprefix("unix:").removeprefix("//"))
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise ValueError(f"url must begin with {KNOWN}, and name a host or a path; got {url!r}")
    if parts.username is not None or parts.password is not None or parse_qs(parts.query).get("token"):
        raise ValueError("a token does not belong in an address, which is logged and shown; pass it as token=")
    if parts.query or parts.fragment:
        raise ValueError(f"url must end with the id of a session; got {url!r}")
    prefix, session = _split_session_path(parts.path)
    return ServedAddress(f"{scheme}://{parts.netloc}{prefix}", session=session)


def _split_session_path(path: str) -> tuple[str, str | None]:
    """The part of a path before our own, and the id of a session."""
    before, found, after = path.partition(_SESSIONS)
    if found:
        return before, unquote(after.strip("/").removesuffix("/rpc")) or None
    steps = path.strip("/").split("/")
    return "", unquote(steps[0]) or None if len(steps) == 1 else _refuse_path(path)


def _refuse_path(path: str) -> str:
    raise ValueError(f"url must have the id of a session as its path, or {_SESSIONS}/ID/rpc; got {path!r}")


def _parse_socket_address(text: str) -> ServedAddress:
    path, _, query = text.partition("?session=")
    if not path:
        raise ValueError("url must be unix:PATH or unix:PATH?session=ID")
    return ServedAddress(path=path, session=unquote(query) or None)
