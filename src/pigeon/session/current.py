"""The journal in use, and the conversation it holds."""

from __future__ import annotations

from pigeon.session.context import context_of, message_of
from pigeon.session.journal import Journal
from pigeon.wire.entries import CustomMessageEntry
from pigeon.wire.events import MessageEnd, Outbound
from pigeon.wire.messages import CustomMessage, Message


_CHANGES_WHAT_WAS = ("compaction", "context_edit")


class Current:
    """Holds one journal at a time; every complete message goes on record here before anybody hears of it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._context: list[Message] = []
        self._known: tuple[Journal | None, tuple[int, int], int] = (None, (0, 0), 0)

    @property
    def journal(self) -> Journal:
        """The journal in use."""
        return self._journal

    @property
    def context(self) -> list[Message]:
        """The messages that the model would see now; do not change the list.

        While a conversation only grows, the list is only extended: a turn must not cost more the longer the talk.
        """
        journal, branch = self._journal, self._journal.branch
        of, version, length = self._known
        if of is journal and version == journal.version:
            return self._context
        fresh = branch[length:] if of is journal and version[1] == journal.version[1] else None
        if fresh is None or any(line.type in _CHANGES_WHAT_WAS for line in fresh):
            self._context = context_of(branch)
        else:
            self._context.extend(message for line in fresh if (message := message_of(line)) is not None)
        self._known = (journal, journal.version, len(branch))
        return self._context

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
