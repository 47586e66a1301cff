"""The one fork server: a process that forks another for each request, reports how each ends, and ends on request.

It is the warm parent of `pigeon serve` and of `pigeon batch`, which have imported everything that an agent needs, and
the helper that all commands descend from (`helper_main`). It has one thread, no event loop, and no file but its control
link, whose records are in `messages`. Pigeon's end is `forking`. The parent of `pigeon warm` is the same with many
links, one for each call (`warm/server`).

    event                                what it does
    ----------------------------------   ------------------------------------------------------------------------
    `ForkRequest`                               fork a process that does the work; answer `ForkDone` or `NotForked`
    `KillChild`                          kill that process
    `BeginPreparation`                   prepare, a step at a time while no other event waits
    a process has ended                  report it: `Ended`
    Pigeon hung up or died               end; the processes stay, unless this server `owns_descendants`

A server that owns what its processes start is the subreaper of all of it:

    a process was stopped                continue it
    a process was killed                 kill what it left behind, which the kernel has made ours
    Pigeon hung up or died               kill everything below, then end
"""

from __future__ import annotations

# The modules `signal`, `socket` and `contextlib` would be half of the helper's start, which every agent pays: they wrap
# these two in enumerations and classes, and import others for that.
import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import ctypes
import gc
import os
import select
import sys
import time

from pigeon.system.process.messages import (
    BeginPreparation,
    Ended,
    ForkDone,
    ForkRequest,
    KillChild,
    LinkMessage,
    NotForked,
    PreparationDone,
    ServerReady,
    close_descriptors,
    receive,
    send,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import NoReturn

    Work = Callable[[bytes, list[int]], int]

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GIVE_UP_AFTER = 30.0
FIRST_PAUSE_MS = 5
LONGEST_PAUSE_MS = 100

_libc = ctypes.CDLL(None, use_errno=True)


class Suppressed:
    """Like `contextlib.suppress`, without importing that module."""

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        """Does nothing: errors are suppressed at the exit."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """True if the error is one of them."""
        return kind is not None and issubclass(kind, self._kinds)


def serve_forks(
    descriptor: int, work: Work, owns_descendants: bool = False, preparation: Iterator[None] | None = None
) -> NoReturn:
    """Fork a process for each request until Pigeon hangs up or dies; it calls `work`, which returns its exit code.

    `work` gets the bytes and the descriptors of the request; all other descriptors except 0 to 2 are closed. Processes
    have what the `preparation` has done by then; between its steps there must be no thread and no open file.
    """
    if owns_descendants:
        become_subreaper()
    ForkLoop(socket.socket(fileno=descriptor), work, owns_descendants, preparation).serve()
    os._exit(0)


def become_subreaper() -> None:
    """Adopt orphaned descendants, and be continued if our own parent dies while we are stopped."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


class Forker:
    """Forks processes and reports to the links that have requested them how they end."""

    def __init__(self, work: Work, owns_descendants: bool) -> None:
        self._work = work
        self._owns_descendants = owns_descendants
        self._signals = open_child_signals()
        self._children: dict[int, socket.socket] = {}
        self._strays = False
        # A Ctrl-C at the terminal is meant for Pigeon.
        self._interrupt = signal.SIG_IGN if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else signal.SIG_DFL
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _fork(self, link: socket.socket, request: bytes, descriptors: list[int], with_handle: bool = False) -> None:
        """Fork a process for this link; `with_handle`, the answer carries its pidfd."""
        try:
            pid = os.fork()
        except OSError as error:
            send_record(link, NotForked(error.errno or 0))
        else:
            if pid == 0:
                self._run_child(request, descriptors)
            self._children[pid] = link
            handle = _open_handle(pid) if with_handle else []
            send_record(link, ForkDone(pid), handle)
            close_descriptors(handle)
        finally:
            close_descriptors(descriptors)

    def _run_child(self, request: bytes, descriptors: list[int]) -> NoReturn:
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, self._interrupt)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            before = 3
            for descriptor in [*sorted(descriptors), os.sysconf("SC_OPEN_MAX")]:
                os.closerange(before, descriptor)
                before = descriptor + 1
            gc.disable()
            code = self._work(request, descriptors)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with Suppressed(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _reap_and_report(self) -> None:
        clear_signals(self._signals)
        for pid, status in reap_children(os.WUNTRACED if self._owns_descendants else 0)[0]:
            if pid not in self._children:
                continue
            if os.WIFSTOPPED(status):
                os.kill(pid, signal.SIGCONT)
                continue
            self._strays = self._strays or (self._owns_descendants and status != 0)
            self._report_end(self._children.pop(pid), Ended(pid, os.waitstatus_to_exitcode(status)))

    def _report_end(self, link: socket.socket, record: Ended) -> None:
        send_record(link, record)


class ForkLoop(Forker):
    """Forks processes on request of one link and waits for their ends."""

    def __init__(
        self, control: socket.socket, work: Work, owns_descendants: bool, preparation: Iterator[None] | None
    ) -> None:
        super().__init__(work, owns_descendants)
        self._preparation = preparation
        self._is_preparing = False
        os.set_inheritable(control.fileno(), False)
        self._control = control

    def serve(self) -> None:
        """Serve requests until Pigeon is gone; returns when nothing is left that must end with it."""
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._signals, select.POLLIN)
        send_record(self._control, ServerReady(os.getpid()))
        pause = FIRST_PAUSE_MS
        while True:
            ready = dict(poll.poll(0 if self._is_preparing else pause if self._strays else None))
            if not ready and self._is_preparing:
                self._prepare_further()
            if self._control.fileno() in ready and not self._serve_next_request():
                if self._owns_descendants:
                    kill_descendants(self._signals)
                return
            if self._signals in ready:
                self._reap_and_report()
                pause = FIRST_PAUSE_MS
            if self._strays:
                self._strays = kill_descendants_once(os.getpid(), set(self._children))
                pause = min(pause * 2, LONGEST_PAUSE_MS)

    def _serve_next_request(self) -> bool:
        """Returns False once Pigeon has hung up."""
        try:
            record, descriptors = receive(self._control)
        except OSError as error:
            send_record(self._control, NotForked(error.errno or 0))
            return True
        if isinstance(record, ForkRequest):
            self._fork(self._control, record.request, descriptors)
        elif isinstance(record, KillChild) and record.pid in self._children:
            os.kill(record.pid, signal.SIGKILL)
        elif isinstance(record, BeginPreparation):
            self._is_preparing = True
        return record is not None

    def _prepare_further(self) -> None:
        """Do the next step; after the last one, everything that exists is shared with later processes."""
        if self._preparation is None or next(self._preparation, self) is self:
            self._is_preparing = False
            gc.collect()
            gc.freeze()
            send_record(self._control, PreparationDone())
        # A step may run an event loop, which restores Python's own handler.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _open_handle(pid: int) -> list[int]:
    """Its pidfd, unless there are too many open files."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def send_record(link: socket.socket, record: LinkMessage, descriptors: Sequence[int] = ()) -> None:
    """Send a record; if the other end is gone, the next read of the link reports it."""
    with Suppressed(OSError):
        send(link, record, descriptors)


# Children and descendants


def open_child_signals() -> int:
    """A descriptor that is readable when a child of this process has ended or stopped."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mask = (ctypes.c_ulong * 16)(1 << (signal.SIGCHLD - 1))
    descriptor: int = _libc.signalfd(-1, ctypes.byref(mask), os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return descriptor


def clear_signals(signals: int) -> None:
    """Make that descriptor wait for the next signal."""
    with Suppressed(BlockingIOError):
        os.read(signals, 512)


def reap_children(also: int = 0) -> tuple[list[tuple[int, int]], bool]:
    """The children that have ended, reaped, and whether others are left."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | also)
        except ChildProcessError:
            return found, False
        if pid == 0:
            return found, True
        found.append((pid, status))


def kill_descendants(signals: int, on_end: Callable[[int, int], None] = lambda pid, status: None) -> None:
    """Kill every descendant until none is left. One pass is not enough, because they fork meanwhile."""
    give_up_at = time.monotonic() + GIVE_UP_AFTER
    pause = FIRST_PAUSE_MS
    poll = select.poll()
    poll.register(signals, select.POLLIN)
    while True:
        ended, left = reap_children()
        for pid, status in ended:
            on_end(pid, status)
        if not left or time.monotonic() > give_up_at:
            return
        kill_descendants_once(os.getpid(), set())
        poll.poll(pause)
        clear_signals(signals)
        pause = min(pause * 2, LONGEST_PAUSE_MS)


def kill_descendants_once(root: int, spared: set[int]) -> bool:
    """Kill everything below `root` right now, except the spared children and their descendants; returns False if
    nothing is left."""
    any_found = False
    for pid in descendants(root, spared):
        any_found = True
        with Suppressed(OSError):
            os.kill(pid, signal.SIGKILL)
    return any_found


def descendants(root: int, spared: set[int]) -> Iterator[int]:
    """Everything below `root`, without the spared children and what is below them; parents come first.

    If each is killed when it is yielded, the first process of a namespace is killed before its thousand children have
    been looked at one by one, and with it the kernel ends them all. A level is known before the one above it is killed:
    afterwards its processes would be children of another.
    """
    children = child_finder()
    found: set[int] = set()
    level = children(root)
    while True:
        level = [pid for pid in dict.fromkeys(level) if pid not in spared and pid not in found]
        if not level:
            return
        found.update(level)
        below = [child for pid in level for child in children(pid)]
        yield from level
        level = below


def child_finder(ignored: tuple[type[OSError], ...] = (OSError,)) -> Callable[[int], list[int]]:
    """A function that lists the children of a process, as this kernel allows; raises errors that are not `ignored`."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return lambda pid: children_of(pid, ignored)
    return make_scanned_child_finder()


def children_of(pid: int, ignored: tuple[type[OSError], ...] = (OSError,)) -> list[int]:
    found: list[int] = []
    with Suppressed(*ignored):
        for task in os.listdir(f"/proc/{pid}/task"):
            with Suppressed(*ignored), open(f"/proc/{pid}/task/{task}/children", "rb") as listing:
                found.extend(int(child) for child in listing.read().split())
    return found


def make_scanned_child_finder() -> Callable[[int], list[int]]:
    """The same for kernels without that list: one scan of the process table."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with Suppressed(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
                table.setdefault(parent, []).append(int(name))
    return lambda pid: table.get(pid, [])
