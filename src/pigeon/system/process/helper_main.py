"""The program that every command is a descendant of, so that none outlives us.

It is started once per process, with the first command, as `python -I -S`, and imports nothing of pigeon. The agent
sends it one end of a socket, a leash, for each keeper it wants, and the nursery forks that keeper. A keeper takes one
command after the other, and is the reaper of everything below it, whatever session or parent those processes chose.
When the leash is pulled or torn (because the agent was killed), the keeper kills all that is below it. The nursery
continues keepers that were stopped, kills what a dead keeper left, and, when the agent hangs up, kills all that the
keepers do not.

What the leash says, in packets: the keeper's first is `k<pid>`. The agent sends a request: a marshalled `program, argv,
cwd, env, count` in packets `+part` and a last `=part` that carries `count` descriptors (output; output and errors; or
output, errors and input); no `env` is the one before. Later perhaps `~` to have the command's process group asked to
end by SIGTERM, or `!` to have everything killed. The keeper answers `e<errno>` when the program could not be started,
`x<exit code or minus signal>` when it ended and left children, `g` when those are gone; `X` is both at once. After
`e`, `g` or `X` it is free.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import marshal
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
MSG_CMSG_CLOEXEC = 0x40000000
FD_SIZE = 4
MOST_DESCRIPTORS = 3
LONGEST_PACKET = 32 * 1024
GIVE_UP_AFTER = 30.0
KEEPERS_TAKE = 0.5
IGNORED = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGPIPE, signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP),
)
DEFAULT_IN_COMMANDS = (*IGNORED, signal.SIGXFSZ)

_libc = ctypes.CDLL(None, use_errno=True)
Request = tuple[bytes, list[bytes], bytes, dict[bytes, bytes]]


def main(control_descriptor: int) -> None:
    """Fork keepers; leave when the agent hangs up and nothing is left."""
    gc.disable()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    # The environments that keepers hold have keys in them; commands must not read them from our memory.
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    limit_descriptors(int(os.environ.pop("FILES", "0")))
    os.set_inheritable(control_descriptor, False)
    control = socket.socket(fileno=control_descriptor)
    children = child_signals()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(children, select.POLLIN)
    keepers: set[int] = set()
    strays = False
    while True:
        ready = dict(poll.poll(20 if strays else None))
        if control_descriptor in ready:
            packet, leashes = received(control)
            if not packet:
                break
            if leashes and (keeper := fork_keeper(leashes[0], control, children)):
                keepers.add(keeper)
        if children in ready:
            forget_signals(children)
            for pid, status in changed(os.WUNTRACED)[0]:
                if pid in keepers and os.WIFSTOPPED(status):
                    os.kill(pid, signal.SIGCONT)
                elif pid in keepers:
                    keepers.remove(pid)
                    strays = strays or status != 0
        if strays:
            # A keeper was killed; what it kept is ours now.
            strays = kill_pass(os.getpid(), keepers)
    kill_below(children, keepers)
    os._exit(0)


def limit_descriptors(most: int) -> None:
    """Commands may have as many descriptors as the agent was given, not as many as it took."""
    with contextlib.suppress(OSError, ValueError):
        if most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def adopt_orphans() -> None:
    """Become the parent of what loses its own below us; and if we are stopped when ours dies, go on."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


def child_signals() -> int:
    """A descriptor that is readable when a child has ended or stopped; each process that holds it sees its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mask = (ctypes.c_ulong * 16)(1 << (signal.SIGCHLD - 1))
    descriptor: int = _libc.signalfd(-1, ctypes.byref(mask), os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return descriptor


def forget_signals(children: int) -> None:
    """Make that descriptor wait for the next."""
    with contextlib.suppress(BlockingIOError):
        os.read(children, 512)


def fork_keeper(leash: int, control: socket.socket, children: int) -> int:
    """The pid of a new keeper, which takes commands until its leash is torn; 0 if the system has no room for it."""
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid:
        os.close(leash)
        return max(pid, 0)
    try:
        control.close()
        adopt_orphans()
        with socket.socket(fileno=leash) as line:
            Keeper(line, children).serve()
        os._exit(0)
    finally:
        os._exit(1)


def received(line: socket.socket) -> tuple[bytes, list[int]]:
    """The next packet, and the descriptors that came with it; no bytes when the agent is gone."""
    room = socket.CMSG_SPACE(FD_SIZE * MOST_DESCRIPTORS)
    data, ancillary, _, _ = line.recvmsg(LONGEST_PACKET, room, MSG_CMSG_CLOEXEC)
    raw = ancillary[0][2] if ancillary else b""
    ends = range(FD_SIZE, len(raw) + 1, FD_SIZE)
    return data, [int.from_bytes(raw[end - FD_SIZE : end], sys.byteorder) for end in ends]


class Keeper:
    """Runs one command at a time and stays until everything that it started is gone."""

    def __init__(self, leash: socket.socket, children: int) -> None:
        self._leash = leash
        self._children = children
        self._poll = select.poll()
        self._poll.register(leash, select.POLLIN)
        self._poll.register(children, select.POLLIN)
        self._env: dict[bytes, bytes] = {}
        self._shell = 0
        self._exit_code: int | None = None

    def serve(self) -> None:
        """Take commands until the agent is gone."""
        if not self._tell(b"k%d" % os.getpid()):
            return
        parts: list[bytes] = []
        while True:
            packet, descriptors = received(self._leash)
            if not packet:
                # The agent is gone: a nursery that was stopped has work to do.
                with contextlib.suppress(OSError):
                    os.kill(os.getppid(), signal.SIGCONT)
                return
            if packet[:1] in b"+=":
                parts.append(packet[1:])
            if packet[:1] == b"=":
                self._keep(b"".join(parts), descriptors)
                forget_signals(self._children)
                os.chdir("/")
                parts.clear()

    def _keep(self, request: bytes, descriptors: list[int]) -> None:
        program, argv, cwd, env, count = marshal.loads(request)
        if env is not None:
            self._env = env
        self._exit_code = None
        try:
            if len(descriptors) < count:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self._shell = start((program, argv, cwd, self._env), descriptors)
        except (OSError, ValueError) as error:
            self._tell(b"e%d" % (getattr(error, "errno", None) or errno.EINVAL))
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        exit_told = self._wait_for_all()
        self._tell(b"g" if exit_told else self._last_words())

    def _last_words(self) -> bytes:
        return b"g" if self._exit_code is None else b"X%d" % self._exit_code

    def _wait_for_all(self) -> bool:
        """Returns when nothing is left; true if the exit code was told meanwhile."""
        told = False
        while True:
            ready = self._poll.poll()
            if len(ready) > 1 or ready[0][0] != self._children:
                if self._leash.recv(LONGEST_PACKET) == b"~":
                    self._ask_to_end()
                    continue
                kill_below(self._children, set(), self._note)
                return told
            left = self._look()
            if left:
                # Who ended while we looked is seen by the second look or by the next poll.
                forget_signals(self._children)
                left = self._look()
            if not left:
                return told
            if self._exit_code is not None and not told:
                told = self._tell(b"x%d" % self._exit_code)

    def _ask_to_end(self) -> None:
        if self._shell:
            with contextlib.suppress(OSError):
                os.killpg(self._shell, signal.SIGTERM)

    def _look(self) -> bool:
        ended, left = changed()
        for pid, status in ended:
            self._note(pid, status)
        return left

    def _note(self, pid: int, status: int) -> None:
        if pid == self._shell:
            self._exit_code = os.waitstatus_to_exitcode(status)
            self._shell = 0

    def _tell(self, packet: bytes) -> bool:
        try:
            self._leash.send(packet)
        except OSError:
            return False
        return True


def start(request: Request, descriptors: list[int]) -> int:
    """Run it in a session of its own, with only descriptors 0, 1 and 2; `OSError` if that fails."""
    program, argv, cwd, env = request
    output = descriptors[0]
    errors = descriptors[1] if len(descriptors) > 1 else output
    given = descriptors[2] if len(descriptors) > 2 else None
    os.chdir(cwd)
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0) if given is None else (os.POSIX_SPAWN_DUP2, given, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, errors, 2),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=DEFAULT_IN_COMMANDS,
    )


def changed(also: int = 0) -> tuple[list[tuple[int, int]], bool]:
    """The children that have ended, taken off the process table, and whether others are left."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | also)
        except ChildProcessError:
            return found, False
        if pid == 0:
            return found, True
        found.append((pid, status))


def kill_below(children: int, keepers: set[int], on_end: Callable[[int, int], None] | None = None) -> None:
    """Kill every descendant until none is left; keepers among them have a moment to do their part themselves."""
    began = time.monotonic()
    pause = 5
    poll = select.poll()
    poll.register(children, select.POLLIN)
    while True:
        ended, left = changed()
        for pid, status in ended:
            keepers.discard(pid)
            if on_end is not None:
                on_end(pid, status)
        if not left or time.monotonic() - began > GIVE_UP_AFTER:
            return
        if keepers and time.monotonic() - began > KEEPERS_TAKE:
            keepers = set()
        for keeper in keepers:
            os.kill(keeper, signal.SIGCONT)
        kill_pass(os.getpid(), keepers)
        poll.poll(pause)
        forget_signals(children)
        pause = min(pause * 2, 100)


def kill_pass(root: int, spared: set[int]) -> bool:
    """Kill what is below `root` right now, but not the spared children and what is below them; false if nothing is."""
    found = descendants(root, spared)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def descendants(root: int, spared: set[int]) -> list[int]:
    """Everything below `root`, without the spared children and what is below them."""
    found: dict[int, None] = {}
    frontier = [root]
    children = children_of if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else scanned_children()
    while frontier:
        for child in children(frontier.pop()):
            if child not in spared and child not in found:
                found[child] = None
                frontier.append(child)
    return list(found)


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
