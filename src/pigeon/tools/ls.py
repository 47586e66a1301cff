"""ls: the entries of a directory."""

from __future__ import annotations

import asyncio
import os
from typing import ClassVar

from pigeon.agent.interfaces import ToolRun
from pigeon.system.files import error_text
from pigeon.system.paths import PathResolver
from pigeon.system.shell.truncation import MAX_BYTES, OutputLimits, head_of, human_size
from pigeon.tools.base import BaseTool, text_outcome, whole_number
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

DEFAULT_LIMIT = 500
_LIMITS = OutputLimits(lines=1 << 40, bytes=MAX_BYTES)


class LsTool(BaseTool):
    """Lists names in alphabetical order, case aside, directories with a trailing slash."""

    name = "ls"
    label = "ls"
    description = (
        "List a directory in alphabetical order, dotfiles included, directories with a trailing slash. "
        f"At most {DEFAULT_LIMIT} entries or {MAX_BYTES // 1024}KB."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The directory (the working directory by default)"},
            "limit": {"type": "number", "description": f"The most entries ({DEFAULT_LIMIT} by default)"},
        },
    }
    snippet = "List directories"
    reads_only = True

    def __init__(self, paths: PathResolver) -> None:
        self._paths = paths

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """List it."""
        folder = self._paths.target(str(arguments.get("path") or "."))
        limit = whole_number(arguments, "limit", DEFAULT_LIMIT)
        names, more = await run.scope.wait(asyncio.to_thread(_listed, folder, limit))
        if not names:
            return text_outcome("(empty directory)")
        shown = head_of("\n".join(names), _LIMITS)
        notices: list[str] = []
        details: dict[str, Json] = {}
        if more:
            notices.append(f"{limit} entries limit reached. Use limit={limit * 2} for more")
            details["entryLimitReached"] = limit
        if shown.truncated:
            notices.append(f"{human_size(MAX_BYTES)} limit reached")
            details["truncation"] = shown.record()
        return text_outcome(shown.text + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details or ABSENT)


def _listed(folder: str, limit: int) -> tuple[list[str], bool]:
    try:
        names = sorted(os.listdir(folder), key=lambda name: (name.lower(), name))
    except FileNotFoundError:
        raise ToolFailed(f"Path not found: {folder}") from None
    except NotADirectoryError:
        raise ToolFailed(f"Not a directory: {folder}") from None
    except OSError as error:
        raise ToolFailed(error_text(error, "scandir", folder)) from error
    shown: list[str] = []
    for name in names:
        if len(shown) == limit:
            return shown, True
        path = os.path.join(folder, name)
        if os.path.exists(path):
            printable = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            shown.append(f"{printable}/" if os.path.isdir(path) else printable)
    return shown, False
