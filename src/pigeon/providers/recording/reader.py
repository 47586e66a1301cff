"""A recording, read: the data of its agent, and where the lines of each exchange are in the file.

Every line is checked once, when the recording is opened; a line that cannot be read is reported with its number. The
bodies stay in the file until they are needed, so that a long recording needs little memory.
"""

from __future__ import annotations

import binascii
import os
from array import array
from typing import BinaryIO

import msgspec

from pigeon.providers.recording.recorded_lines import (
    HAS_PAUSES,
    VERSION,
    AgentLine,
    ClockLine,
    DroppedLine,
    EndLine,
    FailedLine,
    PauseLine,
    PieceLine,
    RecordingHeader,
    RecordingLine,
    RequestLine,
    ResponseLine,
    decoder,
)
from pigeon.system.files import NotRegular, open_regular
from pigeon.wire.errors import StartupError

LARGEST = 4 << 30
LONGEST_LINE = 256 << 20
LONGEST_SHOWN = 60
NEVER = float("inf")


class BadRecording(StartupError):
    """The file is missing, or is not a recording that can be played; the text names it and the line."""


class RecordedExchange:
    """One exchange: its request, its answer, and how that ended. `line` is the position of the request in the file."""

    def __init__(self, request: RequestLine, line: int, place: int) -> None:
        self.number = request.exchange
        self.line = line
        self.method = request.method
        self.url = request.url
        self.sent_at = request.t
        self.over_at: float = NEVER
        self.place = place
        self.head: ResponseLine | None = None
        self.pieces: list[tuple[int, int]] = []
        self.end: EndLine | FailedLine | DroppedLine | None = None

    def set_head(self, head: ResponseLine) -> None:
        self.head = head

    def add_piece(self, at: int, place: int) -> None:
        self.pieces.append((at, place))

    def set_end(self, end: EndLine | FailedLine | DroppedLine) -> None:
        self.end = end
        self.over_at = end.t


class Recording:
    """The recording in a file, which stays open; raises `BadRecording` if it cannot be used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._readings = array("q")
        self._read = 0
        self._last = 0
        self._pauses: set[int] = set()
        self.exchanges: list[RecordedExchange] = []
        self._by_number: dict[int, RecordedExchange] = {}
        self._file = _open_file(path)
        try:
            self.header = self._read_header()
            self.agent = self._index_lines_and_find_agent()
        except BaseException:
            self._file.close()
            raise

    def next_clock_reading(self) -> int:
        """The clock of the recorded run; after its last reading, one millisecond more each time."""
        if self._read < len(self._readings):
            self._last = self._readings[self._read]
            self._read += 1
        else:
            self._last += 1
        return self._last

    def has_completed_pause(self, pause: int) -> bool:
        """Whether the recorded run continued after this pause, counted from 1."""
        return pause in self._pauses or self.header.version < HAS_PAUSES

    def read_request(self, exchange: RecordedExchange) -> RequestLine:
        line = self._line_at(exchange.place)
        assert isinstance(line, RequestLine)
        return line

    def read_piece(self, place: int) -> bytes:
        """The piece of a body whose line begins at this position in the file."""
        line = self._line_at(place)
        assert isinstance(line, PieceLine)
        return line.text.encode() if line.base64 is None else binascii.a2b_base64(line.base64)

    def close(self) -> None:
        self._file.close()

    def _line_at(self, place: int) -> RecordingLine:
        self._file.seek(place)
        try:
            line: RecordingLine = decoder.decode(self._file.readline(LONGEST_LINE))
        except msgspec.MsgspecError:
            raise BadRecording(
                f"{self.path} has changed since it was opened, so it cannot be played any further"
            ) from None
        return line

    def _read_header(self) -> RecordingHeader:
        first = self._file.readline(LONGEST_LINE)
        try:
            header = decoder.decode(first)
        except msgspec.MsgspecError:
            header = None
        if not isinstance(header, RecordingHeader):
            raise BadRecording(f"{self.path} is not a recording: {_guess_format(first)}")
        if header.version > VERSION:
            raise BadRecording(f"{self.path} was recorded by a newer Pigeon ({header.pigeon}): update this one")
        return header

    def _index_lines_and_find_agent(self) -> AgentLine:
        agent: AgentLine | None = None
        number, place = 2, self._file.tell()
        while raw := self._file.readline(LONGEST_LINE + 1):
            if len(raw) > LONGEST_LINE:
                raise self._bad_line_error(number, f"is longer than {LONGEST_LINE} bytes")
            if not raw.endswith(b"\n"):
                # The process that wrote it was killed, or its disk was full: complete lines count.
                break
            try:
                line = decoder.decode(raw)
            except msgspec.MsgspecError as error:
                raise self._bad_line_error(number, f"cannot be read: {error}") from None
            if isinstance(line, AgentLine):
                agent = line
            else:
                self._add_line(line, number, place)
            number, place = number + 1, place + len(raw)
        if agent is None:
            raise BadRecording(f"{self.path} ends before its agent was put together: record it again")
        return agent

    def _add_line(self, line: RecordingLine, number: int, place: int) -> None:
        if isinstance(line, RecordingHeader):
            raise self._bad_line_error(number, "begins another recording: two were written to one file")
        if isinstance(line, ClockLine):
            self._readings.extend(line.readings)
            return
        if isinstance(line, PauseLine):
            self._pauses.add(line.number)
            return
        if isinstance(line, RequestLine):
            if line.exchange in self._by_number:
                raise self._bad_line_error(number, f"is a second request of exchange {line.exchange}")
            made = RecordedExchange(line, number, place)
            self._by_number[line.exchange] = made
            self.exchanges.append(made)
            return
        assert not isinstance(line, AgentLine)
        exchange = self._by_number.get(line.exchange)
        if exchange is None:
            raise self._bad_line_error(number, f"belongs to exchange {line.exchange}, whose request is missing")
        if isinstance(line, ResponseLine):
            exchange.set_head(line)
        elif isinstance(line, PieceLine):
            self._check_base64(line, number)
            exchange.add_piece(line.t, place)
        else:
            exchange.set_end(line)

    def _check_base64(self, line: PieceLine, number: int) -> None:
        try:
            binascii.a2b_base64(line.base64 or "", strict_mode=bool(line.base64))
        except ValueError as error:
            raise self._bad_line_error(number, f"cannot be read: {error}") from None

    def _bad_line_error(self, number: int, why: str) -> BadRecording:
        return BadRecording(f"{self.path}, line {number} {why}")


def _open_file(path: str) -> BinaryIO:
    try:
        file = os.fdopen(open_regular(path), "rb")
    except NotRegular as error:
        raise BadRecording(f"{path} is not a recording: {error.strerror}") from None
    except OSError as error:
        raise BadRecording(f"The recording {path} cannot be read: {error.strerror}") from None
    if os.fstat(file.fileno()).st_size > LARGEST:
        file.close()
        raise BadRecording(f"{path} is too large for a recording: more than {LARGEST >> 30} GB")
    return file


def _guess_format(first: bytes) -> str:
    """A guess at what the file is instead."""
    if not first.strip():
        return "it is empty"
    if first.startswith(b'{"type":"session"'):
        return "it is a session; `pigeon replay` plays those"
    if first.startswith(b'{"at":'):
        return "it is a trace, which `--trace` writes; `--record` writes recordings"
    return f'it begins with "{first[:LONGEST_SHOWN].decode("utf-8", "replace").strip()}"'
