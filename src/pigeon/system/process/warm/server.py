"""The warm parent's loop: accepts calls on a socket of its user, and forks a process for each.

It knows nothing of a call: arguments, variables and keys are in a file that only the forked process opens, and the
descriptors of one call are closed before the next. The caller's end is `call`, the forked process's
`takeover`; the records are in `link` and `messages`.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pigeon.system.process.fork_server import Forker, send_record
from pigeon.system.process.messages import (
    Attached,
    Ended,
    LinkMessage,
    ServerReady,
    close_descriptors,
    receive_unopened,
)
from pigeon.system.process.warm.callers import CallerCheck
from pigeon.system.process.warm.link import (
    NOT_TAKEN,
    SUFFIX,
    CallFacts,
    StatusRequest,
    StopServer,
    WarmStatus,
    name_socket,
)

if TYPE_CHECKING:
    import _socket

    from pigeon.system.process.fork_server import Work

# The pipe, the folder and the call itself, besides what a caller was started with.
MOST_DESCRIPTORS = 250
# How often an idle parent looks whether it is still of use.
LOOK_SECONDS = 30.0
BACKLOG = 64
MOST_UNDECIDED = 200


class WarmSocket:
    """The socket of a warm parent in its folder, under the name that its facts give it."""

    def __init__(self, folder: int, facts: bytes) -> None:
        self._folder = folder
        self._name = name_socket(facts)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        unready = f".{os.getpid():x}{SUFFIX}"
        before = os.umask(0o177)
        os.fchdir(folder)
        try:
            self.listener.bind(unready)
            self.listener.listen(BACKLOG)
            self.listener.setblocking(False)
            # In place of one whose parent has been killed.
            os.rename(unready, self._name)
        finally:
            os.chdir("/")
            os.umask(before)
        self._inode = os.stat(self._name, dir_fd=folder).st_ino

    def is_ours(self) -> bool:
        """False if the file was removed or replaced, so that no call can come any more."""
        try:
            return os.stat(self._name, dir_fd=self._folder).st_ino == self._inode
        except OSError:
            return False

    def remove(self) -> None:
        if self.is_ours():
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
        self.listener.close()


class WarmServer(Forker):
    """Forks a process for each call. `is_current` says whether the code that is loaded is still that of the files."""

    def __init__(
        self, place: WarmSocket, facts: bytes, is_current: Callable[[], bool], work: Work, idle_seconds: float
    ) -> None:
        super().__init__(work, owns_descendants=False)
        self._place = place
        self._facts = facts
        self._is_current = is_current
        self._idle_limit = idle_seconds
        self._check = CallerCheck()
        self._poll = select.poll()
        # Links whose call is not decided yet, by their descriptors; True once the facts were right.
        self._undecided: dict[int, tuple[socket.socket, bool]] = {}
        self._began = self._last_call = time.monotonic()
        self._calls = 0
        self._is_ending = False

    def serve(self) -> None:
        """Serve calls until no call has come for long, the code has changed, or it is asked to end."""
        listener = self._place.listener
        self._poll.register(listener, select.POLLIN)
        self._poll.register(self._signals, select.POLLIN)
        while not self._is_ending:
            ready = [descriptor for descriptor, _ in self._poll.poll(min(LOOK_SECONDS, self._idle_limit) * 1000)]
            if self._signals in ready:
                self._reap_and_report()
            for descriptor in ready:
                if descriptor in self._undecided:
                    self._serve_link(descriptor)
            if listener.fileno() in ready:
                self._accept()
            if not ready and not self._is_of_use():
                break
        self._place.remove()

    def _is_of_use(self) -> bool:
        idle = time.monotonic() - self._last_call
        is_idle = not self._children and idle > self._idle_limit
        return not is_idle and self._place.is_ours() and self._is_current()

    def _accept(self) -> None:
        try:
            link, _ = self._place.listener.accept()
        except OSError:
            return
        if self._check.may_call(link) is None:
            link.close()
            return
        if len(self._undecided) >= MOST_UNDECIDED:
            # The oldest: a call decides within milliseconds, so one that waits for so many others will not.
            self._hang_up(next(iter(self._undecided)))
        link.setblocking(False)
        self._undecided[link.fileno()] = link, False
        self._poll.register(link, select.POLLIN)

    def _serve_link(self, descriptor: int) -> None:
        link, is_known = self._undecided[descriptor]
        try:
            record, descriptors = receive_unopened(link, MOST_DESCRIPTORS)
        except (OSError, ValueError, EOFError, TypeError, KeyError):
            self._hang_up(descriptor)
            return
        if isinstance(record, Attached) and is_known and not record.record:
            self._poll.unregister(descriptor)
            del self._undecided[descriptor]
            self._last_call = time.monotonic()
            # The forked process needs the link, too, to answer and to report its exit code.
            self._fork(link, b"", [*descriptors, os.dup(descriptor)], with_handle=True)
            if link not in self._children.values():
                link.close()
            return
        close_descriptors(descriptors)
        if not self._answer(link, record):
            self._hang_up(descriptor)

    def _answer(self, link: socket.socket, record: LinkMessage | None) -> bool:
        """Answer anything but a call; returns False if there is nothing to say to this caller."""
        if isinstance(record, CallFacts):
            if record.facts != self._facts:
                return False
            if not self._is_current():
                self._is_ending = True
                return False
            self._undecided[link.fileno()] = link, True
            send_record(link, ServerReady(os.getpid()))
            return True
        if isinstance(record, StopServer):
            self._is_ending = True
            return True
        if isinstance(record, StatusRequest):
            now = time.monotonic()
            idle = 0.0 if self._children else now - self._last_call
            send_record(
                link,
                WarmStatus(os.getpid(), self._calls, len(self._children), now - self._began, idle, self._idle_limit),
            )
            return True
        return False

    def _hang_up(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._undecided.pop(descriptor)[0].close()

    def _report_end(self, link: _socket.socket, record: Ended) -> None:
        super()._report_end(link, record)
        link.close()
        self._calls += record.code != NOT_TAKEN
        self._last_call = time.monotonic()
