"""The lines that a client has sent to a served conversation, and their treatment when the connection is lost.

Of what was sent and not answered,

    reads, settings, aborts        are sent again: done twice, they do the same (`Command.effect`)
    messages to the model          are sent again under the id that they got here, under which each is accepted once
    the accepted event filter      is sent again as the first line, since the server of a new connection filters nothing
    answers to questions           are sent again: the server uses the first, and none to a question that is closed
    a line that is too long        fails with the code `too_long`: the server closes the connection over it each time
    everything else                fails with the code `connection_lost`: it is not known whether it was done
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.answers import failure_response
from pigeon.wire.base import Json
from pigeon.wire.commands import NAMES, REPEATABLE_NAMES, SetEventFilter
from pigeon.wire.errors import BadRecord

LOST_CODE = "connection_lost"
LOST = "The connection was lost before {} was answered; it is not known whether it was done"
TOO_LONG_CODE = "too_long"
TOO_LONG = "{} is larger than the server accepts: {:.0f} MB"
MB = 1024 * 1024
# A server that is still receiving a long line when it closes cannot send the reason; such a line is sent this many
# times.
MOST_TRIES = 5
MESSAGES = frozenset(("prompt", "steer", "follow_up", "abort_and_prompt"))
ANSWERS = frozenset(("extension_ui_response", "host_tool_result"))
_OUR_IDS = "pigeon-link-"
_OUR_IDS_IN_LINES = _OUR_IDS.encode()
FILTER_ID = f"{_OUR_IDS}filter"
# What an id of ours adds to messages and answers; a client that gave none is not shown it.
_OUR_ID_MEMBERS = ("clientMessageId", "accepted")


class LineHead(Struct, rename="camel"):
    """The members of a line that are needed in either direction."""

    type: str = ""
    id: Json = None
    command: Json = None
    error: Json = None
    seq: int = 0
    run_id: str = ""
    client_message_id: Json = None
    target_id: str = ""
    success: bool = False
    snapshot: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b"{}")


decode_head = msgspec.json.Decoder(LineHead).decode


class SentLine:
    """A line of the client: its name, whether it is being sent, and on how many connections it failed."""

    __slots__ = ("_tries", "is_on_its_way", "line", "name")

    def __init__(self, line: bytes, name: str) -> None:
        self.line = line
        self.name = name
        self.is_on_its_way = False
        self._tries = 0

    @property
    def is_message(self) -> bool:
        return self.name in MESSAGES

    def take_for_sending(self) -> bytes:
        """Return the line and mark it as being sent."""
        self.is_on_its_way = True
        return self.line

    def count_failure_and_check(self) -> bool:
        """Count a connection that was lost over this line; returns True if its length is probably the reason."""
        self._tries += 1
        return len(self.line) > MB and self._tries >= MOST_TRIES


class SentLines:
    """The lines of a client that wait for a connection, and those that were sent and not answered."""

    def __init__(self) -> None:
        self._outgoing: deque[SentLine] = deque()
        self._more = asyncio.Event()
        # By the id of the command, as JSON; in the order in which they were sent.
        self._unanswered: dict[bytes, SentLine] = {}
        # Answers of the client, by the id of the question, until that is closed.
        self._answers: dict[str, SentLine] = {}
        self._filter: SetEventFilter | None = None

    def set_filter(self, command: SetEventFilter | None) -> None:
        """Have the server of each later connection filter events as this command says, which it has accepted."""
        self._filter = command

    def queue_line(self, line: bytes) -> None:
        """Send a line, now or on the next connection."""
        self._outgoing.append(self._track_line(line))
        self._more.set()

    async def next_line(self) -> bytes:
        """Wait for the next line to send."""
        while not self._outgoing:
            self._more.clear()
            await self._more.wait()
        return self._outgoing.popleft().take_for_sending()

    def pop_command(self, id: bytes) -> SentLine | None:
        """Remove the command that was answered; None if the client has sent none with this id."""
        return self._unanswered.pop(id, None)

    def close_question(self, id: str) -> bool:
        """Note that a question is closed; returns True if the client has answered it."""
        return self._answers.pop(id, None) is not None

    def close_all_questions(self) -> None:
        """Note that no question is open any more."""
        self._answers.clear()

    def give_up_too_long(self, refused_line: bool) -> list[bytes]:
        """Drop lines that would break every connection: a long line that did, and the longest if the server refused
        one.

        Called when a connection was lost; returns the failures to send to the client as answers.
        """
        under_way = [sent for sent in (*self._unanswered.values(), *self._answers.values()) if sent.is_on_its_way]
        wrong = [sent for sent in under_way if sent.count_failure_and_check()]
        if refused_line and under_way:
            wrong.append(max(under_way, key=lambda sent: len(sent.line)))
        self._answers = {id: sent for id, sent in self._answers.items() if sent not in wrong}
        return [
            _encode_failure(sent, id, TOO_LONG.format(sent.name, len(sent.line) / MB), TOO_LONG_CODE)
            for id, sent in self._unanswered.items()
            if sent in wrong
        ]

    def resend_or_fail(self) -> tuple[list[bytes], list[bytes]]:
        """Send lines again that were lost with the connection, except for those that must not be executed twice.

        Returns the ids of the messages that are sent again, and the failures to send to the client as answers.
        """
        again: list[SentLine] = []
        if self._filter is not None:
            again.append(SentLine(codec.encode(replace(self._filter, id=FILTER_ID)), NAMES[SetEventFilter]))
        messages: list[bytes] = []
        failures: list[bytes] = []
        for id, sent in list(self._unanswered.items()):
            if not sent.is_on_its_way:
                continue
            if sent.is_message:
                messages.append(id)
            elif sent.name not in REPEATABLE_NAMES:
                del self._unanswered[id]
                failures.append(_encode_failure(sent, id, LOST.format(sent.name), LOST_CODE))
                continue
            again.append(sent)
        again += [sent for sent in self._answers.values() if sent.is_on_its_way]
        self._outgoing.extendleft(reversed(again))
        self._more.set()
        return messages, failures

    def _track_line(self, line: bytes) -> SentLine:
        """Keep a line that may have to be sent again; a message gets an id by which it is then recognized."""
        try:
            head = decode_head(line)
        except msgspec.DecodeError:
            return SentLine(line, "")
        if head.type in MESSAGES and head.client_message_id is None:
            # What is no command is refused by the server.
            with suppress(BadRecord):
                line = codec.encode({**codec.decode(line), "clientMessageId": f"{_OUR_IDS}{RANDOM_IDS.request_id()}"})
        sent = SentLine(line, head.type)
        if head.type in ANSWERS:
            self._answers[str(head.id)] = sent
        elif head.id is not None:
            self._unanswered[codec.encode(head.id)] = sent
        return sent


def remove_our_ids(line: bytes) -> bytes:
    """The line of a server without the ids that messages got here; raises `msgspec.DecodeError`."""
    # Hardly any line has one, and deltas come by the thousand. Those of a long conversation have no limit of values.
    return codec.encode(_without_our_ids(msgspec.json.decode(line))) if _OUR_IDS_IN_LINES in line else line


def _without_our_ids(value: Json) -> Json:
    if isinstance(value, list):
        return [_without_our_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    is_ours = str(value.get("clientMessageId")).startswith(_OUR_IDS)
    return {name: _without_our_ids(one) for name, one in value.items() if not (is_ours and name in _OUR_ID_MEMBERS)}


def _encode_failure(sent: SentLine, id: bytes, text: str, code: str) -> bytes:
    return codec.encode(failure_response(sent.name, text, msgspec.json.decode(id), code))
