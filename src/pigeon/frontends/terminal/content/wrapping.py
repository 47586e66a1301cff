"""Styled text cut into lines that fit: between words, or anywhere if a line must stay as written.

Widths are counted character by character, which is at least what any terminal uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

# Nothing is indented any more if fewer columns than this are left.
NARROWEST_TEXT = 8


def wrap_words(text: Text, width: int) -> list[Text]:
    """Wrap lines between words; a word that is wider than a line is cut too."""
    return [line for part in text.split("\n", allow_blank=True) for line in _cut_line(part, width, words=True)]


def fold_lines(text: Text, width: int) -> list[Text]:
    """Cut lines where they are full, as code must be: nothing is left out."""
    return [line for part in text.split("\n", allow_blank=True) for line in _cut_line(part, width, words=False)]


def shorten_line(text: Text, width: int, cut: str) -> Text:
    """The beginning of a text in one line; `cut` marks the omission."""
    line = text.split("\n", allow_blank=True)[0] if "\n" in text.plain else text.copy()
    if "\n" not in text.plain and _text_width(line.plain) <= width:
        return line
    kept = 0
    room = width - len(cut)
    for kept, character in enumerate(line.plain):  # noqa: B007 - how far it came is what is wanted
        room -= _text_width(character)
        if room < 0:
            break
    else:
        kept = len(line)
    short = line[:kept]
    short.rstrip()
    return short.append(cut[: max(width, 0)])


def indent_lines(lines: Sequence[Text], first: Text, rest: Text | None = None) -> list[Text]:
    """Put a prefix before the first line and `rest`, or as many spaces, before the others."""
    from rich.text import Text

    others = Text(" " * first.cell_len) if rest is None else rest
    return [join_texts(others if index else first, line) for index, line in enumerate(lines)]


def join_texts(*parts: Text) -> Text:
    from rich.text import Text

    line = Text()
    for part in parts:
        line.append_text(part)
    return line


@lru_cache(4096)
def _cell_width(character: str) -> int:
    from rich.cells import cell_len

    return cell_len(character)


def _text_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cell_width, text))


def _cut_line(line: Text, width: int, words: bool) -> list[Text]:
    """Cut one line into several, at the last space that fits or, without one, where it is full."""
    if _text_width(line.plain) <= width:
        return [line]
    lines = list(line.divide(_break_positions(line.plain, max(width, 2), words)))
    for one in lines if words else ():
        # The space at which a line was cut is at its end.
        one.rstrip()
    return lines


def _break_positions(plain: str, width: int, words: bool) -> list[int]:
    """The positions at which the lines after the first begin; spaces at a cut belong to the line before it."""
    breaks: list[int] = []
    start = used = 0
    after_space = -1
    at = 0
    while at < len(plain):
        size = _cell_width(plain[at])
        if used + size > width and at > start and not (words and plain[at] == " "):
            start = after_space if after_space > start else at
            breaks.append(start)
            used = _text_width(plain[start:at])
            after_space = -1
            # The word may have filled its new line already if this is a wide character.
            continue
        used += size
        at += 1
        if words and plain[at - 1] == " ":
            after_space = at
    return breaks
