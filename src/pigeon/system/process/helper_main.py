"""The helper: a small program of which every command is a descendant, so that no command outlives Pigeon.

The agent starts it with the first command, as a bare interpreter (`python -I -S`). It is a fork server
(`fork_server`) that owns its descendants; the processes that it forks are reapers. `pool` holds its control link,
`reaper` the links of its reapers. Decision 0005 explains what it defends against.

    agent ---- control link ---- helper --- forks ---+--- reaper --- command --- all that the command starts
      |                                              +--- reaper --- ...
      +---- one link for each reaper ----------------+

A reaper serves one command at a time. It is a subreaper: whatever session or parent a descendant chose, once its own
parent is gone it becomes a child of the reaper, which therefore sees when the last one has ended.

    state      record or event                        answer                              next state
    -------    ------------------------------------   ---------------------------------   ----------
    (forked)                                          `Waiting`                           waiting
    waiting    `StartCommand`                                  `NotStarted` if that fails          waiting, running
    waiting    `StartCommand`, with `Kill` or `Terminate`      `Exited`, and it never ran          waiting
               right behind it
    running    `Terminate`                            -                                   running
    running    command ended, something is left       `Exited`                            running
    running    last descendant ended, or `Kill`       `Exited` or `NothingLeft`           waiting
    any        end of file: kill everything           -                                   (exits)

A command behind a wall is not our child but the child of the first process of its namespace, which has a session of its
own.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import ctypes
import errno
import gc
import os
import resource
import select

from pigeon.system.process.fork_server import (
    Suppressed,
    become_subreaper,
    child_finder,
    clear_signals,
    kill_descendants,
    open_child_signals,
    reap_children,
    serve_forks,
)
from pigeon.system.process.messages import (
    BubblewrapWall,
    Exited,
    LandlockWall,
    LinkMessage,
    NothingLeft,
    NotStarted,
    StartCommand,
    Terminate,
    Waiting,
    close_descriptors,
    decode,
    receive,
    send,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pigeon.system.process.messages import Left

PR_SET_DUMPABLE = 4
FIRST_FILE = 3
GONE = (FileNotFoundError, ProcessLookupError)
IGNORED = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGPIPE, signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP),
)
DEFAULT_IN_COMMANDS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def main(control_descriptor: int) -> None:
    """Serve the agent until it hangs up or dies, then kill everything below."""
    gc.disable()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # The program that started the agent may ignore it: then the kernel neither reports nor keeps ended children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Reapers hold environments with keys; commands must not read those from our memory.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    limit_descriptors(int(os.environ.pop("FILES", "0")))
    serve_forks(control_descriptor, run_reaper, owns_descendants=True)


def limit_descriptors(most: int) -> None:
    """Restore the agent's original limit of descriptors, which it has raised for itself."""
    with Suppressed(OSError, ValueError):
        if most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def run_reaper(request: bytes, descriptors: list[int]) -> int:
    """Serve the agent on this link until it hangs up or dies."""
    become_subreaper()
    (link,) = descriptors
    ReaperLoop(socket.socket(fileno=link), open_child_signals()).serve()
    return 0


class ReaperLoop:
    """Runs one command at a time and waits until everything that it started is gone."""

    def __init__(self, link: socket.socket, signals: int) -> None:
        self._link = link
        self._signals = signals
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._poll.register(signals, select.POLLIN)
        self._command = 0
        self._walled = False
        self._exit_code: int | None = None

    def serve(self) -> None:
        """State `waiting`: run commands until the agent is gone."""
        self._send(Waiting(os.getpid()))
        while True:
            try:
                record, descriptors = receive(self._link)
            except OSError as error:
                self._send(NotStarted(error.errno or errno.EMFILE))
                continue
            if record is None:
                return
            # Any other record that arrives here was sent before the agent knew that the command had ended.
            if isinstance(record, StartCommand):
                self._run(record, descriptors)
                clear_signals(self._signals)

    def _run(self, command: StartCommand, descriptors: list[int]) -> None:
        self._exit_code = None
        try:
            if self._has_record():
                # A record after the command ends it before it has begun.
                receive(self._link)
                self._send(Exited(-signal.SIGKILL, "nothing"))
                return
            self._walled = command.wall != b""
            self._command = spawn(command, descriptors)
        except (OSError, ValueError) as error:
            self._send(NotStarted(getattr(error, "errno", None) or errno.EINVAL))
            return
        finally:
            close_descriptors(descriptors)
        self._report_end(exit_sent=self._wait_and_report_exit())

    def _report_end(self, exit_sent: bool) -> None:
        if exit_sent or self._exit_code is None:
            self._send(NothingLeft())
        else:
            self._send(Exited(self._exit_code, "nothing"))

    def _has_record(self) -> bool:
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        return bool(poll.poll(0))

    def _wait_and_report_exit(self) -> bool:
        """State `running`: wait until nothing is left, and send the exit code; returns True if it was sent."""
        exit_sent = False
        while True:
            ready = dict(self._poll.poll())
            if self._link.fileno() in ready:
                record, _ = receive(self._link)
                if isinstance(record, Terminate):
                    self._terminate()
                    continue
                kill_descendants(self._signals, self._note_exit)
                return exit_sent
            left = self._reap_and_check_left()
            if left:
                # A child that ended during this look is seen by the second one or by the next poll.
                clear_signals(self._signals)
                left = self._reap_and_check_left()
            if not left:
                return exit_sent
            if self._exit_code is not None and not exit_sent:
                still: Left = "wall" if self._walled and self._is_namespace_empty() else "processes"
                self._send(Exited(self._exit_code, still))
                exit_sent = True

    def _is_namespace_empty(self) -> bool:
        """Whether only the first process of the namespace is left, which takes a moment to end.

        Any process in there that has lost its parent is its child, so it has children as long as anything runs.
        """
        try:
            children = child_finder(GONE)
            return not any(children(first) for first in children(os.getpid()))
        except OSError:
            # A namespace that cannot be inspected may not be empty.
            return False

    def _terminate(self) -> None:
        if self._command:
            # Processes between us and a command behind a wall must outlive it, to report how it ended.
            behind = child_finder()(self._command) if self._walled else []
            for leader in behind or [self._command]:
                with Suppressed(OSError):
                    os.killpg(leader, signal.SIGTERM)

    def _reap_and_check_left(self) -> bool:
        ended, left = reap_children()
        for pid, status in ended:
            self._note_exit(pid, status)
        return left

    def _note_exit(self, pid: int, status: int) -> None:
        if pid == self._command:
            self._exit_code = os.waitstatus_to_exitcode(status)
            self._command = 0

    def _send(self, record: LinkMessage) -> None:
        # If the agent is gone, the next read of the link reports it.
        with Suppressed(OSError):
            send(self._link, record)


def spawn(command: StartCommand, descriptors: list[int]) -> int:
    """Run a command in a new session, with only descriptors 0, 1 and 2; raises `OSError` if that fails."""
    output, errors, *more = descriptors
    given = more[0] if command.has_input else None
    wall = decode(command.wall) if command.wall else None
    if isinstance(wall, LandlockWall):
        from pigeon.system.process.namespaces import start_enclosed

        with CommandInput(given) as stdin:
            return start_enclosed(command, (stdin, output, errors), wall)
    files = open_wall_files(wall) if isinstance(wall, BubblewrapWall) else []
    try:
        os.chdir(more[-1] if command.cwd is None else command.cwd)
        if isinstance(wall, BubblewrapWall) and wall.apart:
            from pigeon.system.process.namespaces import start_in_own_namespace

            with CommandInput(given) as stdin:
                return start_in_own_namespace(command, (stdin, output, errors), files)
        return os.posix_spawn(
            command.program,
            command.argv,
            command.environment,
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
        # Only the command stays in its folder, so that the folder can be unmounted once it has ended.
        os.chdir("/")
        close_descriptors(files)


class CommandInput:
    """A context with the descriptor that a command reads from; an empty input if none is given."""

    def __init__(self, given: int | None) -> None:
        self._given = given
        self._empty = -1

    def __enter__(self) -> int:
        if self._given is not None:
            return self._given
        self._empty = os.open(os.devnull, os.O_RDONLY)
        return self._empty

    def __exit__(self, *error: object) -> None:
        if self._given is None:
            os.close(self._empty)


def open_wall_files(wall: BubblewrapWall) -> list[int]:
    """Open the files and folders of a wall, with descriptors above those that they will become."""
    import fcntl

    from pigeon.system.process.namespaces import open_without_links

    held: list[int] = []
    above = FIRST_FILE + len(wall.contents) + len(wall.paths)
    try:
        for content in wall.contents:
            file = os.memfd_create("wall")
            os.write(file, content)
            os.lseek(file, 0, os.SEEK_SET)
            held.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above))
            os.close(file)
        for path in wall.paths:
            file = open_without_links(path)
            held.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above))
            os.close(file)
    except OSError:
        close_descriptors(held)
        raise
    return held
