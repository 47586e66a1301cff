"""`trust.json` in the user's folder: which project folders are trusted, by their real path.

The nearest folder above counts. With a file that cannot be read no project is trusted, and it is never overwritten.
"""

from __future__ import annotations

import os
from typing import Any

from pigeon.config.json_file import read_json
from pigeon.system.files import replace_file
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

NAME = "trust.json"


def saved_decision(agent_dir: str, cwd: str) -> tuple[bool | None, str | None]:
    """What was decided for this folder or the nearest one above, and what is wrong with the file."""
    path = os.path.join(agent_dir, NAME)
    try:
        entries = _read(path)
    except FileNotFoundError:
        return None, None
    except (OSError, BadRecord) as error:
        return False, f"{path}: {error}; no project is trusted until this is corrected"
    folder = os.path.realpath(cwd)
    while True:
        if isinstance(entries.get(folder), bool):
            return entries[folder], None
        above = os.path.dirname(folder)
        if above == folder:
            return None, None
        folder = above


def remember(agent_dir: str, cwd: str, trusted: bool) -> str | None:
    """Keep a decision for this folder; returns what went wrong."""
    path = os.path.join(agent_dir, NAME)
    try:
        entries = _read(path)
    except FileNotFoundError:
        entries = {}
    except (OSError, BadRecord) as error:
        return f"{path}: {error}; the decision was not kept"
    entries[os.path.realpath(cwd)] = trusted
    try:
        os.makedirs(agent_dir, mode=0o700, exist_ok=True)
        replace_file(path, codec.pretty(entries).encode() + b"\n", mode=0o600)
    except OSError as error:
        return f"{path}: {error.strerror}; the decision was not kept"
    return None


def _read(path: str) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise BadRecord("it must hold a JSON object")
    return value
