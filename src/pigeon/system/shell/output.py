"""The output of a command as it streams: its clean end in memory, its counts, and all of it on disk once it is long.

`Cleaner` removes escape sequences and control characters from the stream; `Capture` counts the rest, keeps its end for
the model and passes the raw bytes to an artifact. `shell.run_shell` feeds a `Capture` and reads its counts.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Protocol

from pigeon.system.shell.artifacts import Artifact
from pigeon.system.shell.truncation import LIMITS, OutputLimits, Shown, human_size, truncate_to_tail

HOLD_AT_MOST = 4096
_CONTROLS = bytes([*range(0x00, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    rb"|[PX^_][^\x1b]*\x1b\\"  # other strings
    rb"|[ -/]+[0-~]"
    rb"|[0-OQ-WYZ\\`-~])"
)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")
_LINE_END = re.compile(rb"\r+\n")
_OVERSTRUCK = re.compile(rb"(?:[\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]+)\x08")
_ODD_CHARACTERS = re.compile(rb"\xc2[\x80-\x9f]|\xef\xbf[\xb9-\xbb]")


class Cleaner:
    """Converts bytes to printable UTF-8: no escape sequence, no control but tab, newline and carriage return."""

    def __init__(self) -> None:
        self._cut_character = b""
        self._cut_escape = b""

    def feed(self, data: bytes, final: bool = False) -> bytes:
        """The part of the stream that can be shown by now; sequences and characters cut by a read wait for their
        rest."""
        data = self._replace_invalid(data, final)
        if self._cut_escape:
            data = self._cut_escape + data
            self._cut_escape = b""
        if len(data.translate(None, _CONTROLS)) == len(data):
            return _remove_odd_bytes(data)
        if b"\x1b" in data:
            cut = None if final else _UNFINISHED.search(data, max(0, len(data) - HOLD_AT_MOST))
            if cut is not None:
                self._cut_escape = data[cut.start() :]
                data = data[: cut.start()]
            data = _ESCAPE.sub(b"", data)
        if b"\x08" in data:
            data = _OVERSTRUCK.sub(b"", data)
        return _remove_odd_bytes(data.translate(None, _CONTROLS))

    def _replace_invalid(self, data: bytes, final: bool) -> bytes:
        if self._cut_character:
            data = self._cut_character + data
            self._cut_character = b""
        if data.isascii():
            return data
        try:
            consumed = codecs.utf_8_decode(data, "strict", final)[1]
            valid = data[:consumed]
        except UnicodeDecodeError:
            text, consumed = codecs.utf_8_decode(data, "replace", final)
            valid = text.encode()
        self._cut_character = data[consumed:]
        return valid


def _remove_odd_bytes(data: bytes) -> bytes:
    if data.isascii():
        return data
    return _ODD_CHARACTERS.sub(b"", data) if b"\xc2" in data or b"\xef\xbf" in data else data


class OutputMask(Protocol):
    """Masks text in an output that may not be shown or kept; `secrets/redactor` implements it."""

    @property
    def longest(self) -> int:
        """The length of the longest text that it masks."""
        ...

    def mask_text(self, text: str) -> str: ...

    def make_stream_masker(self) -> Callable[[bytes, bool], bytes]:
        """The same for bytes that come in pieces: called with each piece, and whether it is the last."""
        ...


class NothingMasked:
    """The mask of an agent without secrets: it shows everything."""

    longest = 0

    def mask_text(self, text: str) -> str:
        return text

    def make_stream_masker(self) -> Callable[[bytes, bool], bytes]:
        return lambda data, final: data


class Capture:
    """Keeps at most a few times the limits in memory, however long the output is.

    What is shown is masked after it was cleaned, because removing an escape sequence may join the halves of a key; what
    is kept is the raw text, masked. With `is_live` False nothing is masked for a live view.
    """

    def __init__(
        self,
        spill: Callable[[], Artifact | None],
        limits: OutputLimits = LIMITS,
        mask: OutputMask | None = None,
        is_live: bool = True,
    ) -> None:
        self._limits = limits
        self._mask: OutputMask = mask or NothingMasked()
        self._live = self._mask.make_stream_masker() if is_live else None
        self._kept = self._mask.make_stream_masker()
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
        """Add bytes; returns what a live view may show, as clean UTF-8 without carriage returns: nothing if there is
        none."""
        self._keep_raw(raw)
        data = self._cleaner.feed(raw, final)
        if self._carriage or b"\r" in data:
            self._append_overwriting(b"\r" + data if self._carriage else data)
        else:
            self._append(data)
        return b"" if self._live is None else self._live(data.replace(b"\r", b""), final)

    def finish(self) -> bytes:
        """End the stream; returns what was still held back."""
        rest = self.feed(b"", final=True)
        if self.visible_tail().is_truncated:
            self._ensure_spilled()
        self._raw = bytearray()
        if self.artifact is not None:
            self.artifact.write(self._kept(b"", True))
            self.artifact.close()
        return rest

    def close(self) -> None:
        """Close the file, whatever happened."""
        if self.artifact is not None:
            self.artifact.close()

    def visible_tail(self) -> Shown:
        """The end of the output within the limits."""
        start = 0
        while start < len(self._tail) and self._tail[start] & 0xC0 == 0x80:
            start += 1
        text = self._tail[start:].decode("utf-8", "replace")
        earlier = self._newlines - text.count("\n")
        before = self._bytes - len(self._tail) + start
        masked = self._mask.mask_text(text)
        if masked != text and before > 0:
            # The beginning of the tail may be the rest of a key, which is not recognized.
            masked = masked[self._mask.longest :]
        return truncate_to_tail(masked, self._limits, earlier, before)

    @property
    def line_breaks(self) -> int:
        """The number of newlines in the output so far."""
        return self._newlines

    @property
    def full_output_path(self) -> str | None:
        """The path of the output, if it is complete on disk."""
        return self.artifact.path if self.artifact is not None and self.artifact.is_complete else None

    @property
    def artifact_id(self) -> str | None:
        """The number of the file with the full output; None if there is no such file."""
        return self.artifact.id if self.artifact is not None and self.artifact.is_complete else None

    @property
    def storage_note(self) -> str:
        """What is on disk of the output, as a sentence without its full stop."""
        if self.artifact is None:
            return "The rest could not be kept"
        if self.artifact.is_complete:
            return f"Full output: {self.artifact.path}"
        size = human_size(self.artifact.size)
        return f"Only the first {size} were kept ({self.artifact.lost}): {self.artifact.path}"

    def _keep_raw(self, raw: bytes) -> None:
        if self.artifact is not None:
            self.artifact.write(self._kept(raw, False))
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
                self.artifact.write(self._kept(bytes(self._raw), False))
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
        """A carriage return restarts the line, as on a terminal; only the last version of a line is kept."""
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
