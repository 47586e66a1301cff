"""`pi-latest`: updates carry the delta only, an answer in progress has stop reason `pending`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pigeon.dialects.base import Dialect, Line
from pigeon.wire.base import Record
from pigeon.wire.codec import encode
from pigeon.wire.commands import InterruptMode
from pigeon.wire.events import CompactionEnd, CompactionStart, MessageStart, MessageUpdate


class PiLatest(Dialect):
    """The newest generation of pi's own clients."""

    name: ClassVar[str] = "pi-latest"
    default_interrupt_mode: ClassVar[InterruptMode] = "wait"
    provisional_stop: ClassVar[str] = "pending"

    def message_start(self, event: MessageStart) -> MessageStart:
        """Row: provisional stop reason."""
        return event

    def update(self, event: MessageUpdate) -> Line:
        """Row: `message_update`, delta only."""
        return Line((encode(event),))

    def compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        """Row: compaction events under their newer name."""
        return (event,)
