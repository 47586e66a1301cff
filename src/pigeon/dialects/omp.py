"""`omp`: oh-my-pi. A ready line, an acknowledgement before a refusal, no id on unknown commands, `agent_end` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec.structs import replace

from pigeon.dialects.base import Dialect, Line, older_name, without_id
from pigeon.wire.base import ABSENT, Record
from pigeon.wire.codec import encode
from pigeon.wire.events import AgentEnd, AgentSettled, CompactionEnd, CompactionStart, Outbound, Ready
from pigeon.wire.responses import Response, succeeded


class Omp(Dialect):
    """Clients of oh-my-pi."""

    name: ClassVar[str] = "omp"

    def greeting(self) -> list[Line]:
        """Row: first line."""
        return [Line((encode(Ready()),))]

    def project(self, event: Outbound) -> Iterable[Record]:
        """Row: run end."""
        if isinstance(event, AgentSettled):
            return ()
        if isinstance(event, AgentEnd):
            return (replace(event, will_retry=ABSENT),)
        return super().project(event)

    def compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        """Row: compaction events under their older name, automatic ones only."""
        return () if event.reason == "manual" else (older_name(event),)

    def refused_prompt(self, response: Response) -> list[Line]:
        """Row: rejected prompt: accepted first, then failed under the same id."""
        return [*self.answer(succeeded(response.command, id=response.id)), *self.answer(response)]

    def unknown_command(self, response: Response) -> list[Line]:
        """Row: unknown command, without id."""
        return self.answer(without_id(response))
