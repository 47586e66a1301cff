"""How much of a text is shown: whole lines from its start or its end, never half a character, never over the limits."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MAX_LINES = 2000
MAX_BYTES = 51_200


class OutputLimits(Struct, frozen=True):
    """The most lines and UTF-8 bytes that are shown."""

    lines: int = MAX_LINES
    bytes: int = MAX_BYTES


LIMITS = OutputLimits()


class Shown(Struct, frozen=True):
    """The part of a text that is shown, and what it was cut from."""

    text: str
    truncated_by: Literal["lines", "bytes"] | None
    total_lines: int
    total_bytes: int
    output_lines: int
    output_bytes: int
    last_line_partial: bool = False
    first_line_exceeds_limit: bool = False
    limits: OutputLimits = LIMITS

    @property
    def is_truncated(self) -> bool:
        """True if something is missing."""
        return self.truncated_by is not None

    def to_record(self) -> dict[str, object]:
        """The fields for a result's details; the text itself is in the content and not repeated."""
        return {
            "truncated": self.is_truncated,
            "truncatedBy": self.truncated_by,
            "totalLines": self.total_lines,
            "totalBytes": self.total_bytes,
            "outputLines": self.output_lines,
            "outputBytes": self.output_bytes,
            "lastLinePartial": self.last_line_partial,
            "firstLineExceedsLimit": self.first_line_exceeds_limit,
            "maxLines": self.limits.lines,
            "maxBytes": self.limits.bytes,
        }


def count_lines(text: str) -> int:
    """Real lines: a final newline does not start another."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def utf8_size_of(text: str) -> int:
    """The length in UTF-8 bytes; a lone surrogate counts as its replacement."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def human_size(size: int) -> str:
    """A number of bytes for people: `512B`, `50.0KB`, `1.2MB`."""
    if size < 1024:
        return f"{size}B"
    if size < 1024 * 1024:
        return f"{size / 1024:.1f}KB"
    return f"{size / (1024 * 1024):.1f}MB"


def truncate_to_head(
    text: str, limits: OutputLimits = LIMITS, total_lines: int | None = None, total_bytes: int | None = None
) -> Shown:
    """The start of a text. The totals are given if `text` is itself only the start of something longer."""
    lines = count_lines(text) if total_lines is None else total_lines
    size = utf8_size_of(text) if total_bytes is None else total_bytes
    if lines <= limits.lines and size <= limits.bytes:
        return Shown(text, None, lines, size, lines, size, limits=limits)
    kept: list[str] = []
    used = 0
    cause: Literal["lines", "bytes"] = "lines"
    for line in _split_first_lines(text, limits.lines):
        cost = utf8_size_of(line) + (1 if kept else 0)
        if used + cost > limits.bytes:
            cause = "bytes"
            break
        kept.append(line)
        used += cost
    shown = "\n".join(kept)
    return Shown(shown, cause, lines, size, len(kept), used, first_line_exceeds_limit=not kept, limits=limits)


def truncate_to_tail(text: str, limits: OutputLimits = LIMITS, earlier_lines: int = 0, earlier_bytes: int = 0) -> Shown:
    """The end of a text that follows `earlier_lines` newlines and `earlier_bytes` bytes."""
    lines = count_lines(text) + earlier_lines
    size = utf8_size_of(text) + earlier_bytes
    if lines <= limits.lines and size <= limits.bytes:
        return Shown(text, None, lines, size, lines, size, limits=limits)
    body = text[:-1] if text.endswith("\n") else text
    kept: list[str] = []
    used = 0
    cause: Literal["lines", "bytes"] = "lines"
    partial = False
    for line in reversed(body.rsplit("\n", limits.lines)[-limits.lines :]):
        cost = utf8_size_of(line) + (1 if kept else 0)
        if used + cost > limits.bytes:
            cause = "bytes"
            if not kept:
                kept.append(tail_within(line, limits.bytes))
                used = utf8_size_of(kept[0])
                partial = True
            break
        kept.append(line)
        used += cost
    shown = "\n".join(reversed(kept))
    return Shown(shown, cause, lines, size, len(kept), used, last_line_partial=partial, limits=limits)


def tail_within(text: str, size: int) -> str:
    """The end of a text that fits in `size` bytes, cut between characters."""
    raw = text[-size:].encode("utf-8", "surrogatepass")[-size:] if size else b""
    start = 0
    while start < len(raw) and raw[start] & 0xC0 == 0x80:
        start += 1
    return raw[start:].decode("utf-8", "surrogatepass")


def _split_first_lines(text: str, most: int) -> list[str]:
    lines = text.split("\n", most)
    if len(lines) > most or not lines[-1]:
        lines.pop()
    return lines
