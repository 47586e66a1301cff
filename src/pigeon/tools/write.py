"""write: a file with exactly this content, put in place in one step."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

from pigeon.agent.interfaces import PathSubject, Subject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.files import error_text, file_lock
from pigeon.system.paths import PathResolver
from pigeon.tools.base import BaseTool, ToolParts, held_path, hold_path_subject, make_text_outcome
from pigeon.tools.file_access import FileAccess
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome


class WriteTool(BaseTool):
    """Creates or replaces a file in one step."""

    name = "write"
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
    strict = True
    guidelines = ("Use write for new files and complete rewrites only.",)
    facts = ToolFacts(lambda arguments: f"Write {arguments.get('path')}", kind="edit", path="path")

    def __init__(self, paths: PathResolver, files: FileAccess | None = None) -> None:
        self._paths = paths
        self._files = files or FileAccess()

    @classmethod
    def create(cls, parts: ToolParts) -> WriteTool:
        """The tool for a working directory."""
        return cls(parts.paths, parts.files)

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        """The file, which need not exist."""
        return hold_path_subject(self._paths, str(arguments["path"]), "write")

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> str | None:
        """The lines that would change."""
        from pigeon.tools.editing.diff import compare_texts
        from pigeon.tools.editing.preview import preview_changes

        path, content = str(arguments["path"]), encode_text(str(arguments["content"]))
        return await preview_changes(
            self._files, subject, content, lambda old: compare_texts(_decode_text(old), _decode_text(content), path)
        )

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Write it; a write that has begun is finished even if the run is aborted."""
        held = held_path(run)
        data = encode_text(str(arguments["content"]))
        async with file_lock(held.place):
            run.scope.raise_if_cancelled()
            try:
                await self._files.replace(run, held, data)
            except OSError as error:
                raise ToolFailed(error_text(error, "open", held.place)) from error
            run.scope.raise_if_cancelled()
        return make_text_outcome(f"Successfully wrote to {arguments['path']}")


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def encode_text(text: str) -> bytes:
    """UTF-8; half of a surrogate pair becomes the replacement character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
