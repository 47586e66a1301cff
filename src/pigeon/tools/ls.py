"""ls: the entries of a directory."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import ClassVar

from pigeon.agent.interfaces import PathSubject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.files import error_text
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

    def __init__(self, paths: PathResolver) -> None:
        self._paths = paths

    @classmethod
    def create(cls, parts: ToolParts) -> LsTool:
        return cls(parts.paths)

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        return hold_path_subject(self._paths, str(arguments.get("path") or "."), "search")

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        limit = parse_whole_number(arguments, "limit", DEFAULT_LIMIT)
        names, more = await run.scope.wait(
            asyncio.to_thread(_list_folder, held_path(run), limit, make_concealment_test(run, self._paths))
        )
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


def _list_folder(held: HeldPath, limit: int, conceals: Callable[[str], bool]) -> tuple[list[str], bool]:
    try:
        folder = held.open(os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
        try:
            names = sorted(os.listdir(folder), key=lambda name: (name.lower(), name))
            return _format_names(
                folder, (name for name in names if not conceals(os.path.join(held.place, name))), limit
            )
        finally:
            os.close(folder)
    except FileNotFoundError:
        raise ToolFailed(f"Path not found: {held.place}") from None
    except NotADirectoryError:
        raise ToolFailed(f"Not a directory: {held.place}") from None
    except OSError as error:
        raise ToolFailed(error_text(error, "scandir", held.place)) from error


def _format_names(folder: int, names: Iterable[str], limit: int) -> tuple[list[str], bool]:
    shown: list[str] = []
    for name in names:
        if len(shown) == limit:
            return shown, True
        with suppress(OSError, ValueError):
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder).st_mode)
            printable = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            shown.append(f"{printable}/" if is_folder else printable)
    return shown, False
