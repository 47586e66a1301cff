"""Lines of an agent as records, whatever agent it is.

Pigeon's own lines are as declared. Other agents of the family, and newer versions, leave members out, add some or use
unknown words; none of that fails a record. Unknown members are ignored, a missing member gets the neutral value of its
type (0, an empty text, an empty list, None), and values that do not fit are kept as plain JSON. An event of an unknown
type is an `UnknownEvent`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, inspect
from msgspec.structs import replace

from pigeon.wire import dialogs, events
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.events import Outbound


class UnknownEvent(Struct, frozen=True):
    """An event of an unknown type, with all its members."""

    type: str
    members: dict[str, Json]


_EVENTS: dict[str, type[Struct]] = {str(kind.__struct_config__.tag): kind for kind in events.ALL}
_DIALOGS: dict[str, type[Struct]] = {str(kind.__struct_config__.tag): kind for kind in dialogs.DialogRequest.__args__}


def event_of(value: dict[str, Json]) -> Outbound | UnknownEvent:
    """A parsed line that is not a response, as a record."""
    name = value.get("type")
    kind = _EVENTS.get(name) if isinstance(name, str) else None
    if name == dialogs.REQUEST:
        method = value.get("method")
        kind = _DIALOGS.get(method) if isinstance(method, str) else None
    if kind is None:
        return UnknownEvent(str(name), value)
    event: Any = convert_leniently(value, kind)
    if isinstance(event, events.MessageUpdate):
        return replace(event, message=ABSENT, assistant_message_event=_without_snapshot(event.assistant_message_event))
    return event  # type: ignore[no-any-return]


def _without_snapshot(event: Any) -> Any:
    """The stream event alone; if the call's name and id are only in the snapshot, they are copied from there."""
    if not isinstance(event, Struct):
        members = event if isinstance(event, dict) else {"assistantMessageEvent": event}
        return UnknownEvent(str(members.get("type")), members)
    if isinstance(event, events.ToolcallStart) and not event.id:
        content = getattr(event.partial, "content", [])
        index = event.content_index
        known = isinstance(content, list) and isinstance(index, int) and 0 <= index < len(content)
        call = content[index] if known else None
        return replace(event, id=getattr(call, "id", ""), tool_name=getattr(call, "name", ""), partial=ABSENT)
    return replace(event, partial=ABSENT)


def convert_leniently(value: Json, hint: Any) -> Any:
    """Parsed JSON as a value of this type, or as close to it as possible; never fails."""
    try:
        return msgspec.convert(value, hint)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        return _build_value(value, _info(hint))


@cache
def _info(hint: Any) -> inspect.Type:
    return inspect.type_info(hint)


def _build_value(value: Json, info: inspect.Type) -> Any:
    """Constructors of records check nothing, so values that do not fit can be kept."""
    if isinstance(info, inspect.Metadata):
        return _build_value(value, info.type)
    if isinstance(info, inspect.UnionType):
        return _build_union_member(value, info)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        # Its fields are those of `info`; requested again, because recursive records are not followed there.
        return info.cls(**_build_members(value, _info(info.cls)))
    if isinstance(info, inspect.ListType) and isinstance(value, list):
        return [_build_value(item, info.item_type) for item in value]
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        return {key: _build_value(item, info.value_type) for key, item in value.items()}
    return value


def _build_members(value: dict[str, Json], info: inspect.Type) -> dict[str, Any]:
    assert isinstance(info, inspect.StructType)
    members = {}
    for field in info.fields:
        if field.encode_name in value:
            members[field.name] = _build_value(value[field.encode_name], field.type)
        elif field.required:
            members[field.name] = _neutral_value(field.type)
    return members


def _build_union_member(value: Json, info: inspect.UnionType) -> Any:
    """The union member that a value probably is; the value itself if none fits."""
    for member in info.types:
        inner = member.type if isinstance(member, inspect.Metadata) else member
        if isinstance(inner, inspect.StructType) and isinstance(value, dict):
            tag = inner.cls.__struct_config__.tag_field
            if tag is None or value.get(tag) == inner.cls.__struct_config__.tag:
                return _build_value(value, inner)
        elif isinstance(inner, inspect.ListType) and isinstance(value, list):
            return _build_value(value, inner)
    return value


def _neutral_value(info: inspect.Type) -> Any:
    if isinstance(info, inspect.Metadata):
        return _neutral_value(info.type)
    if isinstance(info, inspect.UnionType):
        return None if info.includes_none else _neutral_value(info.types[0])
    if isinstance(info, inspect.LiteralType):
        return info.values[0]
    if isinstance(info, inspect.StructType):
        return info.cls(**_build_members({}, _info(info.cls)))
    plain: dict[type[inspect.Type], Any] = {
        inspect.StrType: "",
        inspect.IntType: 0,
        inspect.FloatType: 0,
        inspect.BoolType: False,
    }
    if isinstance(info, inspect.ListType):
        return []
    return {} if isinstance(info, inspect.DictType) else plain.get(type(info))
