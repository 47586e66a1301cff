"""`omp`: oh-my-pi. A ready line, an acknowledgement before a refusal, no id on unknown commands, `agent_end` alone.

Its clients count one `agent_end` per accepted prompt and expect nothing after it. So what follows a run by itself (a
retry, a compaction, the run after it) is reported between one `agent_start` and one `agent_end`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pigeon.dialects.base import Dialect, OutputLine, older_name, without_id
from pigeon.wire.answers import Response, succeeded
from pigeon.wire.base import Record
from pigeon.wire.codec import encode
from pigeon.wire.commands import DialectName
from pigeon.wire.events import AgentEnd, AgentSettled, AgentStart, CompactionEnd, CompactionStart, Outbound, Ready
from pigeon.wire.messages import Message


class Omp(Dialect):
    """Clients of oh-my-pi."""

    name: ClassVar[DialectName] = "omp"

    def __init__(self, version: str = "", emit_title: bool = False, deltas: bool = False) -> None:
        super().__init__(version, emit_title, deltas)
        self._begun = False
        self._added: list[Message] = []

    def greeting(self) -> list[OutputLine]:
        """Row: first line."""
        return [OutputLine((encode(Ready()),))]

    def project(self, event: Outbound) -> Iterable[Record]:
        """Row: run end, sent once, when nothing more happens by itself."""
        if isinstance(event, AgentStart):
            begun, self._begun = self._begun, True
            return () if begun else (event,)
        if isinstance(event, AgentEnd):
            self._added += event.messages
            return ()
        if isinstance(event, AgentSettled):
            messages, self._added, self._begun = self._added, [], False
            return (AgentEnd(messages=messages),)
        return super().project(event)

    def compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        """Row: compaction events under their older name, automatic ones only."""
        return () if event.reason == "manual" else (older_name(event),)

    def refused_prompt(self, response: Response) -> list[OutputLine]:
        """Row: rejected prompt: accepted first, then failed under the same id."""
        return [*self.answer(succeeded(response.command, id=response.id)), *self.answer(response)]

    def unknown_command(self, response: Response) -> list[OutputLine]:
        """Row: unknown command, without id."""
        return self.answer(without_id(response))
