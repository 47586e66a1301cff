"""The forked process of a warm start: becomes the process that was called, before anything of the call is done.

Afterwards arguments, variables, folder, descriptors, streams, limits, priority, mask and signals are those of the
caller, and this process ends with it: the kernel kills it when the caller's end of a pipe is closed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import fcntl
import io
import marshal
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pigeon.system.process.fork_server import send_record
from pigeon.system.process.messages import Ended, ForkRequest, open_attached
from pigeon.system.process.warm.call import peer_of
from pigeon.system.process.warm.callers import LIMITS
from pigeon.system.process.warm.link import NOT_TAKEN, CallTaken, StartCold

_F_SETSIG = 10
# Where descriptors of our own are put, if the limits allow it: above those that a caller may name.
_OWN_FROM = 200


class TakenCall:
    """A call that this process has taken over."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def report_exit(self, code: int) -> None:
        """Tell the caller the exit code; the parent, which also does, may be gone."""
        send_record(self._link, Ended(os.getpid(), code))


def take_over(descriptors: list[int], can_run: Callable[[Sequence[str]], bool]) -> TakenCall:
    """Become the process that was called. If that is not possible, or this is none of the calls that `can_run`, the
    caller does it itself, and this process ends."""
    *given, own_link = descriptors
    link = socket.socket(fileno=own_link)
    try:
        request, (lifeline, folder, *inherited) = open_attached(given)
        if not isinstance(request, ForkRequest):
            raise ValueError("no call")
        call = marshal.loads(request.request)
        _take_limits(peer_of(link)[0])
        link, lifeline = _take_descriptors(call["descriptors"], inherited, link, lifeline)
        os.fchdir(folder)
        os.close(folder)
        _take_interpreter(call)
        os.setpriority(os.PRIO_PROCESS, 0, call["nice"])
        os.umask(call["umask"])
        _take_signals(call["ignored"])
        if not can_run(call["arguments"]):
            raise ValueError("a call that is not run by a forked process")
    except Exception:
        send_record(link, StartCold())
        os._exit(NOT_TAKEN)
    send_record(link, CallTaken())
    _wait_until_agreed(lifeline)
    return TakenCall(link)


def _take_limits(caller: int) -> None:
    """Have the caller's limits; `callers` has compared those that cannot be taken over."""
    for name in LIMITS.values():
        limit = getattr(resource, name, None)
        if limit is not None:
            theirs = resource.prlimit(caller, limit)
            if theirs != resource.getrlimit(limit):
                resource.setrlimit(limit, theirs)


def _take_descriptors(
    numbers: list[int], inherited: list[int], link: socket.socket, lifeline: int
) -> tuple[socket.socket, int]:
    """Give what was inherited its old numbers; returns the link and the lifeline, which have new ones."""
    if len(numbers) != len(inherited):
        raise ValueError("not all descriptors have arrived")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max([2, *numbers]) + 1
    above = max(most, _OWN_FROM if soft > 2 * _OWN_FROM else 10)
    moved = [_move_above(descriptor, above) for descriptor in inherited]
    new_lifeline = _move_above(lifeline, above)
    new_link = socket.socket(fileno=_move_above(link.detach(), above))
    for number in (0, 1, 2):
        if number not in numbers:
            os.close(number)
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    return new_link, new_lifeline


def _move_above(descriptor: int, number: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number)
    os.close(descriptor)
    return moved


def _take_interpreter(call: dict[str, Any]) -> None:
    """What Python makes of a process when it starts."""
    os.environ.clear()
    for name, value in call["variables"].items():
        os.environb[name] = value
    time.tzset()
    sys.path[:] = call["path"]
    sys.argv[:] = call["arguments"]
    sys.orig_argv[:] = call["original"]
    has_buffers = not call["unbuffered"]
    sys.stdin = sys.__stdin__ = _open_stream(0, "<stdin>", "r", "strict", True)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _open_stream(1, "<stdout>", "w", "strict", has_buffers)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _open_stream(2, "<stderr>", "w", "backslashreplace", has_buffers)  # type: ignore[misc]


def _open_stream(descriptor: int, name: str, mode: str, errors: str, has_buffer: bool) -> io.TextIOWrapper | None:
    """A standard stream as Python opens it; None if the descriptor is closed."""
    try:
        os.fstat(descriptor)
        buffer: Any = open(descriptor, f"{mode}b", -1 if has_buffer else 0, closefd=False)  # noqa: SIM115
    except OSError:
        return None
    raw = getattr(buffer, "raw", buffer)
    raw.name = name
    is_line_buffered = has_buffer and (raw.isatty() or descriptor == 2)
    stream = io.TextIOWrapper(
        buffer, "utf-8", errors, newline="\n", line_buffering=is_line_buffered, write_through=not has_buffer
    )
    stream.mode = mode  # type: ignore[misc]
    return stream


def _take_signals(ignored: Sequence[int]) -> None:
    """What the caller ignored is ignored; everything else does what it does by default, as when a program starts."""
    kept = (signal.SIGKILL, signal.SIGSTOP)
    for number in _signal.valid_signals():
        wanted = _signal.SIG_IGN if number in ignored else _signal.SIG_DFL
        if number not in kept and _signal.getsignal(number) != wanted:
            with suppress(OSError):
                _signal.signal(number, wanted)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _wait_until_agreed(lifeline: int) -> None:
    """Wait until the caller agrees; ends this process if it does not, and from then on whenever it ends."""
    if not os.read(lifeline, 1):
        os._exit(NOT_TAKEN)
    # The kernel sends this signal when the other end is closed, however its process has ended.
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, _F_SETSIG, int(signal.SIGKILL))
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        # It has ended in between.
        os._exit(0)
