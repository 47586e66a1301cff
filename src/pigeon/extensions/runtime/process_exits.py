"""Only the main thread ends the process: `os._exit` and `os.abort` in an extension end its own work instead.

And what an extension did to the standard streams does not spoil the end.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import NoReturn

_exit = os._exit
_abort = os.abort


def guard() -> None:
    """Put the guard in place, once."""
    os._exit = _leave
    os.abort = _give_up


def mend() -> None:
    """Put streams in the place of those that cannot be used any more."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except Exception:
            setattr(sys, name, io.StringIO())


def _leave(status: int = 0) -> NoReturn:
    if threading.current_thread() is threading.main_thread():
        _exit(status)
    raise SystemExit(status)


def _give_up() -> NoReturn:
    if threading.current_thread() is threading.main_thread():
        _abort()
    raise SystemExit("os.abort")
