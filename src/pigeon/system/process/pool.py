"""The program in `nursery`, started when it is first needed, and its keepers: who is free, who is busy, how all end.

Closes our own memory to the commands we start: keys that are in our environment are not in theirs.
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
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from pigeon.system.process.reaper import BETWEEN_PASSES, LOST, PATIENCE, Command, Keeper, Ward, kill_all_below

_PR_SET_DUMPABLE = 4


@cache
def close_to_others() -> None:
    """On Linux, keep other processes of the same user from reading our environment and memory; once is enough."""
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, ImportError, AttributeError):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


MOST_FREE = 4
MOST_TRIES = 3
END_WITHIN = 1.0
MOST_FILES = 65536
# The folder is not among the arguments, so that looking for our name in the process table does not find the nursery.
_BOOT = (
    "import os, sys; sys.path.append(os.environ.pop('WHERE')); import helper_main; helper_main.main(int(sys.argv[1]))"
)


class Job:
    """A command that waits for a keeper."""

    def __init__(self, command: Command, descriptors: Sequence[int], ward: Ward) -> None:
        self.command = command
        self.descriptors = descriptors
        self.ward = ward
        self.tries = 0

    def cancel(self, error: OSError | None = None) -> None:
        """It will not be run."""
        self.ward.ended(LOST, error)
        self.ward.left_nothing()


class Nursery:
    """The program that forks keepers, the keepers that are free, and the commands that wait for one."""

    def __init__(self, program: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._program = program
        self._control = control
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free: list[Keeper] = []
        self._unborn: Keeper | None = None
        self._works = False
        self._ended: asyncio.Future[None] | None = None
        self._nudging: asyncio.TimerHandle | None = None
        self._trouble: OSError | None = None
        self.waiting: deque[Job] = deque()
        _nurseries.add(self)

    def look(self) -> None:
        """Notice if it has ended."""
        if self._program.poll() is not None:
            self._over()

    def run(self, command: Command, descriptors: Sequence[int]) -> Keeper | None:
        """The free keeper that now runs a command; nothing if it has to wait for one."""
        while self._free:
            keeper = self._free.pop()
            if keeper.run(command, descriptors):
                _busy.add(keeper)
                self.stock()
                return keeper
        return None

    def queue(self, job: Job) -> None:
        """Give this to the next keeper that is free or born."""
        self.waiting.append(job)
        self.stock()

    def stock(self) -> None:
        """See that a keeper is free or will be born; one at a time, because others may be free before."""
        self._watch()
        if not self._free and self._unborn is None:
            self._unborn = self._forked()
            if self._unborn is None:
                self._move()
                return
            self._unborn.watch()
        self._nudge()

    def take(self, keeper: Keeper, close_if_unused: bool) -> None:
        """A keeper is free: it gets what waits, else it waits; a few of those are kept."""
        self._works = True
        _busy.discard(keeper)
        if keeper is self._unborn:
            self._unborn = None
        self._free.append(keeper)
        while self._free and self.waiting:
            job = self.waiting.popleft()
            if (taken := self.run(job.command, job.descriptors)) is None:
                self.queue(job)
                return
            taken.ward = job.ward
            job.ward.begun(taken)
        if close_if_unused and not _busy:
            self.release()
        elif keeper in self._free and (len(self._free) > MOST_FREE or _nursery is not self):
            keeper.hang_up()

    def forget(self, keeper: Keeper, close_if_unused: bool) -> None:
        """A keeper is gone."""
        _busy.discard(keeper)
        with contextlib.suppress(ValueError):
            self._free.remove(keeper)
        if keeper is self._unborn:
            self._unborn = None
            self._move()
        if close_if_unused and not _busy:
            self.release()

    def _nudge(self) -> None:
        """While something waits for a keeper to be born, see that nobody keeps the program stopped."""
        if self._nudging is not None:
            self._nudging.cancel()
            self._nudging = None
        if self.waiting and self._control.fileno() >= 0:
            self.wake()
            self._nudging = asyncio.get_running_loop().call_later(PATIENCE, self._nudge)

    def _move(self) -> None:
        """No keeper came: ask once more for what waits, here or where it works better."""
        if _busy and self._trouble is not None and self._trouble.errno in _PASSING:
            # Too many at once: the keepers that are busy now will take what waits.
            return
        jobs = list(self.waiting)
        self.waiting.clear()
        for job in jobs:
            job.tries += 1
            nursery = open_nursery() if job.tries < MOST_TRIES else None
            if nursery is None:
                job.cancel(self._trouble or OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            else:
                nursery.queue(job)

    def wake(self) -> None:
        """Go on, if somebody stopped it; it is our child, so its pid is its own until we have asked for its end."""
        if self._program.returncode is None:
            os.kill(self._program.pid, signal.SIGCONT)

    def _watch(self) -> None:
        """Have the running event loop notice its end, so that no zombie is left."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop and self._control.fileno() >= 0:
            self._loop = loop
            loop.add_reader(self._control.fileno(), self._over)

    def release(self) -> None:
        """Hang up; it ends by itself once no keeper is left."""
        global _nursery
        if _nursery is self:
            _nursery = None
        for keeper in [*self._free, *([self._unborn] if self._unborn else [])]:
            keeper.hang_up()
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    async def end(self, deadline: float) -> None:
        """Hang up and wait until it has ended; help, and at last kill it, if it does not."""
        loop = asyncio.get_running_loop()
        self.release()
        self.wake()
        wait = PATIENCE
        while self._control.fileno() >= 0:
            self._watch()
            self._ended = loop.create_future()
            await asyncio.wait({self._ended}, timeout=max(0.01, min(wait, deadline - time.monotonic())))
            if not self._ended.done():
                wait = BETWEEN_PASSES
                self._help(deadline)

    def end_now(self, deadline: float) -> None:
        """The same, blocking."""
        self.release()
        self.wake()
        wait = PATIENCE
        while self._control.fileno() >= 0:
            try:
                self._program.wait(max(0.01, min(wait, deadline - time.monotonic())))
                self._over()
            except subprocess.TimeoutExpired:
                wait = BETWEEN_PASSES
                self._help(deadline)

    def _help(self, deadline: float) -> None:
        kill_all_below(self._program.pid)
        self.wake()
        if time.monotonic() >= deadline:
            self._program.kill()
            self._over()

    def _over(self) -> None:
        global _unable
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._control.fileno())
        self._loop = None
        self.release()
        self._control.close()
        # Its end of the socket closed with it, so it is a zombie or about to be one.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(1)
        _nurseries.discard(self)
        if not self._works and (self._program.returncode or 0) > 0:
            # Not killed, but unable to work here.
            _unable = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _forked(self) -> Keeper | None:
        self._trouble = None
        self.wake()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._trouble = error
            return None
        ours.setblocking(False)
        try:
            socket.send_fds(self._control, [b"k"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            self._trouble = error
            if isinstance(error, ConnectionError):
                self.release()
            return None
        finally:
            theirs.close()
        return Keeper(self, ours)


_nursery: Nursery | None = None
_unable = False
_registered = False
_files = 0
_PASSING = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_nurseries: set[Nursery] = set()
_busy: set[Keeper] = set()


def open_nursery() -> Nursery | None:
    """The nursery, started if need be; nothing where it cannot be started."""
    global _nursery, _unable, _registered
    if _nursery is not None:
        _nursery.look()
    if _nursery is None and not _unable:
        if not _registered:
            atexit.register(_end_now)
            _registered = True
        close_to_others()
        try:
            _nursery = _start_nursery()
            _unable = _nursery is None
        except OSError as error:
            _unable = error.errno not in _PASSING
    return _nursery


def _start_nursery() -> Nursery | None:
    folder = os.path.dirname(__file__)
    if not sys.executable or not os.path.isfile(os.path.join(folder, "helper_main.py")):
        return None
    files = _more_descriptors()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    library_path = os.environ.get("LD_LIBRARY_PATH")
    try:
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _BOOT, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            cwd="/",
            env={"WHERE": folder, "FILES": str(files)} | ({"LD_LIBRARY_PATH": library_path} if library_path else {}),
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Nursery(program, ours)


def _more_descriptors() -> int:
    """Take as many descriptors as we may, since a command needs four; what commands get is as it was before."""
    global _files
    if _files == 0:
        import resource

        _files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
        if 0 <= _files < wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return _files


def drop(ward: Ward, tidy: bool = True) -> None:
    """Do not run a command that still waits for a keeper. Tidy: the nursery goes too if unused."""
    for nursery in list(_nurseries):
        for job in [job for job in nursery.waiting if job.ward is ward]:
            nursery.waiting.remove(job)
            job.cancel()
            if tidy and not _busy and not nursery.waiting:
                nursery.release()


async def kill_kept(timeout: float) -> bool:
    """Kill all commands and what they left behind, then the nursery."""
    deadline = time.monotonic() + timeout
    for nursery in list(_nurseries):
        for job in list(nursery.waiting):
            drop(job.ward)
    wards = []
    for keeper in list(_busy):
        if keeper.ward is not None:
            wards.append(keeper.ward)
            keeper.watch()
            keeper.kill(keeper.ward)
    results = [await ward.gone(max(0.0, deadline - time.monotonic())) for ward in wards]
    for nursery in list(_nurseries):
        await nursery.end(deadline)
    return all(results)


def _end_now() -> None:
    deadline = time.monotonic() + END_WITHIN
    for keeper in list(_busy):
        keeper.ward = None
        keeper.hang_up()
    for nursery in list(_nurseries):
        nursery.end_now(deadline)
