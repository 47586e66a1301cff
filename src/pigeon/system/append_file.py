"""A file that only grows: one write per record, all of it or nothing, locked against a second writer."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress

from pigeon.system.files import sync_folder

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


class FileInUse(OSError):
    """Another process writes this file."""


class AppendFile:
    """Holds the descriptor, and with it the lock: both end with the process."""

    def __init__(self, path: str, fresh: bool) -> None:
        """Open for appending; `fresh` insists on creating the file."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if fresh else 0)
        if fresh:
            make_private_folder(os.path.dirname(path))
        self.path = path
        self._torn = False
        self._folder_unsafe = fresh
        self._descriptor = os.open(path, flags, PRIVATE_FILE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise FileInUse(error.errno, "the file is in use by another process", path) from None
            raise
        with suppress(OSError):
            os.fchmod(self._descriptor, PRIVATE_FILE)
        here = os.fstat(self._descriptor)
        self._identity = (here.st_dev, here.st_ino)

    def append(self, data: bytes) -> None:
        """Write all of it; on failure `OSError` says why, and the file is as it was, or `torn` where that fails too."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:] if written else data)
        except OSError:
            if written:
                self._take_back(written)
            raise

    @property
    def torn(self) -> bool:
        """True while half a line may stand at the end of the file."""
        return self._torn

    def mended(self) -> None:
        """The writer has read what the file holds and goes on from there."""
        self._torn = False

    def clear(self) -> None:
        """Drop what is there: a beginning that was never finished."""
        os.ftruncate(self._descriptor, 0)

    def sync(self) -> None:
        """Wait until the disk has it, and knows it by its name."""
        os.fsync(self._descriptor)
        if self._folder_unsafe:
            sync_folder(os.path.dirname(self.path))
            self._folder_unsafe = False

    def is_gone(self) -> bool:
        """True if the file was deleted or replaced under its name."""
        try:
            there = os.stat(self.path)
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != self._identity

    def close(self) -> None:
        """Let go of file and lock; the lock first, because a sync that is still under way would keep it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def _take_back(self, written: int) -> None:
        try:
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
        except OSError:
            self._torn = True


def make_private_folder(folder: str) -> None:
    """Create a folder, and missing ones above it, that only the user can enter."""
    if folder and not os.path.isdir(folder):
        make_private_folder(os.path.dirname(folder))
        try:
            os.mkdir(folder, PRIVATE_FOLDER)
            os.chmod(folder, PRIVATE_FOLDER)
        except FileExistsError:
            return
