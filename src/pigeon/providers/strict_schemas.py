"""Tool schemas in the form that servers constrain a model to (`strict`), if a schema can be converted.

Strict servers accept objects whose keys are all required and known; a key that was optional may be null instead, which
`agent/arguments` treats as absent. A schema with more than that, or with a keyword that the server does not know, is
sent unchanged. Adapters use this for models whose compat flags state that the server supports it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pigeon.agent.inference import ToolSpec
from pigeon.wire.base import Json

Refuses = Callable[[str, Json], bool]  # whether the server refuses this keyword with this value
TOO_MUCH = (
    "The compiled grammar is too large",
    "Too many strict tools (",
    "Schemas contains too many parameters with union types (",
)
_NEVER_STRICT = (
    "$ref", "$defs", "definitions", "allOf", "oneOf", "patternProperties", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "propertyNames", "contains", "prefixItems", "not", "if", "then", "else",
)  # fmt: skip


class NotStrict(Exception):
    """The schema uses something that strict servers do not accept."""


def make_strict_parameters(tool: ToolSpec, refuses: Refuses | None = None) -> dict[str, Json] | None:
    """The tool's schema for a strict server; None if the tool does not request that, or cannot have it."""
    if not tool.strict:
        return None
    schema = copy.deepcopy(tool.parameters)
    try:
        _make_strict(schema, refuses)
    except (NotStrict, RecursionError):
        return None
    return schema if schema.get("type") == "object" else None


def is_strict_limit_error(message: str) -> bool:
    """True if a server's message reports too many or too large strict tools."""
    return any(text in message for text in TOO_MUCH)


def _make_strict(schema: Any, refuses: Refuses | None) -> None:
    if not isinstance(schema, dict) or any(key in schema for key in _NEVER_STRICT):
        raise NotStrict
    if refuses is not None and any(refuses(key, value) for key, value in schema.items()):
        raise NotStrict
    if "anyOf" in schema:
        _make_union_strict(schema["anyOf"], refuses)
    if "items" in schema:
        _make_strict(schema["items"], refuses)
    if schema.get("type") == "object":
        _make_object_strict(schema, refuses)
    elif "properties" in schema:
        raise NotStrict


def _make_union_strict(variants: Any, refuses: Refuses | None) -> None:
    if not isinstance(variants, list) or not variants:
        raise NotStrict
    for variant in variants:
        if _is_structured(variant):
            raise NotStrict
        _make_strict(variant, refuses)


def _make_object_strict(schema: dict[str, Any], refuses: Refuses | None) -> None:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("additionalProperties", False) is not False or not isinstance(properties, dict):
        raise NotStrict
    if not isinstance(required, list) or any(key not in properties for key in required):
        raise NotStrict
    for key, value in properties.items():
        _make_strict(value, refuses)
        if key not in required and not _allows_null(value):
            properties[key] = {"anyOf": [value, {"type": "null"}]}
    schema.update(properties=properties, required=list(properties), additionalProperties=False)


def _types(schema: dict[str, Any]) -> list[Any]:
    named = schema.get("type", [])
    return named if isinstance(named, list) else [named]


def _is_structured(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    return any(kind in ("object", "array") for kind in _types(schema)) or "properties" in schema or "items" in schema


def _allows_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    listed = schema.get("enum")
    if "null" in _types(schema) or ("const" in schema and schema["const"] is None):
        return True
    if isinstance(listed, list) and None in listed:
        return True
    variants = schema.get("anyOf")
    return isinstance(variants, list) and any(map(_allows_null, variants))
