"""Full outputs on disk: numbered files in the session's artifact folder, readable by their owner only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from msgspec import Struct

Folder = Callable[[], str | None]


class Artifact(Struct):
    """An open file that takes an output; a full disk ends the writing, not the command."""

    id: str
    path: str
    descriptor: int
    complete: bool = True

    def write(self, data: bytes | bytearray) -> None:
        """Append, as far as the disk allows."""
        view = memoryview(data)
        while self.complete and view:
            try:
                view = view[os.write(self.descriptor, view) :]
            except OSError:
                self.complete = False

    def close(self) -> None:
        """Nothing more will be written."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Artifacts:
    """Makes the files. `folder` says where they belong now; if nowhere, in a private folder below `temporary`."""

    def __init__(self, folder: Folder, temporary: str) -> None:
        self._folder = folder
        self._root = temporary
        self._temporary: str | None = None

    def create(self, tool: str) -> Artifact | None:
        """A new file `<n>.<tool>.log`, numbered after the highest there is; nothing if the disk refuses."""
        with contextlib.suppress(OSError):
            folder = self._place()
            number = 1 + max((_number(name) for name in os.listdir(folder)), default=-1)
            while True:
                path = os.path.join(folder, f"{number}.{tool}.log")
                with contextlib.suppress(FileExistsError):
                    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                    return Artifact(str(number), path, descriptor)
                number += 1
        return None

    def _place(self) -> str:
        folder = self._folder()
        if folder is not None:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            return folder
        if self._temporary is None or not os.path.isdir(self._temporary):
            self._temporary = _temporary_folder(self._root)
        return self._temporary


def _number(name: str) -> int:
    head = name.partition(".")[0]
    return int(head) if head.isascii() and head.isdigit() and len(head) < 10 else -1


def _temporary_folder(root: str) -> str:
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="pigeon-", dir=root)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
