"""Frames in order: what was sent and not yet received stays here, for the next connection to the same helper."""

from __future__ import annotations

import asyncio
import struct
from collections import deque

from pigeon.workspaces.remote.messages import FRAME_HEADER_SIZE, HelperRecord, encode_record

HEADER = struct.Struct(">IIII")
RECEIVED_EVERY = 256 * 1024
MOST_UNRECEIVED = 2 << 20


class FrameSequence:
    """The frames between us and one helper, over any number of connections."""

    def __init__(self) -> None:
        self.received = 0
        self._sent = 0
        self._unconfirmed = 0
        self._unreceived: deque[tuple[int, bytes]] = deque()
        self._unreceived_size = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def must_confirm(self) -> bool:
        """Whether so much was received that the other side should be told."""
        return self._unconfirmed > RECEIVED_EVERY

    @property
    def has_room(self) -> bool:
        """Whether what waits for its confirmation is little enough for more."""
        return self._has_room.is_set()

    async def wait_for_room(self) -> None:
        await self._has_room.wait()

    def make_frame(self, record: HelperRecord, body: bytes = b"") -> bytes:
        """A frame that is kept until it was received."""
        self._sent += 1
        frame = self._pack(self._sent, record, body)
        self._unreceived.append((self._sent, frame))
        self._unreceived_size += len(frame)
        if self._unreceived_size > MOST_UNRECEIVED:
            self._has_room.clear()
        return frame

    def make_unnumbered(self, record: HelperRecord) -> bytes:
        """A frame about the connection, which is sent once."""
        return self._pack(0, record, b"")

    def _pack(self, number: int, record: HelperRecord, body: bytes) -> bytes:
        text = encode_record(record)
        self._unconfirmed = 0
        return HEADER.pack(number, self.received, len(text), len(body)) + text + body

    def list_unreceived(self) -> list[bytes]:
        return [frame for _, frame in self._unreceived]

    def admit(self, number: int, size: int) -> bool:
        """Whether a numbered frame is the next one; another one has come before."""
        if number != self.received + 1:
            return False
        self.received = number
        self._unconfirmed += size + FRAME_HEADER_SIZE
        return True

    def confirm(self, received: int) -> None:
        """The other side has everything up to this number."""
        while self._unreceived and self._unreceived[0][0] <= received:
            self._unreceived_size -= len(self._unreceived.popleft()[1])
        if self._unreceived_size <= MOST_UNRECEIVED:
            self._has_room.set()

    def give_up(self) -> None:
        """Nothing of this is sent again; what waits for room goes on."""
        self._unreceived.clear()
        self._unreceived_size = 0
        self._has_room.set()
