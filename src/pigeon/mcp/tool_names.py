"""The names under which the model calls tools and prompts of servers: `mcp__server__name`.

Providers accept letters, digits, `_` and `-`, at most 64 of them. Other characters become `_`; a name that is too long
is cut and gets some characters of a digest, so that a tool has the same name in every conversation.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Sequence

from pigeon.tools.server_tools import PREFIX

LONGEST = 64
# The length of the digest that makes cut names distinct.
_MARK = 9


def to_allowed_name(name: str) -> str:
    """A name with only the characters that providers accept."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def make_full_name(server: str, name: str) -> str:
    """The name of a tool or prompt of a server."""
    full = f"{PREFIX}{to_allowed_name(server)}__{to_allowed_name(name)}"
    return full if len(full) <= LONGEST else _cut_name(full, f"{server}\0{name}")


def can_belong_to(server: str, full: str) -> bool:
    """Whether a full name can belong to this server, judging by its beginning."""
    return full.startswith(f"{PREFIX}{to_allowed_name(server)}__"[: LONGEST - _MARK])


def make_distinct_names(server: str, names: list[str], others: Sequence[str] = ()) -> dict[str, str]:
    """The full names of a server's tools by their own names; names that would collide are made distinct.

    A name that could belong to one of the `others` with a longer name, such as `mcp__a__b__c` for the server `a__b`, is
    theirs: no server gets calls, or falls under rules, that are meant for another one.
    """
    longer = [other for other in others if len(to_allowed_name(other)) > len(to_allowed_name(server))]
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        full = make_full_name(server, name)
        if any(can_belong_to(other, full) for other in longer):
            full = _cut_name(make_full_name(server, re.sub("__+", "_", to_allowed_name(name))), f"{server}\0{name}")
        if full in taken:
            full = _cut_name(full, f"{server}\0{name}")
        if full not in taken:
            taken.add(full)
            found[name] = full
    return found


def _cut_name(full: str, meant: str) -> str:
    return f"{full[: LONGEST - _MARK]}_{crc32(meant.encode('utf-8', 'surrogatepass')):08x}"
