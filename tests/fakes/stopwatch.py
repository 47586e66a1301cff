"""A limit of time that holds on a busy machine too: what processes wait for a processor is not counted.

The kernel counts that for the whole machine (`/proc/pressure/cpu`, in microseconds); where it does not, the limit is
for the wall clock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What happens inside takes less than this, given the processors that it asks for."""
    began, stalled = time.monotonic(), _stalled()
    yield
    took = time.monotonic() - began - (_stalled() - stalled)
    assert took < seconds, f"it took {took:.2f} seconds"


def _stalled() -> float:
    """Seconds since the machine started in which something that could run did not."""
    try:
        found = re.search(r"some .*total=(\d+)", PRESSURE.read_text())
    except OSError:
        found = None
    return int(found[1]) / 1e6 if found else 0.0
