"""The log of `pigeon serve`: JSON lines on stderr about what happened, never about the contents of conversations.

A thread writes them, so that an unread stderr delays nothing; lines for which there is no room are counted and dropped.
Log messages of libraries are reduced to their fixed words, because their arguments may contain addresses with secrets.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import threading
import time
from typing import Literal

from pigeon.system import clock
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import to_printable

Level = Literal["debug", "info", "warning", "error", "off"]
LEVELS: dict[str, Level] = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "off": "off"}
ORDER: tuple[Level, ...] = ("debug", "info", "warning", "error", "off")
MOST_WAITING = 1_000
LONGEST = 500
_PLACEHOLDER = r"%(?:\(\w+\))?[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]"


class ServiceLog:
    """Writes messages of this level and above to a descriptor."""

    def __init__(self, descriptor: int, level: Level = "info") -> None:
        self._descriptor = descriptor
        self._least = ORDER.index(level)
        self._lines: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_queued_lines, name="log", daemon=True)
        self._thread.start()

    def debug(self, event: str, **fields: Json) -> None:
        self._queue_line("debug", event, fields)

    def info(self, event: str, **fields: Json) -> None:
        self._queue_line("info", event, fields)

    def warning(self, event: str, **fields: Json) -> None:
        self._queue_line("warning", event, fields)

    def error(self, event: str, **fields: Json) -> None:
        self._queue_line("error", event, fields)

    def close(self, seconds: float = 1.0) -> None:
        """Write the remaining lines, for as long as stderr is read and at most `seconds`."""
        try:
            self._lines.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def capture_logging(self) -> None:
        """Route the log messages of libraries here."""
        logging.getLogger().addHandler(_Forwarder(self))

    def _queue_line(self, level: Level, event: str, fields: dict[str, Json]) -> None:
        if ORDER.index(level) < self._least:
            return
        record: dict[str, Json] = {"time": clock.to_iso(int(time.time() * 1000)), "level": level, "event": event}
        if self._dropped:
            record["dropped"], self._dropped = self._dropped, 0
        for name, value in fields.items():
            record[name] = to_printable(value)[:LONGEST] if isinstance(value, str) else value
        try:
            self._lines.put_nowait(codec.encode(record) + b"\n")
        except queue.Full:
            self._dropped += 1 + int(record.get("dropped", 0))

    def _write_queued_lines(self) -> None:
        while True:
            line = self._lines.get()
            if line is None:
                return
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                return


class _Forwarder(logging.Handler):
    """Passes on a library's log message without its arguments."""

    def __init__(self, log: ServiceLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        words = (re.sub(_PLACEHOLDER, "…", str(record.msg)) if record.args else str(record.msg)).strip().splitlines()
        write("library", source=record.name, message=words[0][:100] if words else "", failure=failure)
