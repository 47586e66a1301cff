"""Runs a command as the head of a process tree, and writes what all of the tree has cost.

    python -I -S tree_meter.py FD EVERY_MS COMMAND ...

It is the reaper of everything below it, so what loses its parent is counted, too; what is left when the command has
ended is ended. CPU seconds are those of all processes that have ended; memory is the most that the tree had at one of
the moments in which it was looked at (0: never; looking costs time, so it is a run of its own).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
# So long may leftovers of a command end by themselves, then by SIGTERM, before they are killed.
GRACE_SECONDS = 0.5


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found, todo = [], [pid]
    while todo:
        try:
            with open(f"/proc/{todo[-1]}/task/{todo.pop()}/children", encoding="ascii") as file:
                below = [int(one) for one in file.read().split()]
        except OSError:
            continue
        found += below
        todo += below
    return found


def memory_kb(pids: list[int]) -> int:
    """Real memory (PSS) of these processes together: pages that several share are divided among them."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            continue
    return total


def reap_leftovers() -> None:
    """End what the command has left behind."""
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + GRACE_SECONDS
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, number)
            except OSError:
                continue
        while time.monotonic() < until:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.005)
            except ChildProcessError:
                return


def main() -> None:
    report, every, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(report, False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    peak = 0
    is_over = threading.Event()

    def look() -> None:
        nonlocal peak
        while not is_over.wait(every / 1000):
            peak = max(peak, memory_kb(descendants(os.getpid())))

    began = time.perf_counter()
    # Not forked: the pages of this process would be copied at the expense of the command.
    pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=[])
    if every:
        threading.Thread(target=look, daemon=True).start()
    _, status = os.waitpid(pid, 0)
    wall = time.perf_counter() - began
    is_over.set()
    reap_leftovers()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(status)
    found = {"code": code, "wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak_mb": peak / 1024}
    os.write(report, json.dumps(found).encode())


if __name__ == "__main__":
    main()
