"""Older session files: version 1 is a plain list, version 2 knows the tree and an old role name."""

from __future__ import annotations

from typing import Any

from pigeon.session.history.entry_line import Kept, kept_from_line
from pigeon.system import ids
from pigeon.wire import codec
from pigeon.wire.entries import SESSION_VERSION

OLD_ROLE = "hookMessage"


def migrated(header: dict[str, Any], lines: list[Kept]) -> tuple[dict[str, Any], list[Kept]]:
    """Header and entries as version 3; what need not change stays as it is, byte for byte."""
    upgraded = _into_tree(lines) if header.get("version", 1) < 2 else lines
    return {**header, "version": SESSION_VERSION}, [_with_new_role(line) for line in upgraded]


def _with_new_role(line: Kept) -> Kept:
    if line.type != "message" or line.role != OLD_ROLE:
        return line
    plain = line.plain()
    plain["message"]["role"] = "custom"
    return _again(plain)


def _into_tree(lines: list[Kept]) -> list[Kept]:
    """Chain the entries; an index of a kept entry counts the header, so entry n has index n + 1."""
    entries = [line.plain() for line in lines]
    used: set[str] = set()
    parent: str | None = None
    for entry in entries:
        entry["id"] = _unused(used)
        entry["parentId"] = parent
        parent = entry["id"]
    for entry in entries:
        index = entry.pop("firstKeptEntryIndex", None) if entry.get("type") == "compaction" else None
        if isinstance(index, int) and 1 <= index <= len(entries):
            entry["firstKeptEntryId"] = entries[index - 1]["id"]
    return [_again(entry) for entry in entries]


def _again(plain: dict[str, Any]) -> Kept:
    line = kept_from_line(codec.encode(plain))
    assert line is not None
    return line


def _unused(used: set[str]) -> str:
    while True:
        candidate = ids.short_id()
        if candidate not in used:
            used.add(candidate)
            return candidate
