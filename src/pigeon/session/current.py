"""The journal in use, and the conversation it holds."""

from __future__ import annotations

from pigeon.session.context import context_of
from pigeon.session.journal import Journal
from pigeon.wire.entries import CustomMessageEntry
from pigeon.wire.events import MessageEnd, Outbound
from pigeon.wire.messages import CustomMessage, Message


class Current:
    """Holds one journal at a time; every complete message goes on record here before anybody hears of it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._context: tuple[Journal, tuple[int, int], list[Message]] | None = None

    @property
    def journal(self) -> Journal:
        """The journal in use."""
        return self._journal

    @property
    def context(self) -> list[Message]:
        """The messages that the model would see now; do not change the list."""
        cached = self._context
        if cached is None or cached[0] is not self._journal or cached[1] != self._journal.version:
            cached = (self._journal, self._journal.version, context_of(self._journal.branch))
            self._context = cached
        return cached[2]

    def turn_to(self, journal: Journal) -> None:
        """Let go of one journal and take another."""
        self._journal.close()
        self._journal = journal

    def record(self, event: Outbound) -> None:
        """Put the message of a `message_end` on record."""
        if not isinstance(event, MessageEnd):
            return
        message = event.message
        if isinstance(message, CustomMessage):
            self._journal.append(
                CustomMessageEntry,
                custom_type=message.custom_type,
                content=message.content,
                display=message.display,
                details=message.details,
            )
        else:
            self._journal.append_message(message)
