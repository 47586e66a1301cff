"""find: paths that match a glob."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import ClassVar

from pigeon.agent.interfaces import PathSubject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.paths import PathResolver
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
from pigeon.tools.file_access import FileAccess
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.workspaces.records import TIME_BOX, Match, SearchQuery

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

    def __init__(self, paths: PathResolver, files: FileAccess | None = None, time_box: float = TIME_BOX) -> None:
        self._paths = paths
        self._files = files or FileAccess()
        self._time_box = time_box

    @classmethod
    def create(cls, parts: ToolParts) -> FindTool:
        return cls(parts.paths, parts.files)

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        return hold_path_subject(self._paths, str(arguments.get("path") or "."), "search")

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        folder = held_path(run)
        if not folder.is_folder:
            kind = "Path not found" if await self._files.is_missing(run, folder) else "Not a directory"
            raise ToolFailed(f"{kind}: {folder.place}")
        limit = parse_whole_number(arguments, "limit", DEFAULT_LIMIT)
        conceals, root = make_concealment_test(run, self._paths), folder.place.rstrip("/")
        paths = _Paths(lambda path: conceals(f"{root}/{path}"), limit)
        query = SearchQuery("files", folder, str(arguments["pattern"]), time_box=self._time_box)
        ended = await self._files.search(run, query, paths.add_until_full)
        if ended.complaint and not paths.found:
            raise ToolFailed(ended.complaint.removeprefix("rg: "))
        paths.sort()
        return _make_outcome(paths, limit, self._time_box if ended.out_of_time else None)


class _Paths:
    """Collects what may be shown, up to the limits."""

    def __init__(self, conceals: Callable[[str], bool], limit: int) -> None:
        self._conceals = conceals
        self._limit = limit
        self._size = 0
        self.found: list[str] = []
        self.limited = False

    def add_until_full(self, matches: list[Match]) -> bool:
        for match in matches:
            if self._conceals(match.path):
                continue
            if len(self.found) == self._limit:
                self.limited = True
                return True
            shown = f"{match.path}/" if match.kind == "folder" else match.path
            self.found.append(os.fsencode(shown).decode("utf-8", "replace"))
            self._size += len(shown)
            if self._size > 2 * MAX_BYTES:
                return True
        return False

    def sort(self) -> None:
        """Links and folders without files come last from a search; they are shown among the others."""
        self.found.sort(key=lambda shown: shown.removesuffix("/").split("/"))


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
