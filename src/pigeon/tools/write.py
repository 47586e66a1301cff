"""write: a file with exactly this content."""

from __future__ import annotations

from typing import ClassVar

from pigeon.system.files import error_text, finished_in_thread, replace_file, turn_on
from pigeon.system.paths import resolved
from pigeon.tools.base import BaseTool, Running, text_outcome
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome


class WriteTool(BaseTool):
    """Creates or replaces a file in one step."""

    name = "write"
    label = "write"
    description = (
        "Write a file: it is created, with its directories, or replaced as a whole. "
        "For a change within a file use edit."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the working directory or absolute"},
            "content": {"type": "string", "description": "All of its content"},
        },
        "required": ["path", "content"],
    }
    snippet = "Create or overwrite files"
    guidelines = ("Use write for new files and complete rewrites only.",)

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd

    async def execute(self, arguments: dict[str, Json], run: Running) -> ToolOutcome:
        """Write it; a write that has begun is finished even if the run is aborted."""
        path = str(arguments["path"])
        target = resolved(path, self._cwd)
        data = encoded(str(arguments["content"]))
        async with turn_on(target):
            run.scope.check()
            try:
                await finished_in_thread(lambda: replace_file(target, data))
            except OSError as error:
                raise ToolFailed(error_text(error, "open", target)) from error
            run.scope.check()
        return text_outcome(f"Successfully wrote to {path}")


def encoded(text: str) -> bytes:
    """UTF-8; half of a surrogate pair becomes the replacement character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
