"""`companion`: the first version of the protocol. Events only, no responses; a failure is an `error` event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pigeon.dialects.base import OutputLine
from pigeon.dialects.omp import OhMyPi
from pigeon.wire.answers import Response
from pigeon.wire.base import Absent, Record
from pigeon.wire.choices import DialectName
from pigeon.wire.codec import encode
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    ErrorEvent,
    MessageEnd,
    MessageStart,
    Outbound,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)

_SENT = (
    AgentStart, AgentEnd, AgentSettled, TurnStart, TurnEnd, MessageStart, MessageEnd, ToolExecutionStart,
    ToolExecutionEnd, ErrorEvent,
)  # fmt: skip


class Companion(OhMyPi):
    """Clients of the first version: prompt and abort in, ten kinds of events out."""

    name: ClassVar[DialectName] = "companion"

    def make_greeting_lines(self) -> list[OutputLine]:
        return []

    def to_records(self, event: Outbound) -> Iterable[Record]:
        """Only the events that this protocol has."""
        return super().to_records(event) if isinstance(event, _SENT) else ()

    def to_answer_lines(self, response: Response) -> list[OutputLine]:
        """Row: responses. None are sent; a failure becomes an `error` event."""
        if response.success or isinstance(response.error, Absent):
            return []
        return [OutputLine((encode(ErrorEvent(error=response.error)),))]

    def to_unknown_command_lines(self, response: Response) -> list[OutputLine]:
        """Row: the response to an unknown command. None is sent."""
        return []
