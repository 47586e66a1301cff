"""Reading a session file: any file that pi wrote, whatever its version, whatever a crash left of its last line."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from pigeon.session.kept import Kept, kept_from_line
from pigeon.session.migration import migrated
from pigeon.wire import codec
from pigeon.wire.entries import SESSION_VERSION
from pigeon.wire.errors import BadRecord, Refusal


class InvalidSession(Refusal):
    """The file is there and is not a session."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Session file is not a valid pi session: {path}")


class Loaded(Struct):
    """A session file in memory."""

    header: dict[str, Any]
    header_line: bytes
    lines: list[Kept]
    needs_newline: bool
    rewritten: bool


def load_session(path: str) -> Loaded | None:
    """The session in this file, none if the file is missing or empty; raises for anything else."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refusal(f"Session file cannot be read: {path}: {error.strerror}") from None
    if not raw.strip():
        return None
    pieces = [piece for piece in raw.split(b"\n") if piece.strip()]
    header = _header(pieces[0], path)
    lines = [line for line in map(kept_from_line, pieces[1:]) if line is not None]
    rewritten = header.get("version", 1) < SESSION_VERSION
    header_line = pieces[0]
    if rewritten:
        header, lines = migrated(header, lines)
        header_line = codec.encode(header)
    return Loaded(header, header_line, lines, not raw.endswith(b"\n"), rewritten)


def _header(line: bytes, path: str) -> dict[str, Any]:
    try:
        header = codec.decode(line)
    except BadRecord:
        header = None
    if not isinstance(header, dict) or header.get("type") != "session" or not isinstance(header.get("id"), str):
        raise InvalidSession(os.path.abspath(path))
    if not isinstance(header.get("version", 1), int):
        header["version"] = 1
    return header
