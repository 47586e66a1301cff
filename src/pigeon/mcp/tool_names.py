"""The names under which the model calls tools and prompts of servers: `mcp__server__name`.

Providers take letters, digits, `_` and `-`, at most 64 of them. Other signs become `_`, and what is too long is cut and
gets a few letters of a digest, so that the same tool has the same name in every conversation.
"""

from __future__ import annotations

import re
from binascii import crc32

LONGEST = 64
PREFIX = "mcp__"
# The length of what tells names apart that were cut.
_MARK = 9


def plain_name(name: str) -> str:
    """A name with the signs that providers take."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def full_name(server: str, name: str) -> str:
    """The name of a tool or prompt of a server."""
    full = f"{PREFIX}{plain_name(server)}__{plain_name(name)}"
    return full if len(full) <= LONGEST else _cut(full, f"{server}\0{name}")


def may_be_of(server: str, full: str) -> bool:
    """Whether a full name can be that of something of this server, as far as its beginning tells."""
    return full.startswith(f"{PREFIX}{plain_name(server)}__"[: LONGEST - _MARK])


def distinct_names(server: str, names: list[str]) -> dict[str, str]:
    """The full names of all tools of a server, by their own; those that would be the same are told apart."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        full = full_name(server, name)
        if full in taken:
            full = _cut(full, f"{server}\0{name}")
        if full not in taken:
            taken.add(full)
            found[name] = full
    return found


def _cut(full: str, meant: str) -> str:
    return f"{full[: LONGEST - _MARK]}_{crc32(meant.encode('utf-8', 'surrogatepass')):08x}"
