"""Messages to which hosts have given ids of their own: each is accepted once, however often it is sent.

A host that got no answer (its connection broke, or one of the two programs died) sends its message again under the same
id. The id, the digest of the command and the answer are stored in the user message, so a message that is in the session
is known after a restart too, as is one in a restored queue. A message that was only queued in memory is lost with the
process, and is accepted again.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from msgspec.structs import replace

from pigeon.session.context.transcript import Transcript
from pigeon.session.queue import KeptMessage
from pigeon.wire.base import ABSENT, Absent, value_or_default
from pigeon.wire.codec import encode
from pigeon.wire.commands import Command
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import Acceptance, UserMessage

LONGEST_ID = 256
MOST_REMEMBERED = 10_000
_MARK = b'"clientMessageId"'


class ClientMessages:
    """The message ids of one conversation at a time, with the answers to them."""

    def __init__(self, transcript: Transcript, waiting: Callable[[], list[KeptMessage]]) -> None:
        """`waiting` are the messages in the queue."""
        self._transcript = transcript
        self._waiting = waiting
        self._session_id = ""
        self._recorded: dict[str, Acceptance] = {}
        self._read = 0
        self._remembered: dict[str, Acceptance] = {}

    def find_acceptance(self, id: str, digest: str) -> Acceptance | None:
        """How the message with this id was answered, or None if it is new.

        Raises `Refusal` with the code `conflict` if another command used this id.
        """
        if not 0 < len(id) <= LONGEST_ID:
            raise Refusal(f"clientMessageId must have 1 to {LONGEST_ID} characters")
        self._read_new_entries()
        found = self._recorded.get(id) or self._remembered.get(id) or self._find_queued(id)
        if found is not None and found.digest != digest:
            raise Refusal(
                f'Another message was sent with the clientMessageId "{id}". Send that one again, or use a new id.',
                "conflict",
            )
        return found

    def remember(self, id: str, acceptance: Acceptance) -> None:
        """Remember an accepted message, which may be recorded later or never."""
        self._remembered[id] = acceptance
        if len(self._remembered) > MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _find_queued(self, id: str) -> Acceptance | None:
        for message in (one.message for one in self._waiting()):
            if isinstance(message, UserMessage) and message.client_message_id == id:
                return value_or_default(message.accepted, None)
        return None

    def _read_new_entries(self) -> None:
        """Read the entries recorded since the last call; only those with the mark are parsed."""
        journal = self._transcript.journal
        if journal.session_id != self._session_id or len(journal.lines) < self._read:
            if journal.session_id != self._session_id:
                self._remembered.clear()
            self._session_id, self._read = journal.session_id, 0
            self._recorded.clear()
        for line in journal.lines[self._read :]:
            message = line.message if line.role == "user" and _MARK in line.raw else None
            if not isinstance(message, UserMessage) or isinstance(message.accepted, Absent):
                continue
            if not isinstance(message.client_message_id, Absent):
                self._recorded[message.client_message_id] = message.accepted
        self._read = len(journal.lines)


def digest_of(command: Command) -> str:
    """Identifies a command by its content, without its id."""
    return sha256(encode(replace(command, id=ABSENT))).hexdigest()
