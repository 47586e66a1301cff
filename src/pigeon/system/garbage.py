"""Pauses of Python's garbage collector while much is loaded at once and nothing is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pausing_garbage_collection() -> Iterator[None]:
    """Run the body without garbage collection, which would take longer than the work; it must not await anything."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
