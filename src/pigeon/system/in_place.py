"""A file overwritten where it is: for files that cannot be swapped for a new one, because they have several names.

It promises that a failure leaves the old content: the space is reserved before anything is written, what was written
over is put back, and if even that fails, the old content is saved elsewhere and the error says where.
"""

from __future__ import annotations

import contextlib
import errno
import os

_BLOCK = 1 << 20
_NOT_RESERVED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def overwrite(path: str, data: bytes) -> None:
    """Give an existing file this content; the note of an `OSError` tells what became of the old content."""
    descriptor, readable = _opened(path)
    try:
        size = os.fstat(descriptor).st_size
        old = _read(descriptor, min(size, len(data))) if readable else None
        try:
            _reserve(descriptor, len(data))
            _write(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        except BaseException as error:
            error.add_note(_put_back(descriptor, path, old, size))
            raise
    finally:
        os.close(descriptor)


def _opened(path: str) -> tuple[int, bool]:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), True
    except PermissionError:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC), False


def _reserve(descriptor: int, size: int) -> None:
    """Have the disk room for everything before the first byte changes, where the system can do that."""
    reserve = getattr(os, "posix_fallocate", None)
    if reserve is None or size <= os.fstat(descriptor).st_blocks * 512:
        return
    try:
        reserve(descriptor, 0, size)
    except OSError as error:
        if error.errno not in _NOT_RESERVED:
            raise


def _put_back(descriptor: int, path: str, old: bytes | None, size: int) -> str:
    """Undo, and say what became of the old content. Only the start was written over: the rest was never touched."""
    if old is None:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        return "The file could not be read before, so its old content may be lost."
    try:
        _write(descriptor, old, 0)
        os.ftruncate(descriptor, size)
    except OSError:
        saved = _saved(descriptor, path, old, size)
        where = f"its old content is in {saved}" if saved else "its old content could not be saved"
        return f"The file is damaged: {where}."
    return "The file still has its old content."


def _saved(descriptor: int, path: str, old: bytes, size: int) -> str | None:
    import tempfile

    try:
        copy, name = tempfile.mkstemp(prefix="pigeon-saved-", suffix=os.path.splitext(path)[1][:20])
    except OSError:
        return None
    try:
        _write(copy, old, 0)
        at = len(old)
        while at < size and (block := os.pread(descriptor, min(_BLOCK, size - at), at)):
            _write(copy, block, at)
            at += len(block)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        return None
    finally:
        os.close(copy)
    return name


def _read(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < size and (part := os.pread(descriptor, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        at += written
        view = view[written:]
