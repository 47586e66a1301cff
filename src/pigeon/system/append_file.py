"""A file that only grows: one write per record, all of it or nothing, locked against a second writer.

The lock is the system's (`flock`), so it ends with the process that holds it and with nothing else. Programs that do
not ask for it can write all the same, which `has_foreign_changes` finds out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress

from pigeon.system.files import sync_folder

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
_AGREEMENT_TRIES = 10
_AGREEMENT_SECONDS = 60.0
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


class FileInUse(OSError):
    """Another process writes this file."""


class AppendFile:
    """Holds the descriptor, and with it the lock: both end with the process."""

    def __init__(self, path: str, fresh: bool) -> None:
        """Open for appending; `fresh` insists on creating the file.

        Raises `FileInUse`, and `FileNotFoundError` also for a file that was deleted or replaced while it was opened.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if fresh else 0)
        if fresh:
            make_private_folder(os.path.dirname(path))
        self.path = path
        self._torn = False
        self._folder_unsafe = fresh
        self._descriptor = os.open(path, flags, PRIVATE_FILE)
        try:
            _lock_file(self._descriptor, path)
            here = os.fstat(self._descriptor)
            self._identity = (here.st_dev, here.st_ino)
            self._seen = (here.st_size, here.st_mtime_ns)
            if self.is_gone():
                raise FileNotFoundError(errno.ENOENT, "the file was replaced while it was opened", path)
        except OSError:
            os.close(self._descriptor)
            raise
        with suppress(OSError):
            os.fchmod(self._descriptor, PRIVATE_FILE)

    def append(self, data: bytes) -> None:
        """Write all of it. After an `OSError` the file is as before, or `has_torn_line` if restoring failed too."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:] if written else data)
        except OSError:
            if written:
                self._undo_write(written)
            self._remember_size()
            raise
        self._seen = (self._seen[0] + written, os.fstat(self._descriptor).st_mtime_ns)

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._descriptor).st_size == 0

    @property
    def has_foreign_changes(self) -> bool:
        """True if another program has written to the file since this one did or called `accept_content`."""
        here = os.fstat(self._descriptor)
        return (here.st_size, here.st_mtime_ns) != self._seen

    @property
    def has_torn_line(self) -> bool:
        """True if the file may end in an incomplete line."""
        return self._torn

    def accept_content(self) -> None:
        """Accept the current content, after the writer has read it, and append behind it."""
        self._torn = False
        self._remember_size()

    def clear(self) -> None:
        os.ftruncate(self._descriptor, 0)
        self._remember_size()

    def sync(self) -> None:
        """Wait until the disk has the content and the file's name."""
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
        """Release lock and file; the lock first, because a sync in progress would keep it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def remove(self) -> None:
        """Delete the file, unless another has taken its place."""
        with suppress(OSError):
            if not self.is_gone():
                os.unlink(self.path)

    def _remember_size(self) -> None:
        here = os.fstat(self._descriptor)
        self._seen = (here.st_size, here.st_mtime_ns)

    def _undo_write(self, written: int) -> None:
        try:
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
        except OSError:
            self._torn = True


def _lock_file(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            raise FileInUse(error.errno, "the file is in use by another process", path) from None
        said = os.strerror(error.errno or 0)
        raise OSError(error.errno, f"the file system gives no lock that keeps other processes out ({said})") from None


def agree_on_path(link: str, path: str) -> str:
    """Returns the path at which all processes that call this for the same `link` at the same time create a file.

    The first caller decides, and none waits: the link either is created at once or exists and holds the path. The
    process that has created the file removes the link (`remove_agreement_link`); a link left by a killed process does
    not count. Raises `OSError`.
    """
    make_private_folder(os.path.dirname(link))
    for _ in range(_AGREEMENT_TRIES):
        with suppress(FileExistsError):
            os.symlink(path, link)
            return path
        with suppress(FileNotFoundError):
            if time.time() - os.lstat(link).st_mtime < _AGREEMENT_SECONDS:
                return os.readlink(link)
            os.unlink(link)
    raise FileInUse(errno.EBUSY, "other processes create and remove the file again and again", path)


def remove_agreement_link(link: str) -> None:
    """Remove the link: the file exists, so that others find it, or it could not be created."""
    with suppress(FileNotFoundError):
        os.unlink(link)


def is_locked_by_writer(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _lock_file(descriptor, path)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def make_private_folder(folder: str) -> None:
    """Create a folder, and missing parents, that only the user can enter; raises `OSError`."""
    if folder and not os.path.isdir(folder):
        make_private_folder(os.path.dirname(folder))
        try:
            os.mkdir(folder, PRIVATE_FOLDER)
            os.chmod(folder, PRIVATE_FOLDER)
        except FileExistsError:
            # Another process may have created it meanwhile. A file in the way is a different error from an existing
            # folder.
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
