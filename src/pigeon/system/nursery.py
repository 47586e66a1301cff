"""The program that every command is a descendant of, so that none outlives us.

It is started once per process, with the first command, as `python -I -S`, and imports nothing of pigeon. It forks
keepers and always has one free. A keeper takes one command at a time, and is the reaper of everything below it,
whatever session or parent those processes chose. During a command it is tied to the agent by a socket, the leash: when
the leash is pulled or torn (because the agent was killed), the keeper kills all that is below it. What the leash says:
the agent sends one request (a length, then a marshalled `argv, cwd, env`), later any byte to have everything killed;
the keeper answers in lines, `p<pid>`, `e<errno>` when the program could not be started, `x<exit code or minus signal>`,
and hangs up once nothing is left. Then it is free for the next command.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import marshal
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

PR_SET_CHILD_SUBREAPER = 36
GIVE_UP_AFTER = 30.0
MSG_CMSG_CLOEXEC = 0x40000000
FD_SIZE = 4
AGENT_GONE = 3
MOST_FREE = 4
TAKEN = b"t"
FREE = b"f"
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTTOU)

_libc = ctypes.CDLL(None, use_errno=True)


class Wake:
    """A descriptor that becomes readable when a child ends."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self._write_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Forget what woke us."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.read_end, 512):
                pass

    def close(self) -> None:
        """Give it back before a fork makes its own."""
        signal.set_wakeup_fd(-1)
        os.close(self.read_end)
        os.close(self._write_end)


class Office:
    """Where keepers wait: a few seats, and a pipe that tells the nursery who is free."""

    def __init__(self, control: socket.socket, news: int, seats: int, give_seat: int) -> None:
        self.control = control
        self._news = news
        self._seats = seats
        self._give_seat = give_seat

    def sit(self, again: bool = False) -> bool:
        """Wait for work if a seat is free; the nursery counts those whom it forked by itself."""
        try:
            os.read(self._seats, 1)
        except BlockingIOError:
            return False
        if again:
            os.write(self._news, FREE)
        return True

    def stand_up(self) -> None:
        """Go to work."""
        os.write(self._give_seat, b"s")
        os.write(self._news, TAKEN)


def main(control_descriptor: int) -> None:
    """Have a keeper free at all times; leave when the agent hangs up and nothing is left."""
    gc.disable()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(control_descriptor, False)
    control = socket.socket(fileno=control_descriptor)
    news, tell_news = os.pipe()
    seats, give_seat = os.pipe()
    os.set_blocking(seats, False)
    os.write(give_seat, b"s" * MOST_FREE)
    office = Office(control, tell_news, seats, give_seat)
    wake = Wake()
    poll = select.poll()
    poll.register(news, select.POLLIN)
    poll.register(wake.read_end, select.POLLIN)
    keepers: set[int] = set()
    free = 0
    while True:
        if free <= 0:
            keepers.add(fork_keeper(office, wake))
            free += 1
        ready = dict(poll.poll())
        if news in ready:
            heard = os.read(news, 4096)
            free += heard.count(FREE) - heard.count(TAKEN)
        if wake.read_end in ready:
            wake.clear()
            ended = {pid: os.waitstatus_to_exitcode(status) for pid, status in reaped() if pid in keepers}
            keepers.difference_update(ended)
            if AGENT_GONE in ended.values():
                break
            if any(ended.values()):
                # A keeper was killed; what it kept is ours now. Whether it was free is unknown, so count on none.
                kill_pass(keepers)
                free = 0
    kill_below(wake, keepers)
    os._exit(0)


def fork_keeper(office: Office, wake: Wake) -> int:
    """The pid of a new keeper, which takes one command after the other as long as there is a seat to wait on."""
    pid = os.fork()
    if pid:
        return pid
    try:
        wake.close()
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        own = Wake()
        seated = office.sit()
        while seated:
            descriptors = received(office.control)
            if descriptors is None:
                os._exit(AGENT_GONE)
            office.stand_up()
            with socket.socket(fileno=descriptors[0]) as leash:
                keep(leash, descriptors[1], own)
                os.chdir("/")
                seated = office.sit(again=True)
        os._exit(0)
    finally:
        os._exit(1)


def received(control: socket.socket) -> tuple[int, int] | None:
    """The leash and the output of the next command, or nothing when the agent is gone."""
    data, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(2 * FD_SIZE), MSG_CMSG_CLOEXEC)
    if not data or not ancillary:
        return None
    packed = ancillary[0][2]
    return int.from_bytes(packed[:FD_SIZE], sys.byteorder), int.from_bytes(packed[FD_SIZE : 2 * FD_SIZE], sys.byteorder)


def keep(leash: socket.socket, output: int, wake: Wake) -> None:
    """Run one command and stay until everything it started is gone."""
    request = read_request(leash)
    try:
        if request is None:
            return
        shell = start(request, output)
    except OSError as error:
        tell(leash, b"e%d\n" % (error.errno or 1))
        return
    finally:
        os.close(output)
    tell(leash, b"p%d\n" % shell)

    def ended(pid: int, status: int) -> None:
        if pid == shell:
            tell(leash, b"x%d\n" % os.waitstatus_to_exitcode(status))

    poll = select.poll()
    poll.register(leash, select.POLLIN)
    poll.register(wake.read_end, select.POLLIN)
    while has_children():
        ready = dict(poll.poll())
        if wake.read_end in ready:
            wake.clear()
            for pid, status in reaped():
                ended(pid, status)
        if leash.fileno() in ready:
            kill_below(wake, set(), ended)
            return


def read_request(leash: socket.socket) -> tuple[list[bytes], bytes, dict[bytes, bytes]] | None:
    """What to run; nothing if the agent went away meanwhile."""
    head = _exactly(leash, 4)
    body = _exactly(leash, int.from_bytes(head, "big")) if head else None
    if body is None:
        return None
    argv, cwd, env = marshal.loads(body)
    return argv, cwd, env


def _exactly(leash: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = leash.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def start(request: tuple[list[bytes], bytes, dict[bytes, bytes]], output: int) -> int:
    """Run it in a session of its own, with only descriptors 0, 1 and 2; `OSError` if that fails."""
    argv, cwd, env = request
    os.chdir(cwd)
    return os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigdef=(*IGNORED, signal.SIGXFSZ),
    )


def tell(leash: socket.socket, line: bytes) -> None:
    """Say it, if anybody still listens."""
    with contextlib.suppress(OSError):
        leash.sendall(line)


def reaped() -> list[tuple[int, int]]:
    """The children that have ended, taken off the process table."""
    ended: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended.append((pid, status))
    return ended


def has_children() -> bool:
    """True while a child is left, alive or not yet reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_below(wake: Wake, spared: set[int], on_end: Callable[[int, int], None] | None = None) -> None:
    """Kill every descendant until none is left; the spared children end by themselves and are waited for."""
    deadline = time.monotonic() + GIVE_UP_AFTER
    pause = 5
    poll = select.poll()
    poll.register(wake.read_end, select.POLLIN)
    while has_children():
        kill_pass(spared)
        poll.poll(pause)
        wake.clear()
        for pid, status in reaped():
            spared.discard(pid)
            if on_end is not None:
                on_end(pid, status)
        pause = min(pause * 2, 100)
        if not spared and time.monotonic() > deadline:
            return


def kill_pass(spared: set[int]) -> None:
    """Kill what is below us right now, without the spared children and what is below them."""
    for pid in descendants(os.getpid(), spared):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def descendants(root: int, spared: set[int]) -> list[int]:
    """Everything below `root`, without the spared children and what is below them."""
    found: list[int] = []
    frontier = [root]
    children = children_of if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else scanned_children()
    while frontier:
        for child in children(frontier.pop()):
            if child not in spared and child not in found:
                found.append(child)
                frontier.append(child)
    return found


def children_of(pid: int) -> list[int]:
    """The children of one process, as the kernel lists them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as listing:
                found.extend(int(child) for child in listing.read().split())
    return found


def scanned_children() -> Callable[[int], list[int]]:
    """The same answer for kernels without that list: one scan of the process table."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
                table.setdefault(parent, []).append(int(name))
    return lambda pid: table.get(pid, [])
