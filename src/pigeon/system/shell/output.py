"""The output of a command as it streams: its clean end in memory, its counts, and all of it on disk once it is long."""

from __future__ import annotations

import re
from collections.abc import Callable

from pigeon.system.shell.artifacts import Artifact
from pigeon.system.shell.terminal import Cleaner
from pigeon.system.shell.truncation import LIMITS, Limits, Shown, tail_of

_LINE_END = re.compile(rb"\r+\n")


class Capture:
    """Keeps no more than a few times the limits in memory, however much passes through."""

    def __init__(self, spill: Callable[[], Artifact | None], limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._spill = spill
        self._spilled = False
        self._raw = bytearray()
        self._cleaner = Cleaner()
        self._tail = bytearray()
        self._open_line = 0
        self._carriage = False
        self._newlines = 0
        self._bytes = 0
        self.artifact: Artifact | None = None

    def feed(self, raw: bytes, final: bool = False) -> bytes:
        """Take what was read; the answer is what a live view may show, clean UTF-8 without carriage returns."""
        self._keep_raw(raw)
        data = self._cleaner.feed(raw, final)
        if self._carriage or b"\r" in data:
            self._append_overwriting(b"\r" + data if self._carriage else data)
            return data.replace(b"\r", b"")
        self._append(data)
        return data

    def finish(self) -> bytes:
        """The stream is over; the answer is what was still held back."""
        rest = self.feed(b"", final=True)
        if self.shown().truncated:
            self._ensure_spilled()
        self._raw = bytearray()
        if self.artifact is not None:
            self.artifact.close()
        return rest

    def close(self) -> None:
        """Give the file back, whatever happened."""
        if self.artifact is not None:
            self.artifact.close()

    def shown(self) -> Shown:
        """The end of the output within the limits."""
        start = 0
        while start < len(self._tail) and self._tail[start] & 0xC0 == 0x80:
            start += 1
        text = self._tail[start:].decode("utf-8", "replace")
        earlier = self._newlines - text.count("\n")
        return tail_of(text, self._limits, earlier, self._bytes - len(self._tail) + start)

    @property
    def line_breaks(self) -> int:
        """Newlines so far."""
        return self._newlines

    @property
    def full_output_path(self) -> str | None:
        """Where everything is, if it is on disk and whole."""
        return self.artifact.path if self.artifact is not None and self.artifact.complete else None

    @property
    def artifact_id(self) -> str | None:
        """The number of that file."""
        return self.artifact.id if self.artifact is not None and self.artifact.complete else None

    def _keep_raw(self, raw: bytes) -> None:
        if self.artifact is not None:
            self.artifact.write(raw)
        elif not self._spilled:
            self._raw += raw
            too_long = len(self._raw) > self._limits.bytes
            if too_long or self._newlines + raw.count(b"\n") > self._limits.lines:
                self._ensure_spilled()

    def _ensure_spilled(self) -> None:
        if not self._spilled:
            self._spilled = True
            self.artifact = self._spill()
            if self.artifact is not None:
                self.artifact.write(self._raw)
            self._raw = bytearray()

    def _append(self, data: bytes) -> None:
        keep = 2 * self._limits.bytes
        self._newlines += data.count(b"\n")
        self._bytes += len(data)
        last = data.rfind(b"\n")
        self._open_line = self._open_line + len(data) if last < 0 else len(data) - last - 1
        if len(data) >= keep:
            self._tail = bytearray(data[-keep:])
            return
        self._tail += data
        if len(self._tail) > 2 * keep:
            del self._tail[:-keep]

    def _append_overwriting(self, data: bytes) -> None:
        """A carriage return begins the line anew, as on a terminal; only the last version of a line is kept."""
        self._carriage = data.endswith(b"\r")
        data = _LINE_END.sub(b"\n", data.rstrip(b"\r") if self._carriage else data)
        if b"\r" not in data:
            self._append(data)
            return
        first, *rest = data.split(b"\n")
        if b"\r" in first:
            self._drop_open_line()
        self._append(b"\n".join(line.rpartition(b"\r")[2] for line in (first, *rest)))

    def _drop_open_line(self) -> None:
        self._bytes -= self._open_line
        kept = max(0, len(self._tail) - self._open_line)
        del self._tail[kept:]
        self._open_line = 0
