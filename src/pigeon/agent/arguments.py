"""Arguments of a tool call against the tool's JSON Schema: coerced where models are sloppy, refused where wrong.

Coercion is part of the behaviour that models and hosts see: nulls of optional properties are dropped, scalars are
converted to the type of the schema, and references within the schema are followed. Then `agent/schema_check` decides. A
schema that is broken refuses nothing: its tool gets the arguments as they came.
"""

from __future__ import annotations

import copy
import math
from typing import Any

from pigeon.agent.schema_check import (
    Schema,
    SchemaCheck,
    fixed_values,
    is_of_kind,
    is_plainly_valid,
    is_same_json,
    types_of,
)
from pigeon.agent.schema_patterns import CheckTooLong
from pigeon.wire import codec
from pigeon.wire.errors import ToolFailed


def validate_arguments(tool: str, schema: Schema, arguments: dict[str, Any]) -> dict[str, Any]:
    """A corrected copy of the arguments; raises `ToolFailed` with one line per error."""
    if is_plainly_valid(schema, arguments):
        return copy.deepcopy(arguments)
    try:
        check = SchemaCheck(schema, arguments)
        value = _Coercion(check).coerce(drop_optional_nulls(check, copy.deepcopy(arguments)), check.schema)
        errors = check.find_errors(value)
    except CheckTooLong as error:
        raise ToolFailed(
            f'The arguments for tool "{tool}" could not be checked against its schema in time: {error}. '
            "Send shorter and simpler ones."
        ) from None
    except Exception:  # an invalid schema can raise anything: a number for a list, a reference to nowhere, a circle
        return copy.deepcopy(arguments)
    if errors:
        lines = "\n".join(f"  - {path or 'root'}: {reason}" for path, reason in errors)
        raise ToolFailed(
            f'Validation failed for tool "{tool}":\n{lines}\n\nReceived arguments:\n{codec.to_pretty_json(arguments)}'
        )
    result: dict[str, Any] = value
    return result


def drop_optional_nulls(check: SchemaCheck, value: Any) -> Any:
    """The value without nulls of optional, non-nullable properties, which strict servers require."""
    return _Coercion(check).drop_nulls(value, check.schema)


class _Coercion:
    """Walks through a value and a schema in parallel."""

    def __init__(self, check: SchemaCheck) -> None:
        self._check = check

    def drop_nulls(self, value: Any, schema: Schema | bool) -> Any:
        """The value without nulls of optional properties that are not nullable."""
        schema = self._resolve_schema(schema)
        if isinstance(schema, bool):
            return value
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return [self.drop_nulls(item, schema["items"]) for item in value]
        if not isinstance(value, dict):
            return value
        properties, required = schema.get("properties", {}), schema.get("required", [])
        kept = {}
        for key, item in value.items():
            inner = properties.get(key)
            if inner is None:
                kept[key] = item
            elif item is not None or key in required or self._can_be_null(inner):
                kept[key] = self.drop_nulls(item, inner)
        return kept

    def coerce(self, value: Any, schema: Schema | bool) -> Any:
        """The value with scalars converted to the type of the schema, if that is unambiguous."""
        schema = self._resolve_schema(schema)
        if isinstance(schema, bool):
            return value
        for branch in schema.get("allOf", []):
            value = self.coerce(value, branch)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches:
            value = self._coerce_to_branch(value, branches)
        value = _coerce_to_one_of_types(value, types_of(schema))
        if isinstance(value, dict):
            return self._coerce_object(value, schema)
        if isinstance(value, list):
            return self._coerce_list(value, schema)
        return _coerce_to_listed_value(value, fixed_values(schema))

    def _resolve_schema(self, schema: Schema | bool) -> Schema | bool:
        self._check.steps.count_step()
        return self._check.resolve_schema(schema)

    def _can_be_null(self, schema: Schema | bool) -> bool:
        schema = self._resolve_schema(schema)
        if isinstance(schema, bool):
            return schema
        if not schema or "null" in types_of(schema) or None in fixed_values(schema):
            return True
        return any(self._can_be_null(branch) for key in ("anyOf", "oneOf") for branch in schema.get(key, []))

    def _coerce_to_branch(self, value: Any, branches: list[Schema]) -> Any:
        if any(self._check.is_valid(value, branch) for branch in branches):
            return value
        for branch in branches:
            candidate = self.coerce(self._copy(value), branch)
            if self._check.is_valid(candidate, branch):
                return candidate
        return value

    def _copy(self, value: Any) -> Any:
        self._check.steps.count_step()
        if isinstance(value, dict):
            return {key: self._copy(item) for key, item in value.items()}
        return [self._copy(item) for item in value] if isinstance(value, list) else value

    def _coerce_object(self, value: dict[str, Any], schema: Schema) -> dict[str, Any]:
        properties = schema.get("properties", {})
        rest = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        for key, item in list(value.items()):
            inner = properties.get(key, rest)
            if isinstance(inner, dict):
                value[key] = self.coerce(item, inner)
        return value

    def _coerce_list(self, value: list[Any], schema: Schema) -> list[Any]:
        first, rest = schema.get("prefixItems", []), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, None
        for index, item in enumerate(value):
            inner = first[index] if index < len(first) else rest
            if isinstance(inner, dict):
                value[index] = self.coerce(item, inner)
        return value


_UNCHANGED = object()
_BOOLEANS: dict[Any, bool] = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False, None: False}


def _coerce_to_one_of_types(value: Any, types: list[str]) -> Any:
    """The value converted to the first possible type; unchanged if it already has one of the types, or if none is
    possible."""
    if any(is_of_kind(value, name) for name in types):
        is_whole = isinstance(value, float) and value.is_integer() and "integer" in types
        return int(value) if is_whole else value
    changed = (_to_type(value, name) for name in types)
    return next((one for one in changed if one is not _UNCHANGED), value)


def _coerce_to_listed_value(value: Any, values: list[Any]) -> Any:
    """The listed value that a scalar spells, as the text 1 does for the number."""
    if isinstance(value, (str, int, float)) and not any(is_same_json(value, listed) for listed in values):
        scalars = [listed for listed in values if isinstance(listed, (str, int, float))]
        spelt = [listed for listed in scalars if _spelling_of(listed) == _spelling_of(value)]
        return spelt[0] if len(spelt) == 1 else value
    return value


def _spelling_of(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _to_type(value: Any, wanted: str) -> Any:
    if wanted in ("number", "integer"):
        return _to_number(value, wanted)
    if wanted == "boolean":
        return _BOOLEANS.get(value.lower() if isinstance(value, str) else _keep_if_hashable(value), _UNCHANGED)
    if wanted == "string":
        return _to_string(value)
    if wanted == "array" and value is not None:
        return [value]
    if wanted == "null" and _keep_if_hashable(value) in ("", 0):
        return None
    return _UNCHANGED


def _keep_if_hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, type(None))) else _UNCHANGED


def _to_number(value: Any, wanted: str) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.strip() and "_" not in value:
        try:
            number = float(value)
        except ValueError:
            return _UNCHANGED
        if not math.isfinite(number) or (wanted == "integer" and not number.is_integer()):
            return _UNCHANGED
        return int(number) if number.is_integer() else number
    return _UNCHANGED


def _to_string(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return codec.encode(value).decode()
    return _UNCHANGED
