"""The output of a job in a file: appended while the job runs, read from any position on, limited in size.

Positions count bytes from the beginning of the output. When the file is full, its older half is given up.
"""

from __future__ import annotations

import os
from contextlib import suppress

from msgspec import Struct

from pigeon.system.shell.truncation import MAX_BYTES, human_size

LARGEST = 32 * 1024 * 1024
# Room for the lines above a part.
LARGEST_PART = MAX_BYTES - 1024
OMITTED = "[{} of output are left out here]\n"


class OutputPart(Struct, frozen=True):
    """A part of an output, and the position behind it."""

    text: str
    next: int


class KeptOutput:
    """One output; a disk that refuses ends the keeping, not the job."""

    def __init__(self, path: str | None, largest: int = LARGEST) -> None:
        """`path` is a file that does not exist; without one, only the end is kept, in memory."""
        self._path = path
        self._largest = largest
        self._first = 0
        self._size = 0
        self._memory = bytearray()
        self._descriptor = -1
        self._closed = False
        if path is not None:
            with suppress(OSError):
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    @property
    def path(self) -> str | None:
        """The file with the output; None if it is only in memory."""
        return self._path if self._descriptor >= 0 or self._closed else None

    @property
    def end(self) -> int:
        """The position behind everything so far."""
        return self._first + self._size

    def append(self, data: bytes) -> None:
        if not data:
            return
        if self._descriptor >= 0:
            try:
                self._write(data)
            except OSError:
                self._switch_to_memory()
            else:
                self._size += len(data)
                if self._size > self._largest:
                    self._drop_older_half()
                return
        self._memory += data
        self._size += len(data)
        if len(self._memory) > 4 * MAX_BYTES:
            dropped = len(self._memory) - 2 * MAX_BYTES
            del self._memory[:dropped]
            self._first += dropped
            self._size -= dropped

    def read(self, after: int = 0, most: int = LARGEST_PART) -> OutputPart:
        """The output from a position on; of a longer one the end, after a note of what is left out."""
        asked = min(max(after, 0), self.end)
        start = max(asked, self._first, self.end - most)
        data = self._read_bytes(start - self._first, self.end - start)
        if start > asked:
            while data and data[0] & 0xC0 == 0x80:
                data, start = data[1:], start + 1
        text = data.decode("utf-8", "replace")
        # A byte that is no text is shown by three.
        encoded = text.encode()
        if len(encoded) > most:
            text, start = encoded[-most:].decode("utf-8", "ignore"), start + len(encoded) - most
        note = OMITTED.format(human_size(start - asked)) if start > asked else ""
        return OutputPart(note + text, self.end)

    def close(self) -> None:
        """Nothing more is appended; what is kept can still be read."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._closed = True

    def _write(self, data: bytes) -> None:
        with memoryview(data) as view:
            at = 0
            while at < len(view):
                at += os.pwrite(self._descriptor, view[at:], self._size + at)

    def _read_bytes(self, start: int, size: int) -> bytes:
        if self._closed and self._path is not None:
            with suppress(OSError), open(self._path, "rb") as file:
                return os.pread(file.fileno(), size, start)
            return b""
        if self._descriptor < 0:
            return bytes(self._memory[start : start + size])
        with suppress(OSError):
            return os.pread(self._descriptor, size, start)
        return b""

    def _drop_older_half(self) -> None:
        kept = self._largest // 2
        data = self._read_bytes(self._size - kept, kept)
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            self._first += self._size - kept
            self._size = 0
            self._write(data)
            self._size = len(data)

    def _switch_to_memory(self) -> None:
        start = max(0, self._size - 2 * MAX_BYTES)
        self._memory = bytearray(self._read_bytes(start, self._size - start))
        self._first += start
        self._size = len(self._memory)
        os.close(self._descriptor)
        self._descriptor = -1
