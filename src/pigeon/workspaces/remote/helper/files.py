"""Files, as the helper reaches them: whole replacements, facts about paths, and places that no link can change."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]

FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
NO_SWAP = (errno.EPERM, errno.EACCES, errno.ENOENT, errno.EBUSY, errno.EXDEV, errno.EOPNOTSUPP)
NO_TEMPORARY = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS)


class Refused(OSError):
    """A request that cannot be done; `code` tells Pigeon which kind of failure it is."""

    def __init__(self, text: str, code: str, number: int = errno.EINVAL) -> None:
        OSError.__init__(self, number, text)
        self.code = code


def encode_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_bytes(text: str) -> bytes:
    return base64.b64decode(text)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Held:
    """A file or folder, reached from the descriptor of its folder, or of the nearest folder that exists.

    A path that Pigeon has resolved before is walked from `/` without following a link, so that it leads to that place
    or nowhere; the links of another are followed once.
    """

    def __init__(self, path: bytes, is_resolved: bool) -> None:
        self.rest = [name for name in (path if is_resolved else os.path.realpath(path)).split(b"/") if name]
        self.place = b"/" + b"/".join(self.rest)
        if b".." in self.rest or b"." in self.rest:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.folder = os.open(b"/", FOLDER)
        try:
            self._walk()
        except BaseException:
            self.close()
            raise

    def _walk(self) -> None:
        while self.rest:
            try:
                below = os.open(self.rest[0], FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)
            except OSError as error:
                is_last = len(self.rest) == 1
                if error.errno == errno.ENOENT or (is_last and error.errno not in NO_ROOM):
                    return
                raise
            os.close(self.folder)
            self.folder = below
            del self.rest[0]

    @property
    def name(self) -> bytes:
        return self.rest[-1] if self.rest else b"."

    def open(self, flags: int) -> int:
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.open_folder(False))

    def stat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.open_folder(False), follow_symlinks=False)

    def open_folder(self, make: bool) -> int:
        if make and len(self.place) >= 4096:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        while len(self.rest) > 1:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self.rest[0], dir_fd=self.folder)
            below = os.open(self.rest[0], FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)
            os.close(self.folder)
            self.folder = below
            del self.rest[0]
        return self.folder

    def close(self) -> None:
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1


def kind_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def describe_stat(found: os.stat_result, place: bytes, target: bytes | None = None) -> Record:
    several = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
    return {
        "kind": kind_of(found.st_mode),
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "mtimeMs": found.st_mtime_ns // 1000000,
        "version": version_of(found),
        "place": encode_bytes(place),
        "target": None if target is None else encode_bytes(target),
        "identity": f"{found.st_dev}:{found.st_ino}" if several else "",
    }


def describe_missing(place: bytes) -> Record:
    return {"kind": "missing", "version": "missing", "place": encode_bytes(place)}


def describe_path(path: bytes, follow: bool) -> Record:
    # The place of a link is its own name in its real folder.
    place = os.path.realpath(path)
    try:
        found = os.stat(path, follow_symlinks=follow)
        target = os.readlink(path) if stat.S_ISLNK(found.st_mode) else None
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return describe_missing(place)
    return describe_stat(found, place, target)


def describe_held(path: bytes) -> Record:
    """The same for a path without links: if there is one on the way by now, the system says so."""
    held = Held(path, True)
    try:
        found = held.stat()
    except FileNotFoundError:
        return describe_missing(held.place)
    finally:
        held.close()
    return describe_stat(found, held.place)


def describe_entry(folder: int, place: bytes, name: bytes) -> Record | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(found.st_mode) else None
    except OSError:
        return None
    path = os.path.join(place, name)
    record = describe_stat(found, path if target is None else os.path.realpath(path), target)
    return dict(record, name=encode_bytes(name), leadsTo=record["kind"] if target is None else find_kind(folder, name))


def find_kind(folder: int, name: bytes) -> str:
    """The kind of what a name leads to, links followed."""
    try:
        return kind_of(os.stat(name, dir_fd=folder).st_mode)
    except OSError:
        return "missing"


def list_entries(held: Held) -> list[Record]:
    folder = held.open(os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    try:
        names = map(os.fsencode, os.listdir(folder))
        return [entry for entry in (describe_entry(folder, held.place, name) for name in names) if entry is not None]
    finally:
        os.close(folder)


def version_of(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def check_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        kinds = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a link"))
        raise Refused(next((name for is_kind, name in kinds if is_kind(mode)), "a device"), "not-regular")


def open_regular(held: Held) -> int:
    descriptor = held.open(os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        check_regular(os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def replace_file(held: Held, data: bytes, mode: int | None, expected: str | None) -> str:
    """Replace the content of a file, as a whole or not at all; returns its new version.

    `expected` is the version that it must still have, or `missing`.
    """
    if not held.rest:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    folder = held.open_folder(True)
    try:
        before: os.stat_result | None = held.stat()
    except FileNotFoundError:
        before = None
    check_expected(before, expected)
    if before is not None:
        check_regular(before.st_mode)
        if before.st_nlink > 1 or not os.access(held.name, os.W_OK, dir_fd=folder):
            return overwrite(held, data)
    try:
        return swap_in(held, folder, data, mode, before)
    except OSError as error:
        if before is None or error.errno not in NO_SWAP:
            raise
        return overwrite(held, data)


def check_expected(before: os.stat_result | None, expected: str | None) -> None:
    if expected is not None and expected != ("missing" if before is None else version_of(before)):
        raise Refused("the file was changed by someone else", "changed")


def swap_in(held: Held, folder: int, data: bytes, mode: int | None, before: os.stat_result | None) -> str:
    """Put a new file in the place of the old one. Where the system can, the new one has no name until it is whole."""
    name = b"." + held.name[:100] + b"." + os.urandom(6).hex().encode() + b".tmp"
    created = 0o666 if mode is None else mode
    descriptor, nameless = open_new(folder, name, created)
    named = not nameless
    try:
        write_all(descriptor, data)
        if before is not None:
            now = os.fstat(descriptor)
            if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
                os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(before.st_mode) if mode is None else mode)
        if nameless:
            if before is None and give_name(descriptor, folder, held.name):
                return version_of(os.fstat(descriptor))
            if not give_name(descriptor, folder, name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            named = True
        os.replace(name, held.name, src_dir_fd=folder, dst_dir_fd=folder)
        named = False
        return version_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
        if named:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def open_new(folder: int, name: bytes, mode: int) -> tuple[int, bool]:
    """A new file in a folder, and whether it has no name yet."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        try:
            return os.open(b".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=folder), True
        except OSError as error:
            if error.errno not in NO_TEMPORARY:
                raise
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder), False


def give_name(descriptor: int, folder: int, name: bytes) -> bool:
    try:
        os.link(f"/proc/self/fd/{descriptor}".encode(), name, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


def overwrite(held: Held, data: bytes) -> str:
    """Write a file in place: space is reserved first, and what was overwritten is put back after a failure."""
    try:
        descriptor, readable = held.open(os.O_RDWR), True
    except PermissionError:
        descriptor, readable = held.open(os.O_WRONLY), False
    try:
        size = os.fstat(descriptor).st_size
        old = read_at(descriptor, min(size, len(data))) if readable else None
        try:
            reserve_space(descriptor, len(data))
            write_at(descriptor, data)
            os.ftruncate(descriptor, len(data))
        except OSError as error:
            note = restore(descriptor, old, size)
            raise Refused(os.strerror(error.errno or 0) + note, "damaged", error.errno or 0) from None
        return version_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def reserve_space(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate") and size > os.fstat(descriptor).st_blocks * 512:
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise


def restore(descriptor: int, old: bytes | None, size: int) -> str:
    try:
        if old is not None:
            write_at(descriptor, old)
        os.ftruncate(descriptor, size)
    except OSError:
        return ". The file is damaged: its old content could not be restored."
    if old is None:
        return ". The file could not be read before, so its old content may be lost."
    return ". The file still has its old content."


def read_at(descriptor: int, size: int) -> bytes:
    parts, at = [], 0
    while at < size:
        part = os.pread(descriptor, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def write_at(descriptor: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.pwrite(descriptor, data[at : at + (1 << 20)], at)
