"""Older session files: version 1 is a plain list, version 2 knows the tree and an old role name."""

from __future__ import annotations

from typing import Any

from pigeon.session.kept import Kept, kept_from_line
from pigeon.system import ids
from pigeon.wire import codec
from pigeon.wire.entries import SESSION_VERSION


def migrated(header: dict[str, Any], lines: list[Kept]) -> tuple[dict[str, Any], list[Kept]]:
    """Header and entries as version 3; what we do not know is kept."""
    plain = [line.plain() for line in lines]
    if header.get("version", 1) < 2:
        _into_tree(plain)
    for entry in plain:
        message = entry.get("message")
        if isinstance(message, dict) and message.get("role") == "hookMessage":
            message["role"] = "custom"
    upgraded = [kept_from_line(codec.encode(entry)) for entry in plain]
    return {**header, "version": SESSION_VERSION}, [line for line in upgraded if line is not None]


def _into_tree(entries: list[dict[str, Any]]) -> None:
    """Chain the entries; an index of a kept entry counts the header, so entry n has index n + 1."""
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


def _unused(used: set[str]) -> str:
    while True:
        candidate = ids.short_id()
        if candidate not in used:
            used.add(candidate)
            return candidate
