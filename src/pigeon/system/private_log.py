"""A file of lines that is written while things happen and that only its owner can read: traces and recordings.

A killed process leaves complete lines, except perhaps the last. A disk failure or a limit only ends the file: the work
continues, and `report` is called once.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from pigeon.wire.errors import StartupError


class PrivateLog:
    """Takes lines from any thread.

    An existing file is replaced, so that nothing of the new one is seen where the old one is open or has another name.
    """

    def __init__(
        self,
        path: str,
        option: str,
        report: Callable[[str], None],
        largest: int | None = None,
        last_line: Callable[[], bytes] = bytes,
    ) -> None:
        """`option` names the option that requested the file; when it exceeds the `largest` size, `last_line` ends it.

        Raises `StartupError` if it cannot be written.
        """
        try:
            self._descriptor = _open_stream(path) if _leads_to_stream(path) else _create_file(path)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StartupError(f"{option} {path}: this is a link. Remove it, or name another file") from None
            raise StartupError(f"{option} {path}: {error.strerror}") from None
        self._name = f"{option} {path}"
        self._report = report
        self._left = largest
        self._last_line = last_line
        self._open = True
        self._closed = False
        self._lock = Lock()

    def write(self, line: bytes) -> None:
        """Add a line, which must not contain a line feed."""
        problem = ""
        with self._lock:
            if not self._open:
                return
            if self._left is not None:
                self._left -= len(line) + 1
                if self._left <= 0:
                    self._open = False
                    line = self._last_line()
            try:
                self._write(line + b"\n")
            except OSError as error:
                self._open = False
                problem = f"{self._name} ends here: {error.strerror}"
        if problem:
            self._report(problem)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._open, self._closed = False, True
                os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        """Writes all of it or nothing, as far as the disk allows."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            if written:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise


def _leads_to_stream(path: str) -> bool:
    """Whether a name or a link leads to something without content to lose, such as `/dev/stderr`."""
    with suppress(OSError):
        return not stat.S_ISREG(os.stat(path).st_mode)
    return False


def _open_stream(path: str) -> int:
    # A pipe without a reader is an error; it is not waited for.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(descriptor, True)
    return descriptor


def _create_file(path: str) -> int:
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        # A link in a project may have been made by a command, and lead to any file of the user.
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        # In a folder that takes no new file, or mounted alone, as in containers.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY):
            raise
        return _empty_file(os.open(path, flags | os.O_NONBLOCK))
    return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)


def _empty_file(descriptor: int) -> int:
    """Take over a file that cannot be replaced; raises `OSError` for one of another user, or with another name."""
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink > 1:
            raise OSError(errno.EPERM, "others may read this file, and it cannot be replaced. Name another file")
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
