"""The program that every command is a child of, so that none outlives us.

It is started once per process, with the first command, as `python -I -S` and imports nothing of pigeon. For each command
it forks a keeper. A keeper is the reaper of everything below its command, whatever session or parent those processes
chose; it is tied to the agent by a socket, the leash. When the leash is pulled or torn (because the agent was killed),
the keeper kills all that is below it and ends. What the leash says: the agent sends one request (a length, then a
marshalled `argv, cwd, env`), later any byte to have everything killed; the keeper answers in lines, `p<pid>`,
`e<errno>` when the program could not be started, `x<exit code or minus signal>`, and hangs up once nothing is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import marshal
import os
import select
import signal
import socket
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GIVE_UP_AFTER = 30.0
MSG_CMSG_CLOEXEC = 0x40000000
FD_SIZE = 4
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


def main(control_descriptor: int) -> None:
    """Fork a keeper for each pair of descriptors that arrives; leave when the agent hangs up and nothing is left."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = socket.socket(fileno=control_descriptor)
    control.setblocking(True)
    wake = Wake()
    keepers: set[int] = set()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake.read_end, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if wake.read_end in ready:
            wake.clear()
            keepers.difference_update(pid for pid, _ in reaped())
        if control.fileno() in ready:
            descriptors = received(control)
            if descriptors is None:
                break
            keepers.add(fork_keeper(control, wake, *descriptors))
    kill_below(wake, keepers)
    os._exit(0)


def received(control: socket.socket) -> tuple[int, int] | None:
    """The leash and the output of the next command, or nothing when the agent is gone."""
    data, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(2 * FD_SIZE), MSG_CMSG_CLOEXEC)
    if not data or not ancillary:
        return None
    packed = ancillary[0][2]
    first, second = (int.from_bytes(packed[at : at + FD_SIZE], _order()) for at in (0, FD_SIZE))
    return first, second


def fork_keeper(control: socket.socket, wake: Wake, leash: int, output: int) -> int:
    """The pid of a new keeper."""
    pid = os.fork()
    if pid:
        os.close(leash)
        os.close(output)
        return pid
    try:
        control.close()
        wake.close()
        keep(socket.socket(fileno=leash), output)
    finally:
        os._exit(1)


def keep(leash: socket.socket, output: int) -> None:
    """Run one command and stay until everything it started is gone."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake = Wake()
    request = read_request(leash)
    if request is None:
        os._exit(0)
    shell = start(request, output, leash)
    os.close(output)
    tell(leash, b"p%d\n" % shell)
    poll = select.poll()
    poll.register(leash, select.POLLIN)
    poll.register(wake.read_end, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if wake.read_end in ready:
            wake.clear()
            for pid, status in reaped():
                if pid == shell:
                    tell(leash, b"x%d\n" % os.waitstatus_to_exitcode(status))
            if not has_children():
                os._exit(0)
        if leash.fileno() in ready:
            kill_below(wake, set(), lambda pid, status: pid == shell and tell(leash, b"x%d\n" % _code(status)))
            os._exit(0)


def _code(status: int) -> int:
    return os.waitstatus_to_exitcode(status)


def read_request(leash: socket.socket) -> tuple[list[str], str, dict[str, str]] | None:
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


def start(request: tuple[list[str], str, dict[str, str]], output: int, leash: socket.socket) -> int:
    """Fork and exec in a session of its own; it dies with its keeper, and has only descriptors 0, 1 and 2."""
    argv, cwd, env = request
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*IGNORED, signal.SIGCHLD, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.execve(argv[0], argv, env)
    except BaseException as error:
        tell(leash, b"e%d\n" % (getattr(error, "errno", None) or 22))
    finally:
        os._exit(127)


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


def kill_below(wake: Wake, spared: set[int], on_end: object = None) -> None:
    """Kill every descendant until none is left; the spared children end by themselves and are waited for."""
    deadline = time.monotonic() + GIVE_UP_AFTER
    pause = 5
    poll = select.poll()
    poll.register(wake.read_end, select.POLLIN)
    while has_children():
        for pid in descendants(os.getpid(), spared):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        poll.poll(pause)
        wake.clear()
        for pid, status in reaped():
            spared.discard(pid)
            if callable(on_end):
                on_end(pid, status)
        pause = min(pause * 2, 100)
        if not spared and time.monotonic() > deadline:
            return


def descendants(root: int, spared: set[int]) -> list[int]:
    """Everything below `root`, without the spared children and what is below them."""
    found: list[int] = []
    frontier = [root]
    children = children_of if os.path.exists("/proc/self/task/%d/children" % os.getpid()) else scanned_children()
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


def scanned_children() -> object:
    """The same answer for kernels without that list: one scan of the process table."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
                table.setdefault(parent, []).append(int(name))
    return lambda pid: table.get(pid, [])


def _order() -> str:
    import sys

    return sys.byteorder
