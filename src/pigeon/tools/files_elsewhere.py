"""The files of a project on another machine, for completing their names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import islice

from pigeon.system.project_files import FRESH_SECONDS, MOST_FILES, rank_path
from pigeon.tools.find import FindTool
from pigeon.workspaces.records import Match, SearchQuery
from pigeon.workspaces.workspace import Workspace

SECONDS = 5.0


class FilesElsewhere:
    """Lists them when the last list is old. `conceals` fetches a test for real paths that must not be offered."""

    def __init__(
        self,
        workspace: Workspace,
        folder: Callable[[], str],
        conceals: Callable[[str], Awaitable[Callable[[str], bool]]],
    ) -> None:
        self._workspace = workspace
        self._folder = folder
        self._conceals = conceals
        self._loop = asyncio.get_running_loop()
        self._listed: tuple[str, float, list[str]] = ("", float("-inf"), [])

    def find_files(self, wanted: str, most: int) -> list[str]:
        """Paths with the letters in this order, the best first; called in a thread."""
        finding = asyncio.run_coroutine_threadsafe(self._find(wanted, most), self._loop)
        try:
            return finding.result(SECONDS)
        except (TimeoutError, OSError):
            finding.cancel()
            return []

    async def _find(self, wanted: str, most: int) -> list[str]:
        root = self._folder()
        if self._listed[0] != root or time.monotonic() - self._listed[1] > FRESH_SECONDS:
            self._listed = (root, time.monotonic(), await self._list(root))
        paths = self._listed[2]
        ranked = sorted((rank, len(path), path) for path in paths if (rank := rank_path(path, wanted)) is not None)
        conceals = await self._conceals(FindTool.name)
        return list(islice((path for *_, path in ranked if not conceals(f"{root}/{path.rstrip('/')}")), most))

    async def _list(self, root: str) -> list[str]:
        paths: list[str] = []

        def add_until_full(found: list[Match]) -> bool:
            paths.extend(f"{match.path}/" if match.kind == "folder" else match.path for match in found)
            return len(paths) >= MOST_FILES

        await self._workspace.search(SearchQuery("files", root, "*", time_box=SECONDS), add_until_full)
        return paths[:MOST_FILES]
