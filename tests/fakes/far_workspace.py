"""A machine that is not here: a folder of the test under a path that this machine does not have.

Whatever opens a path of it without asking the workspace finds nothing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from pigeon.system.held_paths import HeldPath
from pigeon.workspaces.local import LocalWorkspace
from pigeon.workspaces.records import CommandEnd, Entry, FileStat, Look, SearchEnd, SearchQuery, Seen
from pigeon.workspaces.workspace import OnFound, OnOutput, Workspace

ROOT = "/far-away"


class FarWorkspace(Workspace):
    """The folder `root` as `/far-away`; `trips` are the operations that were asked of it."""

    name = "far"

    def __init__(self, root: Path, folder: str = "/far-away/project") -> None:
        self._root = os.path.realpath(root)
        self._real = LocalWorkspace(self._root)
        self.folder = folder
        self.home = f"{ROOT}/home"
        self.trips: list[str] = []

    def find_real_folder(self) -> str:
        return self._root + self.folder.removeprefix(ROOT)

    def _here(self, path: str) -> str:
        place = self.path_of(path)
        here = self._root + place.removeprefix(ROOT) if place.startswith(ROOT) else f"{self._root}/nowhere{place}"
        return HeldPath(here, (here,), os.path.isdir(here)) if isinstance(path, HeldPath) else here

    def _there(self, stat: FileStat) -> FileStat:
        place = stat.place
        inside = place == self._root or place.startswith(f"{self._root}/")
        place = ROOT + place.removeprefix(self._root) if inside else f"/elsewhere{place}"
        return replace(stat, place=place.replace(f"{ROOT}/nowhere", ""))

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        self.trips.append("read")
        return await self._real.read(self._here(path), start, size)

    async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> FileStat:
        self.trips.append("write")
        return self._there(await self._real.write(self._here(path), data, unchanged=unchanged))

    async def stat(self, path: str, follow: bool = True) -> FileStat:
        self.trips.append("stat")
        return self._there(await self._real.stat(self._here(path), follow))

    async def list(self, path: str = ".") -> Sequence[Entry]:
        self.trips.append("list")
        return await self._real.list(self._here(path))

    async def look(self, wanted: Sequence[Look]) -> Sequence[Seen]:
        self.trips.append("look")
        here = [replace(look, path=self._here(look.path)) for look in wanted]
        return [
            replace(seen, stat=self._there(seen.stat), followed=self._there(seen.followed))
            for seen in await self._real.look(here)
        ]

    async def search(self, query: SearchQuery, on_found: OnFound | None = None) -> SearchEnd:
        self.trips.append("search")
        return await self._real.search(replace(query, path=self._here(query.path)), on_found)

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandEnd:
        self.trips.append("run")
        return await self._real.run(
            command, cwd=self._here(cwd or "."), stdin=stdin, timeout=timeout, on_output=on_output
        )
