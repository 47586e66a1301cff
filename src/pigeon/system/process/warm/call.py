"""The caller's end of a warm start: hands this call over to a process that a warm parent has forked, and ends like it.

    1. connect to the parent for this interpreter (`link`); it looks at this process from outside (`callers`)
    2. hide from other processes; send arguments, variables, folder, descriptors, limits and ignored signals
    3. the forked process takes all of it over (`takeover`) and waits; only when this process agrees, it begins
    4. pass signals on, wait for the exit code, end in the same way

Until step 3 nothing has happened, and anything that is not as expected makes this a cold start: `hand_over` returns.
After it, the forked process lives as long as this one: the kernel kills it when the pipe between them is closed.

Every call of `pigeon` imports this, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import NoReturn

    from pigeon.system.process.messages import LinkMessage

# In the home. The name of a socket there says which interpreter its parent is (`link.name_socket`).
WARM_FOLDER = ".pigeon/warm"
ANSWER_SECONDS = 3.0
# The parent answers at once how a process has ended, unless it is stopped or the machine is very busy.
REPORT_SECONDS = 30.0
# What one packet can carry, less those of the link itself.
MOST_INHERITED = 200


class _NotWarm(Exception):
    """This call must be started cold."""


def hand_over(hide: Callable[[], None]) -> None:
    """Have a warm parent's process run this call, and end as it does; returns if it must be started cold.

    `hide` is called before anything secret is sent.
    """
    home = os.environ.get("HOME", "")
    folder = open_warm_folder(home)
    if folder is None:
        return
    try:
        if is_in_background():
            return
        from pigeon.system.process.warm.link import describe_interpreter

        link = connect(folder, describe_interpreter())
    except Exception:
        # Whatever is wrong with the parent, or with what it says: this call can do without it.
        return
    finally:
        os.close(folder)
    hide()
    _Call(link).run()


def open_warm_folder(home: str) -> int | None:
    """A descriptor of the folder with the sockets; None if there is none that only our user can change."""
    if not home.startswith("/"):
        return None
    try:
        folder = os.open(f"{home}/{WARM_FOLDER}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(folder)
        return None
    return folder


def is_in_background() -> bool:
    """True if this process may not read its terminal; a process of another session would not be kept from it."""
    for descriptor in (0, 1, 2):
        try:
            return os.tcgetpgrp(descriptor) != os.getpgrp()
        except OSError:
            continue
    return False


def connect(folder: int, facts: bytes) -> socket:
    """A link to the parent with these facts, which has accepted us; raises `OSError`."""
    from pigeon.system.process.messages import ServerReady, receive, send
    from pigeon.system.process.warm.link import CallFacts, name_socket

    link = connect_to(folder, name_socket(facts))
    try:
        send(link, CallFacts(facts))
        record, _ = receive(link)
        if not isinstance(record, ServerReady):
            raise ConnectionError("the warm parent does not take this call")
    except BaseException:
        link.close()
        raise
    return link


def connect_to(folder: int, name: str) -> socket:
    """A link to our own user's process that listens there; raises `OSError`."""
    import _socket

    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        link.settimeout(ANSWER_SECONDS)
        # A path through the descriptor: it is short, and its folder is the one that was checked.
        link.connect(f"/proc/self/fd/{folder}/{name}")
        if peer_of(link)[1] != os.geteuid():
            raise PermissionError("the warm parent is another user's")
    except BaseException:
        link.close()
        raise
    return link


def peer_of(link: socket) -> tuple[int, int]:
    """The process and the effective user at the other end, as the kernel knows them."""
    import _socket

    raw = link.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(raw[:4], sys.byteorder), int.from_bytes(raw[4:8], sys.byteorder)


class _Call:
    """One call that is being handed over, and what is known of its process."""

    def __init__(self, link: socket) -> None:
        self._link = link
        self._process = -1
        self._lifeline = -1
        self._deadly_signal = 0

    def run(self) -> None:
        """Hand over and wait for the end; returns if the call must be started cold."""
        import _signal  # type: ignore[import-not-found]

        self._ignored = [number for number in _forwardable() if _signal.getsignal(number) == _signal.SIG_IGN]
        try:
            inherited = _inherited_descriptors()
            self._send_call(inherited)
            self._wait_until_taken()
        except Exception:
            self._give_up()
            return
        before = self._install_handlers()
        try:
            os.write(self._lifeline, b"1")
        except OSError:
            for number, handler in before.items():
                _signal.signal(number, handler)
            self._give_up()
            if self._deadly_signal:
                # It was for this process, which has not begun either.
                os.kill(os.getpid(), self._deadly_signal)
            return
        # What the other process has is closed here: readers of its output must see its end.
        for descriptor in inherited:
            os.close(descriptor)
        self._end_like_process()

    def _send_call(self, inherited: list[int]) -> None:
        import marshal

        from pigeon.system.process.messages import ForkRequest, send

        mask = os.umask(0o077)
        os.umask(mask)
        call = {
            "arguments": sys.argv,
            "original": sys.orig_argv,
            "unbuffered": any(getattr(stream, "write_through", False) for stream in (sys.stdout, sys.stderr)),
            "path": sys.path,
            "variables": dict(os.environb),
            "umask": mask,
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "ignored": self._ignored,
            "descriptors": inherited,
        }
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        theirs, self._lifeline = os.pipe()
        try:
            send(self._link, ForkRequest(marshal.dumps(call)), [theirs, folder, *inherited])
        finally:
            os.close(theirs)
            os.close(folder)

    def _wait_until_taken(self) -> None:
        """Wait for both answers, which come from two processes, in any order."""
        from pigeon.system.process.messages import ForkDone
        from pigeon.system.process.warm.link import CallTaken

        is_taken = False
        while not (is_taken and self._process >= 0):
            record, descriptors = self._receive()
            if isinstance(record, ForkDone) and len(descriptors) == 1:
                self._process = descriptors[0]
            elif isinstance(record, CallTaken):
                is_taken = True
            else:
                raise _NotWarm

    def _receive(self) -> tuple[LinkMessage | None, list[int]]:
        from pigeon.system.process.messages import receive

        return receive(self._link)

    def _give_up(self) -> None:
        """Close everything; a process that was forked sees that and ends without having done anything."""
        self._link.close()
        for descriptor in (self._lifeline, self._process):
            if descriptor >= 0:
                os.close(descriptor)

    def _install_handlers(self) -> dict[int, object]:
        """From now on signals are for the other process; returns what handled them before.

        So are those that this process was started to ignore, as by `nohup` or `&` in a script: the other one ignores
        them, too, unless its mode handles them.
        """
        import _signal

        handlers = {number: self._forward for number in _forwardable()}
        # These end no process.
        handlers |= {number: self._send for number in (_signal.SIGCONT, _signal.SIGWINCH, _signal.SIGURG)}
        handlers |= {number: self._send for number in self._ignored}
        stops = (_signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
        handlers |= {number: self._stop for number in stops if number not in self._ignored}
        # Python ignores these itself.
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            if number in self._ignored:
                del handlers[number]
        before = {number: _signal.signal(number, handler) for number, handler in handlers.items()}
        # As a cold start does: a blocked SIGTERM would never arrive.
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        return before

    def _forward(self, number: int, frame: object) -> None:
        self._deadly_signal = number
        self._send(number)

    def _send(self, number: int, frame: object = None) -> None:
        import _signal

        try:
            _signal.pidfd_send_signal(self._process, number)
        except OSError:
            # It has ended; its exit code is on its way.
            return

    def _stop(self, number: int, frame: object) -> None:
        """Stop both; the terminal and the sender of the signal see this process stop."""
        import _signal

        self._send(_signal.SIGSTOP)
        _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
        _signal.signal(number, self._stop)
        self._send(_signal.SIGCONT)

    def _end_like_process(self) -> NoReturn:
        """Wait until the process has ended, and end with its exit code or by the same signal.

        It reports its own code, because the parent may be gone; only the parent knows by which signal it was killed.
        """
        import select

        from pigeon.system.process.messages import Ended

        code: int | None = None
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        poll.register(self._process, select.POLLIN)
        is_over = False
        while not (is_over and code is not None):
            ready = poll.poll(REPORT_SECONDS * 1000 if is_over else None)
            if (self._process, select.POLLIN) in ready and not is_over:
                poll.unregister(self._process)
                is_over = True
            elif ready:
                record, _ = self._receive()
                if isinstance(record, Ended):
                    code = record.code
                if record is None:
                    break
            else:
                break
        if code is None:
            code = -(self._deadly_signal or 9)
        if code < 0:
            _die_by_signal(-code)
        os._exit(code)


def _forwardable() -> list[int]:
    """All signals that a process can handle and that others send."""
    import _signal

    kept = {
        *(_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD),
        *(_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL),
    }
    return [number for number in _signal.valid_signals() if number not in kept]


def _inherited_descriptors() -> list[int]:
    """The descriptors that this process was started with: its own are not inheritable."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue
    if len(found) > MOST_INHERITED:
        raise _NotWarm
    return sorted(found)


def _die_by_signal(number: int) -> NoReturn:
    """End by a signal, so that those who wait for this process see the same as without a parent."""
    import _signal

    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)
