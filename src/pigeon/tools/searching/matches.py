"""The matches of ripgrep, read from its output as it arrives, until there are enough."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct, field

# Ripgrep reports binary files between its records, in a line that has no NUL after the path.
_REMARK = re.compile(rb"([^\0]*?): (?:WARNING: stopped searching b|b)inary file [^\0\n]*byte around offset \d+\)\n")


class Hits(Struct):
    """Reads records `path NUL number :|- text` of selected files until the limits are reached."""

    limit: int
    width: int
    most_characters: int
    wanted: Callable[[str], bool] | None = None
    lines: list[str] = field(default_factory=list)
    stopped_in: list[str] = field(default_factory=list)
    matches: int = 0
    size: int = 0
    cut: bool = False
    limited: bool = False
    _raw: bytes = b""
    _path: str = ""
    _skipped: bool = False

    def consume_until_full(self, buffer: bytearray) -> bool:
        """Remove every complete record from the buffer; returns True once there is enough."""
        while True:
            nul = buffer.find(0)
            newline = buffer.find(b"\n")
            if newline >= 0 and not 0 <= nul < newline and (remark := _REMARK.match(buffer)):
                self._enter_file(remark.group(1))
                if not self._skipped:
                    self.stopped_in.append(self._path)
                del buffer[: remark.end()]
                continue
            end = buffer.find(b"\n", nul)
            if nul < 0 or end < 0:
                return False
            self._enter_file(bytes(buffer[:nul]))
            if not self._skipped and self._add_until_full(bytes(buffer[nul + 1 : end])):
                return True
            del buffer[: end + 1]

    def _enter_file(self, raw: bytes) -> None:
        if raw != self._raw:
            self._raw = raw
            self._path = raw.decode("utf-8", "replace").removeprefix("./")
            self._skipped = self.wanted is not None and not self.wanted(self._path)

    def _add_until_full(self, record: bytes) -> bool:
        digits = len(record) - len(record.lstrip(b"0123456789"))
        number, mark = record[:digits].decode(), record[digits : digits + 1].decode()
        text = record[digits + 1 :].decode("utf-8", "replace").rstrip("\r").replace("\0", "\ufffd")
        if mark == ":":
            if self.matches == self.limit:
                self.limited = True
                return True
            self.matches += 1
        if len(text) > self.width:
            text = f"{text[: self.width]}... [truncated]"
            self.cut = True
        line = f"{self._path}{mark}{number}{mark} {text}"
        self.lines.append(line)
        self.size += len(line)
        return self.size > self.most_characters
