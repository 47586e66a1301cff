"""Who may come in by HTTP: the token of a request, its `Host` and its `Origin`."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from pigeon.serve.http.tokens import Token, Tokens
from pigeon.serve.watching import Scope
from pigeon.wire.errors import Refusal

COOKIE = "pigeon_token"
ORDER: tuple[Scope, ...] = ("read", "talk", "admin")


class NotAdmitted(Refusal):
    """A request without a token, or with one that does not do."""

    status = 401


class NotAllowed(Refusal):
    """A request that this token, or this origin, may not make."""

    status = 403


class Entrance:
    """Checks requests; `hosts` are the names, with port, by which this server is called."""

    def __init__(self, tokens: Tokens, hosts: Sequence[str]) -> None:
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in hosts)

    def admit(self, request: HTTPConnection, needed: Scope) -> Scope:
        """The scope of a request; raises `NotAdmitted` or `NotAllowed`."""
        self._check_origin(request)
        token = self._token(request)
        if token is None:
            raise NotAdmitted("A token is needed: Authorization: Bearer TOKEN, or the cookie that the link sets")
        if ORDER.index(token.scope) < ORDER.index(needed):
            raise NotAllowed(f"This needs the scope {needed}, and the token has the scope {token.scope}")
        return token.scope

    def admit_socket(self, socket: HTTPConnection) -> Scope | None:
        """The scope of a WebSocket; none if it is not admitted."""
        try:
            return self.admit(socket, "read")
        except Refusal:
            return None

    def redeemed(self, request: HTTPConnection) -> str:
        """The secret for the cookie that a link of ours asks for; raises `NotAdmitted`."""
        self._check_origin(request)
        token = self._tokens.redeemed(request.query_params["token"])
        if token is None:
            raise NotAdmitted("This link was used before or is too old. The server prints a new one when it starts")
        return token.secret

    def _token(self, request: HTTPConnection) -> Token | None:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind:
            return self._tokens.found(secret.strip()) if kind.lower() == "bearer" else None
        secret = request.cookies.get(COOKIE, "")
        return self._tokens.found(secret) if secret else None

    def _check_origin(self, request: HTTPConnection) -> None:
        host = request.headers.get("host", "").lower()
        if host not in self._hosts:
            raise NotAllowed(f"This server is not called {host[:100]}. Name it with --allow-host")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host:
            raise NotAllowed("A page of another site may not use this server")
