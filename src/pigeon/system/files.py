"""Careful file access: reads with a limit, replacements that are complete or do not happen, and writes in turn.

`replace_file_atomically` puts a new file in the place of another in one step; `replace_file` does that for a file of
the user, keeps its links, mode and owner, and writes in place where a swap is impossible: the file has several names,
or its folder takes no new file. Writing in place promises that a failure leaves the old content: the space is reserved
before the first byte changes, what was overwritten is put back, and if even that fails, the old content is saved
elsewhere and the error names the place. `read_text` and its relatives are for texts that users write: UTF-8 with or
without a mark.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from typing import BinaryIO, TypeVar

from pigeon.system.held_paths import HeldPath, OpenedPath, resolve_and_hold

_T = TypeVar("_T")
_BLOCK = 1 << 20
_LARGEST_TEXT = 1 << 20
_NOT_RESERVED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
# Where the old content of a damaged file is kept: in memory or on another disk than the file, if possible.
SAVING_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_TEXTS = {
    errno.ENOENT: "no such file or directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.EISDIR: "illegal operation on a directory",
    errno.ENOTDIR: "not a directory",
    errno.ENOSPC: "no space left on device",
    errno.EROFS: "read-only file system",
    errno.ELOOP: "too many symbolic links encountered",
    errno.ENAMETOOLONG: "name too long",
    errno.EEXIST: "file already exists",
}
# A folder that takes no new file, a file that is itself a mount point, an owner that cannot be given to a new file.
_NO_SWAP = (errno.EPERM, errno.EACCES, errno.ENOENT, errno.EBUSY, errno.EXDEV, errno.EOPNOTSUPP)
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


class NotRegular(OSError):
    """The path names something that has no content to read or replace."""


def error_code(error: OSError) -> str:
    """The symbolic name of an error's number, such as `ENOENT`."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def error_text(error: OSError, deed: str, path: str) -> str:
    """`ENOENT: no such file or directory, access '/x'`, the form that hosts know."""
    if error.errno is None:
        return str(error)
    reason = _TEXTS.get(error.errno or 0) or (error.strerror or "input/output error").lower()
    return ". ".join([f"{error_code(error)}: {reason}, {deed} '{path}'", *notes_of(error)])


def notes_of(error: OSError) -> list[str]:
    """The notes of a failed write about the old content of the file."""
    return getattr(error, "__notes__", [])


def open_regular(path: str | OpenedPath) -> int:
    """A descriptor for reading; never waits for a writer, and refuses anything but regular files."""
    refuse_foreign_path(path)
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    descriptor = path.open(flags) if isinstance(path, OpenedPath) else os.open(path, flags)
    try:
        check_regular(os.fstat(descriptor).st_mode, str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_foreign_path(path: str) -> None:
    """Raise for a path that was resolved on another machine: here it may be another file."""
    if isinstance(path, HeldPath) and not isinstance(path, OpenedPath):
        raise OSError(errno.EXDEV, f"{path} is not a path of this machine")


def check_regular(mode: int, path: str) -> None:
    """Raise for a directory, a pipe, a socket or a device."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "illegal operation on a directory", path)
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise NotRegular(f"Not a regular file: {path} is {name}")


def refuse_irregular(kind: str, path: str) -> None:
    """The same for a kind of file that another machine has named."""
    if kind == "folder":
        raise IsADirectoryError(errno.EISDIR, "illegal operation on a directory", path)
    if kind in ("other", "link"):
        raise NotRegular(f"Not a regular file: {path}")


def read_whole(path: str | OpenedPath, at_most: int) -> bytes:
    """All bytes of a regular file; `EFBIG` if there are more than `at_most`."""
    with open(open_regular(path), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > at_most:
            raise OSError(errno.EFBIG, "file too large")
        return read_rest(file.fileno(), at_most)


def read_rest(descriptor: int, at_most: int | None = None) -> bytes:
    """All bytes from the descriptor's position on; `EFBIG` if there are more than `at_most`."""
    parts: list[bytes] = []
    size = 0
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
        size += len(part)
        if at_most is not None and size > at_most:
            raise OSError(errno.EFBIG, "file too large")
    return b"".join(parts)


def read_text(path: str | OpenedPath, at_most: int = _LARGEST_TEXT) -> str:
    """A whole text file of the user; raises `OSError`, also for one that is too large or not a regular file."""
    return _decode_text(read_whole(path, at_most))


def read_beginning(path: str | OpenedPath, at_most: int) -> tuple[str, bool]:
    """Up to so many bytes of a text file, and whether there was more."""
    with open(open_regular(path), "rb") as file:
        data = file.read(at_most + 1)
    cut = len(data) > at_most
    text = _decode_text(data[:at_most])
    return (text.rstrip("\ufffd") if cut else text), cut


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def replace_file(path: str | OpenedPath, data: bytes, mode: int | None = None) -> None:
    """Replace the content of a user's file; links, mode and owner stay, and folders are created.

    A file with several names, or in a folder where nothing can be created, is overwritten in place instead.
    """
    refuse_foreign_path(path)
    if not isinstance(path, OpenedPath):
        with resolve_and_hold(path) as held:
            replace_file(held, data, mode)
        return
    if path.is_folder:
        check_regular(stat.S_IFDIR, path.place)
    folder = path.open_folder(make=True)
    try:
        before: os.stat_result | None = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        before = None
    if before is not None:
        check_regular(before.st_mode, path.place)
        if before.st_nlink > 1 or not os.access(path.name, os.W_OK, dir_fd=folder):
            _overwrite(path, data)
            return
    try:
        _write_and_rename(path.name, data, mode, before, folder=folder)
    except OSError as error:
        if before is None or error.errno not in _NO_SWAP:
            raise
        _overwrite(path, data)


def create_or_replace_file(path: str, data: bytes | Iterable[bytes], mode: int) -> None:
    """Create a file in an existing folder, replacing a regular file of that name.

    Data may be an iterable of pieces, which are written as they come; if it raises an error, nothing has changed.

    A link at that name is refused, one that is planted meanwhile is replaced and not followed, and other names (hard
    links) of the older file keep its content. Mode and owner of the older file are not kept: it may have been planted
    so that others can read the new one.
    """
    folder, name = os.path.split(path)
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            check_regular(os.stat(name or ".", dir_fd=descriptor, follow_symlinks=False).st_mode, path)
        _write_and_rename(name, data, mode, folder=descriptor)
    finally:
        os.close(descriptor)


def create_private_file(path: str) -> BinaryIO:
    """A new, empty file that only its owner can read, in the place of a file or link of that name."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def write_new_private_file(path: str, data: bytes) -> None:
    """Write a file that only its owner can read; raises `FileExistsError` if there is one."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


def replace_file_atomically(path: str, data: bytes, mode: int) -> None:
    """Replace one file by another in one step, and wait until the disk has it; never writes in place."""
    _write_and_rename(path, data, mode, durable=True)
    with contextlib.suppress(OSError):
        sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_and_rename(
    target: str,
    data: bytes | Iterable[bytes],
    mode: int | None,
    before: os.stat_result | None = None,
    durable: bool = False,
    folder: int | None = None,
) -> None:
    """Swap in a file at `target`, which is relative to `folder` if that is given."""
    above, name = os.path.split(target)
    # File systems count the bytes of a name, not its characters.
    start = os.fsencode(name)[:100].decode("utf-8", "ignore")
    temporary = os.path.join(above, f".{start}.{os.urandom(6).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode, dir_fd=folder)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for piece in (data,) if isinstance(data, bytes) else data:
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            if before is not None:
                _keep_owner(file.fileno(), before)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode) if mode is None else mode)
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)


def _overwrite(path: OpenedPath, data: bytes) -> None:
    """Overwrite an existing file; the notes of an `OSError` tell what happened to the old content."""
    descriptor, readable = _open_for_writing(path)
    try:
        size = os.fstat(descriptor).st_size
        old = _read(descriptor, min(size, len(data))) if readable else None
        try:
            _reserve_disk_space(descriptor, len(data))
            _write(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        except BaseException as error:
            error.add_note(_restore_content(descriptor, path.place, old, size))
            raise
    finally:
        os.close(descriptor)


def _open_for_writing(path: OpenedPath) -> tuple[int, bool]:
    try:
        return path.open(os.O_RDWR), True
    except PermissionError:
        return path.open(os.O_WRONLY), False


def _reserve_disk_space(descriptor: int, size: int) -> None:
    """Reserve space for everything before the first byte changes, if the system can do that."""
    reserve = getattr(os, "posix_fallocate", None)
    if reserve is None or size <= os.fstat(descriptor).st_blocks * 512:
        return
    try:
        reserve(descriptor, 0, size)
    except OSError as error:
        if error.errno not in _NOT_RESERVED:
            raise


def _restore_content(descriptor: int, path: str, old: bytes | None, size: int) -> str:
    """Restore the old content, and return what happened to it. Only the overwritten start needs restoring."""
    if old is None:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        return "The file could not be read before, so its old content may be lost."
    try:
        _write(descriptor, old, 0)
        os.ftruncate(descriptor, size)
    except OSError:
        saved = _save_copy(descriptor, path, old, size)
        where = f"its old content is in {saved}" if saved else "its old content could not be saved"
        return f"The file is damaged: {where}."
    return "The file still has its old content."


def _save_copy(descriptor: int, path: str, old: bytes, size: int) -> str | None:
    """The path of a copy of the old content, or None if it cannot be kept anywhere."""
    import tempfile

    for folder in (*SAVING_FOLDERS, os.path.dirname(path)):
        with contextlib.suppress(OSError):
            copy, name = tempfile.mkstemp(prefix="pigeon-saved-", suffix=os.path.splitext(path)[1][:20], dir=folder)
            break
    else:
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


# --- one writer at a time ---------------------------------------------------------------------------------------------


class _Turn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


_turns: dict[str, _Turn] = {}


@contextlib.asynccontextmanager
async def file_lock(place: str) -> AsyncIterator[None]:
    """Hold a file, by its real path, for a read-modify-write; other callers wait in order."""
    turn = _turns.setdefault(place, _Turn())
    turn.users += 1
    try:
        async with turn.lock:
            yield
    finally:
        turn.users -= 1
        if not turn.users:
            del _turns[place]


async def run_in_thread(work: Callable[[], _T]) -> _T:
    """Run blocking work in a thread and wait for its end even when cancelled, so that no later work overlaps it."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            # Cancelled again while waiting: that does not stop the thread.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        raise
