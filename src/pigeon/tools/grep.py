"""grep: lines that match, found by ripgrep."""

from __future__ import annotations

import os
from typing import ClassVar

from msgspec import Struct, field

from pigeon.system.truncation import MAX_BYTES, Limits, head_of, human_size
from pigeon.tools.base import BaseTool, Running, text_outcome, whole_number
from pigeon.tools.paths import resolved_for_reading
from pigeon.tools.ripgrep import TIME_BOX, Ended, ripgrep
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

DEFAULT_LIMIT = 100
LINE_WIDTH = 500
MOST_CONTEXT = 200
_LIMITS = Limits(lines=1 << 40, bytes=MAX_BYTES)


class GrepTool(BaseTool):
    """Searches files below a directory, or one file; what .gitignore names is left out."""

    name = "grep"
    label = "grep"
    description = (
        "Search file contents for a regular expression or a literal text. Answers with path, line number and line. "
        f"Files named by .gitignore are left out. At most {DEFAULT_LIMIT} matches or {MAX_BYTES // 1024}KB; long lines "
        f"are cut to {LINE_WIDTH} characters."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "A regular expression, or a text if literal is true"},
            "path": {"type": "string", "description": "A directory or a file (the working directory by default)"},
            "glob": {"type": "string", "description": "Only files that match, for example *.py or src/**/*.ts"},
            "ignoreCase": {"type": "boolean", "description": "Upper and lower case are the same"},
            "literal": {"type": "boolean", "description": "The pattern is plain text"},
            "context": {"type": "number", "description": "Lines to show before and after each match"},
            "limit": {"type": "number", "description": f"The most matches ({DEFAULT_LIMIT} by default)"},
        },
        "required": ["pattern"],
    }
    snippet = "Search file contents (respects .gitignore)"
    reads_only = True

    def __init__(self, cwd: str, time_box: float = TIME_BOX) -> None:
        self._cwd = cwd
        self._time_box = time_box

    async def execute(self, arguments: dict[str, Json], run: Running) -> ToolOutcome:
        """Search; a pattern that ripgrep refuses is an error with its reason."""
        target = resolved_for_reading(str(arguments.get("path") or "."), self._cwd)
        folder, name = _place(target)
        hits = _Hits(whole_number(arguments, "limit", DEFAULT_LIMIT))
        ended = await ripgrep([*_options(arguments), "--", name], folder, run.scope, hits.take, self._time_box)
        if ended.code == 2 and ended.complaint and not hits.lines:
            raise ToolFailed(ended.complaint.removeprefix("rg: "))
        return _outcome(hits, ended, self._time_box)


def _place(target: str) -> tuple[str, str]:
    if os.path.isdir(target):
        return target, "."
    if not os.path.lexists(target):
        raise ToolFailed(f"Path not found: {target}")
    if not os.path.isfile(target):
        raise ToolFailed(f"Not a regular file: {target}")
    folder, name = os.path.split(target)
    return folder, name


def _options(arguments: dict[str, Json]) -> list[str]:
    # Ripgrep shortens long lines itself, so that a file of one huge line cannot fill our memory.
    options = ["--line-number", "--null", "--no-heading", "--with-filename", "--no-context-separator"]
    options += [f"--max-columns={8 * LINE_WIDTH}", "--max-columns-preview", f"--regexp={arguments['pattern']}"]
    if arguments.get("literal"):
        options.append("--fixed-strings")
    if arguments.get("ignoreCase"):
        options.append("--ignore-case")
    if arguments.get("context"):
        options.append(f"--context={min(MOST_CONTEXT, whole_number(arguments, 'context', 1))}")
    if glob := str(arguments.get("glob") or ""):
        # A plain --glob would bring back what .gitignore leaves out; a file type does not.
        by_name = "/" not in glob and not glob.startswith("!")
        options += [f"--type-add=wanted:{glob}", "--type=wanted"] if by_name else [f"--glob={glob}"]
    return options


class _Hits(Struct):
    """Takes ripgrep's records `path NUL number :|- text` until there is enough."""

    limit: int
    lines: list[str] = field(default_factory=list)
    matches: int = 0
    size: int = 0
    cut: bool = False
    limited: bool = False

    def take(self, buffer: bytearray) -> bool:
        while True:
            nul = buffer.find(0)
            end = buffer.find(b"\n", nul)
            if nul < 0 or end < 0:
                return False
            path = bytes(buffer[:nul]).decode("utf-8", "replace").removeprefix("./")
            record = bytes(buffer[nul + 1 : end])
            if self._add(path, record):
                return True
            del buffer[: end + 1]

    def _add(self, path: str, record: bytes) -> bool:
        digits = len(record) - len(record.lstrip(b"0123456789"))
        number, mark = record[:digits].decode(), record[digits : digits + 1].decode()
        text = record[digits + 1 :].decode("utf-8", "replace").rstrip("\r")
        if mark == ":":
            if self.matches == self.limit:
                self.limited = True
                return True
            self.matches += 1
        if len(text) > LINE_WIDTH:
            text = f"{text[:LINE_WIDTH]}... [truncated]"
            self.cut = True
        line = f"{path}{mark}{number}{mark} {text}"
        self.lines.append(line)
        self.size += len(line)
        return self.size > 2 * MAX_BYTES


def _outcome(hits: _Hits, ended: Ended, time_box: float) -> ToolOutcome:
    notices: list[str] = []
    details: dict[str, Json] = {}
    if not hits.lines and not ended.out_of_time:
        return text_outcome("No matches found")
    shown = head_of("\n".join(hits.lines), _LIMITS)
    if hits.limited:
        notices.append(f"{hits.limit} matches limit reached. Use limit={hits.limit * 2} for more, or refine pattern")
        details["matchLimitReached"] = hits.limit
    if shown.truncated:
        notices.append(f"{human_size(MAX_BYTES)} limit reached")
        details["truncation"] = shown.record()
    if hits.cut:
        notices.append(f"Some lines truncated to {LINE_WIDTH} chars. Use read tool to see full lines")
        details["linesTruncated"] = True
    if ended.out_of_time:
        notices.append(f"Search stopped after {time_box:g} seconds. Search a smaller directory for all matches")
    text = shown.text or "No matches found"
    return text_outcome(text + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details or ABSENT)
