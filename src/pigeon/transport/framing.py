"""Bytes to lines: split on LF and nothing else, within a size cap.

CR before LF is dropped, a last line without LF counts. A line beyond the cap is reported once, at the moment it grows
too long, and skipped up to the next LF: a host that sends a giant gets an answer, and the next line is read normally.
"""

from __future__ import annotations

DEFAULT_CAP = 32 * 1024 * 1024


class TooLong:
    """Stands in the place of a line that exceeded the cap."""

    def __init__(self, cap: int) -> None:
        self.cap = cap


Frame = bytes | TooLong


class Framing:
    """Collects chunks and gives back whole lines."""

    def __init__(self, cap: int = DEFAULT_CAP) -> None:
        self._cap = cap
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """The lines that this chunk completes."""
        frames: list[Frame] = []
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._take(line, frames)
            if not self._skipping:
                frames.append(self._joined())
            self._parts.clear()
            self._size = 0
            self._skipping = False
        if rest:
            self._take(rest, frames)
        return frames

    def end(self) -> list[Frame]:
        """What is left when the input ends."""
        if self._skipping or not self._parts:
            return []
        line = self._joined()
        self._parts.clear()
        return [line] if line else []

    def _take(self, piece: bytes, frames: list[Frame]) -> None:
        if self._skipping:
            return
        self._size += len(piece)
        if self._size > self._cap:
            self._parts.clear()
            self._skipping = True
            frames.append(TooLong(self._cap))
        else:
            self._parts.append(piece)

    def _joined(self) -> bytes:
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return line[:-1] if line.endswith(b"\r") else line
