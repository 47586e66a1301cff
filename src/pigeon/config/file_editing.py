"""Changing JSON files of the user: settings and the list of tool servers.

A file keeps its other keys, their order and its indentation; one with comments is not written, because they would be
lost. Two changes at the same time do not lose one another.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pigeon.config.json_file import has_comments
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import read_text, replace_file
from pigeon.wire.errors import StartupError

INDENT = 2


def change_file(path: str, change: Callable[[], dict[str, Any]], instead: str) -> None:
    """Write what `change` makes of the file, which it reads, while no other process changes it this way.

    `instead` says how else a file can be changed that cannot be written here. Raises `StartupError`.
    """
    try:
        make_private_folder(os.path.dirname(path))
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StartupError(f"{path} cannot be written: {error.strerror or error}") from None
    try:
        # Where the file system has no locks, two changes at the same moment remain a risk.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        _write_file(path, change(), instead)
    finally:
        os.close(folder)


def _write_file(path: str, raw: dict[str, Any], instead: str) -> None:
    try:
        if os.path.exists(path) and has_comments(path):
            raise StartupError(f"{path} has comments or trailing commas, which would be lost. {instead}")
        replace_file(path, _file_bytes(raw, _detect_indent(path)))
    except OSError as error:
        raise StartupError(f"{path} cannot be written: {error.strerror or error}") from None


def _detect_indent(path: str) -> int | str:
    """As the file is indented by now."""
    try:
        found = re.search(r'^([ \t]+)"', read_text(path), re.MULTILINE)
    except OSError:
        return INDENT
    return found[1] if found else INDENT


def _file_bytes(raw: dict[str, Any], indent: int | str) -> bytes:
    """The file's content. Halves of surrogate pairs are escaped, and then everything that is not ASCII."""
    try:
        return f"{json.dumps(raw, indent=indent, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(raw, indent=indent)}\n".encode()
