"""Some lines of a file for `read`, in one pass: memory stays constant however large the file and its lines are."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from pigeon.system.shell.truncation import LIMITS, OutputLimits

BLOCK = 1 << 20
COUNT_AT_MOST = 1 << 30


class Slice(Struct):
    """The selected lines, as far as the limits allow, and how many there are."""

    data: bytes = b""
    lines: int = 0
    size: int = 0
    first_line_size: int = 0
    total_lines: int = 0
    total_exact: bool = True


class LineScan:
    """Scans the file block by block and keeps the selected lines."""

    def __init__(self, first: int, count: int | None, limits: OutputLimits = LIMITS) -> None:
        self._skip = first - 1
        self._left = count
        self._keep = limits.bytes + 4
        self._kept = bytearray()
        self._first_line_open = True
        self._last = b""
        self._last_chosen = b""
        self._newlines = 0
        self._open = True
        self._lines = 0
        self.slice = Slice()

    def feed(self, block: bytes) -> None:
        newlines = block.count(b"\n")
        self._newlines += newlines
        self._last = block[-1:]
        if self._skip:
            if newlines < self._skip:
                self._skip -= newlines
                return
            block = block[_position_after(block, self._skip) :]
            self._skip = 0
        if self._open and block:
            self._keep_chosen_lines(block)

    def _keep_chosen_lines(self, block: bytes) -> None:
        part = block
        if self._left is not None:
            newlines = block.count(b"\n")
            if newlines >= self._left:
                end = _position_after(block, self._left)
                part = block[:end]
                self._open = False
            else:
                self._left -= newlines
        chosen = self.slice
        chosen.size += len(part)
        self._lines += part.count(b"\n")
        if self._first_line_open:
            end = part.find(b"\n")
            chosen.first_line_size += len(part) if end < 0 else end
            self._first_line_open = end < 0
        self._kept += part[: max(0, self._keep - len(self._kept))]
        self._last_chosen = part[-1:]

    def is_enough(self, seen: int) -> bool:
        """Whether there are lines to show after so many bytes, and the rest is too long to be counted."""
        return seen > COUNT_AT_MOST and bool(self.slice.size)

    def make_slice(self, exact: bool) -> Slice:
        chosen = self.slice
        chosen.data = bytes(self._kept)
        chosen.lines = self._lines + (1 if chosen.size and self._last_chosen != b"\n" else 0)
        chosen.total_lines = self._newlines + (1 if self._last and self._last != b"\n" else 0)
        chosen.total_exact = exact
        return chosen


def read_lines(
    descriptor: int, first: int, count: int | None, stopped: Callable[[], bool], limits: OutputLimits = LIMITS
) -> Slice:
    """`count` lines or all from line `first` on; raises `OSError` if the file cannot be read."""
    scan = LineScan(first, count, limits)
    seen = 0
    while block := _read_block(descriptor):
        scan.feed(block)
        seen += len(block)
        if stopped() or scan.is_enough(seen):
            return scan.make_slice(exact=False)
    return scan.make_slice(exact=True)


def slice_lines(data: bytes, first: int, count: int | None, limits: OutputLimits = LIMITS) -> Slice:
    """The same for a text in memory."""
    scan = LineScan(first, count, limits)
    if data:
        scan.feed(data)
    return scan.make_slice(exact=True)


def _read_block(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, BLOCK)
    except BlockingIOError:
        return b""


def _position_after(block: bytes, newlines: int) -> int:
    """The position right after the n-th newline."""
    return len(block) - len(block.split(b"\n", newlines)[newlines])
