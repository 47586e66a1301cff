"""Lists session files without reading them whole: the head of a file has its id, folder and first message, the tail its
name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from pigeon.session.context.transcript import message_of
from pigeon.session.history.entry_line import EntryLine, line_from_bytes
from pigeon.system import clock
from pigeon.system.append_file import is_written
from pigeon.system.files import open_regular
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import ABSENT, or_else
from pigeon.wire.content import text_of, with_files_named
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import BadRecord, Refusal
from pigeon.wire.messages import UserMessage

PEEK = 64 * 1024
PREVIEW = 200
MOST_NAMED = 20
LONGEST_TITLE = 60


def header_of(path: str) -> dict[str, Any] | None:
    """The header of a session file; none if it is no session."""
    try:
        with open(open_regular(path), "rb") as file:
            line = file.readline(1024 * 1024)
        header = codec.decode(line)
    except (OSError, BadRecord):
        return None
    valid = isinstance(header, dict) and header.get("type") == "session" and isinstance(header.get("id"), str)
    return header if valid else None


def session_files(folder: str) -> list[str]:
    """The session files of one folder, the one that was changed last first."""
    return [path for _, path in sorted(_dated(folder), reverse=True)]


def _dated(folder: str) -> list[tuple[int, str]]:
    """The session files of one folder and when they were changed; what cannot be looked at is left out."""
    found: list[tuple[int, str]] = []
    with suppress(OSError), os.scandir(folder) as items:
        for item in items:
            if item.name.endswith(".jsonl"):
                with suppress(OSError):
                    about = item.stat()
                    if stat.S_ISREG(about.st_mode):
                        found.append((about.st_mtime_ns, item.path))
    return found


def newest(folder: str, cwd: str | None = None) -> str | None:
    """The session that was changed last, in one working directory if that is given."""
    for path in session_files(folder):
        header = header_of(path)
        if header is not None and (cwd is None or header.get("cwd") == cwd):
            return path
    return None


def newest_with_message(folder: str) -> str | None:
    """The session that was changed last and has a message; a file too long to be looked at whole has one."""
    for path in session_files(folder):
        if header_of(path) is None:
            continue
        with suppress(OSError):
            if os.path.getsize(path) > PEEK or any(line.type == "message" for part in _peek(path) for line in part):
                return path
    return None


def resolve(reference: str, folder: str, everywhere: str) -> tuple[str, bool] | None:
    """The file of a session id or its beginning, and whether it belongs to this folder.

    Raises a `Refusal` that lists the sessions if the beginning is that of several.
    """
    begun: list[tuple[str, str, bool]] = []
    for path, here in _candidates(folder, everywhere):
        header = header_of(path)
        if header is not None and header["id"] == reference:
            return path, here
        if header is not None and header["id"].startswith(reference):
            begun.append((header["id"], path, here))
    near = [found for found in begun if found[2]] or begun
    if len({session_id for session_id, _, _ in near}) > 1:
        rows = [f"  {session_id}  {_named(path)}" for session_id, path, _ in near[:MOST_NAMED]]
        more = [f"  and {len(near) - MOST_NAMED} more"] if len(near) > MOST_NAMED else []
        listed = "\n".join([*rows, *more])
        raise Refusal(f"'{reference}' is the beginning of several sessions; give more of the id of one:\n{listed}")
    return (near[0][1], near[0][2]) if near else None


def _named(path: str) -> str:
    """How a person tells a session from others: when it was changed, and its title."""
    row = row_of(path)
    return path if row is None else f"{row.modified[:16].replace('T', ' ')}  {title_of(row)}"


def title_of(row: SessionRow) -> str:
    """The name of a session, or how it begins, in one line."""
    text = or_else(row.name, "") or or_else(row.first_message, "") or "(nothing said)"
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1] + "…"


def file_with_id(session_id: str, folder: str) -> str | None:
    """The file in this folder of the session with exactly this id, also one that is only just being made."""
    for path in session_files(folder):
        header = header_of(path)
        if header["id"] == session_id if header is not None else path.endswith(f"_{session_id}.jsonl"):
            return path
    return None


def _candidates(folder: str, everywhere: str) -> Iterator[tuple[str, bool]]:
    for path in session_files(folder):
        yield path, True
    for other in _folders(everywhere):
        if other != folder:
            for path in session_files(other):
                yield path, False


def _folders(everywhere: str) -> list[str]:
    try:
        with os.scandir(everywhere) as found:
            return sorted(item.path for item in found if item.is_dir())
    except OSError:
        return []


def listed(folders: list[str], cursor: str | None, limit: int) -> tuple[list[SessionRow], str | None]:
    """A page of sessions, newest first, and where the next page begins."""
    files = sorted((dated for folder in folders for dated in _dated(folder)), reverse=True)
    keys = [f"{changed:020d}:{path}" for changed, path in files]
    start = next((index for index, key in enumerate(keys) if cursor is None or key < cursor), len(keys))
    rows: list[SessionRow] = []
    at = start
    while at < len(files) and len(rows) < limit:
        row = _row(files[at][1], files[at][0] // 1_000_000)
        if row is not None:
            rows.append(row)
        at += 1
    return rows, keys[at - 1] if at < len(files) and at > start else None


def rows_with_id(folders: list[str], session_id: str) -> list[SessionRow]:
    """The session with exactly this id, with whether another process writes it; nothing if there is none."""
    for folder in folders:
        path = file_with_id(session_id, folder)
        row = None if path is None else row_of(path)
        if row is not None:
            return [replace(row, in_use=is_written(row.path))]
    return []


def all_folders(everywhere: str) -> list[str]:
    """Every working directory's folder."""
    return _folders(everywhere)


def row_of(path: str) -> SessionRow | None:
    """One session as it stands in a list; none if the file is no session."""
    try:
        return _row(path, os.stat(path).st_mtime_ns // 1_000_000)
    except OSError:
        return None


def _row(path: str, changed_ms: int) -> SessionRow | None:
    header = header_of(path)
    if header is None:
        return None
    try:
        head, tail = _peek(path)
    except OSError:
        return None
    names = [line.entry for line in (*head, *tail) if line.type == "session_info"]
    name = next((entry.name for entry in reversed(names) if isinstance(entry, SessionInfo)), "")
    first = next((text for line in head if (text := _said(line))), "")
    return SessionRow(
        path=path,
        id=header["id"],
        cwd=str(header.get("cwd", "")),
        created=str(header.get("timestamp", "")),
        modified=clock.iso(changed_ms),
        name=name or ABSENT,
        first_message=with_files_named(first)[:PREVIEW] or ABSENT,
        parent_session=header.get("parentSession") or ABSENT,
    )


def _said(line: EntryLine) -> str:
    message = message_of(line) if line.role == "user" else None
    return text_of(message.content).strip() if isinstance(message, UserMessage) else ""


def _peek(path: str) -> tuple[list[EntryLine], list[EntryLine]]:
    """The whole lines in the first and in the last part of a file."""
    with open(open_regular(path), "rb") as file:
        head = file.read(PEEK)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(len(head), size - PEEK))
        tail = file.read()
    cut = size - len(tail) > len(head)
    head_lines = head.split(b"\n")[1:-1] if len(head) == PEEK else head.split(b"\n")[1:]
    return _lines(head_lines), _lines(tail.split(b"\n")[1 if cut else 0 :])


def _lines(pieces: list[bytes]) -> list[EntryLine]:
    return [line for piece in pieces if piece.strip() and (line := line_from_bytes(piece)) is not None]
