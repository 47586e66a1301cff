"""Tokens: who comes in, and with which scope.

The file has a line for each token: `SCOPE TOKEN NAME...`, or a token alone, which has the scope `admin`. It is made
with one token if it is not there, and readable by its owner alone.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable

from msgspec import Struct

from pigeon.serve.watching import Scope
from pigeon.system.files import put_file
from pigeon.wire.errors import StartupError

SCOPES: dict[str, Scope] = {"read": "read", "talk": "talk", "admin": "admin"}
LINK_SECONDS = 600.0
SHORTEST = 16


class Token(Struct, frozen=True):
    """One token."""

    secret: str
    scope: Scope
    name: str = ""


class Tokens:
    """The tokens of a file, and links that stand for one of them once."""

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        """Raises `StartupError` for a file that cannot be used."""
        self._path = path
        self._now = now
        self._links: dict[str, tuple[Token, float]] = {}
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            put_file(path, f"admin {secrets.token_urlsafe(32)}\n".encode(), 0o600)
        self._tokens = self._read()

    def found(self, secret: str) -> Token | None:
        """The token with this secret."""
        given = secret.encode("utf-8", "replace")
        matching = [one for one in self._tokens if hmac.compare_digest(one.secret.encode(), given)]
        return matching[0] if matching else None

    def link(self) -> str:
        """A word that can be exchanged once, within a few minutes, for the first token with the scope `admin`."""
        token = next((one for one in self._tokens if one.scope == "admin"), self._tokens[0])
        word = secrets.token_urlsafe(24)
        self._links[word] = (token, self._now() + LINK_SECONDS)
        return word

    def redeemed(self, word: str) -> Token | None:
        """The token that a link stands for; none if it was used or is too old."""
        token, until = self._links.pop(word, (None, 0.0))
        return token if self._now() < until else None

    def _read(self) -> list[Token]:
        try:
            mode = os.stat(self._path).st_mode
            with open(self._path, encoding="utf-8") as file:
                lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
        except (OSError, UnicodeDecodeError) as error:
            raise StartupError(f"{self._path}: {error}") from None
        if stat.S_IMODE(mode) & 0o077:
            raise StartupError(f"{self._path} can be read by others. Make it yours alone: chmod 600 {self._path}")
        tokens = [_token(words, self._path) for words in lines]
        if not tokens:
            raise StartupError(f"{self._path} has no token. Remove it, and a new one is made")
        return tokens


def _token(words: list[str], path: str) -> Token:
    scope = SCOPES.get(words[0])
    if scope is None and len(words) == 1:
        scope, words = "admin", ["admin", *words]
    if scope is None or len(words) < 2:
        raise StartupError(f"{path}: a line must be a scope (read, talk or admin), a token and a name")
    if len(words[1]) < SHORTEST:
        raise StartupError(f"{path}: a token must have at least {SHORTEST} characters")
    return Token(words[1], scope, " ".join(words[2:]))
