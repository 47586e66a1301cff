"""Addresses that a server wants a person to open."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

LONGEST = 4000


def parse_web_address(given: Any) -> str | None:
    """The address if a person may be asked to open it, else None.

    It must lead to a web server: `javascript:`, `data:`, `file:` and the like would act on the person's own machine.
    And it must not look like that of another host, as with a user name or signs that browsers read differently.
    """
    if not isinstance(given, str) or len(given) > LONGEST or not given.lower().startswith(("https://", "http://")):
        return None
    if not all(sign.isprintable() and sign not in ' \\"<>`' for sign in given):
        return None
    try:
        parts = urlsplit(given)
        named = parts.hostname and "@" not in parts.netloc and (parts.port or True)
    except ValueError:
        return None
    return given if named else None
