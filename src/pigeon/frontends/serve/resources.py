"""The memory and the number of processes that a process and its descendants use, from `/proc`.

Used to enforce the limits of workers (`conversations.py`) and for `/metrics`. Even background commands stay below their
worker in the process tree, because their reaper adopts them (`system/process/helper_main.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessUse(Struct, frozen=True):
    """What a process and its descendants use: bytes of unshared memory, and the number of processes."""

    memory: int
    processes: int


def uses_of(pids: Sequence[int]) -> dict[int, ProcessUse]:
    """What each of these processes uses; those that have ended are left out."""
    children: dict[int, list[int]] = {}
    alive = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _parent_of(int(name))
            if parent is not None:
                alive.add(int(name))
                children.setdefault(parent, []).append(int(name))
    return {pid: _use_of(pid, children) for pid in pids if pid in alive}


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


def _use_of(pid: int, children: dict[int, list[int]]) -> ProcessUse:
    tree = [pid]
    for one in tree:
        tree += children.get(one, [])
    return ProcessUse(sum(private_memory(one) for one in tree), len(tree))


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program is in parentheses, and may contain parentheses itself.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
