"""The events of one conversation on disk: numbered lines in files of bounded size.

A worker of `pigeon serve` appends (`EventLog`); the supervisor reads for every client from that client's position
(`LogReader`), so that a slow client costs no memory and one that reconnects gets what it missed. A file is named after
the number of its first line, and lines are numbered without gaps, so the number of a line follows from its position. A
line counts once `append` has returned: half a line from a killed process is cut off when the log is opened again.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

SEGMENT_BYTES = 4 * 1024 * 1024
MOST_SEGMENTS = 8
SUFFIX = ".jsonl"
LOCK = "lock"
# The system's `struct flock`; its last member is the process that holds the lock.
_LOCK = "hhqqi0q"
_BLOCK = 1 << 20
_PAUSE = 0.01


class LogEnd(NamedTuple):
    """How far a log reaches: the last file, by the number of its first line, and the bytes in it."""

    segment: int
    offset: int


class EventLog:
    """Appends lines; the oldest files are removed when there are more than `most_segments`.

    `lock` is the lock of this log (`lock_log`), which is released when the log is closed; -1 for none.
    """

    def __init__(
        self, folder: str, segment_bytes: int = SEGMENT_BYTES, most_segments: int = MOST_SEGMENTS, lock: int = -1
    ) -> None:
        self._folder = folder
        self._lock = lock
        self._segment_bytes = segment_bytes
        self._most_segments = most_segments
        self._segment = (segments_in(folder) or [1])[-1]
        self._file = self._open()
        self._next, self._offset = self._segment, 0
        for start in range(0, os.fstat(self._file).st_size, _BLOCK):
            block = os.pread(self._file, _BLOCK, start)
            if b"\n" in block:
                self._next += block.count(b"\n")
                self._offset = start + block.rindex(b"\n") + 1
        self._torn = True
        self._truncate_torn()

    @property
    def next_number(self) -> int:
        return self._next

    @property
    def end(self) -> LogEnd:
        """The position up to which the log can be read."""
        return LogEnd(self._segment, self._offset)

    def append(self, data: bytes, lines: int) -> LogEnd:
        """Append whole lines; if it raises `OSError`, none of them was added."""
        self._truncate_torn()
        if self._offset >= self._segment_bytes:
            self._begin_segment()
        self._torn = True
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._torn = False
        self._offset += len(data)
        self._next += lines
        return self.end

    def close(self) -> None:
        """Close the file, and release the lock."""
        os.close(self._file)
        if self._lock >= 0:
            os.close(self._lock)
        self._file = self._lock = -1

    def _truncate_torn(self) -> None:
        """Remove what a failed write has left."""
        if self._torn:
            os.ftruncate(self._file, self._offset)
            self._torn = False

    def _begin_segment(self) -> None:
        before, self._segment = (self._segment, self._file), self._next
        try:
            self._file = self._open()
        except OSError:
            self._segment, self._file = before
            raise
        os.close(before[1])
        self._offset = 0
        with suppress(OSError):
            for old in segments_in(self._folder)[: -self._most_segments]:
                os.unlink(_path(self._folder, old))

    def _open(self) -> int:
        return os.open(_path(self._folder, self._segment), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


class LogReader:
    """Reads whole lines from a growing log, starting after the line with the number `after`.

    `lost` is True if the log no longer reaches back that far, or never had that line: reading then starts with the
    oldest line, or with the next one. After `OSError`, the same call can be repeated.
    """

    def __init__(self, folder: str, after: int, end: LogEnd) -> None:
        self._folder = folder
        self._file = -1
        self._rest = b""
        self.lost = False
        try:
            self._seek(after, end)
        except OSError:
            self.close()
            raise

    @property
    def number(self) -> int:
        return self._number

    def read(self, end: LogEnd, most: int = 256 * 1024) -> list[bytes]:
        """The next lines up to the announced end, without LF; at least one, unless there is none."""
        while True:
            room = most if self._segment < end.segment else end.offset - self._offset
            if self._segment > end.segment or self._file < 0:
                room = 0
            data = os.pread(self._file, min(most, room), self._offset) if room > 0 else b""
            if not data:
                if self._segment >= end.segment or not self._try_open_first(self._later_segments()):
                    return []
                continue
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                self._number += len(lines)
                return lines

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _seek(self, after: int, end: LogEnd) -> None:
        segments = segments_in(self._folder)
        at = max((index for index, first in enumerate(segments) if first <= after + 1), default=0)
        self._segment, self._offset, self._number = end.segment, 0, after
        if not self._try_open_first(segments[at:]):
            # A missing file counts as an empty one.
            self._segment, self._number = 0, end.segment - 1
        self.lost = self._number > after
        while self._number < after:
            left = after - self._number
            data = os.pread(self._file, _BLOCK, self._offset) if self._file >= 0 else b""
            if self._segment == end.segment:
                data = data[: max(0, end.offset - self._offset)]
            count = data.count(b"\n")
            if not count:
                self.lost = True
                return
            if count > left:
                count, cut = left, _end_of_line(data, left)
            else:
                cut = data.rindex(b"\n") + 1
            self._number += count
            self._offset += cut

    def _later_segments(self) -> list[int]:
        return [first for first in segments_in(self._folder) if first > self._segment]

    def _try_open_first(self, segments: list[int]) -> bool:
        """Continue with the first of these files that still exists; returns False if none does."""
        for segment in segments:
            try:
                file = os.open(_path(self._folder, segment), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            # A partial line from the previous file was cut off there.
            self.lost = self.lost or (self._file >= 0 and segment != self._number + 1)
            self.close()
            self._file, self._segment, self._offset, self._number, self._rest = file, segment, 0, segment - 1, b""
            return True
        return False


def segments_in(folder: str) -> list[int]:
    """The files of a log, by the numbers of their first lines, oldest first."""
    names = (name.removesuffix(SUFFIX) for name in os.listdir(folder) if name.endswith(SUFFIX))
    return sorted(int(name) for name in names if name.isdigit())


def _path(folder: str, segment: int) -> str:
    return os.path.join(folder, f"{segment:020d}{SUFFIX}")


def _end_of_line(data: bytes, count: int) -> int:
    """The position after the LF of the line with this count, which must exist."""
    at = 0
    for _ in range(count):
        at = data.index(b"\n", at) + 1
    return at


def lines_since(folder: str, is_mark: Callable[[bytes], bool], end: LogEnd) -> list[tuple[int, bytes]]:
    """The numbered lines from the newest file that has a mark; all lines if none has."""
    found: list[tuple[int, bytes]] = []
    for segment in reversed(segments_in(folder)):
        if segment > end.segment:
            continue
        try:
            with open(_path(folder, segment), "rb") as file:
                data = file.read(end.offset if segment == end.segment else -1)
        except FileNotFoundError:
            break
        lines = data.split(b"\n")[:-1]
        found[:0] = enumerate(lines, segment)
        if any(map(is_mark, reversed(lines))):
            break
    return found


def lock_log(folder: str) -> int:
    """Become the only process that appends, until it ends or closes the descriptor that this returns; raises `OSError`
    if another does.

    This kind of lock belongs to a process, is not inherited, and its owner can be found out. A process that locks a log
    twice would lose it with the first descriptor that is closed.
    """
    descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


async def lock_log_within(folder: str, seconds: float) -> int:
    """The same if the process that appends is about to end; raises `OSError` if that takes longer."""
    until = time.monotonic() + seconds
    while True:
        try:
            return lock_log(folder)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() >= until:
                raise
        await asyncio.sleep(_PAUSE)


def log_owner(folder: str) -> int | None:
    """The process that holds the lock, or None. The holder must not call this: it would lose the lock."""
    try:
        descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_LOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid
