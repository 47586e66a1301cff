"""The memory and the number of processes that a process and its descendants use, from `/proc`.

Used to enforce the limits of workers (`conversations.py`) and for `/metrics`. Even background commands stay below their
worker in the process tree, because their reaper adopts them (`system/process/helper_main.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from pigeon.system.process.fork_server import child_finder

_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessUse(Struct, frozen=True):
    """What a process and its descendants use: bytes of unshared memory, and the number of processes."""

    memory: int
    processes: int


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as possible; returns the limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def uses_of(pids: Sequence[int]) -> dict[int, ProcessUse]:
    """What each of these processes uses; those that have ended are left out."""
    list_children = child_finder()
    return {pid: _use_of(pid, list_children) for pid in pids if os.path.exists(f"/proc/{pid}")}


def private_memory(pid: int) -> int:
    """The unshared memory of a process in bytes, without files; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return max(0, int(resident) - int(shared)) * _PAGE


def proportional_memory(pids: Iterable[int]) -> float:
    """The memory of processes in bytes, counting shared memory in proportion; ended processes count as 0."""
    return float(sum(map(_read_proportional_memory, pids)))


def _read_proportional_memory(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    # Not every kernel offers this file.
    return private_memory(pid)


def _use_of(pid: int, list_children: Callable[[int], list[int]]) -> ProcessUse:
    tree = [pid]
    for one in tree:
        tree += list_children(one)
    return ProcessUse(sum(private_memory(one) for one in tree), len(tree))
