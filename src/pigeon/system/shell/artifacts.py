"""Full outputs on disk: numbered files in the session's artifact folder, for their owner only, limited in size."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from msgspec import Struct

from pigeon.system.append_file import make_private_folder

Folder = Callable[[], str | None]


class DiskLimits(Struct, frozen=True):
    """The most bytes of outputs on disk: for one of them, and for all in one folder."""

    file: int = 256 * 1024 * 1024
    folder: int = 2 * 1024 * 1024 * 1024


class FolderUse:
    """The bytes of all outputs in one folder."""

    def __init__(self, used: int) -> None:
        self.used = used

    def add(self, size: int) -> None:
        self.used += size


class Artifact(Struct):
    """An open file that takes an output; a limit or a full disk ends the writing, not the command.

    `size` is the number of bytes written. If not everything was written, `lost` is the reason as a part of a sentence.
    """

    id: str
    path: str
    descriptor: int
    limits: DiskLimits
    usage: FolderUse
    size: int = 0
    lost: str = ""

    @property
    def is_complete(self) -> bool:
        return not self.lost

    def write(self, data: bytes | bytearray) -> None:
        """Append, as far as the limits and the disk allow."""
        room = min(self.limits.file - self.size, self.limits.folder - self.usage.used)
        with memoryview(data) as view:
            at, end = 0, min(len(view), max(0, room))
            while self.is_complete and at < end:
                try:
                    written = os.write(self.descriptor, view[at:end])
                except OSError as error:
                    self.lost = error.strerror or str(error)
                    return
                at += written
                self.size += written
                self.usage.add(written)
            if self.is_complete and end < len(view):
                self.lost = "the limit for outputs on disk is reached"

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Artifacts:
    """Creates the files in the folder that `folder` returns, or, if that is None, in the private folder `temporary`.

    The private folder is also used if the folder is a link.
    """

    def __init__(self, folder: Folder, temporary: str, limits: DiskLimits | None = None) -> None:
        self._folder = folder
        self._limits = limits or DiskLimits()
        self._usage: dict[str, FolderUse] = {}
        self._wanted = temporary
        self._temporary: str | None = None

    def create(self, tool: str) -> Artifact | None:
        """A new file `<n>.<tool>.log`, numbered after the highest existing one; None if the disk refuses."""
        with contextlib.suppress(OSError):
            folder = self._ensure_folder()
            number = 1 + max((_number_in_name(name) for name in os.listdir(folder)), default=-1)
            while True:
                path = os.path.join(folder, f"{number}.{tool}.log")
                with contextlib.suppress(FileExistsError):
                    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                    return Artifact(str(number), path, descriptor, self._limits, self._usage_of(folder))
                number += 1
        return None

    def _usage_of(self, folder: str) -> FolderUse:
        if folder not in self._usage:
            with os.scandir(folder) as entries:
                used = sum(
                    entry.stat(follow_symlinks=False).st_size for entry in entries if _number_in_name(entry.name) >= 0
                )
            self._usage[folder] = FolderUse(used)
        return self._usage[folder]

    def _ensure_folder(self) -> str:
        folder = self._folder()
        # A session may be in a project, and a link beside it may lead anywhere.
        if folder is not None and not os.path.islink(folder):
            make_private_folder(folder)
            return folder
        if self._temporary is None or not os.path.isdir(self._temporary):
            self._temporary = _make_temporary_folder(self._wanted)
        return self._temporary


def _number_in_name(name: str) -> int:
    head = name.partition(".")[0]
    return int(head) if head.isascii() and head.isdigit() and len(head) < 10 else -1


def _make_temporary_folder(wanted: str) -> str:
    import atexit
    import shutil
    import tempfile

    try:
        os.mkdir(wanted, 0o700)
        folder = wanted
    except FileExistsError:
        # Another agent's, which replays the same recording.
        folder = tempfile.mkdtemp(prefix=f"{os.path.basename(wanted)}-", dir=os.path.dirname(wanted))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
