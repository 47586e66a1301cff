"""Which models get the schema of an answer in a field of their API, and in which form.

`Gateway.find_output_format` calls this before each request of a run whose final answer a program reads. If the result
is None, `session/policies/final_answer` offers a tool instead, which works for every model with tools. A model gets the
field if the server is that of the API's maker, the model is known to support it, and the schema can be converted to the
form of the server without losing constraints. The compat flag `supportsStructuredOutput` decides the first two; what
each API supports and accepts is part of its declaration (`Api.output`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pigeon.agent.inference import OutputFormat, ToolSpec
from pigeon.providers.api import OutputField, property_names_in
from pigeon.providers.apis import find_api
from pigeon.providers.request import compat_of
from pigeon.providers.strict_schemas import NotStrict, make_strict_parameters
from pigeon.wire.base import Json
from pigeon.wire.model import Model

FLAG = "supportsStructuredOutput"
MOST_LEVELS = 9
MOST_PROPERTIES = 100
_REMARKS = {"default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
_PLAIN = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "description", "title"}
_KINDS: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
Takes = Callable[[str, Json], bool]  # whether a server accepts this keyword with this value


def find_native_format(model: Model, schema: dict[str, Json], beside_tools: bool) -> OutputFormat | None:
    """The schema of an object in the form of the model's API; None if no field of the API is used."""
    api = find_api(model.api)
    if api.takes_any_schema:
        return OutputFormat(schema)
    output = api.output
    if output is None or not _supports_output_field(model, output, beside_tools):
        return None
    try:
        sent = _to_sent_schema(schema, output.takes, 0)
    except NotStrict:
        return None
    if not output.accepts(sent):
        return None
    if not output.strict:
        return OutputFormat(sent)
    strict = make_strict_parameters(ToolSpec("", "", sent, strict=True))
    return None if strict is None or len(property_names_in(strict)) > MOST_PROPERTIES else OutputFormat(strict)


def _supports_output_field(model: Model, output: OutputField, beside_tools: bool) -> bool:
    said = compat_of(model).get(FLAG)
    if said is not None:
        return said is True  # a value that is not a boolean counts as unsupported: a tool always works
    return output.is_known_for(model, beside_tools)


def _to_sent_schema(schema: Any, takes: Takes, level: int) -> dict[str, Any]:
    """The schema with the keywords that all of these servers know; raises `NotStrict` if it needs others."""
    if not isinstance(schema, dict) or level > MOST_LEVELS:
        raise NotStrict
    out = {key: value for key, value in schema.items() if key not in _REMARKS}
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if "enum" in out and "type" not in out:
        out["type"] = _json_types_of(out["enum"])
    if not out.keys() & {"type", "anyOf"} or any(key not in _PLAIN and not takes(key, out[key]) for key in out):
        raise NotStrict
    kinds = out.get("type", [])
    if "object" in kinds:
        if kinds != "object" or out.get("additionalProperties", False) is not False or "properties" not in out:
            raise NotStrict
        out["properties"] = {name: _to_sent_schema(part, takes, level + 1) for name, part in out["properties"].items()}
    if "array" in kinds:
        if kinds != "array":
            raise NotStrict
        out["items"] = _to_sent_schema(out.get("items"), takes, level + 1)
    if "anyOf" in out:
        out["anyOf"] = [_to_sent_schema(part, takes, level + 1) for part in out["anyOf"]]
    return out


def _json_types_of(values: list[Json]) -> str | list[str]:
    if any(type(value) not in _KINDS for value in values):
        raise NotStrict
    kinds = list(dict.fromkeys(_KINDS[type(value)] for value in values))
    return kinds[0] if len(kinds) == 1 else kinds
