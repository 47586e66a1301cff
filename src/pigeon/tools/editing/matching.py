"""Where the old text of an edit is: exactly, or up to the differences that models make when they copy text.

All positions refer to the original text, so everything outside the edits keeps its bytes.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable

from msgspec import Struct

FUZZY_AT_MOST = 4 << 20
MOST_OCCURRENCES = 1000
_LOOKALIKES = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"'),
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
    **dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
}
_LINE_ENDS = re.compile("\r\n|\r")
_LAST_BLANKS = re.compile(r"[^\S\r\n]+(?=[\r\n]|\Z)")
_CLUSTER = re.compile(
    ".[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f]*",
    re.DOTALL,
)


class Span(Struct, frozen=True):
    """A stretch of the original text; `before` and `after` are the halves of characters that the match cut."""

    start: int
    end: int
    before: str = ""
    after: str = ""


class Text:
    """A text for matching: with plain newlines, and with every position traceable to the original."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.plain = normalize_newlines(original)
        self._pairs = [match.start() for match in re.finditer("\r\n", original)] if "\r\n" in original else []
        self._shifted = [at - index for index, at in enumerate(self._pairs)]
        self._fuzzy: _Fuzzy | None = None

    def original_position(self, plain: int) -> int:
        """The original position of a position in `plain`."""
        # A pair at plain position p is two characters: everything after p is shifted by one more.
        return plain + bisect_right(self._shifted, plain - 1) if self._pairs else plain

    def find_exact(self, old: str) -> list[int]:
        """The positions of `old` in `plain`; overlapping ones count."""
        return find_occurrences(self.plain, old)

    def find_fuzzy(self, old: str) -> tuple[list[int], str]:
        """The positions of `old` in the look-alike form, and the look-alike form of `old`."""
        simplified = to_look_alike(old)
        if not simplified.strip() or len(self.plain) > FUZZY_AT_MOST:
            return [], simplified
        text = self._ensure_fuzzy().text
        places = find_occurrences(text, simplified)
        if old[-1:].isspace() and not simplified[-1:].isspace():
            # A space at its end was left out of the comparison, but a word must still end there.
            ends = ((at, at + len(simplified)) for at in places)
            places = [at for at, end in ends if not text[end : end + 1].strip()]
        return places, simplified

    def exact_span_to_original(self, start: int, end: int) -> Span:
        return Span(self.original_position(start), self.original_position(end))

    def fuzzy_span_to_original(self, start: int, end: int) -> Span:
        """A stretch of the look-alike form in the original."""
        form = self._ensure_fuzzy()
        first, before = form.start_of_match(start)
        if start == end:
            return Span(self.original_position(first), self.original_position(first), before, "")
        last, after = form.end_of_match(end)
        return Span(self.original_position(first), self.original_position(last), before, after)

    def extend_over_blanks(self, span: Span) -> Span:
        """The stretch with trailing blanks of its last line: the look-alike form has none, so they are part of it."""
        blanks = None if span.after else _LAST_BLANKS.match(self.original, span.end)
        return Span(span.start, blanks.end(), span.before) if blanks else span

    def _ensure_fuzzy(self) -> _Fuzzy:
        if self._fuzzy is None:
            self._fuzzy = _Fuzzy(self.plain)
        return self._fuzzy


class _Fuzzy:
    """The look-alike form, in pieces with known origins."""

    def __init__(self, plain: str) -> None:
        parts: list[str] = []
        self._at: list[int] = []
        self._from: list[tuple[int, int]] = []
        self._size: list[int] = []
        at = here = 0
        for line in plain.split("\n"):
            for piece, begin, end in _look_alike_pieces_of(line):
                self._at.append(at)
                self._from.append((here + begin, here + end))
                self._size.append(len(piece))
                parts.append(piece)
                at += len(piece)
            here += len(line)
            self._at.append(at)
            self._from.append((here, here + 1))
            self._size.append(1)
            parts.append("\n")
            at += 1
            here += 1
        self.text = "".join(parts)[:-1]

    def start_of_match(self, position: int) -> tuple[int, str]:
        """The start of a match, and the part of a character before it."""
        index = bisect_right(self._at, position) - 1
        offset = position - self._at[index]
        begin, end = self._from[index]
        if self._size[index] == end - begin:
            return begin + offset, ""
        return begin, self.text[self._at[index] : position]

    def end_of_match(self, position: int) -> tuple[int, str]:
        """The end of a match, and the part of a character after it."""
        index = bisect_right(self._at, position - 1) - 1
        offset = position - self._at[index]
        begin, end = self._from[index]
        if self._size[index] == end - begin:
            return begin + offset, ""
        return end, self.text[position : self._at[index] + self._size[index]]


def _look_alike_pieces_of(line: str) -> list[tuple[str, int, int]]:
    """Stretches of a line with their look-alike form; a stretch of equal length maps character by character."""
    stripped = line.rstrip()
    if stripped.isascii():
        return [(stripped, 0, len(stripped))] if stripped else []
    alike = stripped.translate(_LOOKALIKES)
    if unicodedata.is_normalized("NFKC", alike):
        return [(alike, 0, len(alike))]
    pieces = [(_simplify_cluster(match.group()), match.start(), match.end()) for match in _CLUSTER.finditer(stripped)]
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    return [piece for piece in pieces if piece[0]]


def _simplify_cluster(cluster: str) -> str:
    if cluster.isascii():
        return cluster
    return unicodedata.normalize("NFKC", cluster.translate(_LOOKALIKES)).translate(_LOOKALIKES).replace("\n", " ")


def to_look_alike(text: str) -> str:
    """The form in which texts are compared if they are not equal."""
    return "\n".join("".join(piece for piece, _, _ in _look_alike_pieces_of(line)) for line in text.split("\n"))


def normalize_newlines(text: str) -> str:
    """Every line end as a single newline."""
    return _LINE_ENDS.sub("\n", text) if "\r" in text else text


def find_occurrences(text: str, wanted: str, at_most: int = MOST_OCCURRENCES) -> list[int]:
    """Every place where `wanted` begins, at most `at_most` of them."""
    found: list[int] = []
    at = text.find(wanted)
    while at >= 0 and len(found) < at_most:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found


def count_shared_line_characters(old: str, new: str) -> tuple[int, int]:
    """The number of characters in whole lines that both texts share at their start and at their end."""
    start = old.rfind("\n", 0, count_shared_start(old, new)) + 1
    rest_old, rest_new = old[start:], new[start:]
    end = _count_shared(rest_old, rest_new, lambda a, b, n: n == 0 or a[-n:] == b[-n:])
    if end:
        newline = rest_old.find("\n", len(rest_old) - end)
        end = len(rest_old) - newline if newline >= 0 else 0
    return start, end


def count_shared_start(first: str, second: str) -> int:
    """The number of characters that both texts share at their start."""
    return _count_shared(first, second, lambda a, b, n: a[:n] == b[:n])


def _count_shared(first: str, second: str, equal: Callable[[str, str, int], bool]) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if equal(first, second, middle):
            low = middle
        else:
            high = middle - 1
    return low
