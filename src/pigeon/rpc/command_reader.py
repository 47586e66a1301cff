"""From a line to a command, or to the answer that refuses it: the same for every connection, whatever the line is.

Servers behind a pipe (`rpc/server.py`, also of `pigeon attach`) and of served conversations
(`frontends/serve/client_session.py`) read lines here, so that every client gets the same refusals.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from pigeon.transport.reader import Frame, SkippedEnd, TooLong
from pigeon.wire import codec
from pigeon.wire.answers import Response, failure_response
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import NAMES, Command, HostServiceResult, HostToolResult
from pigeon.wire.errors import BadRecord, UnknownCommand

PARSE = "parse"


class RefusedLine(Struct, frozen=True):
    """A line that is not a command, with its answer; dialects answer a command that is `unknown` differently."""

    response: Response
    unknown: bool = False


def read_frame(frame: Frame) -> list[Command | RefusedLine]:
    """The command in a line, or its refusal.

    An invalid result is refused, and also becomes a failure, because its call is waiting and must end.
    """
    if isinstance(frame, TooLong):
        refused = make_line_refusal(f"the line is longer than {frame.cap} bytes and was skipped")
        return [refused, *_replace_skipped_result(codec.parse_outer_members(frame.beginning), frame.cap)]
    if isinstance(frame, SkippedEnd):
        begun = codec.parse_outer_members(frame.beginning)
        if begun.get("type") is not None and begun.get("id") is not None:
            return []
        return _replace_skipped_result(codec.parse_outer_members(frame.beginning, frame.ending), frame.cap)
    value: Any = None
    try:
        value = codec.decode(frame)
        problem = codec.shape_error(frame, values=len(frame))
        if problem is None:
            return [codec.command_of(value)]
    except (BadRecord, UnknownCommand) as error:
        return [_refuse_value(value, error)]
    refused = make_line_refusal(f"the JSON {problem}", _scalar_id_or_absent(_id_of(value)))
    result = _make_failed_result(value, f"its JSON {problem}")
    return [refused] if result is None else [refused, _read_value(result)]


def _read_value(value: Any) -> Command | RefusedLine:
    try:
        return codec.command_of(value)
    except (BadRecord, UnknownCommand) as error:
        return _refuse_value(value, error)


def _refuse_value(value: Any, error: BadRecord | UnknownCommand) -> RefusedLine:
    id = _id_of(value)
    if isinstance(error, UnknownCommand):
        return RefusedLine(failure_response(error.name, str(error), id), unknown=True)
    name = value.get("type") if isinstance(value, dict) else None
    if isinstance(name, str):
        return RefusedLine(failure_response(name, str(error), id))
    return make_line_refusal(str(error), id)


def make_line_refusal(reason: str, id: Json | Absent = ABSENT) -> RefusedLine:
    """The refusal of a line that is not a command."""
    return RefusedLine(failure_response(PARSE, f"Failed to parse command: {reason}", id))


def _replace_skipped_result(members: dict[str, Json], cap: int) -> list[Command | RefusedLine]:
    """For a skipped line that is the result of a waiting call: the failure that ends the call."""
    result = _make_failed_result(members, f"it is longer than {cap} bytes") if members.get("id") is not None else None
    return [] if result is None else [_read_value(result)]


def _make_failed_result(value: Any, problem: str) -> Any:
    """The failure that replaces an invalid result; None for any other line."""
    name = value.get("type") if isinstance(value, dict) else None
    text = f"The host's result cannot be used: {problem}"
    if name == NAMES[HostToolResult]:
        failure = {"result": {"content": [{"type": "text", "text": text}]}, "isError": True}
    elif name == NAMES[HostServiceResult]:
        # The host has the file, perhaps with changes that are not on disk.
        failure = {"error": text, "final": True}
    else:
        return None
    return {"type": name, "id": _scalar_id_or_absent(_id_of(value)) or None, **failure}


def _id_of(value: Any) -> Json | Absent:
    id = value.get("id") if isinstance(value, dict) else None
    return ABSENT if id is None else id


def _scalar_id_or_absent(id: Json | Absent) -> Json | Absent:
    """An id that can be sent back, whatever the line was."""
    return id if isinstance(id, str | int | float) else ABSENT
