"""The garbage collector of Python, kept from looking for garbage where there is none: while much is loaded at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pausing_garbage_collection() -> Iterator[None]:
    """Do something without looking for garbage, which would take longer than the work; nothing may be awaited in it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
