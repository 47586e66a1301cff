"""The journal in use, and the conversation it holds."""

from __future__ import annotations

from pigeon.agent.inference import ModelMessage
from pigeon.session.context.model_context import VisibleEntries, model_messages, speaks, visible_entries
from pigeon.session.history.journal import Journal
from pigeon.wire.entries import CustomMessageEntry
from pigeon.wire.events import MessageEnd, Outbound
from pigeon.wire.messages import CustomMessage, Message

_CHANGES_WHAT_WAS = ("compaction", "context_edit")


class Conversation:
    """Holds one journal at a time; every complete message goes on record here before anybody hears of it.

    While a conversation only grows, what is known of it is only extended: a turn must not cost more the longer the
    talk. Its messages are not parsed before somebody wants to read them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._shown = VisibleEntries([], {})
        self._parsed = 0
        self._context: list[Message] = []
        self._said: list[ModelMessage] = []
        self._known: tuple[Journal | None, tuple[int, int], int] = (None, (0, 0), 0)

    @property
    def journal(self) -> Journal:
        """The journal in use."""
        return self._journal

    @property
    def shown(self) -> VisibleEntries:
        """The entries of the conversation."""
        journal, branch = self._journal, self._journal.branch
        of, version, length = self._known
        if of is journal and version == journal.version:
            return self._shown
        fresh = branch[length:] if of is journal and version[1] == journal.version[1] else None
        if fresh is None or any(line.type in _CHANGES_WHAT_WAS for line in fresh):
            self._shown, self._context, self._said, self._parsed = visible_entries(branch), [], [], 0
        else:
            self._shown.lines.extend(line for line in fresh if speaks(line))
        self._known = (journal, journal.version, len(branch))
        return self._shown

    @property
    def context(self) -> list[Message]:
        """The messages that the model would see now; do not change the list."""
        shown = self.shown
        if self._parsed < len(shown.lines):
            fresh = shown.messages(self._parsed)
            self._context.extend(fresh)
            self._said.extend(model_messages(fresh))
            self._parsed = len(shown.lines)
        return self._context

    @property
    def said(self) -> list[ModelMessage]:
        """The same in the roles that models know: the very same objects each time, so that others can tell."""
        _ = self.context
        return list(self._said)

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
