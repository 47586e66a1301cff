"""What a test has left running in its event loop: a clean-up that forgets to cancel a task or a timer shows nowhere
else."""

from __future__ import annotations

import asyncio
import asyncio.runners
from typing import Any

# A task that ends by itself within this time was not forgotten; one that ends later is.
WITHIN = 2.0
# A timer that rings sooner than this may be left: it is cheaper than remembering to cancel it.
SHORT = 2.0

_left: list[str] = []
_allowed = False


def forget_what_is_left(allowed: bool) -> None:
    """A test begins; `allowed` if what it leaves is meant to be left."""
    global _allowed
    _allowed = allowed
    _left.clear()


def list_left_running() -> list[str]:
    """The tasks and timers of the test's loops that were there when these ended."""
    return list(_left)


def watch_loops() -> None:
    """From now on, look at each event loop before what it still runs is cancelled."""
    cancel_all_tasks = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]

    def look_and_cancel(loop: asyncio.AbstractEventLoop) -> None:
        if not _allowed:
            _look(loop)
        cancel_all_tasks(loop)

    asyncio.runners._cancel_all_tasks = look_and_cancel  # type: ignore[attr-defined]


def _look(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    if tasks:
        _, tasks = loop.run_until_complete(asyncio.wait(tasks, timeout=WITHIN))
    _left.extend(f"the task {_name_of(task.get_coro())}" for task in tasks)
    timers: list[asyncio.TimerHandle] = getattr(loop, "_scheduled", [])
    for timer in timers:
        callback = getattr(timer, "_callback", timer)
        # How long a server of the tests keeps its connections is not ours to cancel.
        is_ours = not str(getattr(callback, "__module__", "")).startswith("uvicorn")
        if is_ours and not timer.cancelled() and timer.when() - loop.time() > SHORT:
            _left.append(f"a timer that calls {_name_of(callback)}")


def _name_of(work: Any) -> str:
    return str(getattr(work, "__qualname__", type(work).__name__))
