"""What a terminal would not print, taken out of a stream of bytes as it passes."""

from __future__ import annotations

import codecs
import re

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
_OVERSTRUCK = re.compile(rb"(?:[\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]+)\x08")
_ODD_CHARACTERS = re.compile(rb"\xc2[\x80-\x9f]|\xef\xbf[\xb9-\xbb]")


class Cleaner:
    """Bytes in, printable UTF-8 out: no escape sequence, no control but tab, newline and carriage return."""

    def __init__(self) -> None:
        self._cut_character = b""
        self._cut_escape = b""

    def feed(self, data: bytes, final: bool = False) -> bytes:
        """What of the stream can be shown by now; sequences and characters cut by a read wait for their rest."""
        data = self._valid(data, final)
        if self._cut_escape:
            data = self._cut_escape + data
            self._cut_escape = b""
        if len(data.translate(None, _CONTROLS)) == len(data):
            return _without_odd(data)
        if b"\x1b" in data:
            cut = None if final else _UNFINISHED.search(data, max(0, len(data) - HOLD_AT_MOST))
            if cut is not None:
                self._cut_escape = data[cut.start() :]
                data = data[: cut.start()]
            data = _ESCAPE.sub(b"", data)
        if b"\x08" in data:
            data = _OVERSTRUCK.sub(b"", data)
        return _without_odd(data.translate(None, _CONTROLS))

    def _valid(self, data: bytes, final: bool) -> bytes:
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


def _without_odd(data: bytes) -> bytes:
    if data.isascii():
        return data
    return _ODD_CHARACTERS.sub(b"", data) if b"\xc2" in data or b"\xef\xbf" in data else data
