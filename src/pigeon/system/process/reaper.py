"""Our end of a keeper's leash: it takes commands, says what became of them, and kills when told to.

A keeper that is told to kill is expected to say soon that nothing is left. One that does not (a command can stop it,
again and again) is helped: it is continued, what is below it is killed from here, and in the end it is killed too, so
that the nursery inherits what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

SIGNALLED = 128
LOST = 137
PATIENCE = 0.25
BETWEEN_PASSES = 0.1
MOST_PASSES = 8
SEND_WITHIN = 2.0
PART = 16 * 1024


class Command(NamedTuple):
    """What to run, as the system will see it; equal environments are the same object, or are sent again."""

    program: bytes
    argv: list[bytes]
    cwd: bytes
    environment: dict[bytes, bytes]


class Ward(Protocol):
    """Whoever wants to know what becomes of a command."""

    def begun(self, keeper: Keeper) -> None:
        """A keeper has taken the command."""
        ...

    def ended(self, code: int, error: OSError | None = None) -> None:
        """The command has ended, or could not be started; may be said twice."""
        ...

    def left_nothing(self) -> None:
        """Everything that it started is gone."""
        ...

    async def gone(self, timeout: float) -> bool:
        """Wait for that."""
        ...


class Home(Protocol):
    """Where a keeper comes from and goes back to."""

    def wake(self) -> None:
        """Go on, if somebody stopped it."""
        ...

    def take(self, keeper: Keeper, close_if_unused: bool) -> None:
        """The keeper is free, for the first time or again."""
        ...

    def forget(self, keeper: Keeper, close_if_unused: bool) -> None:
        """The keeper is no longer there."""
        ...


class Keeper:
    """One keeper, by its leash."""

    def __init__(self, home: Home, leash: socket.socket) -> None:
        self._home = home
        self._leash = leash
        self._pid = 0
        self._pidfd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._environment: dict[bytes, bytes] | None = None
        self._last_one = False
        self._helping: asyncio.TimerHandle | None = None
        self.ward: Ward | None = None

    def run(self, command: Command, descriptors: Sequence[int]) -> bool:
        """Have it start a command with these as output, errors and input; false if it is no longer there.

        The caller says at once whose command it is.
        """
        environment = None if command.environment is self._environment else command.environment
        try:
            request = (command.program, command.argv, command.cwd, environment, len(descriptors))
            self._send(marshal.dumps(request), descriptors)
        except OSError:
            self.hang_up()
            return False
        self._environment = command.environment
        self._continue()
        self.watch()
        return True

    def kill(self, ward: Ward, tidy: bool = True) -> None:
        """Have it kill all that is left of this ward; it says so when that is done."""
        if self.ward is not ward:
            return
        self._last_one = tidy
        self._continue()
        with contextlib.suppress(OSError):
            self._leash.send(b"!")
        if self._helping is None:
            self._help_later(PATIENCE, 1)

    def ask_to_end(self, ward: Ward) -> None:
        """Have it send SIGTERM to the process group of this ward."""
        if self.ward is ward:
            self._continue()
            with contextlib.suppress(OSError):
                self._leash.send(b"~")

    def watch(self) -> None:
        """Listen to it in the running event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            loop.add_reader(self._leash.fileno(), self._heard)

    def hang_up(self) -> None:
        """Tear the leash: it kills what is below it and ends."""
        if self._leash.fileno() < 0:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._leash.fileno())
        self._leash.close()
        self._leave()
        if self.ward is not None:
            self.ward.ended(LOST)
        self._let_go()
        self._home.forget(self, self._last_one)

    def _send(self, body: bytes, descriptors: Sequence[int]) -> None:
        last = (len(body) - 1) // PART * PART
        for at in range(0, last, PART):
            self._send_packet(b"+" + body[at : at + PART])
        rights = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors)
        self._send_packet(b"=" + body[last:], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def _send_packet(self, packet: bytes, ancillary: list[tuple[int, int, bytes]] | tuple[()] = ()) -> None:
        try:
            self._leash.sendmsg((packet,), ancillary)
        except BlockingIOError:
            # More than the socket holds; the keeper is reading, so there will soon be room.
            self._leash.settimeout(SEND_WITHIN)
            self._leash.sendmsg((packet,), ancillary)
            self._leash.setblocking(False)

    def _heard(self) -> None:
        try:
            packet = self._leash.recv(64)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        what = packet[:1]
        if what in (b"X", b"x") and self.ward is not None:
            number = int(packet[1:])
            self.ward.ended(number if number >= 0 else SIGNALLED - number)
        elif what == b"e" and self.ward is not None:
            number = int(packet[1:])
            self.ward.ended(LOST, OSError(number, os.strerror(number)))
        elif what == b"k":
            self._meet(int(packet[1:]))
            self._home.take(self, False)
        if not packet:
            self.hang_up()
        elif what in (b"X", b"g", b"e"):
            close_if_unused, self._last_one = self._last_one, False
            self._let_go()
            self._home.take(self, close_if_unused)

    def _let_go(self) -> None:
        if self._helping is not None:
            self._helping.cancel()
            self._helping = None
        ward, self.ward = self.ward, None
        if ward is not None:
            ward.left_nothing()

    def _continue(self) -> None:
        self._home.wake()
        self._signal(signal.SIGCONT)

    def _help_later(self, delay: float, passes: int) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._helping = self._loop.call_later(delay, self._help, passes)

    def _help(self, passes: int) -> None:
        if self._pid:
            kill_all_below(self._pid, self._holds)
        self._continue()
        if passes < MOST_PASSES:
            self._help_later(BETWEEN_PASSES, passes + 1)
            return
        self._signal(signal.SIGKILL)
        self.hang_up()

    def _holds(self) -> bool:
        poll = select.poll()
        poll.register(self._leash, 0)
        return not poll.poll(0)

    def _meet(self, pid: int) -> None:
        """Remember who it is so that a signal never goes to a process that got its pid later."""
        with contextlib.suppress(OSError, AttributeError):
            self._pidfd = os.pidfd_open(pid)
        if self._holds():
            # While the leash holds, the pid is its own.
            self._pid = pid
        else:
            self._leave()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self._pid and self._holds():
                os.kill(self._pid, number)

    def _leave(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pid, self._pidfd = 0, -1


def kill_all_below(root: int, if_still: Callable[[], bool] = lambda: True) -> None:
    """Kill what is below a process, from outside; `if_still` is asked after the look whether that was the right one."""
    from pigeon.system.process.helper_main import descendants

    found = descendants(root, set())
    if if_still():
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
