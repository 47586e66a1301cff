"""The helper program and its reapers, as a pool: which are free, which commands wait for one, how all of it ends.

One pool for each event loop that starts commands, shared by all agents on that loop: it is a resource of the process,
like the loop itself. An agent's own commands are held by its `ProcessOwner` (`start`); the pool ends when the last
owner has left it, when the interpreter exits, or, if its loop was closed without either, when the next pool is made.

A command goes to a free reaper, or waits for the next one that is free or newly forked. One reaper is always free or
starting, so that a command need not wait for a fork. States of a reaper are in `reaper`.

    what happens                       what the pool does
    --------------------------------   --------------------------------------------------------------------
    a reaper is free                   it gets the command that waits longest; else up to `MOST_FREE` are kept
    a starting reaper is lost          ask again, of a new helper if need be; after `MOST_TRIES` the commands fail
    a free reaper takes no request     give it to the next; after more than can have been free, the command fails
    no descriptor for another reaper   commands wait for the busy ones; if there are none, they fail
    the helper is gone                 its busy reapers finish what they have; free ones are let go
    a killed command was the last one  the helper is let go: after an abort no process of ours is left
    the owner rests                    the helper is let go once no command is left; the next one starts another
    the helper cannot work here        `usable` is false: commands run unsupervised from then on
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache

from pigeon.system.process.reaper import LOST, ReaperConnection
from pigeon.system.process.supervised import SupervisedProcess, encode

MOST_FREE = 4
MOST_TRIES = 3
END_WITHIN = 1.0
MOST_FILES = 65536
_PR_SET_DUMPABLE = 4
_NO_ROOM = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# The folder is not among the arguments, so that a search for our name in the process table does not find the helper.
_BOOT = (
    "import os, sys; sys.path.append(os.environ.pop('WHERE')); import helper_main; helper_main.main(int(sys.argv[1]))"
)
_pools: dict[asyncio.AbstractEventLoop, HelperPool] = {}


def current_pool() -> HelperPool:
    """The pool of the running event loop."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        for closed in [other for other in _pools if other.is_closed()]:
            _pools.pop(closed).end_now()
        pool = _pools[loop] = HelperPool()
        atexit.register(pool.end_now)
    return pool


async def leave_pool(owner: object, deadline: float) -> bool:
    """The owner needs the running loop's pool no longer; the last one ends it. False if that took too long."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        return True
    if not pool.leave(owner):
        return True
    del _pools[loop]
    atexit.unregister(pool.end_now)
    return await pool.end(deadline)


class Helper:
    """The running helper program, by its control socket."""

    def __init__(self, program: subprocess.Popen[bytes], control: socket.socket, on_end: Callable[[Helper], None]):
        self._program = program
        self._control = control
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        # The helper never writes: its socket is readable when the helper is gone.
        self._loop.add_reader(control.fileno(), self._over)

    @property
    def exit_code(self) -> int | None:
        """How it ended; minus the number of a signal."""
        return self._program.returncode

    def is_running(self) -> bool:
        """False once it has ended, noticed now if not before."""
        if self._control.fileno() >= 0 and self._program.poll() is not None:
            self._over()
        return self._control.fileno() >= 0

    def fork_reaper(self, pool: HelperPool) -> ReaperConnection:
        """A new reaper, which is starting; `OSError` if there is no room or the helper is gone."""
        self.wake()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            if isinstance(error, ConnectionError):
                self._over()
            raise
        finally:
            theirs.close()
        return ReaperConnection(pool, self, ours)

    def kill_reaper(self, pid: int) -> None:
        """Have a reaper killed that does not answer."""
        self.wake()
        with contextlib.suppress(OSError):
            self._control.send(b"!%d" % pid)

    def wake(self) -> None:
        """Continue it, in case it was stopped. It is our child, so its pid is its own until we have waited for it."""
        if self._program.returncode is None:
            os.kill(self._program.pid, signal.SIGCONT)

    def release(self) -> None:
        """Hang up: it kills everything below it and exits."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        self.wake()

    def wait(self, timeout: float) -> None:
        """Wait for its end without an event loop."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(max(0.01, timeout))
        if self._program.returncode is not None:
            self._over()

    def _over(self) -> None:
        if self._control.fileno() < 0:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._control.fileno())
        self._control.close()
        # Its end of the socket closed with it, so it is a zombie or about to be one.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(1)
        if not self.ended.done() and not self._loop.is_closed():
            self.ended.set_result(None)
        self._on_end(self)


class HelperPool:
    """The helper that forks reapers, the reapers, and the commands that wait for one."""

    def __init__(self) -> None:
        self.usable = True
        self._process_id = os.getpid()
        self._owners: set[object] = set()
        self._helper: Helper | None = None
        self._ending: set[Helper] = set()
        self._free: list[ReaperConnection] = []
        self._starting: ReaperConnection | None = None
        self._busy: set[ReaperConnection] = set()
        self._waiting: deque[SupervisedProcess] = deque()
        self._tries = 0
        self._refused = 0
        self._worked = False
        self._release_when_idle = False
        self._environment: tuple[Mapping[str, str], dict[bytes, bytes]] = ({}, {})

    def join(self, owner: object) -> None:
        """This owner starts commands here."""
        self._owners.add(owner)

    def leave(self, owner: object) -> bool:
        """This owner starts no more; true if no other does."""
        self._owners.discard(owner)
        return not self._owners

    def open(self) -> bool:
        """True if commands can be supervised; the helper is started if need be."""
        if self._helper is not None and self._helper.is_running():
            return True
        if not self.usable:
            return False
        hide_from_other_processes()
        try:
            self._helper = _start_helper(self._helper_ended)
            self._worked = False
            self.usable = self._helper is not None
        except OSError as error:
            self.usable = error.errno in _NO_ROOM
        return self._helper is not None

    def stock(self) -> None:
        """See that a reaper is free or starting; one at a time, because a busy one may be free before."""
        self._release_when_idle = False
        if not self._free and self._starting is None:
            self._start_reaper()

    def rest(self) -> None:
        """No command is soon to come: let the helper go, now or when the last command has ended."""
        self._release_when_idle = True
        self._release_if_idle()

    def start(self, process: SupervisedProcess) -> None:
        """Give a command to a free reaper, or to the next one that is."""
        self._release_when_idle = False
        if not self._run(process):
            self._waiting.append(process)
        self.stock()

    def kill(self, process: SupervisedProcess, reaper: ReaperConnection | None, keep_helper: bool) -> None:
        """Kill a command, or do not run it if it still waits. The helper goes too if no command is left."""
        self._release_when_idle = self._release_when_idle or not keep_helper
        if reaper is not None:
            reaper.kill()
        elif process in self._waiting:
            self._waiting.remove(process)
            _fail(process, None)
            self._release_if_idle()

    def reaper_free(self, reaper: ReaperConnection) -> None:
        """A reaper is free, for the first time or again."""
        self._tries = 0
        self._worked = True
        self._busy.discard(reaper)
        if reaper is self._starting:
            self._starting = None
        self._free.append(reaper)
        while self._waiting and self._run(self._waiting[0]):
            self._waiting.popleft()
        if self._waiting or reaper.state != "free":
            self.stock()
        if reaper.state == "free" and (reaper.helper is not self._helper or len(self._free) > MOST_FREE):
            reaper.hang_up()
        self._release_if_idle()

    def reaper_lost(self, reaper: ReaperConnection) -> None:
        """A reaper is no longer there."""
        self._busy.discard(reaper)
        if reaper in self._free:
            self._free.remove(reaper)
        if reaper is not self._starting:
            if self._waiting:
                self.stock()
        else:
            self._starting = None
            if not (self._busy and reaper.helper.is_running()):
                # Otherwise the helper has no room for another process: a busy reaper will take what waits.
                self._try_again(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        self._release_if_idle()

    async def end(self, deadline: float) -> bool:
        """Kill everything and wait for the end of the helper until then; true if nothing is left."""
        self._cancel_waiting()
        self._release()
        ending = [helper.ended for helper in self._ending]
        if ending:
            await asyncio.wait(ending, timeout=max(0.0, deadline - time.monotonic()))
        return all(future.done() for future in ending)

    def end_now(self) -> None:
        """The same without an event loop, when the interpreter exits or the loop was closed.

        A fork of the process, as a program with an agent in it may make, has a copy of the pool, and its sockets are
        those of the pool itself: what ends there must not end the commands here.
        """
        if os.getpid() != self._process_id:
            return
        deadline = time.monotonic() + END_WITHIN
        self._cancel_waiting()
        self._release()
        for helper in list(self._ending):
            helper.wait(deadline - time.monotonic())

    def encoded(self, environment: Mapping[str, str]) -> dict[bytes, bytes]:
        """The environment as the system has it. `reaper` compares by identity and sends only what is new to it."""
        if environment != self._environment[0]:
            # Names that cannot be set may still be inherited; programs are not started with them.
            usable = {encode(name): encode(value) for name, value in environment.items() if name and "=" not in name}
            self._environment = (dict(environment), usable)
        return self._environment[1]

    def _run(self, process: SupervisedProcess) -> bool:
        """True if a free reaper has taken the command, or if so many could not that it fails."""
        while self._free:
            reaper = self._free.pop()
            if reaper.run(process):
                self._refused = 0
                self._busy.add(reaper)
                return True
            self._refused += 1
            if self._refused > MOST_FREE + MOST_TRIES:
                self._refused = 0
                _fail(process, OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
                return True
        return False

    def _start_reaper(self) -> None:
        try:
            if self.open() and self._helper is not None:
                self._starting = self._helper.fork_reaper(self)
                return
            trouble = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        except OSError as error:
            trouble = error
        if not (self._busy and trouble.errno in _NO_ROOM):
            # Otherwise there are too many at once: the reapers that are busy now will take what waits.
            self._try_again(trouble)

    def _try_again(self, trouble: OSError) -> None:
        """No reaper came: ask once more for what waits."""
        self._tries += 1
        if self._waiting and self._tries < MOST_TRIES:
            self._start_reaper()
            return
        self._tries = 0
        self._cancel_waiting(trouble)

    def _cancel_waiting(self, error: OSError | None = None) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), error)

    def _release_if_idle(self) -> None:
        if self._release_when_idle and not self._busy and not self._waiting:
            self._release_when_idle = False
            self._release()

    def _release(self) -> None:
        """Hang up on the helper and all its reapers."""
        helper, self._helper = self._helper, None
        if helper is not None:
            self._ending.add(helper)
            helper.release()
        for reaper in [*self._free, *self._busy, *([self._starting] if self._starting else [])]:
            reaper.hang_up()

    def _helper_ended(self, helper: Helper) -> None:
        self._ending.discard(helper)
        if helper is not self._helper:
            return
        self._helper = None
        if not self._worked and (helper.exit_code or 0) > 0:
            # It was not killed; it is unable to work here.
            self.usable = False
        for reaper in list(self._free):
            reaper.hang_up()


def _fail(process: SupervisedProcess, error: OSError | None) -> None:
    process.ended(LOST, error)
    process.left_nothing()


def _start_helper(on_end: Callable[[Helper], None]) -> Helper | None:
    folder = os.path.dirname(__file__)
    if not sys.executable or not os.path.isfile(os.path.join(folder, "helper_main.py")):
        return None
    # About our own interpreter, not about the agent: it may not start again without its library path.
    library_path = os.environ.get("LD_LIBRARY_PATH")
    environment = {"WHERE": folder, "FILES": str(take_descriptors())}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    try:
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _BOOT, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            cwd="/",
            env=environment | ({"LD_LIBRARY_PATH": library_path} if library_path else {}),
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Helper(program, ours, on_end)


@cache
def hide_from_other_processes() -> None:
    """Keep commands, which run as the same user, from reading the keys in our environment and memory."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, ImportError, AttributeError):
            import ctypes

            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@cache
def take_descriptors() -> int:
    """Allow ourselves as many descriptors as we may, since a command needs four; the limit there was before."""
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    if 0 <= before < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return before
