"""Shell commands as processes, without the shell room around them; and commands that leave processes behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from fakes.processes import eventually, processes_with
from pigeon.system.process.fork_server import scanned_children
from pigeon.system.process.start import Process, ProcessOwner

BASH = "/bin/bash"
TREE_SIZE = 6
_others: set[int] = set()


async def begin(
    processes: ProcessOwner, command: str, cwd: str = "/", environment: dict[str, str] | None = None
) -> Process:
    """A command that has just been started."""
    variables = dict(os.environ) if environment is None else environment
    return await processes.start([BASH, "-c", command], cwd=cwd, environment=variables)


async def run(
    processes: ProcessOwner, command: str, cwd: str = "/", environment: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """The exit code and the output of a command."""
    process = await begin(processes, command, cwd, environment)
    try:
        output = await drained(process)
        return await process.wait(), output
    finally:
        process.close()


async def drained(process: Process) -> bytes:
    """All output until its end."""
    parts = []
    while part := await process.read():
        parts.append(part)
    return b"".join(parts)


def tree(marker: str) -> str:
    """A shell with a child, grandchildren, one in a session of its own and one that forked twice; prints `ready`."""
    nap = f"exec -a {marker} sleep 300"
    return (
        f"({nap}) & (({nap}) & ({nap}) & wait) & setsid {BASH} -c '{nap}' & "
        f"(setsid {BASH} -c '({nap}) & exit' &) ; echo ready; {nap}"
    )


async def started_tree(processes: ProcessOwner, marker: str) -> Process:
    """That command, with all its processes running."""
    process = await begin(processes, tree(marker))
    assert await process.read() == b"ready\n"
    assert await asyncio.to_thread(eventually, lambda: tree_stands(marker))
    return process


def tree_stands(marker: str) -> bool:
    """True once everything in the tree naps."""
    return len(processes_with(f"{marker}\x00")) >= TREE_SIZE


def children(pid: int) -> list[int]:
    """The children of a process, as the process table has them."""
    return scanned_children()(pid)


def note_others() -> None:
    """What runs now is of other tests, which share servers for as long as this process lives."""
    _others.clear()
    _others.update(children(os.getpid()))


def helpers() -> list[int]:
    """The helpers of this process: commands are never among our own children, but servers of other tests may be."""
    return [pid for pid in children(os.getpid()) if pid not in _others and b"\0serve\0" not in arguments_of(pid)]


def arguments_of(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
