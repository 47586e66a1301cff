"""Tools that the host runs: their definition, and the frames of one call."""

from __future__ import annotations

from pigeon.wire.base import ABSENT, Absent, Json, Record


class HostTool(Record, kw_only=True):
    """A tool as the host offers it; `parameters` is a JSON Schema object.

    Nothing is typed here because a definition that does not fit is refused by its place in the list or by its name.
    """

    name: Json | Absent = ABSENT
    description: Json | Absent = ABSENT
    parameters: Json | Absent = ABSENT
    label: Json | Absent = ABSENT
    hidden: Json | Absent = ABSENT
    read_only: Json | Absent = ABSENT


class HostToolOutcome(Record, kw_only=True):
    """What a host reports of a call, in progress or finished; blocks of another kind than text or image become text."""

    content: list[Json]
    details: Json | Absent = ABSENT


class HostToolCall(Record, tag_field="type", tag="host_tool_call", kw_only=True):
    """Sent when the model calls a host tool; the host answers with `host_tool_result` under this id."""

    id: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Json]


class HostToolCancel(Record, tag_field="type", tag="host_tool_cancel", kw_only=True):
    """Sent when an open call is no longer wanted."""

    id: str
    target_id: str
