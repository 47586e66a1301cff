"""Inputs of earlier chats: one JSON line for each, in a private file.

If the file cannot be read or written, only the history is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from prompt_toolkit.history import History

from pigeon.system import files
from pigeon.system.append_file import make_private_folder
from pigeon.wire.errors import BadRecord

KEPT = 1_000
PRIVATE = 0o600
LONGEST = 100_000


class InputHistory(History):
    """The history in one file; if it has grown long, only the newest lines are kept."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """The stored inputs, newest first."""
        try:
            with open(self._path, "rb") as file:
                lines = file.read().splitlines()
        except OSError:
            return []
        if len(lines) > 2 * KEPT:
            lines = lines[-KEPT:]
            with suppress(OSError):
                files.create_or_replace_file(self._path, b"\n".join(lines) + b"\n", PRIVATE)
        return [text for line in reversed(lines) if (text := _decode_line(line))]

    def store_string(self, string: str) -> None:
        from pigeon.wire import codec

        if len(string) > LONGEST:
            return
        with suppress(OSError):
            make_private_folder(os.path.dirname(self._path))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            try:
                os.write(descriptor, codec.encode(string) + b"\n")
            finally:
                os.close(descriptor)


def _decode_line(line: bytes) -> str:
    from pigeon.wire import codec

    try:
        value = codec.decode(line)
    except BadRecord:
        return ""
    return value if isinstance(value, str) else ""
