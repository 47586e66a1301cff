"""What may stand where a file of the user or of a project is expected: things that block, never end, or are no file."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def _folder(path: Path) -> None:
    path.mkdir()


def _nowhere(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def _circle(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    """Bound by a short relative name: the address of a socket has no room for a long path."""
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


ODD: dict[str, Callable[[Path], None]] = {
    "pipe": _pipe,
    "endless": _endless,
    "huge": _huge,
    "folder": _folder,
    "nowhere": _nowhere,
    "circle": _circle,
    "socket": _socket,
}
