"""Tools in a form that every API accepts: names and schemas of hosts and extensions that providers would refuse are
rewritten.

A refused tool would fail every request as long as it is offered. A name is rewritten as `history/normalize` does it for
calls, and calls that come back are given the tool's own name again. A schema becomes that of an object; alternatives at
its top are replaced by all of their keys, and the agent still checks the arguments against the author's schema.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from pigeon.agent.inference import BlockOpened, Delta, ToolSpec
from pigeon.providers.history.normalize import MAX_NAME_CHARS, to_valid_tool_name
from pigeon.wire.base import Json

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_NOT_AT_THE_TOP = {*_ALTERNATIVES, "not", "enum", "const", "if", "then", "else", "$ref", "type", "properties"}


def to_sent_tools(tools: Sequence[ToolSpec]) -> tuple[list[ToolSpec], dict[str, str]]:
    """The tools with names and schemas that every API accepts, and the own names of those that were rewritten."""
    own_names: dict[str, str] = {}
    used = {tool.name for tool in tools if to_valid_tool_name(tool.name) == tool.name}
    sent: list[ToolSpec] = []
    for tool in tools:
        name = tool.name
        if to_valid_tool_name(name) != name:
            name = _make_unique_name(to_valid_tool_name(name), used)
            own_names[name] = tool.name
        parameters = to_object_schema(tool.parameters)
        same = name == tool.name and parameters is tool.parameters
        sent.append(tool if same else msgspec.structs.replace(tool, name=name, parameters=parameters))
    return sent, own_names


async def restore_own_names(
    deltas: AsyncGenerator[Delta, None], own_names: Mapping[str, str]
) -> AsyncGenerator[Delta, None]:
    """The same deltas with the tools' own names."""
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, BlockOpened) and delta.name in own_names:
                yield msgspec.structs.replace(delta, name=own_names[delta.name])
            else:
                yield delta


def to_object_schema(schema: dict[str, Json]) -> dict[str, Json]:
    """The same schema if it is plainly that of an object; else one that accepts whatever the given one accepts."""
    if is_plain_object(schema):
        return schema
    properties: dict[str, Any] = {}
    for part in [*(part for key in _ALTERNATIVES for part in _to_list(schema.get(key))), schema]:
        known = part.get("properties") if isinstance(part, dict) else None
        properties.update(known if isinstance(known, dict) else {})
    rest = {key: value for key, value in schema.items() if key not in _NOT_AT_THE_TOP}
    if "required" in rest and not all(key in properties for key in _to_list(rest["required"])):
        del rest["required"]
    return {"type": "object", "properties": properties, **rest}


def is_plain_object(schema: dict[str, Json]) -> bool:
    """True for a schema that every API accepts at the top."""
    alternatives = any(key in schema for key in _NOT_AT_THE_TOP - {"type", "properties"})
    return schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not alternatives


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _make_unique_name(name: str, used: set[str]) -> str:
    candidate, number = name, 2
    while candidate in used:
        ending = f"_{number}"
        candidate = name[: MAX_NAME_CHARS - len(ending)] + ending
        number += 1
    used.add(candidate)
    return candidate
