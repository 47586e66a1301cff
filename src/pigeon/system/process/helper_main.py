"""The helper: a small program of which every command is a descendant, so that no command outlives Pigeon.

The agent starts it with the first command, as `python -I -S`; it imports nothing of Pigeon. `pool` holds the other end
of its control socket, `reaper` the other ends of the reapers' sockets. What it defends against is in decision 0005.

    agent ---- control socket ---- helper --- forks ---+--- reaper --- command --- all that the command starts
      |                                                +--- reaper --- ...
      +---- one socket for each reaper ----------------+

The helper:

    event                                   what it does
    ------------------------------------    ---------------------------------------------------------------
    packet `+` with one end of a socket     fork a reaper that serves this socket; close it if there is no room
    packet `!<pid>`                         kill that reaper
    a reaper was stopped                    continue it
    a reaper was killed                     kill what it left behind: subreapers inherit it, and that is the helper
    end of file: the agent hung up or died  kill everything below and exit

A reaper serves one command at a time. It is a subreaper: whatever session or parent a descendant chose, once its own
parent is gone it becomes a child of the reaper, which therefore sees when the last one has ended.

    state      packet or event                        answer                            next state
    -------    ------------------------------------   -------------------------------   ----------
    (forked)                                          `k<pid>`                          waiting
    waiting    request                                `e<errno>` if it cannot start     waiting, running
    running    `~`: SIGTERM to the process group      -                                 running
    running    command ended, descendants are left    `x<exit code or minus signal>`    running
    running    the same, but only the wall is left    `y<code>`                         running
    running    last descendant ended                  `X<code>`, or `g` after `x`, `y`  waiting
    running    `!`: kill everything                   `X<code>`, or `g` after `x`, `y`  waiting
    any        end of file: kill everything           -                                 (exits)

A request is a marshalled `program, argv, cwd, environment, count, orders`, in packets `+part` and a last one `=part`
that carries `count` descriptors: output; output and errors; or output, errors and input. No environment means the last
one. No cwd means that one more descriptor, the last one, is that of the folder to start in. Orders are those of a wall
(`sandbox/wall`), if there is one: files and folders that `bwrap` gets as descriptors from 3 on, or what
`namespaces` needs to build one. A command behind a wall is not our child but that of the first process of its
namespace, which has a session of its own.
"""

from __future__ import annotations

# Half of the helper's start, which every agent pays, would be the modules `signal`, `socket` and `contextlib`: they put
# enumerations and classes around what these two have, and import others for it.
import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import ctypes
import errno
import gc
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
MSG_CMSG_CLOEXEC = 0x40000000
FD_SIZE = 4
FIRST_FILE = 3
MOST_DESCRIPTORS = 4
LONGEST_PACKET = 32 * 1024
GIVE_UP_AFTER = 30.0
FIRST_PAUSE_MS = 5
LONGEST_PAUSE_MS = 100
GONE = (FileNotFoundError, ProcessLookupError)
IGNORED = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGPIPE, signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP),
)
DEFAULT_IN_COMMANDS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})

_libc = ctypes.CDLL(None, use_errno=True)
Request = tuple[bytes, list[bytes], bytes | int, dict[bytes, bytes]]


class Suppressed:
    """`contextlib.suppress`."""

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """Whether the error is one of them."""
        return kind is not None and issubclass(kind, self._kinds)


def main(control_descriptor: int) -> None:
    """Serve the agent until it hangs up or dies, then kill everything below."""
    gc.disable()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # The program that started the agent may ignore it: then the kernel neither reports nor keeps children that ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    become_subreaper()
    # Reapers hold environments with keys in them; commands must not read those from our memory.
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    limit_descriptors(int(os.environ.pop("FILES", "0")))
    os.set_inheritable(control_descriptor, False)
    HelperLoop(socket.socket(fileno=control_descriptor), child_signals()).serve()
    os._exit(0)


class HelperLoop:
    """Forks reapers for the agent and cleans up behind those that were killed."""

    def __init__(self, control: socket.socket, children: int) -> None:
        self._control = control
        self._children = children
        self._reapers: set[int] = set()
        self._strays = False
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(children, select.POLLIN)

    def serve(self) -> None:
        """Take orders until the agent is gone; returns when nothing is left below."""
        pause = FIRST_PAUSE_MS
        while True:
            ready = dict(self._poll.poll(pause if self._strays else None))
            if self._control.fileno() in ready and not self._obey():
                kill_below(self._children)
                return
            if self._children in ready:
                self._look_after_reapers()
                pause = FIRST_PAUSE_MS
            if self._strays:
                self._strays = kill_pass(os.getpid(), self._reapers)
                pause = min(pause * 2, LONGEST_PAUSE_MS)

    def _obey(self) -> bool:
        packet, descriptors = received(self._control)
        if descriptors:
            if pid := fork_reaper(descriptors[0], self._control, self._children):
                self._reapers.add(pid)
        elif packet[:1] == b"!" and int(packet[1:]) in self._reapers:
            os.kill(int(packet[1:]), signal.SIGKILL)
        return bool(packet)

    def _look_after_reapers(self) -> None:
        forget_signals(self._children)
        for pid, status in changed(os.WUNTRACED)[0]:
            if pid in self._reapers and os.WIFSTOPPED(status):
                os.kill(pid, signal.SIGCONT)
            elif pid in self._reapers:
                self._reapers.remove(pid)
                self._strays = self._strays or status != 0


def limit_descriptors(most: int) -> None:
    """Commands may have as many descriptors as the agent was given, not as many as it took."""
    with Suppressed(OSError, ValueError):
        if most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def become_subreaper() -> None:
    """Inherit what loses its parent below us; and be continued when our own parent dies while we are stopped."""
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
    """Make that descriptor wait for the next signal."""
    with Suppressed(BlockingIOError):
        os.read(children, 512)


def fork_reaper(line: int, control: socket.socket, children: int) -> int:
    """The pid of a new reaper that serves this socket; 0 if the system has no room for it."""
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid:
        os.close(line)
        return max(pid, 0)
    try:
        control.close()
        become_subreaper()
        ReaperLoop(socket.socket(fileno=line), children).serve()
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


class ReaperLoop:
    """Runs one command at a time and waits until everything that it started is gone."""

    def __init__(self, line: socket.socket, children: int) -> None:
        self._line = line
        self._children = children
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self._poll.register(children, select.POLLIN)
        self._environment: dict[bytes, bytes] = {}
        self._command = 0
        self._walled = False
        self._exit_code: int | None = None

    def serve(self) -> None:
        """State `waiting`: take requests until the agent is gone."""
        self._send(b"k%d" % os.getpid())
        parts: list[bytes] = []
        while True:
            packet, descriptors = received(self._line)
            if not packet:
                return
            # A `~` or `!` that comes here was sent before the agent knew that the command had ended.
            if packet[:1] in b"+=":
                parts.append(packet[1:])
            if packet[:1] == b"=":
                self._run(b"".join(parts), descriptors)
                forget_signals(self._children)
                parts.clear()

    def _run(self, request: bytes, descriptors: list[int]) -> None:
        program, argv, cwd, environment, count, orders = marshal.loads(request)
        if environment is not None:
            self._environment = environment
        self._exit_code = None
        try:
            if len(descriptors) < count:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            folder = cwd if cwd is not None else descriptors[-1]
            given = descriptors[: None if cwd else -1]
            self._walled = orders is not None
            self._command = spawn((program, argv, folder, self._environment), given, orders)
        except (OSError, ValueError) as error:
            self._send(b"e%d" % (getattr(error, "errno", None) or errno.EINVAL))
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        exit_sent = self._wait_for_all()
        self._send(b"g" if exit_sent or self._exit_code is None else b"X%d" % self._exit_code)

    def _wait_for_all(self) -> bool:
        """State `running`: returns when nothing is left; true if the exit code was sent meanwhile."""
        exit_sent = False
        while True:
            ready = dict(self._poll.poll())
            if self._line.fileno() in ready:
                if self._line.recv(LONGEST_PACKET) == b"~":
                    self._terminate()
                    continue
                kill_below(self._children, self._note)
                return exit_sent
            left = self._reap()
            if left:
                # A child that ended during this look is seen by the second one or by the next poll.
                forget_signals(self._children)
                left = self._reap()
            if not left:
                return exit_sent
            if self._exit_code is not None and not exit_sent:
                self._send((b"y%d" if self._walled and self._namespace_is_empty() else b"x%d") % self._exit_code)
                exit_sent = True

    def _namespace_is_empty(self) -> bool:
        """Whether all that is left is the first process of the namespace, which takes its time to end.

        What has lost its parent in there is a child of it, so it has children as long as anything runs.
        """
        try:
            children = child_finder(GONE)
            return not any(children(first) for first in children(os.getpid()))
        except OSError:
            # What cannot be looked at is not known to be empty.
            return False

    def _terminate(self) -> None:
        if self._command:
            # What stands between us and a command behind a wall must outlive it, to tell how it ended.
            behind = child_finder()(self._command) if self._walled else []
            for leader in behind or [self._command]:
                with Suppressed(OSError):
                    os.killpg(leader, signal.SIGTERM)

    def _reap(self) -> bool:
        ended, left = changed()
        for pid, status in ended:
            self._note(pid, status)
        return left

    def _note(self, pid: int, status: int) -> None:
        if pid == self._command:
            self._exit_code = os.waitstatus_to_exitcode(status)
            self._command = 0

    def _send(self, packet: bytes) -> None:
        # If the agent is gone, the next look at the socket says so.
        with Suppressed(OSError):
            self._line.send(packet)


def spawn(request: Request, descriptors: list[int], orders: tuple[str, Any] | None = None) -> int:
    """Run it in a session of its own, with only descriptors 0, 1 and 2; `OSError` if that fails."""
    program, argv, folder, environment = request
    output = descriptors[0]
    errors = descriptors[1] if len(descriptors) > 1 else output
    given = descriptors[2] if len(descriptors) > 2 else None
    if orders is not None and orders[0] == "landlock":
        return start_in_namespaces((program, argv, environment), (given, output, errors), orders[1])
    contents, paths, apart = ([], [], False) if orders is None else orders[1]
    files = held_files(contents, paths) if orders is not None else []
    try:
        os.chdir(folder)
        if apart:
            return start_in_namespaces((program, argv, environment), (given, output, errors), files)
        return os.posix_spawn(
            program,
            argv,
            environment,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
                if given is None
                else (os.POSIX_SPAWN_DUP2, given, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, errors, 2),
                *((os.POSIX_SPAWN_DUP2, file, FIRST_FILE + index) for index, file in enumerate(files)),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=DEFAULT_IN_COMMANDS,
        )
    finally:
        # Only the command stays in its folder, so that once it has ended the folder can be unmounted.
        os.chdir("/")
        for file in files:
            os.close(file)


def held_files(contents: list[bytes], paths: list[bytes]) -> list[int]:
    """Descriptors of files with these contents and of what stands at these paths, all above those they will become."""
    import fcntl

    from namespaces import open_without_links  # type: ignore[import-not-found]

    held: list[int] = []
    above = FIRST_FILE + len(contents) + len(paths)
    try:
        for content in contents:
            file = os.memfd_create("wall")
            os.write(file, content)
            os.lseek(file, 0, os.SEEK_SET)
            held.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above))
            os.close(file)
        for path in paths:
            file = open_without_links(path)
            held.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above))
            os.close(file)
    except OSError:
        for file in held:
            os.close(file)
        raise
    return held


def start_in_namespaces(
    command: tuple[bytes, list[bytes], dict[bytes, bytes]], descriptors: tuple[int | None, int, int], orders: Any
) -> int:
    """Have `namespaces` start it, as these orders say, or with these files; its monitor is what we wait for."""
    from namespaces import start_apart, start_enclosed

    given, output, errors = descriptors
    nothing = os.open(os.devnull, os.O_RDONLY) if given is None else given
    start = start_apart if isinstance(orders, list) else start_enclosed
    try:
        pid: int = start(command, (nothing, output, errors), orders)
        return pid
    finally:
        if given is None:
            os.close(nothing)


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


def kill_below(children: int, on_end: Callable[[int, int], None] = lambda pid, status: None) -> None:
    """Kill every descendant until none is left. One pass is not enough: they fork while we look."""
    give_up_at = time.monotonic() + GIVE_UP_AFTER
    pause = FIRST_PAUSE_MS
    poll = select.poll()
    poll.register(children, select.POLLIN)
    while True:
        ended, left = changed()
        for pid, status in ended:
            on_end(pid, status)
        if not left or time.monotonic() > give_up_at:
            return
        kill_pass(os.getpid(), set())
        poll.poll(pause)
        forget_signals(children)
        pause = min(pause * 2, LONGEST_PAUSE_MS)


def kill_pass(root: int, spared: set[int]) -> bool:
    """Kill what is below `root` right now, but not the spared children and what is below them; false if nothing is."""
    any_found = False
    for pid in descendants(root, spared):
        any_found = True
        with Suppressed(OSError):
            os.kill(pid, signal.SIGKILL)
    return any_found


def descendants(root: int, spared: set[int]) -> Iterator[int]:
    """Everything below `root`, without the spared children and what is below them; what is above comes first.

    If each is killed as it comes, the first process of a namespace is killed before its thousand children have been
    looked at one by one, and with it the kernel ends them all. A level is known before the one above it is killed:
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
    """What answers for the children of a process, as this kernel tells them; raises errors that are not `ignored`."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return lambda pid: children_of(pid, ignored)
    return scanned_children()


def children_of(pid: int, ignored: tuple[type[OSError], ...] = (OSError,)) -> list[int]:
    """The children of one process, as the kernel lists them."""
    found: list[int] = []
    with Suppressed(*ignored):
        for task in os.listdir(f"/proc/{pid}/task"):
            with Suppressed(*ignored), open(f"/proc/{pid}/task/{task}/children", "rb") as listing:
                found.extend(int(child) for child in listing.read().split())
    return found


def scanned_children() -> Callable[[int], list[int]]:
    """The same answer for kernels without that list: one scan of the process table."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with Suppressed(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
                table.setdefault(parent, []).append(int(name))
    return lambda pid: table.get(pid, [])
