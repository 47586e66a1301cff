"""Reading: bytes from the host to frames in the event loop, never ahead of what the loop has taken.

A pipe is read by the loop itself when it has something, which never blocks and leaves the descriptor as the host made
it. A file cannot be waited for that way, so there a thread reads.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Awaitable, Callable

from pigeon.transport.framing import Frame, Framing

CHUNK = 64 * 1024


class Reader:
    """Reads one chunk and hands its frames to `take`, which gives something to await where they cannot be dealt with at
    once; only then is more read. `ended` is called when everything was taken and nothing more comes."""

    def __init__(
        self,
        descriptor: int,
        framing: Framing,
        take: Callable[[list[Frame]], Awaitable[None] | None],
        ended: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._framing = framing
        self._take = take
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._polled = False
        self._watching = False
        self._waiting: asyncio.Future[None] | None = None
        self._taken = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        try:
            self._watch(True)
            self._polled = True
        except (OSError, ValueError):
            threading.Thread(target=self._read, name="pigeon-reader", daemon=True).start()

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._watching:
            self._loop.add_reader(self._descriptor, self._ready)
        elif self._watching and not wanted:
            self._loop.remove_reader(self._descriptor)
        self._watching = wanted

    def _ready(self) -> None:
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        frames = self._framing.feed(chunk) if chunk else self._framing.end()
        if frames or not chunk:
            self._hand_over(frames, ended=not chunk)

    def _hand_over(self, frames: list[Frame], ended: bool) -> None:
        waiting = self._take(frames)
        if waiting is None:
            self._go_on(ended)
            return
        if self._polled:
            self._watch(False)
        self._waiting = asyncio.ensure_future(self._go_on_after(waiting, ended))

    async def _go_on_after(self, waiting: Awaitable[None], ended: bool) -> None:
        await waiting
        self._go_on(ended)

    def _go_on(self, ended: bool) -> None:
        if self._polled:
            self._watch(not ended)
        if ended:
            self._ended()
        self._taken.set()

    def _await_input(self) -> None:
        """The host made its file non-blocking, and it is the host's: we wait instead of changing it."""
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
                    self._loop.call_soon_threadsafe(self._hand_over, frames, ended)
                except RuntimeError:
                    return
                self._taken.wait()
