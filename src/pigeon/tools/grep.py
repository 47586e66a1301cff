"""grep: lines that match a regular expression."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar

from pigeon.agent.interfaces import PathSubject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.files import NotRegular, error_text
from pigeon.system.held_paths import HeldPath
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
from pigeon.workspaces.records import TIME_BOX, SearchEnd, SearchQuery

if TYPE_CHECKING:
    from pigeon.tools.hits import Hits

DEFAULT_LIMIT = 100
LINE_WIDTH = 500
MOST_CONTEXT = 200
_LOOKED_AT = 1 << 16
_NAMED = 3
_LIMITS = OutputLimits(lines=1 << 40, bytes=MAX_BYTES)


def _title(arguments: dict[str, Json]) -> str:
    path = arguments.get("path")
    return f"Search for {arguments.get('pattern')}{f' in {path}' if path else ''}"


class GrepTool(BaseTool):
    """Searches files below a directory, or one file; what .gitignore names is left out."""

    name = "grep"
    description = (
        "Search file contents for a regular expression or a literal text. Returns path, line number and line. "
        f"Files ignored by .gitignore are left out. At most {DEFAULT_LIMIT} matches or {MAX_BYTES // 1024}KB; long "
        f"lines are cut to {LINE_WIDTH} characters."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "A regular expression, or a text if literal is true"},
            "path": {"type": "string", "description": "A directory or a file (the working directory by default)"},
            "glob": {"type": "string", "description": "Only files that match, for example *.py or src/**/*.ts"},
            "ignoreCase": {"type": "boolean", "description": "Ignore case"},
            "literal": {"type": "boolean", "description": "The pattern is plain text"},
            "context": {"type": "number", "description": "Lines to show before and after each match"},
            "limit": {"type": "number", "description": f"Maximum number of matches ({DEFAULT_LIMIT} by default)"},
        },
        "required": ["pattern"],
    }
    snippet = "Search file contents (respects .gitignore)"
    reads_only = True
    facts = ToolFacts(_title, kind="search", path="path")

    def __init__(self, paths: PathResolver, files: FileAccess | None = None, time_box: float = TIME_BOX) -> None:
        self._paths = paths
        self._files = files or FileAccess()
        self._time_box = time_box

    @classmethod
    def create(cls, parts: ToolParts) -> GrepTool:
        return cls(parts.paths, parts.files)

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        return hold_path_subject(self._paths, str(arguments.get("path") or "."), "search")

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Search; a pattern that ripgrep refuses is an error with its reason."""
        from pigeon.tools.hits import Hits

        for name in ("pattern", "glob"):
            _check_text(name, str(arguments.get(name) or ""))
        held = held_path(run)
        is_binary = not held.is_folder and await self._is_binary_file(run, held)
        conceals = make_concealment_test(run, self._paths)
        folder = held.place if held.is_folder else os.path.dirname(held.place)
        hits = Hits(
            parse_whole_number(arguments, "limit", DEFAULT_LIMIT),
            LINE_WIDTH,
            2 * MAX_BYTES,
            lambda path: not conceals(os.path.join(folder, path)),
        )
        ended = await self._files.search(run, self._make_query(arguments, held), hits.add_until_full)
        if ended.complaint and not hits.lines:
            raise ToolFailed(_shorten_complaint(ended.complaint))
        return _make_outcome(
            hits, [*_stop_remarks(ended, self._time_box), *_make_binary_remarks(held.name if is_binary else None, hits)]
        )

    def _make_query(self, arguments: dict[str, Json], held: HeldPath) -> SearchQuery:
        context = arguments.get("context")
        return SearchQuery(
            "text",
            held,
            str(arguments["pattern"]),
            literal=bool(arguments.get("literal")),
            ignore_case=bool(arguments.get("ignoreCase")),
            glob=str(arguments.get("glob") or ""),
            context=min(MOST_CONTEXT, parse_whole_number(arguments, "context", 1)) if context else 0,
            time_box=self._time_box,
        )

    async def _is_binary_file(self, run: ToolRun, held: HeldPath) -> bool:
        """Whether a file has a NUL byte near its start; raises `ToolFailed` if it cannot be searched."""
        try:
            start = await self._files.read_start(run, held, _LOOKED_AT)
        except FileNotFoundError:
            raise ToolFailed(f"Path not found: {held.place}") from None
        except NotRegular:
            raise ToolFailed(f"Not a regular file: {held.place}") from None
        except OSError as error:
            raise ToolFailed(error_text(error, "open", held.place)) from error
        # Ripgrep recognizes UTF-16 by its byte order mark.
        return b"\0" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff"))


def _check_text(name: str, value: str) -> None:
    if "\0" in value:
        raise ToolFailed(f"Invalid {name}: it contains a NUL character. In a regular expression write \\x00.")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ToolFailed(f"Invalid {name}: it contains half of a surrogate pair.") from None


def _shorten_complaint(complaint: str) -> str:
    """Ripgrep's error text, without its advice to use options that the model cannot pass."""
    reason, _, advice = complaint.removeprefix("rg: ").partition("\n\nConsider enabling ")
    return f"{reason}. Lines are searched one by one." if advice.startswith("multiline") else reason


def _stop_remarks(ended: SearchEnd, time_box: float) -> list[str]:
    if ended.out_of_time:
        return [f"Search stopped after {time_box:g} seconds. Search a smaller directory for all matches"]
    return ["Some files or directories could not be read"] if ended.unread else []


def _make_binary_remarks(binary: str | None, hits: Hits) -> list[str]:
    if binary is not None:
        return [f"{binary} is a binary file and was searched as text"]
    if not hits.stopped_in:
        return []
    names = ", ".join(hits.stopped_in[:_NAMED]) + (", ..." if len(hits.stopped_in) > _NAMED else "")
    return [f"Binary files searched only up to their first NUL byte: {names}. Search one by its path to see all of it"]


def _make_outcome(hits: Hits, remarks: list[str]) -> ToolOutcome:
    notices: list[str] = []
    details: dict[str, Json] = {}
    shown = truncate_to_head("\n".join(hits.lines), _LIMITS)
    if hits.limited:
        notices.append(f"{hits.limit} matches limit reached. Use limit={hits.limit * 2} for more, or refine pattern")
        details["matchLimitReached"] = hits.limit
    if shown.is_truncated:
        notices.append(f"{human_size(MAX_BYTES)} limit reached")
        details["truncation"] = shown.to_record()
    if hits.cut:
        notices.append(f"Some lines truncated to {LINE_WIDTH} chars. Use read tool to see full lines")
        details["linesTruncated"] = True
    notices += remarks
    text = shown.text or "No matches found"
    return make_text_outcome(text + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details or ABSENT)
