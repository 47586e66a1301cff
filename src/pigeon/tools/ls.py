"""ls: the entries of a directory."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import ClassVar

from pigeon.agent.interfaces import PathSubject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.files import error_text
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

DEFAULT_LIMIT = 500
_LIMITS = OutputLimits(lines=1 << 40, bytes=MAX_BYTES)


class LsTool(BaseTool):
    """Lists names in alphabetical order, ignoring case, directories with a trailing slash."""

    name = "ls"
    description = (
        "List a directory in alphabetical order, dotfiles included, directories with a trailing slash. "
        f"At most {DEFAULT_LIMIT} entries or {MAX_BYTES // 1024}KB."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The directory (the working directory by default)"},
            "limit": {"type": "number", "description": f"Maximum number of entries ({DEFAULT_LIMIT} by default)"},
        },
    }
    snippet = "List directories"
    reads_only = True
    facts = ToolFacts(lambda arguments: f"List {arguments.get('path') or '.'}", kind="search", path="path")

    def __init__(self, paths: PathResolver, files: FileAccess | None = None) -> None:
        self._paths = paths
        self._files = files or FileAccess()

    @classmethod
    def create(cls, parts: ToolParts) -> LsTool:
        return cls(parts.paths, parts.files)

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        return hold_path_subject(self._paths, str(arguments.get("path") or "."), "search")

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        limit = parse_whole_number(arguments, "limit", DEFAULT_LIMIT)
        held, conceals = held_path(run), make_concealment_test(run, self._paths)
        try:
            found, more = await self._files.list_first(
                run, held, limit, lambda name: not conceals(os.path.join(held.place, name))
            )
        except FileNotFoundError:
            raise ToolFailed(f"Path not found: {held.place}") from None
        except NotADirectoryError:
            raise ToolFailed(f"Not a directory: {held.place}") from None
        except OSError as error:
            raise ToolFailed(error_text(error, "scandir", held.place)) from error
        names = [_format_name(name, is_folder) for name, is_folder in found]
        if not names:
            return make_text_outcome("(empty directory)")
        shown = truncate_to_head("\n".join(names), _LIMITS)
        notices: list[str] = []
        details: dict[str, Json] = {}
        if more:
            notices.append(f"{limit} entries limit reached. Use limit={limit * 2} for more")
            details["entryLimitReached"] = limit
        if shown.is_truncated:
            notices.append(f"{human_size(MAX_BYTES)} limit reached")
            details["truncation"] = shown.to_record()
        return make_text_outcome(shown.text + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details or ABSENT)


def _format_name(name: str, is_folder: bool) -> str:
    printable = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return f"{printable}/" if is_folder else printable
