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
    """Replace the file by the result of `change`, which reads it, while no other process changes it this way.

    `instead` describes another way to change a file that cannot be written here. Raises `StartupError`.
    """
    try:
        make_private_folder(os.path.dirname(path))
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StartupError(f"{path} cannot be written: {error.strerror or error}") from None
    try:
        # Without locks in the file system, two changes at the same moment remain a risk.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        _write_file(path, change(), instead)
    finally:
        os.close(folder)


def _write_file(path: str, raw: dict[str, Any], instead: str) -> None:
    try:
        if os.path.exists(path) and has_comments(path):
            raise StartupError(f"{path} has comments or trailing commas, which would be lost. {instead}")
        # Headers and variables of tool servers hold keys; the mode of a file that exists is its owner's choice.
        replace_file(path, _file_bytes(raw, _detect_indent(path)), None if os.path.exists(path) else 0o600)
    except OSError as error:
        raise StartupError(f"{path} cannot be written: {error.strerror or error}") from None


def _detect_indent(path: str) -> int | str:
    """The current indentation of the file."""
    try:
        found = re.search(r'^([ \t]+)"', read_text(path), re.MULTILINE)
    except OSError:
        return INDENT
    return found[1] if found else INDENT


def _file_bytes(raw: dict[str, Any], indent: int | str) -> bytes:
    """The file's content. If it contains lone surrogates, all non-ASCII characters are escaped."""
    try:
        return f"{json.dumps(raw, indent=indent, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(raw, indent=indent)}\n".encode()
