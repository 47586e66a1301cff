"""Reading a session file: any file that pi wrote, whatever its version, whatever a crash left of its last line."""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from pigeon.session.history.entry_line import Kept, kept_from_line
from pigeon.session.history.migration import migrated
from pigeon.wire import codec
from pigeon.wire.entries import SESSION_VERSION
from pigeon.wire.errors import BadRecord, Refusal

BEGINNING = b'{"type":"session"'
LONGEST_HEADER = 1024 * 1024


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


def header_in(path: str) -> dict[str, Any] | None:
    """The header of a session file, none if the file is missing or was never begun; raises for anything else."""
    beginning = _read(path, LONGEST_HEADER)
    if beginning is None or is_unfinished(beginning):
        return None
    return _header(beginning.lstrip().split(b"\n", 1)[0], path)


def load_session(path: str) -> Loaded | None:
    """The session in this file, none if the file is missing or was never begun; raises for anything else."""
    raw = _read(path)
    if raw is None or is_unfinished(raw):
        return None
    header_line, *pieces = raw.lstrip().split(b"\n")
    header = _header(header_line, path)
    with _uncollected():
        lines = [line for piece in pieces if piece and (line := kept_from_line(piece)) is not None]
    rewritten = header.get("version", 1) < SESSION_VERSION
    if rewritten:
        header, lines = migrated(header, lines)
        header_line = codec.encode(header)
    return Loaded(header, header_line, lines, not raw.endswith(b"\n"), rewritten)


def is_unfinished(raw: bytes) -> bool:
    """True for a file that nothing was ever told about: it is empty, or its first line was cut off."""
    if not raw.strip():
        return True
    if b"\n" in raw or not (raw.startswith(BEGINNING) or BEGINNING.startswith(raw)):
        return False
    try:
        codec.decode(raw)
    except BadRecord:
        return True
    return False


def _read(path: str, most: int = -1) -> bytes | None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refusal(f"Session file cannot be read: {path}: it is not a file")
        with open(path, "rb") as file:
            return file.read(most)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refusal(f"Session file cannot be read: {path}: {error.strerror}") from None


def _header(line: bytes, path: str) -> dict[str, Any]:
    try:
        header = codec.decode(line)
    except BadRecord:
        header = None
    if not isinstance(header, dict) or header.get("type") != "session" or not isinstance(header.get("id"), str):
        raise InvalidSession(os.path.abspath(path))
    version = header.get("version", 1)
    if not isinstance(version, int) or isinstance(version, bool):
        header["version"] = 1
    return header


@contextmanager
def _uncollected() -> Iterator[None]:
    """Tens of thousands of new objects, none of them garbage: looking for some would take longer than the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
