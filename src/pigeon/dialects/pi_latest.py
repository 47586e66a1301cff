"""`pi-latest`: updates carry the delta only, an answer in progress has stop reason `pending`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pigeon.dialects.base import Dialect
from pigeon.wire.base import Record
from pigeon.wire.commands import DialectName, InterruptMode
from pigeon.wire.events import CompactionEnd, CompactionStart, MessageStart


class PiLatest(Dialect):
    """The newest generation of pi's own clients."""

    name: ClassVar[DialectName] = "pi-latest"
    default_interrupt_mode: ClassVar[InterruptMode] = "wait"
    provisional_stop: ClassVar[str] = "pending"
    keeps_unreadable_images: ClassVar[bool] = False

    def __init__(self, version: str = "", emit_title: bool = False, deltas: bool = True) -> None:
        super().__init__(version, emit_title, deltas=True)

    def message_start(self, event: MessageStart) -> MessageStart:
        """Row: provisional stop reason."""
        return event

    def compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        """Row: compaction events under their newer name."""
        return (event,)
