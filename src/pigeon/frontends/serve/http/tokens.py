"""Tokens: which clients are let in, and with which scope.

The file has a line for each token: `SCOPE TOKEN NAME...`, or a token alone, which has the scope `admin`. If it is
missing, it is created with one token, readable only by its owner. It is read again when it changes, so tokens can be
added and removed while the server runs; while the file cannot be used, no client is let in.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable

from msgspec import Struct

from pigeon.frontends.serve.client_rights import SCOPES
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import create_or_replace_file
from pigeon.wire.commands import Scope
from pigeon.wire.errors import Refusal, StartupError

LINK_SECONDS = 600.0
MOST_LINKS = 100
COOKIE_SECONDS = 30 * 24 * 3600
SHORTEST = 16


class Token(Struct, frozen=True):
    """A secret that lets a client in, and the scope that it gives."""

    secret: str
    scope: Scope
    name: str = ""


class Tokens:
    """The tokens of a file, and one-time links that stand for them."""

    def __init__(
        self, path: str, now: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        """Raises `StartupError` for a file that cannot be used."""
        self._path = path
        self._now = now
        self._wall = wall
        self._links: dict[str, tuple[Token, float]] = {}
        if not os.path.lexists(path):
            make_private_folder(os.path.dirname(path))
            create_or_replace_file(path, f"admin {secrets.token_urlsafe(32)}\n".encode(), 0o600)
        self.problem = ""
        self._state = self._read_file_stamp()
        self._tokens = self._read()

    def find_token(self, secret: str) -> Token | None:
        self._read_if_changed()
        given = secret.encode("utf-8", "replace")
        matching = [one for one in self._tokens if hmac.compare_digest(one.secret.encode(), given)]
        return matching[0] if matching else None

    def find_cookie_token(self, value: str) -> Token | None:
        """The token that a cookie of `create_cookie` stands for. Alone, it opens the empty page and no more."""
        self._read_if_changed()
        until, _, proof = value.partition(".")
        if not (until.isascii() and until.isdigit() and len(until) < 20 and self._wall() < int(until)):
            return None
        return next((one for one in self._tokens if _is_same(_sign(one, "cookie", until), proof)), None)

    def find_page_token(self, cookie: str, page_key: str) -> Token | None:
        """The token that a cookie stands for, if the page's own half of the secret belongs to it."""
        token = self.find_cookie_token(cookie)
        if token is None or not _is_same(_sign(token, "page", cookie), page_key):
            return None
        return token

    def create_cookie(self, token: Token) -> tuple[str, str]:
        """The two halves of what a browser has in place of a token: its cookie, and what our page keeps.

        A browser sends the cookie to every port of this host, where any server can read it; what a page keeps is only
        for pages from the same port. Both expire, and do not reveal the token.
        """
        until = str(int(self._wall()) + COOKIE_SECONDS)
        cookie = f"{until}.{_sign(token, 'cookie', until)}"
        return cookie, _sign(token, "page", cookie)

    def is_valid(self, token: Token) -> bool:
        """Whether a token that was accepted is still in the file."""
        self._read_if_changed()
        return token in self._tokens

    def find_first_token(self, scope: Scope) -> Token | None:
        self._read_if_changed()
        return next((one for one in self._tokens if one.scope == scope), None)

    def create_link(self, scope: Scope = "admin") -> str:
        """A secret that can be exchanged once, within a few minutes, for the first token with this scope.

        Raises `Refusal` if there is no such token.
        """
        token = self.find_first_token(scope)
        if token is None:
            raise Refusal(f"{self._path} has no token with the scope {scope}. Add a line: {scope} TOKEN NAME")
        now = self._now()
        self._links = {word: kept for word, kept in self._links.items() if now < kept[1]}
        while len(self._links) >= MOST_LINKS:
            del self._links[next(iter(self._links))]
        word = secrets.token_urlsafe(24)
        self._links[word] = (token, now + LINK_SECONDS)
        return word

    def redeem_link(self, word: str) -> Token | None:
        """The token that a link represents, or None if the link was used or is too old, or if its token is gone."""
        token, until = self._links.pop(word, (None, 0.0))
        return token if token is not None and self._now() < until and self.is_valid(token) else None

    def _read_if_changed(self) -> None:
        state = self._read_file_stamp()
        if state == self._state:
            return
        try:
            self._tokens = self._read()
            self.problem = ""
        except StartupError as error:
            self._tokens = []
            self.problem = str(error)
        self._state = state

    def _read_file_stamp(self) -> tuple[int, ...]:
        try:
            about = os.stat(self._path)
        except OSError:
            return ()
        return (about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino, about.st_mode)

    def _read(self) -> list[Token]:
        try:
            mode = os.stat(self._path).st_mode
            with open(self._path, encoding="utf-8") as file:
                lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise StartupError(f"{self._path} cannot be read: {why}") from None
        if stat.S_IMODE(mode) & 0o077:
            raise StartupError(f"{self._path} can be read by other users. Restrict it: chmod 600 {self._path}")
        tokens = [_parse_token(words, self._path) for words in lines]
        if not tokens:
            raise StartupError(f"{self._path} has no token. Remove it, and a new one is created at the next start")
        return tokens


def _sign(token: Token, purpose: str, text: str) -> str:
    return hmac.new(token.secret.encode(), f"pigeon {purpose} {text}".encode(), hashlib.sha256).hexdigest()


def _is_same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _parse_token(words: list[str], path: str) -> Token:
    scope = next((scope for scope in SCOPES if scope == words[0]), None)
    if scope is None and len(words) == 1:
        scope, words = "admin", ["admin", *words]
    if scope is None or len(words) < 2:
        raise StartupError(f"{path}: a line must be a scope (read, talk or admin), a token and a name")
    if len(words[1]) < SHORTEST:
        raise StartupError(f"{path}: a token must have at least {SHORTEST} characters")
    return Token(words[1], scope, " ".join(words[2:]))
