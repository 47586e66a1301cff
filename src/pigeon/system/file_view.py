"""How synchronous code looks at the files of a machine: permission rules, context files, skills, trust.

`LOCAL_FILES` asks the disk of this machine. For files elsewhere, `workspaces/fact_table` answers from what it has
fetched before.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from msgspec import Struct

from pigeon.system.files import check_regular, open_regular, read_beginning, read_whole
from pigeon.system.held_paths import HeldPath, OpenedPath, resolve_and_hold

LARGEST_TEXT = 1 << 20


class FolderEntry(Struct, frozen=True):
    """A name in a folder, and whether it leads to a folder."""

    name: str
    is_folder: bool


class FileView:
    """The disk of this machine; a subclass shows another one."""

    is_local = True

    def forget(self) -> None:
        """Forget what was fetched; the disk of this machine is asked each time."""

    def lexists(self, path: str) -> bool:
        return os.path.lexists(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def size_of(self, path: str) -> int:
        """The size of what a path leads to; raises `OSError`."""
        return os.stat(path).st_size

    def identity_of(self, path: str) -> str:
        """What tells a file with several names from others; empty if it has one name or does not exist."""
        with suppress(OSError, ValueError):
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                return f"{found.st_dev}:{found.st_ino}"
        return ""

    def check_regular(self, place: str, path: str) -> None:
        """Raise `OSError` unless there is a regular file at a real path; `path` is its name in the error."""
        check_regular(os.stat(place, follow_symlinks=False).st_mode, path)

    def hold(self, path: str, names: tuple[str, ...] = ()) -> HeldPath:
        """What an absolute path names now; raises `OSError`."""
        return resolve_and_hold(path, names)

    def list_folder(self, path: str) -> list[FolderEntry]:
        """What is in a folder, sorted by name; raises `OSError`."""
        with os.scandir(path) as entries:
            found = [FolderEntry(entry.name, _is_folder(entry)) for entry in entries]
        return sorted(found, key=lambda entry: entry.name)

    def read(self, path: str, at_most: int) -> bytes:
        """All of a regular file; raises `OSError`, `EFBIG` for one that is larger."""
        return read_whole(path, at_most)

    def read_beginning(self, path: str, at_most: int) -> tuple[str, bool]:
        """Up to so many bytes of a text file, and whether there was more; raises `OSError`."""
        return read_beginning(path, at_most)

    def held_size(self, held: HeldPath) -> int:
        """The size of a held file; raises `OSError`."""
        assert isinstance(held, OpenedPath)
        descriptor = open_regular(held)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def read_text(self, path: str, at_most: int = LARGEST_TEXT) -> str:
        """A whole text file of the user; raises `OSError`, also for one that is too large or not a regular file."""
        return self.read(path, at_most).decode("utf-8", "replace").removeprefix("\ufeff")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


LOCAL_FILES = FileView()
