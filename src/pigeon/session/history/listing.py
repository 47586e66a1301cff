"""What lists show of a session file, without reading it whole: the head of the file has its id, folder and first
message, the tail its name."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from pigeon.session.context.transcript import message_of
from pigeon.session.history.entry_line import EntryLine, line_from_bytes
from pigeon.system import clock
from pigeon.system.files import open_regular
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import ABSENT, value_or_default
from pigeon.wire.content import shorten_file_blocks, text_of
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import UserMessage

PEEK = 64 * 1024
PREVIEW = 200
LONGEST_TITLE = 60


def header_of(path: str) -> dict[str, Any] | None:
    """The header of a session file, or None if it is not a session."""
    try:
        with open(open_regular(path), "rb") as file:
            line = file.readline(1024 * 1024)
        header = codec.decode(line)
    except (OSError, BadRecord):
        return None
    valid = isinstance(header, dict) and header.get("type") == "session" and isinstance(header.get("id"), str)
    return header if valid else None


def has_message(path: str) -> bool:
    """True if the file is a session with a message, which is assumed for a file that is too long to read."""
    if header_of(path) is None:
        return False
    with suppress(OSError):
        return os.path.getsize(path) > PEEK or any(line.type == "message" for part in _read_ends(path) for line in part)
    return False


def title_of(row: SessionRow) -> str:
    """The name of a session, or its beginning, in one line."""
    text = value_or_default(row.name, "") or value_or_default(row.first_message, "") or "(nothing said)"
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1] + "…"


def row_of(path: str) -> SessionRow | None:
    """The list row of one session, or None if the file is not a session."""
    try:
        return make_row(path, os.stat(path).st_mtime_ns // 1_000_000)
    except OSError:
        return None


def make_row(path: str, changed_ms: int) -> SessionRow | None:
    """The same with a known modification time."""
    header = header_of(path)
    if header is None:
        return None
    try:
        head, tail = _read_ends(path)
    except OSError:
        return None
    names = [line.entry for line in (*head, *tail) if line.type == "session_info"]
    name = next((entry.name for entry in reversed(names) if isinstance(entry, SessionInfo)), "")
    first = next((text for line in head if (text := _user_text_of(line))), "")
    return SessionRow(
        path=path,
        id=header["id"],
        cwd=str(header.get("cwd", "")),
        created=str(header.get("timestamp", "")),
        modified=clock.to_iso(changed_ms),
        name=name or ABSENT,
        first_message=shorten_file_blocks(first)[:PREVIEW] or ABSENT,
        parent_session=header.get("parentSession") or ABSENT,
        workspace=header.get("workspace") or ABSENT,
    )


def _user_text_of(line: EntryLine) -> str:
    message = message_of(line) if line.role == "user" else None
    return text_of(message.content).strip() if isinstance(message, UserMessage) else ""


def _read_ends(path: str) -> tuple[list[EntryLine], list[EntryLine]]:
    """The complete lines in the first and in the last part of a file."""
    with open(open_regular(path), "rb") as file:
        head = file.read(PEEK)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(len(head), size - PEEK))
        tail = file.read()
    cut = size - len(tail) > len(head)
    head_lines = head.split(b"\n")[1:-1] if len(head) == PEEK else head.split(b"\n")[1:]
    return _parse_lines(head_lines), _parse_lines(tail.split(b"\n")[1 if cut else 0 :])


def _parse_lines(pieces: list[bytes]) -> list[EntryLine]:
    return [line for piece in pieces if piece.strip() and (line := line_from_bytes(piece)) is not None]
