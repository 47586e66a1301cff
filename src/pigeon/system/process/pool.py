"""The helper program and its reapers as a pool: which are free, which commands wait for one, and how everything ends.

One pool for each event loop that starts commands, shared by all agents on that loop: it is a resource of the process,
like the loop itself. An agent's own commands are held by its `ProcessOwner` (`start`); the pool ends when the last
owner has left it, when the interpreter exits, or, if its loop was closed without either, when the next pool is made.

A command goes to a free reaper, or to a new one; records sent to a reaper wait in its link until it was forked. One
reaper is forked at a time, because a busy one may be free before, and one is always free, so that a command need not
wait for a fork.

    what happens                         what the pool does
    ----------------------------------   ------------------------------------------------------------------
    a reaper was forked                  the command that waits longest gets another
    a command has ended                  its reaper gets a command that waits; else up to `MOST_FREE` are kept
    a reaper ends before it had begun    give its command to another; after `MOST_TRIES` it fails
    no room for another reaper           the command waits for a busy one; if there are none, it fails
    the helper is gone                   its busy reapers finish what they have; free ones are dropped
    a killed command was the last one    the helper ends: after an abort no process of ours is left
    the owner rests                      the helper ends once no command is left; the next one starts another
    the helper cannot work here          `usable` is false: commands run unsupervised from then on
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import os
import socket
import subprocess
import sys
import time
from collections import deque
from functools import cache

from pigeon.system.process.forking import ForkServer
from pigeon.system.process.reaper import LOST, ReaperConnection
from pigeon.system.process.supervised import SupervisedProcess
from pigeon.system.process.variables import own_environment

MOST_FREE = 4
MOST_TRIES = 3
END_WITHIN = 1.0
MOST_FILES = 65536
_PR_SET_DUMPABLE = 4
_NO_ROOM = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# The folder is not among the arguments, so that a search for our name in the process table does not find the helper.
_BOOT = (
    "import os, sys; sys.path.append(os.environ.pop('WHERE')); "
    "from pigeon.system.process.helper_main import main; main(int(sys.argv[1]))"
)
_pools: dict[asyncio.AbstractEventLoop, HelperPool] = {}


def ensure_current_pool() -> HelperPool:
    """The pool of the running event loop, created at the first call."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        for closed in [other for other in _pools if other.is_closed()]:
            _pools.pop(closed).kill_all_at_exit()
        pool = _pools[loop] = HelperPool()
        atexit.register(pool.kill_all_at_exit)
    return pool


async def leave_pool(owner: object, deadline: float) -> bool:
    """Remove an owner from the running loop's pool, which ends with the last one. Returns False if that took too
    long."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        return True
    if not pool.remove_owner_and_check_empty(owner):
        return True
    del _pools[loop]
    atexit.unregister(pool.kill_all_at_exit)
    return await pool.kill_all_and_wait(deadline)


class HelperPool:
    """The helper that forks reapers, the reapers, and the commands that wait for one."""

    def __init__(self) -> None:
        self.usable = True
        self._process_id = os.getpid()
        self._owners: set[object] = set()
        self._helper: ForkServer | None = None
        self._ending: set[ForkServer] = set()
        self._free: list[ReaperConnection] = []
        self._busy: set[ReaperConnection] = set()
        self._starting: ReaperConnection | None = None
        self._waiting: deque[SupervisedProcess] = deque()
        self._tries = 0
        self._release_when_idle = False

    def add_owner(self, owner: object) -> None:
        """Register an owner that starts commands here."""
        self._owners.add(owner)

    def remove_owner_and_check_empty(self, owner: object) -> bool:
        """Remove an owner; returns True if none is left."""
        self._owners.discard(owner)
        return not self._owners

    def try_ensure_helper(self) -> bool:
        """Start the helper if need be; returns False if commands cannot be supervised."""
        if self._helper is not None and self._helper.is_running():
            return True
        if not self.usable:
            return False
        hide_from_other_processes()
        try:
            self._helper = _start_helper(self)
            self.usable = self._helper is not None
        except OSError as error:
            self.usable = error.errno in _NO_ROOM
        return self._helper is not None

    def ensure_free_reaper(self) -> None:
        self._release_when_idle = False
        self._try_fork_free_reaper()

    def _try_fork_free_reaper(self) -> None:
        if not self._free and self._starting is None:
            with contextlib.suppress(OSError):
                self._free.append(self._fork_reaper())

    def release_when_idle(self) -> None:
        """End the helper, now or when the last command has ended, because no command is expected soon."""
        self._release_when_idle = True
        self._release_if_idle()

    def start(self, process: SupervisedProcess) -> None:
        """Give a command to a free reaper, or to the next one that becomes free."""
        self._release_when_idle = False
        self._assign(process)
        self._try_fork_free_reaper()

    def kill(self, process: SupervisedProcess, reaper: ReaperConnection | None, keep_helper: bool) -> None:
        """Kill a command. The helper goes too if no command is left."""
        self._release_when_idle = self._release_when_idle or not keep_helper
        if reaper is not None:
            reaper.kill()
        elif process in self._waiting:
            self._waiting.remove(process)
            _fail(process, None)
            self._release_if_idle()

    def on_reaper_began(self, reaper: ReaperConnection) -> None:
        """A reaper was forked, which shows that the helper works."""
        self._tries = 0
        if reaper is self._starting:
            self._starting = None
        if self._waiting:
            self._assign(self._waiting.popleft())
        elif self._busy and not self._release_when_idle:
            self._try_fork_free_reaper()

    def on_reaper_free(self, reaper: ReaperConnection) -> None:
        """Nothing is left of a reaper's command, so it takes another."""
        self._busy.discard(reaper)
        self._free.append(reaper)
        if self._waiting:
            self._assign(self._waiting.popleft())
        if reaper in self._free and (reaper.helper is not self._helper or len(self._free) > MOST_FREE):
            reaper.disconnect_and_kill()
        self._release_if_idle()

    def on_reaper_lost(self, reaper: ReaperConnection, not_begun: SupervisedProcess | None = None) -> None:
        """A reaper is gone; its command, if it is `not_begun`, gets another."""
        self._busy.discard(reaper)
        if reaper is self._starting:
            self._starting = None
        if reaper in self._free:
            self._free.remove(reaper)
        if not_begun is not None:
            self._waiting.appendleft(not_begun)
        if self._waiting and not (self._busy and reaper.helper.is_running()):
            # Otherwise the helper had no room for another process: a busy reaper will take the waiting command.
            self._assign_again(self._waiting.popleft())
        self._release_if_idle()

    async def kill_all_and_wait(self, deadline: float) -> bool:
        """Kill everything and wait until the deadline for the helper's end; returns True if nothing is left."""
        self._fail_waiting()
        self._disconnect_all()
        ending = [helper.ended for helper in self._ending]
        if ending:
            await asyncio.wait(ending, timeout=max(0.0, deadline - time.monotonic()))
        return all(future.done() for future in ending)

    def kill_all_at_exit(self) -> None:
        """The same without an event loop, when the interpreter exits or the loop was closed.

        If a program with an agent forks itself, the copy has a copy of the pool with the same sockets: its end must not
        end the commands here.
        """
        if os.getpid() != self._process_id:
            return
        deadline = time.monotonic() + END_WITHIN
        self._fail_waiting()
        self._disconnect_all()
        for helper in list(self._ending):
            helper.wait(deadline - time.monotonic())

    def on_helper_lost(self, helper: ForkServer) -> None:
        self._ending.discard(helper)
        if helper is not self._helper:
            return
        self._helper = None
        if not helper.has_been_ready and (helper.exit_code or 0) > 0:
            # It was not killed, so it is unable to work here.
            self.usable = False
        for reaper in list(self._free):
            reaper.disconnect_and_kill()

    def _assign(self, process: SupervisedProcess) -> None:
        """Give a command to a free reaper or a new one; it waits if one is starting, or there is no room."""
        while self._free:
            reaper = self._free.pop()
            try:
                self._run_on_reaper(reaper, process)
                return
            except ConnectionError:
                reaper.disconnect_and_kill()
            except OSError as error:
                self._free.append(reaper)
                self._postpone_or_fail(process, error)
                return
        if self._starting is not None:
            self._waiting.append(process)
            return
        try:
            reaper = self._fork_reaper()
        except ConnectionError:
            self._assign_again(process)
            return
        except OSError as error:
            self._postpone_or_fail(process, error)
            return
        try:
            self._run_on_reaper(reaper, process)
        except ConnectionError:
            # It could not be forked, or its helper has died since.
            reaper.disconnect_and_kill()
            self.on_reaper_lost(reaper, process)
        except OSError as error:
            self._postpone_or_fail(process, error)

    def _assign_again(self, process: SupervisedProcess) -> None:
        """Reassign a command whose helper or reaper was lost; after `MOST_TRIES` it fails."""
        self._tries += 1
        if self._tries < MOST_TRIES:
            self._assign(process)
            return
        self._tries = 0
        self._waiting.appendleft(process)
        self._fail_waiting(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))

    def _run_on_reaper(self, reaper: ReaperConnection, process: SupervisedProcess) -> None:
        reaper.start_process(process)
        self._busy.add(reaper)

    def _postpone_or_fail(self, process: SupervisedProcess, error: OSError) -> None:
        """Keep a command for a busy reaper; it fails if there is none, or if waiting does not help."""
        if self._busy and error.errno in _NO_ROOM:
            self._waiting.append(process)
        else:
            _fail(process, error)

    def _fork_reaper(self) -> ReaperConnection:
        """A new reaper, whose fork is under way; raises `OSError`, and `ConnectionError` if the helper has died."""
        if not self.try_ensure_helper() or self._helper is None:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._helper.resume_if_stopped()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            self._helper.request_fork(b"", [theirs.fileno()])
        except OSError as error:
            ours.close()
            if isinstance(error, ConnectionError):
                # It hangs up before its parent can notice that it has ended.
                self._helper.kill_server()
                self.on_helper_lost(self._helper)
            raise
        finally:
            theirs.close()
        self._starting = ReaperConnection(self, self._helper, ours)
        return self._starting

    def _fail_waiting(self, error: OSError | None = None) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), error)

    def _release_if_idle(self) -> None:
        if self._release_when_idle and not self._busy and not self._waiting:
            self._release_when_idle = False
            self._disconnect_all()

    def _disconnect_all(self) -> None:
        """Hang up on the helper and all its reapers."""
        helper, self._helper = self._helper, None
        if helper is not None:
            self._ending.add(helper)
            helper.request_end()
        for reaper in [*self._free, *self._busy]:
            reaper.disconnect_and_kill()


def _fail(process: SupervisedProcess, error: OSError | None) -> None:
    process.on_ended(LOST, error)
    process.on_nothing_left()


def _start_helper(pool: HelperPool) -> ForkServer | None:
    folder = os.path.dirname(__file__)
    if not sys.executable or not os.path.isfile(os.path.join(folder, "helper_main.py")):
        return None
    for _ in __name__.split(".")[:-1]:
        folder = os.path.dirname(folder)
    # Concerns our own interpreter, not the agent: it may not start again without its library path.
    added = {"WHERE": folder, "FILES": str(raise_descriptor_limit())}
    variables = own_environment(os.environ).with_added(added)
    line = [sys.executable, "-I", "-S", "-B", "-c", _BOOT]
    return ForkServer(line, variables, pool.on_helper_lost, stderr=subprocess.DEVNULL)


@cache
def hide_from_other_processes() -> None:
    """Keep commands, which run as the same user, from reading the keys in our environment and memory."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, ImportError, AttributeError):
            import ctypes

            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def show_to_own_user() -> None:
    """Undo that: a warm parent serves only processes that it can look at. For commands that run nothing of an agent."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


@cache
def raise_descriptor_limit() -> int:
    """Raise our limit of descriptors as far as possible, since a command needs four; returns the previous limit."""
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    if 0 <= before < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return before
