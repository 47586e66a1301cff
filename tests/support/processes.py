"""Processes as tests see them: the process table, commands and what they leave behind, a handshake over a pipe.

`eventually` is the only place where tests poll: nothing tells a process that another one, which is not its child, has
appeared, has called `exec` or is gone, and nothing tells a test that a thread of an extension has come so far. The test
keeps the pipe of a `Fifo` open for both directions, so that nothing it does here blocks: what one side writes waits in
the pipe for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pigeon.system.process.fork_server import make_scanned_child_finder
from pigeon.system.process.start import Process, ProcessOwner

BETWEEN_LOOKS = 0.005
BASH = "/bin/bash"
TREE_SIZE = 6
_others: set[int] = set()
DEADLINE = 15.0


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


async def start_command(
    processes: ProcessOwner, command: str, cwd: str = "/", environment: dict[str, str] | None = None
) -> Process:
    """A command that has just been started."""
    variables = dict(os.environ) if environment is None else environment
    return await processes.start([BASH, "-c", command], cwd=cwd, environment=variables)


async def run_command(
    processes: ProcessOwner, command: str, cwd: str = "/", environment: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """The exit code and the output of a command."""
    process = await start_command(processes, command, cwd, environment)
    try:
        output = await read_all_output(process)
        return await process.wait(), output
    finally:
        process.close()


async def read_all_output(process: Process) -> bytes:
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


async def start_tree(processes: ProcessOwner, marker: str) -> Process:
    """That command, with all its processes running."""
    process = await start_command(processes, tree(marker))
    assert await process.read() == b"ready\n"
    assert await asyncio.to_thread(eventually, lambda: is_tree_running(marker))
    return process


def is_tree_running(marker: str) -> bool:
    """True once everything in the tree naps."""
    return len(processes_with(f"{marker}\x00")) >= TREE_SIZE


def children(pid: int) -> list[int]:
    """The children of a process, as the process table has them."""
    return make_scanned_child_finder()(pid)


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


class Fifo:
    """One named pipe in the folder of the command; `waits` and `tells` are written into what the test runs."""

    def __init__(self, folder: Path, name: str = "go") -> None:
        os.mkfifo(folder / name)
        self.path = folder / name
        self.waits = f"read _ <{name}"
        self.tells = f"echo >{name}"
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def release(self) -> None:
        """Let one command go on that `waits` or will wait."""
        os.write(self._descriptor, b"\n")

    def wait(self) -> None:
        """Block until a command `tells` that it has come so far."""
        assert select.select([self._descriptor], [], [], DEADLINE)[0], "the command never came so far"
        os.read(self._descriptor, 1)
