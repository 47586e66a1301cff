"""The process table as tests ask it: which processes carry a mark, which are zombies, and waiting until that changes.

`eventually` is the only place where tests poll: nothing tells a process that another one, which is not its child, has
appeared, has called `exec` or is gone, and nothing tells a test that a thread of an extension has come so far.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator

BETWEEN_LOOKS = 0.005


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Ask again and again until it holds; false if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(BETWEEN_LOOKS)
    return True


def processes_with(marker: str) -> list[int]:
    """Living processes whose command line contains the marker, ours excepted."""
    return [pid for pid, words in _each("cmdline") if marker.encode() in words and pid != os.getpid()]


def processes_in(variable: str) -> dict[int, str]:
    """Living processes that were started with this `NAME=value` in their environment, with their command lines."""
    found = [pid for pid, environment in _each("environ") if variable.encode() in environment]
    return {pid: words for pid in found if (words := _command_line(pid))}


def zombies_of(parent: int) -> list[int]:
    """Children of a process that ended and were not reaped."""
    states = ((pid, stat.rpartition(b")")[2].split()[:2]) for pid, stat in _each("stat"))
    return [pid for pid, state in states if state == [b"Z", b"%d" % parent]]


def kill_all(pids: Iterable[int]) -> None:
    """End them at once; some may have ended already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """True unless it is gone or a zombie."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    return False


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
        return words.read().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def _each(file: str) -> Iterator[tuple[int, bytes]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/{file}", "rb") as content:
                yield int(name), content.read()
