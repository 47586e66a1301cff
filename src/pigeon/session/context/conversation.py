"""The journal in use and the conversation it holds: what is on record, what a model sees of it, and the way onto the
record for every complete message."""

from __future__ import annotations

from pigeon.agent.inference import ModelMessage
from pigeon.session.context.model_context import VisibleEntries, model_messages, speaks, visible_entries
from pigeon.session.history.journal import Journal
from pigeon.wire.entries import CustomMessageEntry
from pigeon.wire.events import MessageEnd, Outbound
from pigeon.wire.messages import CustomMessage, Message

_CHANGES_WHAT_WAS = ("compaction", "context_edit")


class Conversation:
    """Holds one journal at a time; the parts of a session share it, so that all of them follow a change of session.

    `record` is the bus's first recorder: a message is in the file before it is announced. While a conversation only
    grows, the derived lists are only extended, so that a turn costs no more in a long one. Entries
    are parsed when their messages are read for the first time.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._visible = VisibleEntries([], {})
        self._parsed = 0
        self._context: list[Message] = []
        self._model_messages: list[ModelMessage] = []
        self._known: tuple[Journal | None, tuple[int, int], int] = (None, (0, 0), 0)

    @property
    def journal(self) -> Journal:
        """The journal in use."""
        return self._journal

    @property
    def visible(self) -> VisibleEntries:
        """The entries of the conversation."""
        journal, branch = self._journal, self._journal.branch
        of, version, length = self._known
        if of is journal and version == journal.version:
            return self._visible
        fresh = branch[length:] if of is journal and version[1] == journal.version[1] else None
        if fresh is None or any(line.type in _CHANGES_WHAT_WAS for line in fresh):
            self._visible, self._context, self._model_messages, self._parsed = visible_entries(branch), [], [], 0
        else:
            self._visible.lines.extend(line for line in fresh if speaks(line))
        self._known = (journal, journal.version, len(branch))
        return self._visible

    @property
    def context(self) -> list[Message]:
        """The messages that the model would see now; do not change the list."""
        visible = self.visible
        if self._parsed < len(visible.lines):
            fresh = visible.messages(self._parsed)
            self._context.extend(fresh)
            self._model_messages.extend(model_messages(fresh))
            self._parsed = len(visible.lines)
        return self._context

    @property
    def model_messages(self) -> list[ModelMessage]:
        """The same in the three roles that models know, in a new list of the same objects each time.

        `providers/history/cache` compares these messages by identity to find what it has translated before: never copy
        them.
        """
        _ = self.context
        return list(self._model_messages)

    def last_user_entry(self) -> str | None:
        """The id of the user's last message on the branch: what is counted per message of the user is counted by it."""
        return next((line.id for line in reversed(self._journal.branch) if line.role == "user"), None)

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
