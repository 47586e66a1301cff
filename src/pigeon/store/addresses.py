"""How an address of `--store` names a store, without its secrets."""

from __future__ import annotations

import re

from pigeon.wire.errors import StartupError

VARIABLE = "PIGEON_STORE"
POSTGRES = ("postgresql://", "postgres://")
EMBEDDED = "pgserver:"
FILES = "file:"
_KNOWN = "postgresql://..., file:DIR or pgserver:DIR"
_PASSWORD = re.compile(r"^(\w+://[^/?#]*?):([^/?#]*)@")
_QUERY_PASSWORD = re.compile(r"([?&](?:password|sslpassword|passfile)=)[^&]*", re.IGNORECASE)


def check_address(url: str) -> str:
    """The address, if it names a store; raises `StartupError`."""
    if url.startswith((*POSTGRES, EMBEDDED, FILES)):
        return url
    scheme = url.partition(":")[0] if ":" in url else url
    shown = re.sub(r"[^A-Za-z0-9+.-]", "", scheme)[:20]
    raise StartupError(f'--store does not know "{shown}": an address is {_KNOWN}')


def hide_password(url: str) -> str:
    """The address as it may be shown."""
    return _QUERY_PASSWORD.sub(r"\1***", _PASSWORD.sub(r"\1@", url))


def find_secrets(url: str) -> list[str]:
    """What must not be shown of an address, in each form that it may appear in."""
    from urllib.parse import unquote

    found = [match[2] for match in (_PASSWORD.match(url),) if match and match[2]]
    found += [match[0].partition("=")[2] for match in _QUERY_PASSWORD.finditer(url)]
    return sorted({*found, *map(unquote, found)} - {""}, key=len, reverse=True)


def mask_secrets(text: str, url: str) -> str:
    """A text in one line, without the address's secrets."""
    for secret in find_secrets(url):
        text = text.replace(secret, "***")
    return " ".join(text.split())
