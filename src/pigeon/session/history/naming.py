"""The display name of a session."""

from __future__ import annotations

import re

from pigeon.session.history.entry_line import Kept
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import Refusal


def clean_name(name: str) -> str:
    """The name on one line; raises when nothing is left."""
    cleaned = re.sub(r"[\r\n]+", " ", name).strip()
    if not cleaned:
        raise Refusal("Session name cannot be empty")
    return cleaned


def name_of(lines: list[Kept]) -> str | None:
    """The name that was given last."""
    for line in reversed(lines):
        if line.type == "session_info":
            entry = line.entry
            return (entry.name or None) if isinstance(entry, SessionInfo) else None
    return None
