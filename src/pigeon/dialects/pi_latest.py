"""`pi-latest`: updates carry the delta only, an answer in progress has stop reason `pending`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec.structs import replace

from pigeon.dialects.base import Dialect
from pigeon.wire.base import Record
from pigeon.wire.choices import DialectName
from pigeon.wire.commands import InterruptMode
from pigeon.wire.events import (
    AgentEnd,
    CompactionEnd,
    CompactionStart,
    MessageEnd,
    MessageStart,
    Outbound,
    ToolsDeclared,
)
from pigeon.wire.messages import Message


class PiLatest(Dialect):
    """The newest generation of pi's own clients."""

    name: ClassVar[DialectName] = "pi-latest"
    default_interrupt_mode: ClassVar[InterruptMode] = "wait"
    provisional_stop: ClassVar[str] = "pending"
    keeps_unreadable_images: ClassVar[bool] = False
    continues_after_failure: ClassVar[bool] = True

    def __init__(self, version: str = "", emit_title: bool = False, deltas: bool = True) -> None:
        super().__init__(version, emit_title, deltas=True)
        self._declared: list[Message] = []

    def convert_message_start(self, event: MessageStart) -> MessageStart:
        """Row: provisional stop reason."""
        return event

    def to_records(self, event: Outbound) -> Iterable[Record]:
        """Row: the messages of a run, system messages included."""
        if isinstance(event, AgentEnd):
            declared, self._declared = self._declared, []
            event = replace(event, messages=[*declared, *event.messages])
        return super().to_records(event)

    def filter_messages(self, messages: list[Message]) -> list[Message]:
        """Row: system messages, as in a served conversation, which speaks this dialect."""
        return messages

    def convert_later_event(self, line: bytes) -> bytes | None:
        """Row: an event of a later version, as it is."""
        return line

    def convert_tools_declared(self, event: ToolsDeclared) -> Iterable[Record]:
        """Row: system messages, as a start and an end like those of the user's."""
        self._declared.append(event.message)
        return (MessageStart(message=event.message), MessageEnd(message=event.message))

    def convert_compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        return (event,)
