"""The agent's end of one reaper's socket; the other end is `ReaperLoop` in `helper_main`, which describes the packets.

    state      what happens                                          next state
    --------   ---------------------------------------------------   -----------------
    starting   packet `k`: the helper has forked it                  free
    free       `run` sends a request                                 busy
    busy       packet `x`: exit code, descendants are left           busy
    busy       packet `y`: the same, but only the wall is left       busy
    busy       packet `X`, `g` or `e`: nothing is left               free
    busy       `kill` sends `!`                                      stopping
    stopping   packet `X`, `g` or `e`: nothing is left               free
    stopping   no answer within `KILL_WITHIN`: the helper kills it   lost
    any        end of file, a failed send, or `hang_up`              lost

`pool` hears of every step to `free` and to `lost`. A process whose reaper is lost has ended with code `LOST`; what is
left of it is killed by the reaper (at the end of file) or by the helper (after the reaper's death).
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pigeon.system.process.pool import Helper, HelperPool
    from pigeon.system.process.supervised import SupervisedProcess

SIGNALLED = 128
LOST = 137
KILL_WITHIN = 1.0
SEND_WITHIN = 2.0
PART = 16 * 1024


class ReaperConnection:
    """One reaper: takes a command, reports what becomes of it, kills it with all it started when asked to."""

    def __init__(self, pool: HelperPool, helper: Helper, line: socket.socket) -> None:
        self.state: Literal["starting", "free", "busy", "stopping", "lost"] = "starting"
        self.helper = helper
        self._pool = pool
        self._line = line
        self._pid = 0
        self._environment: dict[bytes, bytes] | None = None
        self._process: SupervisedProcess | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line.fileno(), self._receive)

    def run(self, process: SupervisedProcess) -> bool:
        """Have it start a command; false, and the reaper is lost, if it is no longer there."""
        program, argv, cwd, environment, orders = process.command
        known = environment is self._environment
        request = (program, argv, cwd, None if known else environment, len(process.descriptors), orders)
        self.helper.wake()
        try:
            self._send_request(marshal.dumps(request), process.descriptors)
        except OSError:
            self.hang_up()
            return False
        self.state = "busy"
        self._environment = environment
        self._process = process
        process.begun(self)
        return True

    def terminate(self) -> None:
        """Have it send SIGTERM to the process group of its command."""
        self._order(b"~")

    def kill(self) -> None:
        """Have it kill everything that is left of its command."""
        self.state = "stopping"
        self._order(b"!")
        if self._giving_up is None:
            self._giving_up = self._loop.call_later(KILL_WITHIN, self._give_up)

    def hang_up(self) -> None:
        """Close the socket: the reaper kills what is below it and exits."""
        if self.state == "lost":
            return
        self.state = "lost"
        if not self._loop.is_closed():
            self._loop.remove_reader(self._line.fileno())
        self._line.close()
        self._let_go(LOST, known=False)
        self._pool.reaper_lost(self)

    def _order(self, packet: bytes) -> None:
        self.helper.wake()
        with contextlib.suppress(OSError):
            self._line.send(packet)

    def _give_up(self) -> None:
        self.helper.kill_reaper(self._pid)
        self.hang_up()

    def _send_request(self, body: bytes, descriptors: Sequence[int]) -> None:
        last = (len(body) - 1) // PART * PART
        for at in range(0, last, PART):
            self._send(b"+" + body[at : at + PART])
        rights = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors)
        self._send(b"=" + body[last:], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def _send(self, packet: bytes, ancillary: Sequence[tuple[int, int, bytes]] = ()) -> None:
        try:
            self._line.sendmsg((packet,), ancillary)
        except BlockingIOError:
            # More than the socket holds; the reaper is reading, so there will soon be room.
            self._line.settimeout(SEND_WITHIN)
            self._line.sendmsg((packet,), ancillary)
            self._line.setblocking(False)

    def _receive(self) -> None:
        try:
            packet = self._line.recv(64)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self.hang_up()
            return
        kind, number = packet[:1], int(packet[1:] or b"0")
        if kind == b"k":
            self._pid = number
        elif kind in (b"x", b"y", b"X") and self._process is not None:
            if kind == b"y":
                self._process.left_its_wall()
            self._process.ended(number if number >= 0 else SIGNALLED - number)
        elif kind == b"e" and self._process is not None:
            self._process.ended(LOST, OSError(number, os.strerror(number)))
        if kind not in (b"x", b"y"):
            self.state = "free"
            self._let_go(LOST, known=True)
            self._pool.reaper_free(self)

    def _let_go(self, code: int, known: bool) -> None:
        """Nothing is left of the process, or it is not known how much; the code counts if none was reported."""
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        process, self._process = self._process, None
        if process is not None:
            process.ended(code)
            process.left_nothing(known)
