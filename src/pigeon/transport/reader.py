"""Bytes from the host to frames in the event loop, never ahead of what the loop has consumed.

A pipe, socket or terminal is read by the loop when it polls ready, which never blocks and leaves the descriptor as the
host made it (the host may share it with others). A regular file cannot be polled, so there a thread reads.

A frame is a line: split on LF and nothing else, within a size cap. CR before LF is dropped, a last line without LF
counts. A line beyond the cap is reported at the moment it grows too long, and skipped up to the next LF: a host that
sends a giant gets an answer, and the next line is read normally. On request, the end of such a line is reported too:
some hosts write there what the line belongs to.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from itertools import chain

DEFAULT_CAP = 32 * 1024 * 1024
CHUNK = 64 * 1024
# How much is kept of a line that is too long, at either end.
BEGINNING = 1024
ENDING = 1024
LOOP_CHECK_SECONDS = 0.5


class TooLong:
    """Replaces a line that exceeded the cap; `beginning` is its start, to find out what it was about."""

    def __init__(self, cap: int, beginning: bytes = b"") -> None:
        self.cap = cap
        self.beginning = beginning


class SkippedEnd:
    """The end of a line that was reported as too long: a little of it at both ends."""

    def __init__(self, cap: int, beginning: bytes, ending: bytes) -> None:
        self.cap = cap
        self.beginning = beginning
        self.ending = ending

    def append_piece(self, piece: bytes) -> None:
        """Add a piece of the line, of which the last bytes are kept."""
        self.ending = (self.ending + piece[-ENDING:])[-ENDING:]


Frame = bytes | TooLong | SkippedEnd


class Framing:
    """Collects chunks and returns complete lines; with `tells_ends`, also the ends of those that are too long."""

    def __init__(self, cap: int = DEFAULT_CAP, tells_ends: bool = False) -> None:
        self._cap = cap
        self._tells_ends = tells_ends
        self._parts: list[bytes] = []
        self._size = 0
        # What is kept of a line that is skipped.
        self._skipped: SkippedEnd | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """The lines that this chunk completes."""
        frames: list[Frame] = []
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._add_piece(line, frames)
            if self._skipped is None:
                frames.append(self._join_line())
            else:
                self._end_skipped(frames)
            self._parts.clear()
            self._size = 0
        if rest:
            self._add_piece(rest, frames)
        return frames

    def finish_input(self) -> list[Frame]:
        """The rest when the input ends."""
        frames: list[Frame] = []
        if self._skipped is not None:
            self._end_skipped(frames)
        elif self._parts:
            line = self._join_line()
            self._parts.clear()
            frames += [line] if line else []
        return frames

    def _add_piece(self, piece: bytes, frames: list[Frame]) -> None:
        skipped = self._skipped
        if skipped is not None:
            skipped.append_piece(piece)
            return
        self._size += len(piece)
        if self._size > self._cap:
            beginning = self._join_first_bytes(piece)
            frames.append(TooLong(self._cap, beginning))
            self._skipped = SkippedEnd(self._cap, beginning, self._join_last_bytes(piece))
            self._parts.clear()
        else:
            self._parts.append(piece)

    def _end_skipped(self, frames: list[Frame]) -> None:
        if self._tells_ends and self._skipped is not None:
            frames.append(self._skipped)
        self._skipped = None

    def _join_first_bytes(self, piece: bytes) -> bytes:
        kept = b""
        for part in chain(self._parts, (piece,)):
            kept += part[: BEGINNING - len(kept)]
            if len(kept) == BEGINNING:
                break
        return kept

    def _join_last_bytes(self, piece: bytes) -> bytes:
        kept = piece[-ENDING:]
        for part in reversed(self._parts):
            if len(kept) == ENDING:
                break
            kept = (part + kept)[-ENDING:]
        return kept

    def _join_line(self) -> bytes:
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return line[:-1] if line.endswith(b"\r") else line


class Reader:
    """Reads one chunk and hands its frames to `take`, then the next one.

    `take` returns an awaitable if the frames cannot be handled at once; reading continues only after that. `ended` is
    called when everything was handled at the end of the input.
    """

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
        try:
            self._set_watching(True)
            self._polled = True
        except (OSError, ValueError):
            threading.Thread(target=self._run_thread, name="pigeon-reader", daemon=True).start()

    def _set_watching(self, wanted: bool) -> None:
        if wanted and not self._watching:
            self._loop.add_reader(self._descriptor, self._on_readable)
        elif self._watching and not wanted:
            self._loop.remove_reader(self._descriptor)
        self._watching = wanted

    def _on_readable(self) -> None:
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        frames = self._framing.feed(chunk) if chunk else self._framing.finish_input()
        if frames or not chunk:
            self._deliver_frames(frames, ended=not chunk)

    def _deliver_frames(self, frames: list[Frame], ended: bool) -> None:
        waiting = self._take(frames)
        if waiting is None:
            self._resume_or_end(ended)
            return
        if self._polled:
            self._set_watching(False)
        self._waiting = asyncio.ensure_future(self._resume_reading_after(waiting, ended))

    async def _resume_reading_after(self, waiting: Awaitable[None], ended: bool) -> None:
        await waiting
        self._resume_or_end(ended)

    def _resume_or_end(self, ended: bool) -> None:
        if self._polled:
            self._set_watching(not ended)
        if ended:
            self._ended()
        self._taken.set()

    def _run_thread(self) -> None:
        ended = False
        while not ended:
            try:
                chunk = os.read(self._descriptor, CHUNK)
            except OSError:
                chunk = b""
            ended = not chunk
            frames = self._framing.finish_input() if ended else self._framing.feed(chunk)
            if frames or ended:
                self._taken.clear()
                try:
                    self._loop.call_soon_threadsafe(self._deliver_frames, frames, ended)
                except RuntimeError:
                    return
                # A loop that has ended meanwhile takes nothing more, without reporting it.
                while not self._taken.wait(LOOP_CHECK_SECONDS):
                    if self._loop.is_closed():
                        return
