"""edit: replacements of exact text, several at once, everything else left as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, ClassVar

from pigeon.agent.interfaces import PathSubject, Subject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.files import NotRegular, error_code, file_lock, notes_of
from pigeon.system.paths import PathResolver
from pigeon.tools.base import BaseTool, ToolParts, held_path, hold_path_subject, make_text_outcome
from pigeon.tools.file_access import FileAccess
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.workspaces.errors import FileHasChanged

BIGGEST_FILE = 64 << 20

# Argument names of models that learned to edit elsewhere.
_OTHER_NAMES = {
    "old_string": "oldText", "new_string": "newText", "old_str": "oldText", "new_str": "newText", "file_path": "path",
}  # fmt: skip


class EditTool(BaseTool):
    """Each old text must occur in the file exactly once; all are found before any is replaced."""

    name = "edit"
    description = (
        "Change a file by replacing text. Every oldText must occur exactly once in the file as it is now, whitespace "
        "included, and no two may overlap. Put all changes to one file into one call."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the working directory or absolute"},
            "edits": {
                "type": "array",
                "minItems": 1,
                "description": "The replacements, each found in the unchanged file",
                "items": {
                    "type": "object",
                    "properties": {
                        "oldText": {"type": "string", "description": "Text that occurs exactly once in the file"},
                        "newText": {"type": "string", "description": "The replacement text"},
                    },
                    "required": ["oldText", "newText"],
                },
            },
        },
        "required": ["path", "edits"],
    }
    snippet = "Change files by exact text replacement"
    strict = True
    guidelines = (
        "Make several separate changes to one file with one edit call and several entries in edits.",
        "Keep oldText as short as it can be while it occurs only once.",
    )
    facts = ToolFacts(
        lambda arguments: f"Edit {arguments.get('path')}",
        kind="edit",
        path="path",
        other_names=("multiedit", "str_replace"),
    )

    def __init__(self, paths: PathResolver, files: FileAccess | None = None) -> None:
        self._paths = paths
        self._files = files or FileAccess()

    @classmethod
    def create(cls, parts: ToolParts) -> EditTool:
        return cls(parts.paths, parts.files)

    def modernize_arguments(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Accept edits as JSON text or as one object, and one edit at the top level, under any of its usual names."""
        prepared = {_OTHER_NAMES.get(name, name): value for name, value in arguments.items()}
        edits = prepared.get("edits")
        if isinstance(edits, str):
            try:
                edits = codec.decode(edits)
            except Exception:
                return prepared
        if isinstance(edits, dict):
            edits = [edits]
        if isinstance(prepared.get("oldText"), str) and isinstance(prepared.get("newText"), str):
            single = {"oldText": prepared.pop("oldText"), "newText": prepared.pop("newText")}
            edits = [*edits, single] if isinstance(edits, list) else [single]
        if edits is not None:
            prepared["edits"] = edits
        return prepared

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        return hold_path_subject(self._paths, str(arguments["path"]), "write")

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> str | None:
        """The lines that would change, or why the edit is impossible."""
        from pigeon.tools.editing.preview import preview_changes
        from pigeon.tools.editing.replacing import edit_content

        path, edits = str(arguments["path"]), arguments["edits"]
        return await preview_changes(
            self._files, subject, codec.encode(edits), lambda old: edit_content(old, edits, path)[1]
        )

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Apply the edits; nothing is written unless every edit fits."""
        from pigeon.tools.editing.replacing import edit_content

        path, held = str(arguments["path"]), held_path(run)
        edits: list[dict[str, Any]] = arguments["edits"]
        async with file_lock(held.place):
            run.scope.raise_if_cancelled()
            try:
                data, version = await self._files.read_for_change(run, held, BIGGEST_FILE)
                edited, changes = await run.scope.wait(asyncio.to_thread(edit_content, data, edits, path))
                run.scope.raise_if_cancelled()
                await self._files.replace(run, held, edited, data, version)
            except (NotRegular, FileHasChanged) as error:
                raise ToolFailed(f"Could not edit file: {path}. {error}") from error
            except OSError as error:
                text = " ".join([f"Could not edit file: {path}. Error code: {error_code(error)}.", *notes_of(error)])
                raise ToolFailed(text) from error
            run.scope.raise_if_cancelled()
        details: dict[str, Json] = {"diff": changes.listing}
        if changes.patch is not None:
            details["patch"] = changes.patch
        if changes.first_changed_line is not None:
            details["firstChangedLine"] = changes.first_changed_line
        return make_text_outcome(f"Successfully replaced {len(edits)} block(s) in {path}.", details)
