"""The JSON Schema that a host wants the final answer of a run to have: accepted or refused as a whole, converted to a
tool's parameters, and checked against the model's answer.

A tool's own schema may be broken without harm, an output schema may not: an answer that does not fit it never reaches
the host. So it is checked before the run begins, and everything in it that could not be checked later is refused.
Unlike the arguments of tools (`agent/arguments`) an answer is not coerced: a null for a required text would become an
empty one.
"""

from __future__ import annotations

import re
from typing import Any

from pigeon.agent.arguments import drop_optional_nulls
from pigeon.agent.schema_check import (
    BrokenSchema,
    Reason,
    Schema,
    SchemaCheck,
    check_keywords,
    check_patterns,
    is_local,
    kind_of,
    resolve_reference,
    schemas_in,
    unescape_step,
)
from pigeon.agent.schema_patterns import CheckTooLong
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.errors import Refusal, ToolFailed

MOST_BYTES = 256 * 1024
MOST_LEVELS = 60
MOST_PARTS = 20_000
MOST_ERRORS = 20
MOST_FOLLOWED = 4
MEMBER = "value"
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_BESIDE = ("not", "if", "then", "else")  # they and lists of alternatives apply to the same value
_NOT_FOR_MODELS = ("$schema", "$id", "$defs", "definitions", "$comment")
_REMARKS = {"title", "description", "default", "examples", "deprecated", "$comment"}
_NOT_AT_THE_TOP = {*_LISTS, "not", "enum", "const", "if"}
# The keywords that every server with enforced schemas supports, and the depth limit.
_STRICT = {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "description", "title"}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STRICT_LEVELS = 5
_STRICT_BYTES = 8 * 1024


class OutputSchema:
    """An accepted schema; creating one raises `Refusal` that names the error in it."""

    def __init__(self, schema: Json) -> None:
        if not isinstance(schema, dict):
            raise Refusal(f"outputSchema: expected a JSON Schema, which is an object, got {kind_of(schema)}")
        _check_size(schema)
        _check_keywords(schema)
        self._schema: Schema = schema
        inlining = _Inlining(schema)
        inlined = inlining.inline_all()
        _check_compiles(schema)
        self._wrapped = not _is_plain_object(inlined)
        if self._wrapped:
            inlined = {
                "type": "object",
                "properties": {MEMBER: inlined},
                "required": [MEMBER],
                "additionalProperties": False,
            }
        self.parameters: Schema = inlined
        self.strict = not inlining.is_cut and _can_be_strict(inlined)

    def validate_arguments(self, arguments: dict[str, Json]) -> Json:
        """The value in a call of the tool; raises `ToolFailed` with one line for each error."""
        if not self._wrapped:
            return self.validate_value(arguments)
        if arguments.keys() != {MEMBER}:
            raise ToolFailed(f'The answer does not match its schema:\n  - root: expected one member, "{MEMBER}"')
        return self.validate_value(arguments[MEMBER])

    def validate_value(self, value: Json) -> Json:
        """The value for hosts, if it fits; raises `ToolFailed` otherwise."""
        try:
            value = codec.decode(codec.encode(value))  # check exactly the value that is sent
            errors = self._find_errors(value)
            if errors:
                lean = drop_optional_nulls(SchemaCheck(self._schema, value, exact=True), value)
                if not self._find_errors(lean):
                    return lean
        except CheckTooLong as error:
            errors = [("", f"it could not be checked in time: {error}")]
        except Exception as error:  # of the library or of printing a value: all mean "not checked"
            errors = [("", f"it could not be checked: {type(error).__name__}")]
        if not errors:
            return value
        lines = [f"  - {path or 'root'}: {reason}" for path, reason in errors[:MOST_ERRORS]]
        if len(errors) > MOST_ERRORS:
            lines.append(f"  - and {len(errors) - MOST_ERRORS} more")
        raise ToolFailed("\n".join(["The answer does not match its schema:", *lines]))

    def _find_errors(self, value: Json) -> list[Reason]:
        return SchemaCheck(self._schema, value, exact=True).find_errors(value)


def _check_size(schema: Schema) -> None:
    try:
        text = codec.encode(schema)
    except Exception:
        raise Refusal("outputSchema: it is not JSON") from None
    if len(text) > MOST_BYTES:
        raise Refusal(f"outputSchema: too large, {len(text)} bytes; at most {MOST_BYTES} are accepted")
    problem = codec.shape_error(text, MOST_LEVELS)
    if problem is not None:
        raise Refusal(f"outputSchema: {problem}")


def _check_keywords(schema: Schema) -> None:
    try:
        check_keywords(schema)
    except BrokenSchema as error:
        raise _refusal_of(error) from None
    for part in schemas_in(schema):
        if isinstance(part, dict) and part is not schema and isinstance(part.get("$id"), str):
            raise Refusal(f"outputSchema: $id {part['$id'][:200]} below the top is not supported")


def _check_compiles(schema: Schema) -> None:
    try:
        check_patterns(schema)
        SchemaCheck(schema, exact=True)
    except BrokenSchema as error:
        raise _refusal_of(error) from None
    except CheckTooLong as error:
        raise Refusal(f"outputSchema: {error}") from None


def _refusal_of(error: BrokenSchema) -> Refusal:
    return Refusal(f"{'.'.join(['outputSchema', *error.path])}: not a valid JSON Schema: {str(error)[:200]}")


class _Inlining:
    """A schema with its references replaced by their targets: not every model server follows references.

    A recursive schema is cut: inside the target of a reference, the same reference is followed once more, and then
    replaced by a description for the model. Answers are checked against the schema itself.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._parts = 0
        self._recursive: dict[str, bool] = {}
        self.is_cut = False

    def inline_all(self) -> Schema:
        """The schema without references; raises `Refusal` for a reference to nowhere, to another document or to
        itself."""
        inlined = self._inline_schema(self._root, ("#",))
        return inlined if isinstance(inlined, dict) else {"allOf": [inlined]}

    def _inline_schema(self, schema: Any, inside: tuple[str, ...]) -> Any:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise Refusal(f"outputSchema: too large, more than {MOST_PARTS} parts once its references are followed")
        if not isinstance(schema, dict):
            return schema
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in schema:
                raise Refusal(f"outputSchema: {key} is not supported")
        kept = {key: value for key, value in schema.items() if key != "$ref" and key not in _NOT_FOR_MODELS}
        out = {key: self._inline_keyword(key, value, inside) for key, value in kept.items()}
        if "$ref" not in schema:
            return out
        reference = schema["$ref"]
        if inside.count(reference) > 1 or (len(inside) > MOST_FOLLOWED and self._is_recursive(reference)):
            return self._cut_recursion(reference, out)
        self._refuse_endless_reference(reference)
        target = self._inline_schema(self._target_of(reference), (*inside, reference))
        if isinstance(target, dict) and not out.keys() - _REMARKS:
            return {**target, **out}
        return {**out, "allOf": [*out.get("allOf", []), target]}

    def _cut_recursion(self, reference: str, out: Schema) -> Schema:
        self.is_cut = True
        target = self._target_of(reference)
        kind = {"type": target["type"]} if isinstance(target, dict) and "type" in target else {}
        name = reference.rpartition("/")[2]
        again = "the whole answer" if name == "#" else f"{target.get('title', unescape_step(name))} above"
        return {**kind, **out, "description": f"The same form as {again}."}

    def _is_recursive(self, reference: Any) -> bool:
        """Whether the target of a reference contains the same reference at any depth."""
        if reference not in self._recursive:
            seen: set[str] = set()
            waiting = [reference]
            while waiting:
                parts = schemas_in(self._target_of(waiting.pop()))
                found = {part["$ref"] for part in parts if isinstance(part, dict) and "$ref" in part} - seen
                seen |= found
                waiting += found
            self._recursive[reference] = reference in seen
        return self._recursive[reference]

    def _refuse_endless_reference(self, reference: Any) -> None:
        """Refuse a reference that leads back to itself without a step into the value, which could not be checked."""
        seen: set[int] = set()
        waiting = [self._target_of(reference)]
        while waiting:
            part = waiting.pop()
            if not isinstance(part, dict) or id(part) in seen:
                continue
            seen.add(id(part))
            if part.get("$ref") == reference:
                raise Refusal(f"outputSchema: $ref {reference[:200]} leads to nothing but itself")
            waiting += [self._target_of(part["$ref"])] if "$ref" in part else []
            waiting += [part[key] for key in _BESIDE if key in part]
            waiting += [inner for key in ("allOf", "anyOf", "oneOf") for inner in part.get(key, [])]

    def _inline_keyword(self, key: str, value: Any, inside: tuple[str, ...]) -> Any:
        if key in _MAPS and isinstance(value, dict):
            return {name: self._inline_schema(part, inside) for name, part in value.items()}
        if isinstance(value, list) and (key in _LISTS or key == "items"):
            return [self._inline_schema(part, inside) for part in value]
        return self._inline_schema(value, inside) if key in _SINGLE else value

    def _target_of(self, reference: Any) -> Any:
        if not is_local(reference):
            raise Refusal(f"outputSchema: $ref {str(reference)[:200]} names no place in the schema itself")
        try:
            target = resolve_reference(self._root, reference)
        except (KeyError, IndexError, ValueError, TypeError):
            raise Refusal(f"outputSchema: $ref {reference[:200]} names nothing") from None
        if not isinstance(target, dict | bool):
            raise Refusal(f"outputSchema: $ref {reference[:200]} names no schema")
        return target


def _is_plain_object(schema: Schema) -> bool:
    """True for a schema that every server accepts as the parameters of a tool."""
    properties = schema.get("properties")
    return (
        schema.get("type") == "object"
        and isinstance(properties, dict)
        and all(map(_PLAIN_NAME.fullmatch, properties))
        and not schema.keys() & _NOT_AT_THE_TOP
    )


def _can_be_strict(schema: Schema) -> bool:
    """True if servers can enforce the schema; a keyword that one does not know would fail every request."""
    text = codec.encode(schema)
    if len(text) > _STRICT_BYTES or codec.shape_error(text, 2 * _STRICT_LEVELS) is not None:
        return False
    return all(_is_strict_part(part) for part in schemas_in(schema) if isinstance(part, dict))


def _is_strict_part(schema: Schema) -> bool:
    """Strict servers need the type of each part, and accept no objects with unnamed keys."""
    if not schema.keys() <= _STRICT or not schema.keys() & {"type", "anyOf", "enum"}:
        return False
    if any(isinstance(part, bool) for part in [schema.get("items"), *schema.get("properties", {}).values()]):
        return False
    return schema.get("type") != "object" or "properties" in schema or schema.get("additionalProperties") is False
