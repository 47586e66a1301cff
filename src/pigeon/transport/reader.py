"""The reading thread: bytes from the host to frames in the event loop, never ahead of what the loop has taken.

A thread, because stdin may be a file or a terminal, and because making it non-blocking would change it for whoever
shares it with us.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable

from pigeon.transport.framing import Frame, Framing

CHUNK = 64 * 1024


class Reader:
    """Reads one chunk, hands over its frames, and waits until they were taken."""

    def __init__(self, descriptor: int, framing: Framing, deliver: Callable[[list[Frame], bool], None]) -> None:
        self._descriptor = descriptor
        self._framing = framing
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._taken = threading.Event()
        self._thread = threading.Thread(target=self._read, name="pigeon-reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def taken(self) -> None:
        """The loop has dealt with the last frames: read on."""
        self._taken.set()

    def _await_input(self) -> None:
        """The host made its pipe non-blocking, and it is the host's: we wait instead of changing it."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        poller.poll()

    def _read(self) -> None:
        ended = False
        while not ended:
            try:
                chunk = os.read(self._descriptor, CHUNK)
            except BlockingIOError:
                self._await_input()
                continue
            except OSError:
                chunk = b""
            ended = not chunk
            frames = self._framing.end() if ended else self._framing.feed(chunk)
            if frames or ended:
                self._taken.clear()
                try:
                    self._loop.call_soon_threadsafe(self._deliver, frames, ended)
                except RuntimeError:
                    return
                self._taken.wait()
