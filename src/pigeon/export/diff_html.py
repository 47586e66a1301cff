"""Changes of files: side by side where there is room, one below the other where there is not.

Which of the two is decided by the style sheet alone. A stretch of changed lines is a grid in which removed lines have
the left column and added lines the right one; on a narrow screen it has one column, so that they follow each other.
Unchanged lines are there twice, and the second copy is only shown side by side. Numbers of lines are attributes, so
that they are neither copied nor found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from itertools import groupby

from msgspec import Struct

from pigeon.export.escaping import escape_html, to_plain_text

MOST_LINES = 5_000
LONGEST_COMPARED = 400
ALIKE = 0.55
FARTHEST_PAIR = 4
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")
_LISTED = re.compile(r"([ +-]) *(\d{1,9}) ?(.*)", re.DOTALL)


class DiffLine(Struct, frozen=True):
    """One line; `sign` is `+`, `-`, a space, or `@` for omitted lines."""

    sign: str
    text: str
    old: str = ""
    new: str = ""


def lines_of_patch(patch: str) -> list[DiffLine]:
    """The lines of a unified diff of one file; empty if it is not one."""
    lines: list[DiffLine] = []
    old = new = 0
    for text in patch.split("\n"):
        found = _HUNK.match(text)
        if found:
            old, new = int(found[1]), int(found[2])
            if lines or old > 1:
                lines.append(DiffLine("@", ""))
        elif not old and not new:
            continue  # the names of the files
        elif text[:1] in ("+", "-", " "):
            sign = text[0]
            lines.append(DiffLine(sign, text[1:], "" if sign == "+" else str(old), "" if sign == "-" else str(new)))
            old += sign != "+"
            new += sign != "-"
        elif text.startswith("\\"):
            lines.append(DiffLine("@", text[2:]))
    return lines


def lines_of_listing(listing: str) -> list[DiffLine]:
    """The lines of a listing of the edit tool: a sign, the number of the line, and the line."""
    lines = []
    shift = 0
    for text in listing.split("\n"):
        found = _LISTED.fullmatch(text)
        if found is None:
            sign = text[:1] if text[:1] in ("+", "-") else "@"
            lines.append(DiffLine(sign, text[1:] if sign != "@" else text.strip().strip(".").strip()))
            continue
        sign, number, line = found[1], found[2], found[3]
        shift += {"+": 1, "-": -1}.get(sign, 0)
        new = str(int(number) + shift) if sign == " " else number
        lines.append(DiffLine(sign, line, "" if sign == "+" else number, "" if sign == "-" else new))
    return lines


def lines_of_change(old: str, new: str) -> list[DiffLine]:
    """The replaced and the new lines, without those that both begin or end with."""
    before, after = old.split("\n"), new.split("\n")
    start = _common_prefix_length(before, after)
    end = _common_prefix_length(before[start:][::-1], after[start:][::-1])
    gone, come = before[start : len(before) - end], after[start : len(after) - end]
    around = before[max(0, start - 3) : start], before[len(before) - end : len(before) - end + 3]
    return [
        *(DiffLine(" ", line) for line in around[0]),
        *(DiffLine("-", line) for line in gone),
        *(DiffLine("+", line) for line in come),
        *(DiffLine(" ", line) for line in around[1]),
    ]


def diff_html(lines: list[DiffLine], may_spend: Callable[[int], bool] = lambda amount: True) -> str:
    """The change as an element of the page; a very long one is cut, with a note.

    `may_spend` is called with the length of lines before they are compared word by word.
    """
    parts = list(_stretches_html(lines[:MOST_LINES], may_spend))
    if len(lines) > MOST_LINES:
        parts.append(f'<div class="gap">{len(lines) - MOST_LINES:,} more lines</div>')
    return f'<div class="diff">{"".join(parts)}</div>'


def count_changed_lines(lines: Iterable[DiffLine]) -> tuple[int, int]:
    """How many lines were added and how many removed."""
    signs = [line.sign for line in lines]
    return signs.count("+"), signs.count("-")


def _stretches_html(lines: list[DiffLine], may_spend: Callable[[int], bool]) -> Iterator[str]:
    for kind, group in groupby(lines, key=lambda line: {"+": "change", "-": "change"}.get(line.sign, line.sign)):
        if kind == "@":
            for line in group:
                yield f'<div class="gap">{escape_html(line.text) or "⋯"}</div>'
        elif kind == "change":
            yield f'<div class="change">{"".join(_changed_lines_html(list(group), may_spend))}</div>'
        else:
            yield f'<div class="same">{"".join(map(_unchanged_line_html, group))}</div>'


def _unchanged_line_html(line: DiffLine) -> str:
    text = escape_html(line.text)
    return (
        f'<span class="l" data-n="{escape_html(line.old)}" data-new="{escape_html(line.new)}">{text}</span>'
        f'<span class="r" data-n="{escape_html(line.new)}" aria-hidden="true">{text}</span>'
    )


def _changed_lines_html(lines: list[DiffLine], may_spend: Callable[[int], bool]) -> Iterator[str]:
    """Removed lines, then added ones; differing words are marked if a line has a replacement."""
    gone = [line for line in lines if line.sign == "-"]
    come = [line for line in lines if line.sign == "+"]
    old, new = [escape_html(line.text) for line in gone], [escape_html(line.text) for line in come]
    at = 0
    for number, line in enumerate(gone):
        for other in range(at, min(len(come), at + FARTHEST_PAIR)):
            both = len(line.text) + len(come[other].text)
            pair = _mark_differences(line.text, come[other].text) if may_spend(both) else None
            if pair is not None:
                old[number], new[other] = pair
                at = other + 1
                break
    yield from (f'<del data-n="{escape_html(line.old)}">{text}</del>' for line, text in zip(gone, old, strict=True))
    yield from (f'<ins data-n="{escape_html(line.new)}">{text}</ins>' for line, text in zip(come, new, strict=True))


def _mark_differences(old: str, new: str) -> tuple[str, str] | None:
    """Both lines with their differences marked; None if they have too little in common for that to help."""
    if len(old) + len(new) > LONGEST_COMPARED:
        return None
    before, after = _split_words(to_plain_text(old)), _split_words(to_plain_text(new))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.quick_ratio() < ALIKE or matcher.ratio() < ALIKE:
        return None
    marked: tuple[list[str], list[str]] = ([], [])
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        for parts, words in zip(marked, (before[old_from:old_to], after[new_from:new_to]), strict=True):
            text = escape_html("".join(words))
            parts.append(f"<b>{text}</b>" if text and kind != "equal" else text)
    return "".join(marked[0]), "".join(marked[1])


def _split_words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def _common_prefix_length(one: list[str], other: list[str]) -> int:
    """How many items both begin with."""
    count = 0
    for item, opposite in zip(one, other, strict=False):
        if item != opposite:
            break
        count += 1
    return count
