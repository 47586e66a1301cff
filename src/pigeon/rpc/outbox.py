"""From records to lines: the dialect says how, the writer keeps the order."""

from __future__ import annotations

from collections.abc import Awaitable

from pigeon.dialects.base import Dialect, Line
from pigeon.transport.writer import Writer
from pigeon.wire.events import Outbound
from pigeon.wire.responses import Response


class Outbox:
    """Everything that leaves the process goes through here, in the order of the calls."""

    def __init__(self, writer: Writer, dialect: Dialect) -> None:
        self._writer = writer
        self._dialect = dialect

    def greet(self) -> None:
        """Whatever the dialect says first."""
        self._send(self._dialect.greeting())

    def event(self, event: Outbound) -> None:
        """Announce an event."""
        self._send(self._dialect.lines(event))

    def answer(self, response: Response) -> None:
        """Answer a command."""
        self._send(self._dialect.answer(response))

    def refuse_prompt(self, response: Response) -> None:
        """Answer a prompt that is not accepted."""
        self._send(self._dialect.refused_prompt(response))

    def unknown(self, response: Response) -> None:
        """Answer a command that does not exist."""
        self._send(self._dialect.unknown_command(response))

    def room(self) -> Awaitable[None] | None:
        """Something to await while the host is behind."""
        return self._writer.room() if self._writer.full else None

    @property
    def overfull(self) -> bool:
        """True when the host reads so little that no further command should be taken."""
        return self._writer.overfull

    async def until_room(self) -> None:
        """Wait until the host has caught up."""
        await self._writer.room()

    def _send(self, lines: list[Line]) -> None:
        for line in lines:
            self._writer.put((*line.pieces, b"\n"), line.apart)
