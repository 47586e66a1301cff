"""Line-by-line comparison of two texts: a listing for people, and a unified patch for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from pigeon.tools.editing.changed_lines import Change, find_changes
from pigeon.tools.editing.matching import count_shared_start

CONTEXT = 4
LONGEST_LINE = 2000
LONGEST_LISTING = 100_000
LONGEST_PATCH = 1_000_000


class Difference(Struct, frozen=True):
    """The difference for the details of an edit."""

    listing: str
    patch: str | None
    first_changed_line: int | None


def compare_texts(old: str, new: str, path: str, known: Sequence[Change] = ()) -> Difference:
    """Compare; lines end at newlines only. A listing that is too long is cut, a patch that is too long is omitted.

    `known` are stretches of lines outside of which nothing differs.
    """
    before, after = _split_lines(old), _split_lines(new)
    changes = find_changes(before, after, known)
    return Difference(
        listing=_join_within_limit(_list_changed_lines(before, after, changes)),
        patch=_join_or_none_if_too_long(_patch_pieces(before, after, changes, path)),
        first_changed_line=changes[0].new_start + 1 if changes else None,
    )


def _join_within_limit(lines: Iterator[str]) -> str:
    kept: list[str] = []
    size = -1
    for line in lines:
        size += len(line) + 1
        if size > LONGEST_LISTING:
            kept.append(" ... (cut)")
            break
        kept.append(line)
    return "\n".join(kept)


def _join_or_none_if_too_long(parts: Iterator[str]) -> str | None:
    kept: list[str] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > LONGEST_PATCH:
            return None
        kept.append(part)
    return "".join(kept)


def _list_changed_lines(old: list[str], new: list[str], changes: list[Change]) -> Iterator[str]:
    width = len(str(max(len(old), len(new))))
    shown_to = 0
    for index, change in enumerate(changes):
        begin = max(shown_to, change.old_start - CONTEXT)
        if begin > shown_to:
            yield f" {'':>{width}} ..."
        for n in range(begin, change.old_start):
            yield f" {n + 1:>{width}} {_shorten_line(old[n])}"
        for n in range(change.old_start, change.old_end):
            other = n - change.old_start + change.new_start
            yield f"-{n + 1:>{width}} {_shorten_line(old[n], new[other] if other < change.new_end else '')}"
        for n in range(change.new_start, change.new_end):
            other = n - change.new_start + change.old_start
            yield f"+{n + 1:>{width}} {_shorten_line(new[n], old[other] if other < change.old_end else '')}"
        following = changes[index + 1].old_start if index + 1 < len(changes) else len(old)
        shown_to = min(change.old_end + CONTEXT, following)
        for n in range(change.old_end, shown_to):
            yield f" {n + 1:>{width}} {_shorten_line(old[n])}"
    if changes and shown_to < len(old):
        yield f" {'':>{width}} ..."


def _patch_pieces(old: list[str], new: list[str], changes: list[Change], path: str) -> Iterator[str]:
    yield f"--- {path}\n+++ {path}\n"
    yield from hunks_of(old, new, changes)


def hunks_of(
    old: list[str], new: list[str], changes: list[Change], old_first: int = 0, new_first: int = 0
) -> Iterator[str]:
    """The hunks of a unified diff, in pieces. The lists hold lines with their ends, perhaps only parts of files that
    begin at the lines `old_first` and `new_first`, counted from 0."""
    for group in _group_into_hunks(changes):
        begin = max(0, group[0].old_start - CONTEXT)
        end = min(len(old), group[-1].old_end + CONTEXT)
        new_begin = group[0].new_start - (group[0].old_start - begin)
        new_end = group[-1].new_end + (end - group[-1].old_end)
        before = _format_range(begin + old_first, end + old_first)
        yield f"@@ -{before} +{_format_range(new_begin + new_first, new_end + new_first)} @@\n"
        at = begin
        for change in group:
            yield from (_format_patch_line(" ", old[n]) for n in range(at, change.old_start))
            yield from (_format_patch_line("-", old[n]) for n in range(change.old_start, change.old_end))
            yield from (_format_patch_line("+", new[n]) for n in range(change.new_start, change.new_end))
            at = change.old_end
        yield from (_format_patch_line(" ", old[n]) for n in range(at, end))


def _group_into_hunks(changes: list[Change]) -> list[list[Change]]:
    groups: list[list[Change]] = []
    for change in changes:
        if groups and change.old_start - groups[-1][-1].old_end <= 2 * CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _format_range(begin: int, end: int) -> str:
    size = end - begin
    return f"{begin + 1 if size else begin},{size}"


def _format_patch_line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _split_lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _shorten_line(line: str, other: str = "") -> str:
    """A line without its end; for a very long one the part where it begins to differ from the other."""
    text = line.removesuffix("\n")
    if len(text) <= LONGEST_LINE:
        return text
    begin = max(0, count_shared_start(text, other) - LONGEST_LINE // 2)
    end = begin + LONGEST_LINE
    return f"{'[truncated] ...' if begin else ''}{text[begin:end]}{'... [truncated]' if end < len(text) else ''}"
