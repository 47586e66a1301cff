"""Reads session files: every version that pi wrote, and files whose last line a crash cut off.

Version 1 is a plain list of entries, version 2 has the tree and an old name of a role; both become version 3 in memory,
and the file is rewritten with its next entry.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from operator import attrgetter, eq
from typing import Any

from msgspec import Struct

from pigeon.session.history.entry_line import EntryLine, line_from_bytes
from pigeon.system.files import NotRegular, open_regular
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.entries import SESSION_VERSION
from pigeon.wire.errors import BadRecord, Refusal

_id = attrgetter("id")
_parent_id = attrgetter("parent_id")
OLD_ROLE = "hookMessage"
BEGINNING = b'{"type":"session"'
LONGEST_HEADER = 1024 * 1024
LARGEST = 512 << 20


def migrate_session(header: dict[str, Any], lines: list[EntryLine]) -> tuple[dict[str, Any], list[EntryLine]]:
    """Header and entries as version 3; unchanged parts stay the same byte for byte."""
    upgraded = _chain_entries(lines) if header["version"] < 2 else lines
    return {**header, "version": SESSION_VERSION}, [_rename_old_role(line) for line in upgraded]


def _rename_old_role(line: EntryLine) -> EntryLine:
    if line.type != "message" or line.role != OLD_ROLE:
        return line
    plain = line.to_plain()
    plain["message"]["role"] = "custom"
    return _reencode_line(plain)


def _chain_entries(lines: list[EntryLine]) -> list[EntryLine]:
    """Chain the entries; an index of a kept entry counts the header, so entry n has index n + 1."""
    entries = [line.to_plain() for line in lines]
    used: set[str] = set()
    parent: str | None = None
    for entry in entries:
        entry["id"] = _make_unused_id(used)
        entry["parentId"] = parent
        parent = entry["id"]
    for entry in entries:
        index = entry.pop("firstKeptEntryIndex", None) if entry.get("type") == "compaction" else None
        if isinstance(index, int) and 1 <= index <= len(entries):
            entry["firstKeptEntryId"] = entries[index - 1]["id"]
    return [_reencode_line(entry) for entry in entries]


def _reencode_line(plain: dict[str, Any]) -> EntryLine:
    line = line_from_bytes(codec.encode(plain))
    assert line is not None
    return line


def _make_unused_id(used: set[str]) -> str:
    candidate = RANDOM_IDS.entry_id(used)
    used.add(candidate)
    return candidate


class InvalidSession(Refusal):
    """The file exists and is not a session."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Session file is not a valid pi session: {path}")


class LoadedSession(Struct):
    """A session file in memory, with what a journal needs to know of its entries; may be made in a thread."""

    header: dict[str, Any]
    header_line: bytes
    lines: list[EntryLine]
    needs_newline: bool
    rewritten: bool
    size: int = 0
    """Where the last whole line ends in the file."""
    stamp: tuple[int, ...] | None = None
    """What the file system said of the file before it was read."""
    by_id: dict[str, EntryLine] = {}
    is_line: bool = False
    """True if every entry hangs on the one before it, as in most files: then no path has to be looked for."""

    def __post_init__(self) -> None:
        lines = self.lines
        self.by_id = dict(zip(map(_id, lines), lines, strict=True))
        parents = map(_parent_id, lines[1:])
        self.is_line = bool(lines) and len(self.by_id) == len(lines) and all(map(eq, parents, map(_id, lines)))


def read_header(path: str) -> dict[str, Any] | None:
    """The header of a session file, or None if the file is missing or was never begun; raises for anything else."""
    beginning = _read_file(path, LONGEST_HEADER)
    if beginning is None or has_unfinished_header(beginning):
        return None
    return _parse_header(_first_line_of(beginning), path)


def load_session(path: str) -> LoadedSession | None:
    """The session in this file, or None if the file is missing or was never begun; raises for anything else."""
    stamp = stamp_of(path)
    raw = _read_file(path)
    if raw is None or has_unfinished_header(raw):
        return None
    header_line, *pieces = raw.lstrip().split(b"\n")
    loaded = parse_session(header_line, pieces, path)
    loaded.needs_newline, loaded.size, loaded.stamp = not raw.endswith(b"\n"), raw.rfind(b"\n") + 1, stamp
    return loaded


def parse_session(header_line: bytes, pieces: Sequence[bytes], where: str) -> LoadedSession:
    """The session in these lines; raises `Refusal` that says where it is."""
    header = _parse_header(header_line, where)
    from pigeon.system.garbage import pausing_garbage_collection

    with pausing_garbage_collection():
        lines = [line for piece in pieces if piece and (line := line_from_bytes(piece)) is not None]
    rewritten = is_known_version(header["version"]) and header["version"] < SESSION_VERSION
    if rewritten:
        header, lines = migrate_session(header, lines)
        header_line = codec.encode(header)
    return LoadedSession(header, header_line, lines, needs_newline=False, rewritten=rewritten)


def stamp_of(path: str) -> tuple[int, ...] | None:
    """A value that differs after every change of a file; None if there is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_lines_after(path: str, size: int) -> tuple[list[EntryLine], int]:
    """The entries in complete lines after the first `size` bytes, and where the last of them ends."""
    try:
        with open(open_regular(path), "rb") as file:
            if os.fstat(file.fileno()).st_size <= size:
                return [], size
            file.seek(size)
            raw = file.read()
    except OSError:
        return [], size
    whole = raw[: raw.rfind(b"\n") + 1]
    pieces = whole.split(b"\n")
    return [line for piece in pieces if piece and (line := line_from_bytes(piece)) is not None], size + len(whole)


def has_unfinished_header(raw: bytes) -> bool:
    """True for a file whose session was never reported to a host: it is empty, or its first line is incomplete."""
    if not raw or raw.isspace():
        return True
    if b"\n" in raw or not (raw.startswith(BEGINNING) or BEGINNING.startswith(raw)):
        return False
    try:
        codec.decode(raw)
    except BadRecord:
        return True
    return False


def is_of_session(raw: bytes, header_line: bytes) -> bool:
    """True if the content of a file begins with this header, perhaps formatted by another program."""
    first = _first_line_of(raw)
    if first == header_line:
        return True
    try:
        there, ours = codec.decode(first), codec.decode(header_line)
    except BadRecord:
        return False
    return isinstance(there, dict) and there.get("type") == "session" and there.get("id") == ours["id"]


def _first_line_of(raw: bytes) -> bytes:
    """Found without copying the rest."""
    text = raw.lstrip()
    end = text.find(b"\n")
    return text if end < 0 else text[:end]


def _read_file(path: str, most: int = -1) -> bytes | None:
    try:
        with open(open_regular(path), "rb") as file:
            if most < 0 and os.fstat(file.fileno()).st_size > LARGEST:
                raise OSError(errno.EFBIG, f"it is larger than {LARGEST >> 20} MB")
            return file.read(most)
    except FileNotFoundError:
        return None
    except (NotRegular, IsADirectoryError):
        raise Refusal(f"Session file cannot be read: {path}: it is not a file") from None
    except OSError as error:
        raise Refusal(f"Session file cannot be read: {path}: {error.strerror}") from None


def _parse_header(line: bytes, path: str) -> dict[str, Any]:
    try:
        header = codec.decode(line)
    except BadRecord:
        header = None
    if not isinstance(header, dict) or header.get("type") != "session" or not isinstance(header.get("id"), str):
        raise InvalidSession(path)
    if header.get("version") is None:
        header["version"] = 1
    return header


def is_known_version(version: Json) -> bool:
    """True for a version of the format that can be read and written."""
    return isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= SESSION_VERSION
