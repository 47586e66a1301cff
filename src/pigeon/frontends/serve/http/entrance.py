"""Which HTTP requests are let in: by their token, and by where they come from.

A page of another site must not get through, whatever the browser sends with its request. So these are checked before
the token:

    Host            one of our names; a foreign name whose DNS entry points to us is refused
    Origin          ours, if there is one; a WebSocket with the cookie must have one
    Sec-Fetch-Site  `same-origin`, or `none` for a typed address; from elsewhere only `/` can be opened
    cookie + POST   also one of the three things that pages of other sites cannot send: our Origin, our Sec-Fetch-Site,
                    or a body that is called JSON

Browsers send a cookie to every port of a host, so another server on this machine may have received ours. It opens
nothing without the key that our page keeps, which comes in a header, or as a subprotocol of a WebSocket.

Wrong tokens are counted per peer, and beyond a limit answered with 429; a valid token is never refused because of
others' wrong ones.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn

from starlette.requests import HTTPConnection

from pigeon.frontends.serve.client_rights import has_needed_scope
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.http.tokens import Token, Tokens
from pigeon.wire.commands import Scope
from pigeon.wire.errors import Refusal

COOKIE = "pigeon_token"
PAGE_KEY = "pigeon-page-key"
# The subprotocol that is chosen if the page offers it, and how its key is named among those that it offers.
SUBPROTOCOL = "pigeon"
_KEY_AS_SUBPROTOCOL = "pigeon-page-key."
SAFE = ("GET", "HEAD", "OPTIONS")
# The most wrong tokens of one peer that are checked within this time.
MOST_WRONG = 20
WRONG_SECONDS = 60.0
MOST_PEERS = 10_000
NO_TOKEN = "A token is needed: Authorization: Bearer TOKEN, or the cookie that the link sets"
WRONG_TOKEN = "This token is not known here"
NO_PAGE_KEY = "The cookie is not enough: this browser must open a new link (pigeon serve --link)"
OTHER_SITE = "A page of another site may not use this server"


class HttpRefusal(Refusal):
    """A request that is refused with this status; `reason` is the label under which it is counted."""

    def __init__(self, status: int, reason: str, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class WrongTokens:
    """Counts wrong tokens by peer; peers that have been quiet for long are forgotten."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._peers: dict[str, deque[float]] = {}

    def count_wrong_token(self, peer: str) -> int:
        """Count one; returns the seconds until the next one will be checked, or 0 if at once."""
        now = self._now()
        times = self._peers.pop(peer, None) or deque(maxlen=MOST_WRONG)
        while times and now - times[0] >= WRONG_SECONDS:
            times.popleft()
        # Peers are kept in the order of their last wrong token.
        self._peers[peer] = times
        if len(self._peers) > MOST_PEERS:
            del self._peers[next(iter(self._peers))]
        if len(times) >= MOST_WRONG:
            return max(1, math.ceil(times[0] + WRONG_SECONDS - now))
        times.append(now)
        return 0


class Entrance:
    """Checks requests.

    `names` are the host names of this server, each with a port, or without one for any port. Behind a trusted proxy,
    `X-Forwarded-Host`, `-Proto` and `-For` tell what was requested from the proxy, and by whom.
    """

    def __init__(
        self, tokens: Tokens, names: Sequence[str], counts: ServeCounts, wrong: WrongTokens, behind_proxy: bool = False
    ) -> None:
        self._tokens = tokens
        self._names = frozenset(name.lower() for name in names)
        self._counts = counts
        self._wrong = wrong
        self._behind_proxy = behind_proxy

    def admit(self, request: HTTPConnection, needed: Scope) -> Token:
        """Return the token of an admitted request; raises `HttpRefusal`."""
        try:
            self._check_source(request)
            token, by_cookie = self._authenticate_request(request)
            if not has_needed_scope(token.scope, needed):
                text = f"This needs the scope {needed}, and the token has the scope {token.scope}"
                raise HttpRefusal(403, "scope", text)
            if by_cookie:
                self._check_cookie_use(request)
        except HttpRefusal as refusal:
            self._counts.count_refusal(refusal.reason)
            raise
        connection = request.scope.get("state", {}).get("connection")
        if connection is not None:
            connection.mark_known()
        return token

    def admit_to_page(self, request: HTTPConnection) -> None:
        """Raise `HttpRefusal` unless the page may be shown, which has nothing of any session; the cookie is enough."""
        try:
            self._check_source(request)
            if request.headers.getlist("authorization") or self._tokens.find_cookie_token(_cookie_of(request)) is None:
                self._authenticate_request(request)
        except HttpRefusal as refusal:
            self._counts.count_refusal(refusal.reason)
            raise

    def is_valid(self, token: Token) -> bool:
        return self._tokens.is_valid(token)

    def redeem_link(self, request: HTTPConnection) -> tuple[str, str]:
        """The cookie and the key of the page for a valid link; raises `HttpRefusal`."""
        try:
            self._check_source(request)
            token = self._tokens.redeem_link(request.query_params["token"])
            if token is None:
                self._refuse_wrong_token(
                    request, "This link has been used or has expired. Get a new one: pigeon serve --link"
                )
        except HttpRefusal as refusal:
            self._counts.count_refusal(refusal.reason)
            raise
        return self._tokens.create_cookie(token)

    def scheme_of(self, request: HTTPConnection) -> str:
        """`http` or `https`, as the browser sees it."""
        scheme = {"ws": "http", "wss": "https"}.get(request.url.scheme, request.url.scheme)
        forwarded = self._forwarded_value(request, "x-forwarded-proto").lower()
        return forwarded if forwarded in ("http", "https") else scheme

    def peer_of(self, request: HTTPConnection) -> str:
        """The sender of a request: an address, or its network for IPv6."""
        asked = self._forwarded_value(request, "x-forwarded-for") or (request.client.host if request.client else "")
        try:
            address = ipaddress.ip_address(asked.strip("[]"))
        except ValueError:
            return "unknown"
        if address.version == 6 and address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address)

    def _authenticate_request(self, request: HTTPConnection) -> tuple[Token, bool]:
        given = request.headers.getlist("authorization")
        cookie = _cookie_of(request)
        if not given and not cookie:
            raise HttpRefusal(401, "no_token", NO_TOKEN)
        if len(given) > 1:
            raise HttpRefusal(400, "bad_request", "There is more than one Authorization header")
        if given:
            kind, _, secret = given[0].partition(" ")
            token = self._tokens.find_token(secret.strip()) if kind.lower() == "bearer" else None
        else:
            token = self._tokens.find_page_token(cookie, _page_key_of(request))
            if token is None and self._tokens.find_cookie_token(cookie) is not None:
                raise HttpRefusal(401, "no_page_key", NO_PAGE_KEY)
        if token is None:
            self._refuse_wrong_token(request, WRONG_TOKEN)
        return token, not given

    def _refuse_wrong_token(self, request: HTTPConnection, text: str) -> NoReturn:
        """Raise `HttpRefusal` for a wrong token; after too many of them the status is 429."""
        wait = self._wrong.count_wrong_token(self.peer_of(request))
        if wait:
            raise HttpRefusal(429, "rate", f"Too many wrong tokens. Try again in {wait} s", wait)
        raise HttpRefusal(401, "wrong_token", text)

    def _check_source(self, request: HTTPConnection) -> None:
        hosts = request.headers.getlist("host")
        host = self._forwarded_value(request, "x-forwarded-host") or (hosts[0] if len(hosts) == 1 else "")
        host = host.lower()
        if not self._is_own_host(request, host):
            raise HttpRefusal(
                403, "host", f"This server is not called {host[:100]!r}. Allow the name with --allow-host"
            )
        origins = request.headers.getlist("origin")
        if origins and origins != [f"{self.scheme_of(request)}://{host}"]:
            raise HttpRefusal(403, "origin", OTHER_SITE)
        site = request.headers.get("sec-fetch-site", "none").lower()
        if site not in ("same-origin", "none") and not _is_page_visit(request):
            raise HttpRefusal(403, "origin", OTHER_SITE)

    def _is_own_host(self, request: HTTPConnection, host: str) -> bool:
        if host in self._names or _without_port(host) in self._names:
            return bool(host)
        # A literal address cannot come from a manipulated DNS entry.
        server = request.scope.get("server")
        if not server or not server[1]:
            return False
        name = f"[{server[0]}]" if ":" in server[0] else server[0]
        return host == f"{name}:{server[1]}"

    def _check_cookie_use(self, request: HTTPConnection) -> None:
        """Require that a request with the cookie comes from our own page, since browsers send cookies to us from any
        page."""
        ours = bool(request.headers.getlist("origin")) or request.headers.get("sec-fetch-site") == "same-origin"
        if request.scope["type"] == "websocket":
            if not request.headers.getlist("origin"):
                raise HttpRefusal(403, "origin", "A WebSocket with a cookie needs an Origin")
        elif request.scope["method"] == "POST" and not ours:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise HttpRefusal(403, "origin", "A POST with a cookie needs an Origin, or the JSON content type")

    def _forwarded_value(self, request: HTTPConnection, name: str) -> str:
        """The value that our proxy has added, which is the last one; earlier ones may be forged."""
        if not self._behind_proxy:
            return ""
        values = request.headers.getlist(name)
        return values[-1].rpartition(",")[2].strip() if values else ""


def _cookie_of(request: HTTPConnection) -> str:
    return request.cookies.get(COOKIE, "")


def _page_key_of(request: HTTPConnection) -> str:
    """The key that our page sends with its cookie; of a WebSocket, which cannot have headers, in its subprotocols."""
    offered = request.scope.get("subprotocols", ())
    found = (one.removeprefix(_KEY_AS_SUBPROTOCOL) for one in offered if one.startswith(_KEY_AS_SUBPROTOCOL))
    return request.headers.get(PAGE_KEY, "") or next(found, "")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_page_visit(request: HTTPConnection) -> bool:
    """Whether a person follows a link to our page: then only the person sees the page, not the other site."""
    headers = request.headers
    opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return opened and request.scope["type"] == "http" and request.url.path == "/" and request.scope["method"] in SAFE
