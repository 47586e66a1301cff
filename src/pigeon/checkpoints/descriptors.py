"""Files below a folder that is held by a descriptor: no link is followed on the way, whatever is planted meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pigeon.checkpoints.records import LARGE, UNREADABLE, FileState

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe in the place of a file must not make us wait.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Signature = tuple[int, int, int, int, int]
MODES = 0o7777


class Content:
    """What stands at a path, and its bytes if they are to be stored."""

    __slots__ = ("data", "signature", "state")

    def __init__(self, state: FileState | None, data: bytes | None = None, signature: Signature | None = None) -> None:
        self.state = state
        self.data = data
        self.signature = signature


def signature_of(info: os.stat_result) -> Signature:
    """What changes when a file does: only the system can set the fourth."""
    return (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)


@contextmanager
def held_folder(root: int, folder: str) -> Iterator[int]:
    """The descriptor of a folder below the root; raises `OSError` if a part of the path is no folder."""
    current = os.open(".", FOLDER, dir_fd=root)
    try:
        for name in folder.split("/") if folder else ():
            below = os.open(name, FOLDER, dir_fd=current)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


def read_path(root: int, path: str, at_most: int) -> Content:
    """What stands at a path now; nothing if a part of the path is missing or no folder."""
    folder, _, name = path.rpartition("/")
    try:
        with held_folder(root, folder) as descriptor:
            return read_name(descriptor, name, at_most)
    except OSError:
        return Content(None)


def read_name(folder: int, name: str, at_most: int) -> Content:
    """What stands under a name of a folder; content above `at_most` bytes is not read."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return Content(None)
    mode = info.st_mode
    if stat.S_ISDIR(mode):
        return Content(FileState("folder", mode & MODES), None, signature_of(info))
    if stat.S_ISLNK(mode):
        with suppress(OSError):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            return Content(FileState("link", 0o777), target, signature_of(info))
        return Content(None)
    if not stat.S_ISREG(mode):
        return Content(FileState("special", mode & MODES, mark=str(stat.S_IFMT(mode))), None, signature_of(info))
    return _read_file(folder, name, at_most, info)


def _read_file(folder: int, name: str, at_most: int, info: os.stat_result) -> Content:
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return Content(None)
    except OSError:
        return Content(_unsaved(info, UNREADABLE), None, signature_of(info))
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return Content(FileState("special", info.st_mode & MODES), None, signature_of(info))
        if info.st_size > at_most:
            return Content(_unsaved(info, LARGE), None, signature_of(info))
        data = os.read(descriptor, info.st_size + 1)
        if len(data) != info.st_size:
            data = _read_growing(descriptor, data, at_most)
            if len(data) > at_most:
                return Content(_unsaved(info, LARGE), None, signature_of(info))
        return Content(FileState("file", info.st_mode & MODES), data, signature_of(info))
    except OSError:
        return Content(_unsaved(info, UNREADABLE), None, signature_of(info))
    finally:
        os.close(descriptor)


def _read_growing(descriptor: int, begun: bytes, at_most: int) -> bytes:
    """The rest of a file that changes while it is read, or that one call does not return as a whole."""
    parts, size = [begun], len(begun)
    while size <= at_most and (part := os.read(descriptor, 1 << 20)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _unsaved(info: os.stat_result, why: str) -> FileState:
    return FileState("file", info.st_mode & MODES, unsaved=why, mark=make_mark(signature_of(info)))


def make_mark(signature: Signature) -> str:
    return ":".join(map(str, signature[1:]))
