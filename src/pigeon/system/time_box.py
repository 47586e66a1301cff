"""A limit on processor time for one piece of work that cannot be interrupted otherwise, such as a regular expression.

Python looks for signals inside a running match, so a timer whose handler raises ends even one that would take for ever.
It counts the time that this process computes, not the time that passes: a busy machine does not make work look slow.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class TookTooLong(Exception):
    """The work was ended because its time was up."""


_armed = False
_ready = False


def _ring(number: int, frame: FrameType | None) -> None:
    if _armed:
        raise TookTooLong


class TimeBox:
    """`with TimeBox(0.05): ...` raises `TookTooLong` inside the block; without a limit outside the main thread."""

    __slots__ = ("_on", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._on = False

    def __enter__(self) -> None:
        global _armed, _ready
        self._on = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if not self._on:
            return
        if not _ready:
            signal.signal(signal.SIGVTALRM, _ring)
            _ready = True
        _armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        global _armed
        if self._on:
            _armed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
