"""Records of the SDK in a form that can be compared between conversations: without ids, times and places."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pigeon.wire import codec

CHANGING = (
    "timestamp",
    "durationMs",
    "id",
    "sessionId",
    "sessionFile",
    "entryId",
    "parentId",
    "leafId",
    "path",
    "session_id",
    "session_file",
    "runId",
    "run_id",
    "seq",
)


def plain_record(record: Any, root: Path) -> Any:
    """The type of a record, and its members without what changes from one conversation to another."""
    return type(record).__name__, without_changes(codec.to_plain(record), root)


def without_changes(value: Any, root: Path) -> Any:
    """Parsed JSON without what changes from one conversation to another."""
    if isinstance(value, dict):
        return {key: without_changes(one, root) for key, one in value.items() if key not in CHANGING}
    if isinstance(value, list):
        return [without_changes(one, root) for one in value]
    return re.sub(rf"{root}|[0-9a-f]{{8}}-[0-9a-f-]{{27}}", "", value) if isinstance(value, str) else value
