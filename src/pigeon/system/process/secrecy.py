"""Closes our own memory to the commands we start: keys that are in our environment are not in theirs."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache

_PR_SET_DUMPABLE = 4


@cache
def close_to_others() -> None:
    """On Linux, keep other processes of the same user from reading our environment and memory; once is enough."""
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, ImportError, AttributeError):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
