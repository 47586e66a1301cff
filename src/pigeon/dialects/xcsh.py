"""`xcsh`: as omp, with its version in the ready line, no titles, and steering that waits for the turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pigeon.dialects.base import OutputLine
from pigeon.dialects.omp import OhMyPi
from pigeon.wire.answers import DialectName
from pigeon.wire.base import Record
from pigeon.wire.codec import encode
from pigeon.wire.commands import InterruptMode
from pigeon.wire.dialogs import SetTitleRequest
from pigeon.wire.events import Outbound, Ready


class Xcsh(OhMyPi):
    """Clients of xcsh."""

    name: ClassVar[DialectName] = "xcsh"
    default_interrupt_mode: ClassVar[InterruptMode] = "wait"

    def greeting(self) -> list[OutputLine]:
        """Row: first line."""
        return [OutputLine((encode(Ready(version=self.version)),))]

    def project(self, event: Outbound) -> Iterable[Record]:
        """Row: `setTitle` requests."""
        if isinstance(event, SetTitleRequest) and not self.emit_title:
            return ()
        return super().project(event)
