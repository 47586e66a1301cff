"""`xcsh`: like omp, with its version in the ready line, no titles, and steering that waits for the turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from pigeon.dialects.base import OutputLine
from pigeon.dialects.omp import REFUSAL_TEXTS, WithCommandOrder
from pigeon.wire.base import Record
from pigeon.wire.choices import DialectName
from pigeon.wire.codec import encode
from pigeon.wire.commands import InterruptMode
from pigeon.wire.dialogs import SetTitleRequest
from pigeon.wire.events import Outbound, Ready


class Xcsh(WithCommandOrder):
    """The dialect of clients that were written for xcsh."""

    name: ClassVar[DialectName] = "xcsh"
    refusal_texts: ClassVar[Mapping[str, str]] = REFUSAL_TEXTS
    default_interrupt_mode: ClassVar[InterruptMode] = "wait"

    def make_greeting_lines(self) -> list[OutputLine]:
        return [OutputLine((encode(Ready(version=self.version)),))]

    def to_records(self, event: Outbound) -> Iterable[Record]:
        """Like the base class, but with `setTitle` requests only if they were requested."""
        if isinstance(event, SetTitleRequest) and not self.emit_title:
            return ()
        return super().to_records(event)
