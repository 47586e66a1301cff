"""Arguments of a tool call against the tool's JSON Schema: coerced where models are sloppy, refused where wrong.

The rules are part of the behaviour that models and hosts see, so they are written out here instead of taken from a
validation library: nulls of optional properties are dropped, scalars are coerced, extra properties pass unless the
schema forbids them, and references within the schema are followed. Keywords that are not known here are checked
afterwards by a library (`agent/schema_keywords`). A schema that is broken refuses nothing: its tool gets the arguments
as they came.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

from pigeon.agent.schema_keywords import (
    CHECKS,
    NO_ALTERNATIVE,
    CheckBudget,
    CheckTooLong,
    expected_type,
    has_format,
    is_local,
    is_same,
    library_errors,
    needs_library,
    one_of,
)
from pigeon.wire import codec
from pigeon.wire.errors import ToolFailed

Schema = dict[str, Any]
LONGEST_CHAIN = 32


def checked_arguments(tool: str, schema: Schema, arguments: dict[str, Any]) -> dict[str, Any]:
    """A corrected copy of the arguments; raises `ToolFailed` with one line per error."""
    budget = CheckBudget(arguments)
    try:
        walk = _SchemaWalk(schema, budget)
        value = walk.coerced(walk.without_optional_nulls(copy.deepcopy(arguments), schema), schema)
        errors = list(walk.errors(value, schema, ""))
        if not errors and needs_library(schema):
            errors = list(dict.fromkeys(library_errors(value, schema, budget)))
    except CheckTooLong as error:
        raise ToolFailed(
            f'The arguments for tool "{tool}" could not be checked against its schema in time: {error}. '
            "Send shorter and simpler ones."
        ) from None
    except Exception:  # whatever a schema can be that is none: a number for a list, a reference to nowhere, a circle
        return copy.deepcopy(arguments)
    if errors:
        lines = "\n".join(f"  - {path or 'root'}: {reason}" for path, reason in errors)
        raise ToolFailed(
            f'Validation failed for tool "{tool}":\n{lines}\n\nReceived arguments:\n{codec.pretty(arguments)}'
        )
    result: dict[str, Any] = value
    return result


def without_optional_nulls(schema: Schema, value: Any, budget: CheckBudget) -> Any:
    """The value without nulls of properties that may be left out and cannot be null: strict servers ask for those."""
    return _SchemaWalk(schema, budget).without_optional_nulls(copy.deepcopy(value), schema)


def _is_of_type(value: Any, schema: Schema) -> bool:
    types = _types(schema)
    return not types or any(CHECKS[name](value) for name in types if name in CHECKS)


def _fixed(schema: Any) -> list[Any]:
    """The values that a schema allows, if it lists them."""
    if not isinstance(schema, dict):
        return []
    return [schema["const"]] if "const" in schema else list(schema.get("enum", []))


def _known_keys(value: Any, schema: Schema) -> int:
    """How many keys of the value a form names."""
    return len(value.keys() & schema.get("properties", {}).keys()) if isinstance(value, dict) else 0


def _tag_of(forms: list[Schema]) -> tuple[str, list[Any]] | None:
    """The required property that tells several forms apart, with its values in all of them; none if there is none."""
    if len(forms) < 2:
        return None
    for key in forms[0].get("required", []):
        values = [_fixed(form.get("properties", {}).get(key)) for form in forms]
        if all(values) and all(key in form.get("required", []) for form in forms):
            return key, [value for listed in values for value in listed]
    return None


def _types(schema: Schema) -> list[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared]
    return list(declared) if isinstance(declared, list) else []


class _SchemaWalk:
    """Goes through a value and a schema side by side; `root` is what references are looked up in."""

    def __init__(self, root: Schema, budget: CheckBudget) -> None:
        self._root = root
        self._budget = budget
        self._explains = True  # false while it only matters whether a value fits

    def without_optional_nulls(self, value: Any, schema: Schema | bool) -> Any:
        """The value without nulls of properties that may be left out and cannot be null."""
        schema = self._followed(schema)
        if isinstance(schema, bool):
            return value
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return [self.without_optional_nulls(item, schema["items"]) for item in value]
        if not isinstance(value, dict):
            return value
        properties, required = schema.get("properties", {}), schema.get("required", [])
        kept = {}
        for key, item in value.items():
            inner = properties.get(key)
            if inner is None:
                kept[key] = item
            elif item is not None or key in required or self._accepts_null(inner):
                kept[key] = self.without_optional_nulls(item, inner)
        return kept

    def coerced(self, value: Any, schema: Schema | bool) -> Any:
        """The value with scalars in the type that the schema asks for, where that is certain."""
        schema = self._followed(schema)
        if isinstance(schema, bool):
            return value
        for branch in schema.get("allOf", []):
            value = self.coerced(value, branch)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches:
            value = self._coerced_to_branch(value, branches)
        value = _of_one_type(value, _types(schema))
        if isinstance(value, dict):
            return self._coerced_object(value, schema)
        if isinstance(value, list):
            return self._coerced_list(value, schema)
        return _listed(value, _fixed(schema))

    def errors(self, value: Any, schema: Schema | bool, path: str) -> Iterator[tuple[str, str]]:
        """Where the value does not fit, and why."""
        schema = self._followed(schema)
        if isinstance(schema, bool):
            if not schema:
                yield path, "unknown field"
            return
        types = [name for name in _types(schema) if name in CHECKS]
        if types and not any(CHECKS[name](value) for name in types):
            yield path, expected_type(types, value)
            return
        if "enum" in schema and not any(is_same(value, listed) for listed in schema["enum"]):
            yield path, one_of(schema["enum"])
        if "const" in schema and not is_same(value, schema["const"]):
            yield path, f"expected {codec.encode(schema['const']).decode()}"
        for branch in schema.get("allOf", []):
            yield from self.errors(value, branch, path)
        for key in ("anyOf", "oneOf"):
            branches = schema.get(key)
            if branches and not any(self._fits(value, branch) for branch in branches):
                yield from self._union_errors(value, branches, path)
        if isinstance(value, dict):
            yield from self._object_errors(value, schema, path)
        elif isinstance(value, list):
            yield from self._list_errors(value, schema, path)
        else:
            yield from _scalar_errors(value, schema, path)
            if isinstance(value, str) and "pattern" in schema and not self._budget.matches(schema["pattern"], value):
                yield path, f"expected to match {schema['pattern']}"

    def _followed(self, schema: Schema | bool) -> Schema | bool:
        """The schema that a reference within the root names, together with what stands beside the reference."""
        self._budget.step()
        for _ in range(LONGEST_CHAIN):
            if isinstance(schema, bool) or not is_local(schema.get("$ref")):
                return schema
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            target: Any = self._root
            for name in schema["$ref"].split("/")[1:]:
                target = target[int(name) if isinstance(target, list) else unquoted(name)]
            if isinstance(target, bool):
                return {**beside, "allOf": [*beside.get("allOf", []), target]}
            both = beside.keys() & target.keys() - {"title", "description", "default", "examples"}
            schema = {**beside, "allOf": [*beside.get("allOf", []), target]} if both else {**target, **beside}
        raise RecursionError("references in a circle")

    def _accepts_null(self, schema: Schema | bool) -> bool:
        schema = self._followed(schema)
        if isinstance(schema, bool):
            return schema
        if not schema or "null" in _types(schema) or schema.get("const", 0) is None or None in schema.get("enum", []):
            return True
        return any(self._accepts_null(branch) for key in ("anyOf", "oneOf") for branch in schema.get(key, []))

    def _fits(self, value: Any, schema: Schema | bool) -> bool:
        explains, self._explains = self._explains, False
        try:
            return next(self.errors(value, schema, ""), None) is None
        finally:
            self._explains = explains

    def _union_errors(self, value: Any, branches: list[Schema], path: str) -> Iterator[tuple[str, str]]:
        """Why a value fits none of several forms: by the tag that tells them apart, else by the form that it is
        nearest to."""
        if not self._explains:
            yield path, NO_ALTERNATIVE
            return
        followed = [self._followed(branch) for branch in branches]
        forms = [form for form in followed if not isinstance(form, bool) and _is_of_type(value, form)]
        if not forms:
            types = [_types(form) if isinstance(form, dict) else [] for form in followed]
            if all(types):
                names = dict.fromkeys(name for listed in types for name in listed)
                yield path, expected_type(list(names), value)
            else:
                yield path, NO_ALTERNATIVE
            return
        tag = _tag_of(forms) if isinstance(value, dict) else None
        if tag is not None:
            key, values = tag
            if key not in value or not any(is_same(value[key], listed) for listed in values):
                yield _join(path, key), one_of(values)
                return
            fitting = [[is_same(value[key], listed) for listed in _fixed(form["properties"][key])] for form in forms]
            forms = [form for form, same in zip(forms, fitting, strict=True) if any(same)]
        forms.sort(key=lambda form: -_known_keys(value, form))
        found = [list(self.errors(value, form, path)) for form in forms]
        yield from min(found, key=len) or [(path, NO_ALTERNATIVE)]

    def _coerced_to_branch(self, value: Any, branches: list[Schema]) -> Any:
        if any(self._fits(value, branch) for branch in branches):
            return value
        for branch in branches:
            candidate = self.coerced(self._copied(value), branch)
            if self._fits(candidate, branch):
                return candidate
        return value

    def _copied(self, value: Any) -> Any:
        self._budget.step()
        if isinstance(value, dict):
            return {key: self._copied(item) for key, item in value.items()}
        return [self._copied(item) for item in value] if isinstance(value, list) else value

    def _coerced_object(self, value: dict[str, Any], schema: Schema) -> dict[str, Any]:
        properties, rest = schema.get("properties", {}), _rest(schema)
        for key, item in list(value.items()):
            inner = properties.get(key, rest)
            if isinstance(inner, dict):
                value[key] = self.coerced(item, inner)
        return value

    def _coerced_list(self, value: list[Any], schema: Schema) -> list[Any]:
        first, rest = schema.get("prefixItems", []), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, None
        for index, item in enumerate(value):
            inner = first[index] if index < len(first) else rest
            if isinstance(inner, dict):
                value[index] = self.coerced(item, inner)
        return value

    def _object_errors(self, value: dict[str, Any], schema: Schema, path: str) -> Iterator[tuple[str, str]]:
        properties, rest = schema.get("properties", {}), _rest(schema)
        for key in schema.get("required", []):
            if key not in value:
                yield _join(path, key), "missing"
        for key, item in value.items():
            inner = properties.get(key, rest)
            if isinstance(inner, dict):
                yield from self.errors(item, inner, _join(path, key))
            elif inner is False:
                yield _join(path, key), "unknown field"

    def _list_errors(self, value: list[Any], schema: Schema, path: str) -> Iterator[tuple[str, str]]:
        if len(value) < schema.get("minItems", 0):
            yield path, f"expected at least {schema['minItems']} items"
        if len(value) > schema.get("maxItems", len(value)):
            yield path, f"expected at most {schema['maxItems']} items"
        items = schema.get("items")
        if isinstance(items, dict):
            for index in range(len(schema.get("prefixItems", [])), len(value)):
                yield from self.errors(value[index], items, _join(path, str(index)))


def _rest(schema: Schema) -> Any:
    """What is said of properties without a name; with `patternProperties` that is the library's business."""
    return True if "patternProperties" in schema else schema.get("additionalProperties", True)


def unquoted(name: str) -> str:
    """A step of a reference as the key that it names."""
    from urllib.parse import unquote

    return unquote(name).replace("~1", "/").replace("~0", "~")


_UNCHANGED = object()
_BOOLEANS: dict[Any, bool] = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False, None: False}


def _of_one_type(value: Any, types: list[str]) -> Any:
    """The value in the first of the types that it can be brought to; unchanged if it is of one, or of none."""
    if any(CHECKS[name](value) for name in types if name in CHECKS):
        is_whole = isinstance(value, float) and value.is_integer() and "integer" in types
        return int(value) if is_whole else value
    changed = (_scalar(value, name) for name in types)
    return next((one for one in changed if one is not _UNCHANGED), value)


def _listed(value: Any, values: list[Any]) -> Any:
    """The one of the listed values that a scalar spells, as the text 1 does for the number."""
    if isinstance(value, (str, int, float)) and not any(is_same(value, listed) for listed in values):
        spelt = [
            listed for listed in values if isinstance(listed, (str, int, float)) and _spelt(listed) == _spelt(value)
        ]
        return spelt[0] if len(spelt) == 1 else value
    return value


def _spelt(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _scalar(value: Any, wanted: str) -> Any:
    if wanted in ("number", "integer"):
        return _to_number(value, wanted)
    if wanted == "boolean":
        return _BOOLEANS.get(value.lower() if isinstance(value, str) else _hashable(value), _UNCHANGED)
    if wanted == "string":
        return _to_string(value)
    if wanted == "array" and value is not None:
        return [value]
    if wanted == "null" and _hashable(value) in ("", 0):
        return None
    return _UNCHANGED


def _hashable(value: Any) -> Any:
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


def _scalar_errors(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield path, f"expected at least {schema['minLength']} characters"
        if len(value) > schema.get("maxLength", len(value)):
            yield path, f"expected at most {schema['maxLength']} characters"
        if not has_format(value, schema.get("format")):
            yield path, f"expected format {schema['format']}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield path, f"expected >= {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield path, f"expected <= {schema['maximum']}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
