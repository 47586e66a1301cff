"""`pi-0.73`: nothing that pi 0.73.1 did not send, for clients that refuse unknown events and members.

What a host asks for by a later command, or by a feature in `hello`, is still sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, get_args

from msgspec.structs import replace

from pigeon.dialects.base import Dialect, OutputLine, to_plain_answer_lines, without_id
from pigeon.dialects.pi_073_members import ANSWERS, keep_event_members, keep_members
from pigeon.wire.answers import Response
from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.choices import DialectName
from pigeon.wire.codec import decode, encode, to_plain
from pigeon.wire.dialogs import DialogRequest
from pigeon.wire.events import (
    CompactionEnd,
    CompactionStart,
    Event,
    MessageStart,
    MessageUpdate,
    Outbound,
    ToolcallEnd,
    ToolcallStart,
)
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Usage

_SHOWN = (Event, *get_args(DialogRequest))


class Pi073(Dialect):
    """Clients that were written against pi 0.73.1 and take it at its word."""

    name: ClassVar[DialectName] = "pi-0.73"

    def __init__(self, version: str = "", emit_title: bool = False, deltas: bool = False) -> None:
        super().__init__(version, emit_title, deltas)
        self._given_usage: Usage | None = None
        self._usage: Usage | None = None

    def to_lines(self, event: Outbound) -> list[OutputLine]:
        """Row: the events and dialogs of that version, without later members."""
        lines = super().to_lines(event)
        if isinstance(event, MessageUpdate):
            return lines
        return [shown for line in lines if (shown := _to_declared_line(line)) is not None]

    def convert_message_start(self, event: MessageStart) -> MessageStart:
        """Row: provisional stop reason; the snapshot begins without later members."""
        message = event.message
        if isinstance(message, AssistantMessage):
            event = MessageStart(message=replace(message, usage=self._without_later_counts(message.usage)))
        return super().convert_message_start(event)

    def to_update_line(self, event: MessageUpdate) -> OutputLine:
        """Row: `message_update`, with `message` and `partial` and nothing else."""
        if self.deltas:
            return super().to_update_line(event)
        assert self._snapshot is not None
        streamed = event.assistant_message_event
        if isinstance(streamed, ToolcallEnd):
            call = replace(streamed.tool_call, namespace=ABSENT, arguments_error=ABSENT)
            streamed = replace(streamed, tool_call=call)
        usage = self._without_later_counts(event.usage)
        opening = self._snapshot.apply(replace(event, usage=usage, assistant_message_event=streamed))
        if isinstance(streamed, ToolcallStart):
            opening = b'{"type":"toolcall_start","contentIndex":%d' % streamed.content_index
        message = self._snapshot.encode_message()
        return OutputLine(
            (
                b'{"type":"message_update","message":',
                message,
                b',"assistantMessageEvent":' + opening + b',"partial":',
                message,
                b"}}",
            ),
            record=event,
        )

    def convert_compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        """Row: compaction events, under their newer name only."""
        return (event,)

    def to_answer_lines(self, response: Response) -> list[OutputLine]:
        """Row: answers, without later members."""
        shape = ANSWERS.get(response.command)
        if shape is not None and not isinstance(response.data, Absent):
            data = keep_members(to_plain(response.data), shape)
            if isinstance(response.data, Record):
                data |= _members_of_features(response.data)
            response = replace(response, data=ABSENT if data == {} else data)
        return to_plain_answer_lines(replace(response, code=ABSENT))

    def convert_encoded_data(self, command: str, pieces: list[bytes]) -> list[bytes]:
        """Row: long answers, without later members."""
        shape = ANSWERS.get(command)
        return pieces if shape is None else [encode(keep_members(decode(b"".join(pieces)), shape))]

    def to_unknown_command_lines(self, response: Response) -> list[OutputLine]:
        """Row: unknown command, without id."""
        return self.to_answer_lines(without_id(response))

    def _without_later_counts(self, usage: Usage) -> Usage:
        """The same object for the same usage, by which the snapshot sees that nothing has changed."""
        if self._usage is None or usage is not self._given_usage:
            self._given_usage = usage
            self._usage = replace(usage, cache_write_1h=ABSENT, reasoning=ABSENT)
        return self._usage


def _to_declared_line(line: OutputLine) -> OutputLine | None:
    record = line.record
    if not isinstance(record, _SHOWN) or record.feature is not None:
        return line
    kept = keep_event_members(to_plain(record))
    return None if kept is None else replace(line, pieces=(encode(kept | _members_of_features(record)),))


def _members_of_features(record: Record) -> dict[str, Json]:
    """The members that are only there because the client has asked for a feature."""
    names = zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True)
    asked = {wire: getattr(record, name) for name, wire in names if name in record.member_features}
    return {name: to_plain(value) for name, value in asked.items() if value is not ABSENT}
