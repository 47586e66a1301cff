"""The interface of workspaces: where the files of a conversation are, and where its commands run.

Six operations have to be implemented. The others are made of them, and are overridden where a round trip costs time.
A path may be a `HeldPath`, which is the real path that a decision was about: then no link is followed on the way.
"""

from __future__ import annotations

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from pigeon.system.held_paths import HeldPath
from pigeon.wire.choices import WorkspaceKind
from pigeon.workspaces.line_reading import LineScan, Slice
from pigeon.workspaces.records import (
    CommandEnd,
    Entry,
    FileStat,
    Look,
    Match,
    SearchEnd,
    SearchQuery,
    Seen,
)

BLOCK = 4 << 20
SNIFFED = 64
FirstNames = tuple[list[tuple[str, bool]], bool]
OnFound = Callable[[list[Match]], bool]
OnOutput = Callable[[bytes], Awaitable[None]]


class Workspace(ABC):
    """A folder on some machine, and the commands that run there.

    `name` is the machine as errors name it, `folder` the absolute path there, where relative paths begin, and `home`
    what `~` means. Errors of files are `OSError` with the numbers of the system.
    """

    name: str
    kind: WorkspaceKind = "object"
    folder: str
    home: str = "/"
    url: str | None = None

    async def open(self) -> None:
        """Connect, and check the folder; raises `WorkspaceUnusable`."""
        return

    async def close(self) -> None:
        """End what is running there, and the connection."""
        return

    @abstractmethod
    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """The bytes of a regular file, or some of them."""

    @abstractmethod
    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        """Replace or create a file in one step, with its folders; its mode, owner and other names stay.

        With `unchanged` only if that is still its version, "missing" for no file; else raises `FileHasChanged`.
        """

    @abstractmethod
    async def stat(self, path: str, follow: bool = True) -> FileStat:
        """What is there; of a link, what it leads to, or the link itself."""

    @abstractmethod
    async def list(self, path: str = ".") -> Sequence[Entry]:
        """The names in a folder, in any order; links are not followed."""

    @abstractmethod
    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        """Search below a folder, or in a file, in the order of the paths.

        `on_found` is given what is found as it comes, and returns True when that is enough; without it the end has all.
        """

    @abstractmethod
    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandEnd:
        """Run a command in a shell to its end, with the variables of that machine.

        `on_output` is given its output and errors as they come; without it the end has the last of them. If this call
        is cancelled or the time is up, the command is killed with everything that it has started. Raises
        `WorkspaceLost`.
        """

    # Made of the others

    async def look(self, wanted: Sequence[Look]) -> Sequence[Seen]:
        """What there is at many paths, in one round trip if possible; an error of one path is part of its answer."""
        return await asyncio.gather(*(self._look_at(look) for look in wanted))

    async def read_lines(
        self, path: str, first: int, count: int | None, is_special: Callable[[bytes], bool]
    ) -> Slice | bytes:
        """`count` lines or all from line `first` on; all bytes of a file whose beginning `is_special`."""
        block = await self.read(path, 0, BLOCK)
        if is_special(block[:SNIFFED]):
            return block if len(block) < BLOCK else await self.read(path)
        scan, at = LineScan(first, count), 0
        while block:
            scan.feed(block)
            at += len(block)
            if scan.is_enough(at):
                return scan.make_slice(exact=False)
            if len(block) < BLOCK:
                break
            block = await self.read(path, at, BLOCK)
        return scan.make_slice(exact=True)

    async def list_first(self, path: str, limit: int, is_wanted: Callable[[str], bool]) -> FirstNames:
        """The first wanted names in alphabetical order that lead somewhere, each with whether it is a folder; and
        whether there are more."""
        shown: FirstNames = ([], False)
        for entry in sorted(await self.list(path), key=lambda entry: (entry.name.lower(), entry.name)):
            if not is_wanted(entry.name):
                continue
            if len(shown[0]) == limit:
                return shown[0], True
            if entry.leads_to != "missing":
                shown[0].append((entry.name, entry.leads_to == "folder"))
        return shown

    def path_of(self, path: str) -> str:
        """The absolute path on that machine, relative ones from its folder."""
        if isinstance(path, HeldPath):
            return path.place
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return os.path.normpath(os.path.join(self.folder, path))

    async def _look_at(self, look: Look) -> Seen:
        content = entries = None
        error = 0
        stat = await self._stat_or_missing(look.path, False)
        followed = await self._stat_or_missing(look.path, True) if stat.kind == "link" else stat
        try:
            if look.content and followed.kind == "file":
                content = await self.read(look.path, 0, look.content)
            if look.entries and followed.kind == "folder":
                entries = await self.list(look.path)
        except OSError as failure:
            error = failure.errno or errno.EIO
        return Seen(stat, followed, content, entries, error)

    async def _stat_or_missing(self, path: str, follow: bool) -> FileStat:
        try:
            return await self.stat(path, follow)
        except OSError:
            return FileStat(kind="missing", version="missing", place=self.path_of(path))
