"""The table of dialects, row by row. This class is the default dialect, `pi`; the others override rows.

A dialect turns events and answers into lines; `rpc/outbox.py` calls it for each record in order. Its only state is the
snapshot of the answer that is streaming (`snapshots.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pigeon.dialects.snapshots import Snapshot
from pigeon.wire.answers import Response, SlashCommand, State
from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.choices import DialectName, ToolOffer
from pigeon.wire.codec import encode
from pigeon.wire.commands import Command, InterruptMode
from pigeon.wire.dialogs import SelectRequest
from pigeon.wire.events import (
    AgentSettled,
    AutoCompactionEnd,
    AutoCompactionStart,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Outbound,
    PromptResult,
    SessionSettled,
    ToolCallStarted,
    ToolsDeclared,
)
from pigeon.wire.messages import AssistantMessage, Message, SystemMessage

_APART = (AgentSettled, PromptResult, SessionSettled)
_T = TypeVar("_T")


class OutputLine(Struct):
    """One line of output in pieces, which are never joined here; `apart` requests a separate write call.

    `record` is the type of an event, for hosts that only want some types; a line without it is always sent.
    """

    pieces: tuple[bytes, ...]
    apart: bool = False
    record: Record | None = None


class Dialect:
    """`pi`: snapshots in every update, one failure for a refused prompt, `agent_end` then `agent_settled`."""

    name: ClassVar[DialectName] = "pi"
    default_interrupt_mode: ClassVar[InterruptMode] = "immediate"
    # Row: what the clients of the original show, so that it offers the tools for it without being asked.
    default_offers: ClassVar[tuple[ToolOffer, ...]] = ()
    provisional_stop: ClassVar[str] = "stop"
    keeps_unreadable_images: ClassVar[bool] = True
    # Row: refusals that clients know in other words, by their text.
    refusal_texts: ClassVar[Mapping[str, str]] = MappingProxyType({})
    continues_after_failure: ClassVar[bool] = False
    # Commands that change something wait for each other, blank lines are skipped, and `abort` ends shell commands, too.
    runs_commands_in_order: ClassVar[bool] = False
    skips_blank_lines: ClassVar[bool] = False
    abort_ends_bash: ClassVar[bool] = False
    # What is asked for a client that is connected to an agent elsewhere, since the dialect shows the answers first.
    asked_first: ClassVar[tuple[Command, ...]] = ()

    def __init__(self, version: str = "", emit_title: bool = False, deltas: bool = False) -> None:
        self.version = version
        self.emit_title = emit_title
        self.deltas = deltas
        self._snapshot: Snapshot | None = None

    def make_greeting_lines(self) -> list[OutputLine]:
        return []

    def to_lines(self, event: Outbound) -> list[OutputLine]:
        """An event as this dialect shows it: none, one or several lines."""
        if isinstance(event, MessageUpdate):
            # No snapshot can be made of an answer whose beginning was missed; its end has the whole text.
            return [self.to_update_line(event)] if self.deltas or self._snapshot is not None else []
        is_answer_end = isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage)
        if is_answer_end or isinstance(event, AgentSettled):
            self._snapshot = None
        return [OutputLine((encode(record),), isinstance(record, _APART), record) for record in self.to_records(event)]

    def to_records(self, event: Outbound) -> Iterable[Record]:
        """The rows about events other than `message_update`."""
        if isinstance(event, MessageStart):
            return (self.convert_message_start(event),)
        if isinstance(event, (CompactionStart, CompactionEnd)):
            return self.convert_compaction(event)
        if isinstance(event, ToolsDeclared):
            return self.convert_tools_declared(event)
        if isinstance(event, ToolCallStarted):
            return (event.to_plain_event(),)
        if isinstance(event, SelectRequest):
            return (self.convert_question(event),)
        return (event,)

    def convert_tools_declared(self, event: ToolsDeclared) -> Iterable[Record]:
        """Row: system messages, here none: most clients do not know the role."""
        return ()

    def filter_messages(self, messages: list[Message]) -> list[Message]:
        """Row: system messages, here none, where an agent elsewhere has made messages of them."""
        return [message for message in messages if not isinstance(message, SystemMessage)]

    def convert_later_event(self, line: bytes) -> bytes | None:
        """Row: an event of a later version from an agent elsewhere, here left out."""
        return None

    def convert_commands(self, event: Event, read: Callable[[], list[SlashCommand]]) -> Event:
        """Row: other slash commands, here not shown, so that they need not be read."""
        return event

    def convert_state(self, state: _T, read: Callable[[], State]) -> _T | State:
        """Row: the answer of `get_state`; `read` gives it with what takes longer to collect, here left out."""
        return state

    def convert_question(self, request: SelectRequest) -> SelectRequest:
        """Row: the words of a question about permission, here those of the gate."""
        return request

    def convert_message_start(self, event: MessageStart) -> MessageStart:
        """Row: provisional stop reason. An answer also begins its snapshot here."""
        message = event.message
        if not isinstance(message, AssistantMessage):
            return event
        self._snapshot = None if self.deltas else Snapshot(message)
        if message.stop_reason != "pending":
            return event
        return MessageStart(message=replace(message, stop_reason=self.provisional_stop))

    def to_update_line(self, event: MessageUpdate) -> OutputLine:
        """Row: `message_update`, here with `message` and `partial` snapshots unless the host wants deltas only."""
        if self.deltas:
            return OutputLine((encode(event),), record=event)
        assert self._snapshot is not None
        opening = self._snapshot.apply(event)
        message = self._snapshot.encode_message()
        return OutputLine(
            (
                b'{"type":"message_update","message":',
                message,
                b',"assistantMessageEvent":' + opening + b',"partial":',
                message,
                b'},"usage":' + self._snapshot.encoded_usage + b"}",
            ),
            record=event,
        )

    def convert_compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        """Row: compaction events, here under both names when automatic."""
        if event.reason == "manual":
            return (event,)
        return (to_older_event(event), event)

    def to_answer_lines(self, response: Response) -> list[OutputLine]:
        """A response as lines of this dialect; here with the words of its refusals alone."""
        return to_plain_answer_lines(self.word_refusal(response))

    def word_refusal(self, response: Response) -> Response:
        """The response with its error in the words of this dialect."""
        text = self.refusal_texts.get(response.error) if isinstance(response.error, str) else None
        return response if text is None else replace(response, error=text)

    def convert_encoded_data(self, command: str, pieces: list[bytes]) -> list[bytes]:
        """Row: the data of a long answer, here unchanged."""
        return pieces

    def to_refusal_lines(self, response: Response) -> list[OutputLine]:
        """Row: rejected prompt, here one failure."""
        return self.to_answer_lines(response)

    def to_unknown_command_lines(self, response: Response) -> list[OutputLine]:
        """Row: unknown command, here with its id."""
        return self.to_answer_lines(response)


def to_plain_answer_lines(response: Response) -> list[OutputLine]:
    """A response in the form of the protocol."""
    return [OutputLine((encode(response),))]


def with_member(line: OutputLine, member: bytes) -> OutputLine:
    """The same record with one more encoded member at its end."""
    *before, last = line.pieces
    return OutputLine((*before, last[:-1] + b"," + member + b"}"), line.apart, line.record)


def with_data(line: OutputLine, pieces: list[bytes]) -> OutputLine:
    """An answer with its encoded data; the pieces are not joined."""
    *before, last = line.pieces
    return OutputLine((*before, last[:-1] + b',"data":', *pieces, b"}"), line.apart, line.record)


def with_sequence_number(line: OutputLine, number: int) -> OutputLine:
    """The same event with its sequence number."""
    return with_member(line, b'"seq":%d' % number)


def filterable_type_of(record: Record | None) -> str:
    """The type of an event; empty for records that are always sent: dialogs, calls, and the ends of prompts."""
    return str(record.__struct_config__.tag) if isinstance(record, Event) and not record.always_sent else ""


def to_older_event(event: CompactionStart | CompactionEnd) -> Record:
    """The event under its older name, with the null that the documents show for an abort."""
    if isinstance(event, CompactionStart):
        return AutoCompactionStart(reason=event.reason)
    result = None if event.aborted and isinstance(event.result, Absent) else event.result
    return AutoCompactionEnd(
        result=result, aborted=event.aborted, will_retry=event.will_retry, error_message=event.error_message
    )


def without_id(response: Response) -> Response:
    """The same answer without its id."""
    return replace(response, id=ABSENT)
