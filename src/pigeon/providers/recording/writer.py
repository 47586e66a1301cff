"""`--record FILE`: records what is needed to replay a run without the model's server.

A recorder of the HTTP client. It also sits between the agent and its clock, whose readings become part of the
recording, and gives the agent reproducible ids. Each event is a line that is written when it happens; memory only holds
the last readings of the clock, and the end of a piece that may be the beginning of a key.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock
from typing import Protocol

import msgspec

from pigeon.providers.http.recorders import HttpRequest, mask_headers
from pigeon.providers.recording.recorded_lines import (
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
)
from pigeon.system import clock
from pigeon.system.ids import Ids
from pigeon.system.private_log import PrivateLog
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import Model

# The most readings of the clock that are lost if the process is killed.
MOST_READINGS = 64


class KeyMask(Protocol):
    """Masks keys in what is written; `secrets/redactor` implements it."""

    def mask(self, data: bytes) -> bytes: ...

    def mask_text(self, text: str) -> str: ...

    def make_stream_masker(self) -> Callable[[bytes, bool], bytes]:
        """Masks bytes that come in pieces: called with each piece, and whether it is the last."""
        ...


class RecordingWriter:
    """Writes the recording of one agent."""

    def __init__(self, log: PrivateLog, keys: KeyMask, version: str, real_now: Callable[[], int]) -> None:
        self._log = log
        self._real_now = real_now
        self._keys = keys
        self._began = time.monotonic()
        self._count = 0
        self._pauses = 0
        self._bodies: dict[int, Callable[[bytes, bool], bytes]] = {}
        self._readings: list[int] = []
        self._lock = Lock()
        seed = os.urandom(16).hex()
        self.ids = Ids(seed)
        at = clock.to_iso(clock.now_ms())
        self._write(RecordingHeader(version=VERSION, pigeon=version, at=at, seed=seed))

    def record_clock_reading(self) -> int:
        """The time of the agent's clock; the reading is recorded."""
        reading = self._real_now()
        with self._lock:
            self._readings.append(reading)
            full = len(self._readings) >= MOST_READINGS
        if full:
            self._write_readings()
        return reading

    def record_agent(self, model: Model | None, thinking: str, models: list[Model], folders: dict[str, str]) -> None:
        """Write the models, the folders and the thinking level that the agent starts with."""
        provider, id = (model.provider, model.id) if model else ("", "")
        line = AgentLine(provider=provider, model=id, thinking=thinking, models=models, folders=folders)
        # The address of a server may contain a key.
        self._log.write(self._keys.mask(msgspec.json.encode(line)))

    def on_request_start(self, request: HttpRequest) -> int:
        self._count += 1
        number = self._count
        self._bodies[number] = self._keys.make_stream_masker()
        body, text, base64 = _to_body_fields(self._keys.mask(request.body))
        self._write(
            RequestLine(
                exchange=number,
                t=self._elapsed_ms(),
                method=request.method,
                url=self._keys.mask_text(request.url),
                headers=mask_headers(request.headers, self._keys.mask_text),
                body=body,
                text=text,
                base64=base64,
            )
        )
        return number

    def on_response_started(self, number: int, status: int, headers: Mapping[str, str]) -> None:
        shown = mask_headers(headers, self._keys.mask_text)
        self._write(ResponseLine(exchange=number, t=self._elapsed_ms(), status=status, headers=shown))

    def on_body_piece(self, number: int, piece: bytes | None) -> None:
        """Write a piece of the body; None ends it."""
        self._write_piece(number, piece or b"", piece is None)
        if piece is None:
            self._write(EndLine(exchange=number, t=self._elapsed_ms()))

    def on_exchange_failed(self, number: int, error: Exception) -> None:
        self._write_piece(number, b"", last=True)
        reason = str(error).strip() or str(error.__cause__ or error.__context__ or "").strip()
        name, reason = type(error).__name__, self._keys.mask_text(reason)
        self._write(FailedLine(exchange=number, t=self._elapsed_ms(), error=name, reason=reason))

    def on_response_dropped(self, number: int) -> None:
        self._write_piece(number, b"", last=True)
        self._write(DroppedLine(exchange=number, t=self._elapsed_ms()))

    def sleep(self, ms: float, asleep: Callable[[float], Awaitable[None]]) -> Awaitable[None]:
        """Wait with `asleep` and record the pause, which is numbered from its beginning even if it is cut off."""
        self._pauses += 1
        return self._sleep_and_record(self._pauses, ms, asleep)

    async def _sleep_and_record(self, number: int, ms: float, asleep: Callable[[float], Awaitable[None]]) -> None:
        await asleep(ms)
        self._write(PauseLine(number=number, t=self._elapsed_ms()))

    def on_client_closed(self) -> None:
        """Write the last readings of the clock and close the file."""
        self._write_readings()
        self._log.close()

    def _write_piece(self, number: int, piece: bytes, last: bool) -> None:
        mask = self._bodies.pop(number, None) if last else self._bodies.get(number)
        shown = b"" if mask is None else mask(piece, last)
        if not shown:
            return
        try:
            line = PieceLine(exchange=number, t=self._elapsed_ms(), text=shown.decode())
        except UnicodeDecodeError:
            # Not text, or a piece that ends within a character.
            line = PieceLine(exchange=number, t=self._elapsed_ms(), base64=b64encode(shown).decode())
        self._write(line)

    def _elapsed_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)

    def _write(self, line: RecordingLine) -> None:
        self._write_readings()
        self._log.write(msgspec.json.encode(line))

    def _write_readings(self) -> None:
        with self._lock:
            readings, self._readings = self._readings, []
            if readings:
                self._log.write(msgspec.json.encode(ClockLine(readings=readings)))


def _to_body_fields(body: bytes) -> tuple[msgspec.Raw | Absent, str | None, str | None]:
    """A body for its line: JSON as it is, if that fits into one line, else text or base64."""
    try:
        value = codec.decode(body)
        return msgspec.Raw(body if b"\n" not in body else codec.encode(value)), None, None
    except BadRecord:
        pass
    try:
        return ABSENT, body.decode(), None
    except UnicodeDecodeError:
        return ABSENT, None, b64encode(body).decode()
