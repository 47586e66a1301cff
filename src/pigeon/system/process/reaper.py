"""The agent's end of one reaper's link; the other end is `ReaperLoop` in `helper_main`, the records are in `messages`.

    state      what happens                                          next state
    --------   ---------------------------------------------------   -----------------
    free       `run` sends `StartCommand`                                     busy
    busy       `Exited`, something is left                           busy
    busy       `Exited`, `NothingLeft`, `NotStarted`                 free
    busy       `kill` sends `Kill`; no answer within `KILL_WITHIN`:  lost
               the helper kills the reaper
    any        end of file, a failed send, or `hang_up`              lost

`pool` is notified of every step to `free` and to `lost`. A reaper is used before it was forked: records sent to it wait
in the link. If that ends before `Waiting` has come, its command has not begun. Otherwise a process whose reaper is lost
has ended with code `LOST`; its remains are killed by the reaper (at the end of file) or by the helper (after the
reaper's death).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

from pigeon.system.process.messages import (
    Exited,
    Kill,
    LinkMessage,
    NothingLeft,
    NotStarted,
    Terminate,
    Waiting,
    receive,
    send,
)

if TYPE_CHECKING:
    from pigeon.system.process.forking import ForkServer
    from pigeon.system.process.pool import HelperPool
    from pigeon.system.process.supervised import SupervisedProcess

SIGNALLED = 128
LOST = 137
KILL_WITHIN = 1.0


class ReaperConnection:
    """One reaper: runs a command, reports its end, and kills it with all it started when asked to."""

    def __init__(self, pool: HelperPool, helper: ForkServer, link: socket.socket) -> None:
        self.helper = helper
        self._pool = pool
        self._link = link
        self._pid = 0
        self._process: SupervisedProcess | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._must_end = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(link.fileno(), self._on_readable)

    def start_process(self, process: SupervisedProcess) -> None:
        """Send it a command to start; raises `OSError` if it is gone, or the record cannot be sent."""
        self.helper.resume_if_stopped()
        send(self._link, process.command, process.descriptors)
        self._process = process
        self._must_end = False
        process.on_reaper_assigned(self)
        if self._pid:
            process.release_streams()

    def terminate(self) -> None:
        """Have it send SIGTERM to the process group of its command."""
        self._send_order(Terminate())

    def kill(self) -> None:
        self._send_order(Kill())
        if self._giving_up is None:
            self._giving_up = self._loop.call_later(KILL_WITHIN, self._kill_reaper)

    def disconnect_and_kill(self) -> None:
        """Close the link: the reaper kills what is below it and exits."""
        if self._try_close():
            self._report_process_gone(known=False)
            self._pool.on_reaper_lost(self)

    def _try_close(self) -> bool:
        if self._link.fileno() < 0:
            return False
        if not self._loop.is_closed():
            self._loop.remove_reader(self._link.fileno())
        self._link.close()
        return True

    def _send_order(self, record: LinkMessage) -> None:
        self._must_end = True
        self.helper.resume_if_stopped()
        with contextlib.suppress(OSError):
            send(self._link, record)

    def _kill_reaper(self) -> None:
        if self._pid:
            self.helper.kill_child(self._pid)
        self.disconnect_and_kill()

    def _on_readable(self) -> None:
        try:
            record, _ = receive(self._link)
        except BlockingIOError:
            return
        if record is None:
            self._on_connection_lost()
        elif isinstance(record, Waiting):
            self._pid = record.pid
            self._pool.on_reaper_began(self)
            if self._process is not None:
                self._process.release_streams()
        elif self._process is not None:
            self._on_record(self._process, record)

    def _on_connection_lost(self) -> None:
        """The reaper has ended, or was never forked: then its command can still be run, unless it was to end."""
        process = self._process
        if self._pid or process is None or self._must_end:
            self.disconnect_and_kill()
            return
        self._process = None
        self._try_close()
        process.on_reaper_lost()
        self._pool.on_reaper_lost(self, process)

    def _on_record(self, process: SupervisedProcess, record: LinkMessage) -> None:
        if isinstance(record, Exited):
            if record.left == "wall":
                process.on_wall_empty()
            process.on_ended(record.code if record.code >= 0 else SIGNALLED - record.code)
        elif isinstance(record, NotStarted):
            process.on_ended(LOST, OSError(record.errno, os.strerror(record.errno)))
        if isinstance(record, NotStarted | NothingLeft) or (isinstance(record, Exited) and record.left == "nothing"):
            self._report_process_gone(known=True)
            self._pool.on_reaper_free(self)

    def _report_process_gone(self, known: bool) -> None:
        """Release a process of which nothing is left, or an unknown rest; it was lost if no code was reported."""
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        process, self._process = self._process, None
        if process is not None:
            process.on_ended(LOST)
            process.on_nothing_left(known)
