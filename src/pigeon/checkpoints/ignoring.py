"""Which names git would ignore: git itself is asked, about names that are new."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress

from pigeon.system.append_file import make_private_folder
from pigeon.system.files import create_private_file, read_whole
from pigeon.system.git import Git, OwnRepository

IGNORE_FILE = ".gitignore"
_BIGGEST = 1 << 20
_AT_ONCE = 200_000


class GitIgnoring:
    """The rules for one folder: those of the project that it belongs to, and the user's list for all projects.

    The files of rules are read, and nothing else of the project's repository.
    """

    def __init__(self, git: Git, repository: str, folder: str, home: str, users_file: str) -> None:
        self._git = git
        self._repository = repository
        self._users_file = users_file
        self.top = _find_top(folder, home)
        self._prefix = "" if self.top == folder else os.path.relpath(folder, self.top) + "/"
        self._excludes = _find_excludes(self.top)
        self._copied: object = None

    def signature(self) -> tuple[str, ...]:
        """What changes when rules outside of the folder do; for a thread."""
        files = [self._excludes, self._users_file]
        parts = self._prefix.split("/")[:-1]
        files += [os.path.join(self.top, *parts[:depth], IGNORE_FILE) for depth in range(len(parts))]
        found = []
        for file in files:
            try:
                info = os.stat(file, follow_symlinks=file == self._users_file)
                found.append(f"{file}:{info.st_mtime_ns}:{info.st_ctime_ns}:{info.st_size}:{info.st_ino}")
            except OSError:
                found.append(file)
        return tuple(found)

    async def find_ignored(self, paths: Sequence[str]) -> set[str]:
        """Those of some paths below the folder that are ignored; raises `GitError`."""
        if not paths:
            return set()
        self._copy_excludes()
        asked = OwnRepository(
            self._git,
            self._repository,
            self.top,
            ("-c", f"core.excludesFile={self._users_file}"),
            self._git.own_settings(),
        )
        ignored: set[str] = set()
        for start in range(0, len(paths), _AT_ONCE):
            group = paths[start : start + _AT_ONCE]
            names = b"".join(os.fsencode(f"./{self._prefix}{path}") + b"\0" for path in group)
            output, _ = await asked.try_run("check-ignore", "-z", "--stdin", stdin=names)
            skipped = 2 + len(os.fsencode(self._prefix))
            ignored.update(os.fsdecode(name[skipped:]) for name in output.split(b"\0")[:-1])
        return ignored

    def _copy_excludes(self) -> None:
        """Git reads this list from the repository that it works for, which is ours."""
        data = b""
        with suppress(OSError):
            if stat.S_ISREG(os.stat(self._excludes, follow_symlinks=False).st_mode):
                data = read_whole(self._excludes, _BIGGEST)
        if data == self._copied:
            return
        make_private_folder(f"{self._repository}/info")
        with create_private_file(f"{self._repository}/info/exclude") as file:
            file.write(data)
        self._copied = data


def _find_top(folder: str, home: str) -> str:
    """The folder whose rules count: that of the project's repository, or the folder itself."""
    place, last = folder, ("/", os.path.realpath(home))
    while place not in last:
        if os.path.lexists(f"{place}/.git"):
            return place
        place = os.path.dirname(place)
    return folder


def _find_excludes(top: str) -> str:
    """The project's list that is not part of it."""
    place = f"{top}/.git"
    with suppress(OSError, ValueError):
        if not os.path.isdir(place):
            place = os.path.join(top, read_whole(place, 4096).decode().removeprefix("gitdir:").strip())
            place = os.path.join(place, read_whole(f"{place}/commondir", 4096).decode().strip())
    return f"{place}/info/exclude"
