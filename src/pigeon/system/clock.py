"""Time: the wall clock for what is written down, the monotonic clock for what is waited for."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def iso(ms: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ`."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03d}Z"


def monotonic_ms() -> int:
    """Milliseconds of a clock that never jumps."""
    return time.monotonic_ns() // 1_000_000
