"""edit: replacements of exact text, several at once, everything else left as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from pigeon.system.files import error_code, finished_in_thread, read_whole, replace_file, turn_on
from pigeon.tools.base import BaseTool, Running, text_outcome
from pigeon.tools.diff import Difference, difference
from pigeon.tools.matching import Span, Text, look_alike, plain_newlines, shared_lines
from pigeon.tools.paths import resolved
from pigeon.tools.write import encoded
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

BIGGEST_FILE = 64 << 20
_BOM = "\ufeff"
_LINE_END = re.compile("\r\n|\r|\n")


class EditTool(BaseTool):
    """Each old text must stand in the file exactly once; all are found before any is replaced."""

    name = "edit"
    label = "edit"
    description = (
        "Change a file by replacing text. Every oldText must occur exactly once in the file as it is now, whitespace "
        "included, and no two may overlap. Put all changes of one file into one call."
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
                        "newText": {"type": "string", "description": "What stands there afterwards"},
                    },
                    "required": ["oldText", "newText"],
                },
            },
        },
        "required": ["path", "edits"],
    }
    snippet = "Change files by exact text replacement"
    guidelines = (
        "Make several separate changes of one file with one edit call and several entries in edits.",
        "Keep oldText as short as it can be while it occurs only once.",
    )

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Accept edits as JSON text or as one object, and one edit given by oldText and newText at the top."""
        prepared = dict(arguments)
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

    async def execute(self, arguments: dict[str, Json], run: Running) -> ToolOutcome:
        """Replace; nothing is written unless every edit fits."""
        path = str(arguments["path"])
        target = resolved(path, self._cwd)
        edits: list[dict[str, Any]] = arguments["edits"]
        async with turn_on(target):
            run.scope.check()
            try:
                data = await finished_in_thread(lambda: read_whole(target, BIGGEST_FILE))
                run.scope.check()
                edited, changes = await finished_in_thread(lambda: edited_file(data, edits, path))
                run.scope.check()
                await finished_in_thread(lambda: replace_file(target, edited))
            except OSError as error:
                raise ToolFailed(f"Could not edit file: {path}. Error code: {error_code(error)}.") from error
            run.scope.check()
        details: dict[str, Json] = {"diff": changes.listing, "patch": changes.patch}
        if changes.first_changed_line is not None:
            details["firstChangedLine"] = changes.first_changed_line
        return text_outcome(f"Successfully replaced {len(edits)} block(s) in {path}.", details)


@dataclass(frozen=True)
class _Replacement:
    match: Span
    span: Span
    text: str
    index: int


def edited_file(data: bytes, edits: list[dict[str, Any]], path: str) -> tuple[bytes, Difference]:
    """The bytes after all edits, and how they differ; bytes that no edit names are the same, valid UTF-8 or not."""
    whole = data.decode("utf-8", "surrogateescape")
    mark = _BOM if whole.startswith(_BOM) else ""
    text = Text(whole[len(mark) :])
    finder = _Finder(text, path, len(edits))
    found = sorted(
        (finder.found(index, str(edit["oldText"]), str(edit["newText"])) for index, edit in enumerate(edits)),
        key=lambda replacement: replacement.match.start,
    )
    for first, second in pairwise(found):
        if second.match.start < first.match.end:
            raise ToolFailed(
                f"edits[{first.index}] and edits[{second.index}] overlap in {path}. "
                "Merge them into one edit or choose texts that lie apart."
            )
    parts: list[str] = []
    at = 0
    for replacement in found:
        parts += (text.original[at : replacement.span.start], replacement.text)
        at = replacement.span.end
    result = "".join([*parts, text.original[at:]])
    if result == text.original:
        raise ToolFailed(
            f"No changes made to {path}. The replacement produces identical content; the text may already be as wanted."
        )
    changes = difference(_readable(text.plain), _readable(plain_newlines(result)), path)
    return (mark + result).encode("utf-8", "surrogateescape"), changes


class _Finder:
    """Finds the one place of each edit, or says why there is none."""

    def __init__(self, text: Text, path: str, count: int) -> None:
        self._text = text
        self._path = path
        self._several = count > 1

    def found(self, index: int, old: str, new: str) -> _Replacement:
        """Where the edit goes and what it puts there."""
        old, new = plain_newlines(_whole(old)), plain_newlines(_whole(new))
        what = f"edits[{index}].oldText" if self._several else "oldText"
        if not old:
            raise ToolFailed(f"{what} must not be empty in {self._path}. To fill an empty file use write.")
        start, end = shared_lines(old, new)
        changed = new[start : len(new) - end]
        places = self._text.exact(old)
        if places:
            self._must_be_one(places, what)
            at, size = places[0], len(old)
            match = self._text.exact_span(at, at + size)
            return self._replacement(index, match, self._text.exact_span(at + start, at + size - end), changed)
        places, simplified = self._text.fuzzy(old)
        if not places:
            raise ToolFailed(self._missing(what))
        self._must_be_one(places, what)
        at, size = places[0], len(simplified)
        match = self._text.fuzzy_span(at, at + size)
        start, end = len(look_alike(old[:start])), len(look_alike(old[len(old) - end :]) if end else "")
        return self._replacement(index, match, self._text.fuzzy_span(at + start, at + size - end), changed)

    def _replacement(self, index: int, match: Span, span: Span, changed: str) -> _Replacement:
        ending = self._line_end(match)
        text = span.before + changed + span.after
        return _Replacement(match, span, text if ending == "\n" else text.replace("\n", ending), index)

    def _line_end(self, match: Span) -> str:
        """How lines end there: within the match, else behind it, else anywhere in the file."""
        original = self._text.original
        if "\r" not in original:
            return "\n"
        ends = _LINE_END.search(original, match.start) or _LINE_END.search(original)
        return ends.group() if ends else "\n"

    def _must_be_one(self, places: list[int], what: str) -> None:
        if len(places) > 1:
            raise ToolFailed(
                f"Found {len(places)} occurrences of {what} in {self._path}. "
                "The text must be unique: add lines around it until it is."
            )

    def _missing(self, what: str) -> str:
        if self._several:
            return (
                f"Could not find {what} in {self._path}. "
                "The old text must match exactly including all whitespace and newlines."
            )
        return (
            f"Could not find the exact text in {self._path}. "
            "The old text must match exactly including all whitespace and newlines."
        )


def _whole(text: str) -> str:
    """Text without half surrogate pairs, which no file can hold."""
    return encoded(text).decode()


def _readable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
