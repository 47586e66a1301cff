"""A file after its edits: bytes outside the edits stay as they are, whatever encoding or line ends they have."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from msgspec import Struct

from pigeon.system.shell.truncation import count_lines
from pigeon.tools.editing.changed_lines import Change
from pigeon.tools.editing.diff import Difference, compare_texts
from pigeon.tools.editing.matching import (
    MOST_OCCURRENCES,
    Span,
    Text,
    count_shared_line_characters,
    normalize_newlines,
    to_look_alike,
)
from pigeon.tools.write import encode_text
from pigeon.wire.errors import ToolFailed

_BOM = "\ufeff"
_LINE_FEED = re.compile("\r?\n")


class _Replacement(Struct, frozen=True):
    match: Span
    span: Span
    text: str
    index: int


def edit_content(data: bytes, edits: list[dict[str, Any]], path: str) -> tuple[bytes, Difference]:
    """The bytes after all edits, and the difference; bytes outside the edits stay the same, valid UTF-8 or not."""
    whole = data.decode("utf-8", "surrogateescape")
    mark = _BOM if whole.startswith(_BOM) else ""
    text = Text(whole[len(mark) :])
    finder = _Finder(text, path, len(edits))
    found = sorted(
        (
            finder.find_replacement(index, str(edit["oldText"]), str(edit["newText"]))
            for index, edit in enumerate(edits)
        ),
        key=lambda replacement: replacement.match.start,
    )
    for first, second in pairwise(found):
        if second.match.start < first.match.end:
            raise ToolFailed(
                f"edits[{first.index}] and edits[{second.index}] overlap in {path}. "
                "Merge them into one edit or choose texts that do not overlap."
            )
    result = _apply_replacements(text.original, found)
    if result == text.original:
        raise ToolFailed(
            f"No changes made to {path}. The replacement produces identical content; it may already be as intended."
        )
    known = _touched_lines(text.original, result, found)
    changes = compare_texts(
        _replace_undecodable(text.plain), _replace_undecodable(normalize_newlines(result)), path, known
    )
    return (mark + result).encode("utf-8", "surrogateescape"), changes


def _apply_replacements(original: str, found: list[_Replacement]) -> str:
    parts: list[str] = []
    at = 0
    for replacement in found:
        parts.append(original[at : replacement.span.start])
        before = next((part for part in reversed(parts) if part), "")
        # After a lone carriage return, a new line feed would become the second half of one line end.
        joins = before.endswith("\r") and replacement.text.startswith("\n")
        parts.append(f"\r{replacement.text}" if joins else replacement.text)
        at = replacement.span.end
    return "".join([*parts, original[at:]])


def _touched_lines(original: str, result: str, found: list[_Replacement]) -> list[Change]:
    """The lines that edits touch, before and after; empty if lone carriage returns make lines ambiguous."""
    if original.count("\r") != original.count("\r\n"):
        return []
    old_lines, new_lines = count_lines(original), count_lines(result)
    stretches: list[Change] = []
    at = first = grown = 0
    for replacement in found:
        span = replacement.span
        first += original.count("\n", at, span.start)
        at = span.start
        old_start, new_start = first, first + grown
        taken = original.count("\n", span.start, span.end)
        grown += replacement.text.count("\n") - taken
        if stretches and old_start <= stretches[-1].old_end:
            last = stretches.pop()
            old_start, new_start = last.old_start, last.new_start
        behind = first + taken + 1
        stretches.append(Change(old_start, min(behind, old_lines), new_start, min(behind + grown, new_lines)))
    return stretches


class _Finder:
    """Finds the one place of each edit, or raises the reason why there is none."""

    def __init__(self, text: Text, path: str, count: int) -> None:
        self._text = text
        self._path = path
        self._several = count > 1

    def find_replacement(self, index: int, old: str, new: str) -> _Replacement:
        """The place of the edit and its replacement."""
        old, new = normalize_newlines(_drop_half_surrogates(old)), normalize_newlines(_drop_half_surrogates(new))
        what = f"edits[{index}].oldText" if self._several else "oldText"
        if not old:
            raise ToolFailed(f"{what} must not be empty in {self._path}. To fill an empty file use write.")
        start, end = count_shared_line_characters(old, new)
        changed = new[start : len(new) - end]
        places = self._text.find_exact(old)
        if places:
            self._require_one(places, what)
            at, size = places[0], len(old)
            match = self._text.exact_span_to_original(at, at + size)
            return self._make_replacement(
                index, match, self._text.exact_span_to_original(at + start, at + size - end), changed
            )
        places, simplified = self._text.find_fuzzy(old)
        if not places:
            raise ToolFailed(self._missing_message(what))
        self._require_one(places, what)
        at, size = places[0], len(simplified)
        match = self._text.fuzzy_span_to_original(at, at + size)
        stays = _last_line(old[start : len(old) - end]) == _last_line(changed)
        start, end = len(to_look_alike(old[:start])), len(to_look_alike(old[len(old) - end :]) if end else "")
        span = self._text.fuzzy_span_to_original(at + start, at + size - end)
        if not stays:
            span = self._text.extend_over_blanks(span)
            match = Span(match.start, max(match.end, span.end), match.before, match.after)
        return self._make_replacement(index, match, span, changed)

    def _make_replacement(self, index: int, match: Span, span: Span, changed: str) -> _Replacement:
        ending = self._detect_line_end(match)
        text = span.before + changed + span.after
        return _Replacement(match, span, text if ending == "\n" else text.replace("\n", ending), index)

    def _detect_line_end(self, match: Span) -> str:
        """The line end in use there: within the match, else after it, else anywhere in the file.

        A lone carriage return only ends lines if nothing else does; otherwise it is part of some program's output.
        """
        original = self._text.original
        if "\r" not in original:
            return "\n"
        ends = _LINE_FEED.search(original, match.start) or _LINE_FEED.search(original)
        return ends.group() if ends else "\r"

    def _require_one(self, places: list[int], what: str) -> None:
        if len(places) > 1:
            number = f"at least {len(places)}" if len(places) == MOST_OCCURRENCES else f"{len(places)}"
            raise ToolFailed(
                f"Found {number} occurrences of {what} in {self._path}. "
                "The text must be unique: add lines around it until it is."
            )

    def _missing_message(self, what: str) -> str:
        if self._several:
            return (
                f"Could not find {what} in {self._path}. "
                "The old text must match exactly including all whitespace and newlines."
            )
        return (
            f"Could not find the exact text in {self._path}. "
            "The old text must match exactly including all whitespace and newlines."
        )


def _last_line(text: str) -> str:
    return text[text.rfind("\n") + 1 :]


def _drop_half_surrogates(text: str) -> str:
    """A text without lone surrogates, which no file can hold."""
    return encode_text(text).decode()


def _replace_undecodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
