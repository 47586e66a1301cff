"""find: paths that match a glob. Ripgrep lists the files; directories and links are added by our own walk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

from pigeon.agent.interfaces import PathSubject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.paths import HeldPath, PathResolver
from pigeon.system.shell.truncation import MAX_BYTES, OutputLimits, human_size, truncate_to_head
from pigeon.tools.base import (
    BaseTool,
    ToolParts,
    held_path,
    hold_path_subject,
    make_concealment_test,
    make_text_outcome,
    parse_whole_number,
)
from pigeon.tools.searching.ripgrep import TIME_BOX, Ripgrep
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

DEFAULT_LIMIT = 1000
_LIMITS = OutputLimits(lines=1 << 40, bytes=MAX_BYTES)


def _title(arguments: dict[str, Json]) -> str:
    path = arguments.get("path")
    return f"Find {arguments.get('pattern')}{f' in {path}' if path else ''}"


class FindTool(BaseTool):
    """Lists files, directories and links, which it does not follow; what .gitignore names is left out."""

    name = "find"
    description = (
        "Find files and directories by a glob pattern. Returns paths relative to the searched directory, "
        "directories with a trailing slash. Files ignored by .gitignore are left out. "
        f"At most {DEFAULT_LIMIT} results or {MAX_BYTES // 1024}KB."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "For example *.py, **/*.json or src/**/*_test.ts"},
            "path": {"type": "string", "description": "The directory to search (the working directory by default)"},
            "limit": {"type": "number", "description": f"Maximum number of results ({DEFAULT_LIMIT} by default)"},
        },
        "required": ["pattern"],
    }
    snippet = "Find files by glob pattern (respects .gitignore)"
    reads_only = True
    facts = ToolFacts(_title, kind="search", path="path", other_names=("glob",))

    def __init__(self, paths: PathResolver, ripgrep: Ripgrep, time_box: float = TIME_BOX) -> None:
        self._paths = paths
        self._ripgrep = ripgrep
        self._time_box = time_box

    @classmethod
    def create(cls, parts: ToolParts) -> FindTool:
        return cls(parts.paths, parts.search)

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        return hold_path_subject(self._paths, str(arguments.get("path") or "."), "search")

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        folder = held_path(run)
        _check_folder(folder)
        limit = parse_whole_number(arguments, "limit", DEFAULT_LIMIT)
        paths = _Paths(
            _make_path_test(str(arguments["pattern"]), folder.place, make_concealment_test(run, self._paths)), limit
        )
        deadline = time.monotonic() + self._time_box
        ended = await self._ripgrep.search(
            ["--files", "--null"], folder, run.scope, paths.consume_until_full, self._time_box
        )
        if ended.code == 2 and ended.complaint and not paths.found:
            raise ToolFailed(ended.complaint.removeprefix("rg: "))

        def must_stop() -> bool:
            return run.scope.cancelled or time.monotonic() > deadline

        if not paths.is_full and not ended.out_of_time:
            await run.scope.wait(asyncio.to_thread(paths.add_unlisted, self._ripgrep, folder, must_stop))
        out_of_time = ended.out_of_time or (not paths.is_full and must_stop())
        return _make_outcome(paths, limit, self._time_box if out_of_time else None)


def _check_folder(held: HeldPath) -> None:
    if not held.is_folder:
        raise ToolFailed(f"{'Not a directory' if os.path.exists(held.place) else 'Path not found'}: {held.place}")


def _make_path_test(pattern: str, folder: str, conceals: Callable[[str], bool]) -> Callable[[str], bool]:
    from pigeon.system.globs import compile_find_glob

    matches = compile_find_glob(pattern)
    root = folder.rstrip("/")
    if pattern.startswith("/"):
        return lambda path: matches(f"{root}/{path}") and not conceals(f"{root}/{path}")
    return lambda path: matches(path) and not conceals(f"{root}/{path}")


class _Paths:
    """Reads the NUL-ended paths of files, and adds each directory the first time something below it appears."""

    def __init__(self, matches: Callable[[str], bool], limit: int) -> None:
        self._matches = matches
        self._limit = limit
        self._folders: set[str] = {""}
        self._size = 0
        self.found: list[str] = []
        self.limited = False

    @property
    def is_full(self) -> bool:
        return self.limited or self._size > 2 * MAX_BYTES

    def consume_until_full(self, buffer: bytearray) -> bool:
        *paths, rest = bytes(buffer).split(b"\0")
        buffer[:] = rest
        for raw in paths:
            path = os.fsdecode(raw).removeprefix("./")
            if self._add_folders_until_full(path.rpartition("/")[0]) or self._add_until_full(path, path):
                return True
        return False

    def add_unlisted(self, ripgrep: Ripgrep, root: HeldPath, stopped: Callable[[], bool]) -> None:
        """Add what ripgrep does not list, and sort everything."""
        for path, is_folder in ripgrep.find_unlisted(root, self._folders, self._matches, stopped):
            if self._add_until_full(path, f"{path}/" if is_folder else path):
                break
        self.found.sort(key=lambda shown: shown.removesuffix("/").split("/"))

    def _add_folders_until_full(self, folder: str) -> bool:
        if folder in self._folders:
            return False
        if self._add_folders_until_full(folder.rpartition("/")[0]):
            return True
        self._folders.add(folder)
        return self._add_until_full(folder, f"{folder}/")

    def _add_until_full(self, path: str, shown: str) -> bool:
        if not self._matches(path):
            return False
        if len(self.found) == self._limit:
            self.limited = True
            return True
        self.found.append(os.fsencode(shown).decode("utf-8", "replace"))
        self._size += len(shown)
        return self.is_full


def _make_outcome(paths: _Paths, limit: int, out_of_time: float | None) -> ToolOutcome:
    notices: list[str] = []
    details: dict[str, Json] = {}
    if not paths.found and out_of_time is None:
        return make_text_outcome("No files found matching pattern")
    shown = truncate_to_head("\n".join(paths.found), _LIMITS)
    if paths.limited:
        notices.append(f"{limit} results limit reached. Use limit={limit * 2} for more, or refine pattern")
        details["resultLimitReached"] = limit
    if shown.is_truncated:
        notices.append(f"{human_size(MAX_BYTES)} limit reached")
        details["truncation"] = shown.to_record()
    if out_of_time is not None:
        notices.append(f"Search stopped after {out_of_time:g} seconds. Search a smaller directory for all results")
    text = shown.text or "No files found matching pattern"
    return make_text_outcome(text + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details or ABSENT)
