"""Whether a value fits a JSON Schema, and the errors if not: `jsonschema-rs` decides, the reasons are worded here.

The library is imported with the first check. Nothing is ever fetched to resolve a reference, and no schema or value
holds up the process: the library finds a verdict in polynomial time, `agent/schema_patterns` searches for patterns,
which share one limit, and a value is only explained if the number of errors, which can be exponential in a recursive
schema, is bounded.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pigeon.agent.schema_patterns import LARGEST_SPELT, LONGEST_REASON, CheckTooLong, PatternSearches
from pigeon.wire import codec

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator, ValidatorMap

Schema = dict[str, Any]
Reason = tuple[str, str]  # the place and the error
LONGEST_CHAIN = 32
MOST_VALUES = 20
MOST_REPAIRS = 100
FREE_STEPS = 30_000
STEPS_PER_VALUE = 20
NO_ALTERNATIVE = "matches no alternative"
NEWEST_DRAFT = "https://json-schema.org/draft/2020-12/schema"
DRAFTS = {
    "http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2019-09/schema", NEWEST_DRAFT,
}  # fmt: skip
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_VALUES = ("enum", "const", "default", "examples")
_NO_SIBLINGS = ("draft-04", "draft-06", "draft-07")  # drafts in which the standard ignores keywords beside a reference
_REMARKS = {"$defs", "definitions", "$schema", "$id", "$comment", "title", "description", "default", "examples"}
_PLAIN = _REMARKS | {"type", "properties", "required", "items", "additionalProperties"}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or _is_whole(value)),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, (int, float)),
}
# Formats that are checked, all of them generously; others are only remarks.
_FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:?\d\d)?",
    "date-time": r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:?\d\d)?",
    "email": r"[^@\s]+@[^@\s]+",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:\S+",
    "url": r"[A-Za-z][A-Za-z0-9+.-]*:\S+",
    "ipv4": r"(?:\d{1,3}\.){3}\d{1,3}",
    "ipv6": r"(?=[0-9A-Fa-f.]*:)[0-9A-Fa-f:.]+(?:%\S+)?",
    "uuid": r"(?i:(?:urn:uuid:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
}
# The error texts by keyword. Missing keywords use the library's texts.
_REASONS: dict[str, Callable[[Any, Any], str]] = {
    "type": lambda kind, value: explain_wrong_type(kind.types, value),
    "enum": lambda kind, _: explain_unlisted_value(kind.options),
    "const": lambda kind, _: f"expected {codec.encode(kind.expected_value).decode()}",
    "minimum": lambda kind, _: f"expected >= {kind.limit}",
    "maximum": lambda kind, _: f"expected <= {kind.limit}",
    "exclusiveMinimum": lambda kind, _: f"expected > {kind.limit}",
    "exclusiveMaximum": lambda kind, _: f"expected < {kind.limit}",
    "multipleOf": lambda kind, _: f"expected a multiple of {kind.multiple_of}",
    "minLength": lambda kind, _: f"expected at least {kind.limit} characters",
    "maxLength": lambda kind, _: f"expected at most {kind.limit} characters",
    "minItems": lambda kind, _: f"expected at least {kind.limit} items",
    "maxItems": lambda kind, _: f"expected at most {kind.limit} items",
    "minProperties": lambda kind, _: f"expected at least {kind.limit} properties",
    "maxProperties": lambda kind, _: f"expected at most {kind.limit} properties",
    "uniqueItems": lambda *_: "expected unique items",
    "not": lambda *_: "must not match the schema in not",
    "contains": lambda *_: "expected an item that matches the schema in contains",
    "falseSchema": lambda *_: "unknown field",
    "Custom": lambda kind, _: str(kind.message),
    "OneOfMultipleValid": lambda *_: "matches more than one alternative",
}


def is_plainly_valid(schema: Any, value: Any) -> bool:
    """Whether a value fits a schema that only has types, properties and items; False leaves the decision to
    `SchemaCheck`.

    Most tool calls are like this. They cost no compilation, and do not load the library.
    """
    if not isinstance(schema, dict) or not schema.keys() <= _PLAIN or isinstance(value, float):
        return False
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _KINDS or not _KINDS[kind](value):
        return False
    if isinstance(value, list):
        items = schema.get("items", True)
        return items is True or all(is_plainly_valid(items, item) for item in value)
    if isinstance(value, dict):
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            return False
        if not all(isinstance(name, str) and name in value for name in required):
            return False
        others = schema.get("additionalProperties", True) is True
        return all(
            is_plainly_valid(properties[key], item) if key in properties else others for key, item in value.items()
        )
    return True


def _with_finite_numbers(value: Any) -> Any:
    """The value with numbers that JSON lacks replaced by others: the library would treat them as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else math.copysign(sys.float_info.max, value)
    if isinstance(value, list):
        items = [_with_finite_numbers(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        members = {key: _with_finite_numbers(item) for key, item in value.items()}
        return members if any(members[key] is not value[key] for key in value) else value
    return value


class BrokenSchema(Exception):
    """The schema is invalid; `path` is the place of the error."""

    def __init__(self, path: list[str], reason: str) -> None:
        super().__init__(reason)
        self.path = path


class SchemaCheck:
    """One schema, compiled to check one value.

    A generous check accepts the schemas that tools have: keywords that are not JSON Schema are left out, `oneOf` may be
    satisfied by more than one branch, and keywords beside a `$ref` apply in every draft. With `exact` the standard is
    followed, and dates, times and UUIDs have to exist. Raises `BrokenSchema`.
    """

    def __init__(self, schema: Schema, value: Any = None, *, exact: bool = False) -> None:
        self.schema: Schema = copy.deepcopy(schema)
        self.steps = _Steps(value)
        self._exact = exact
        self._parts: ValidatorMap | None = None
        self._searches = PatternSearches()
        self.schema["$schema"] = draft_of(schema)
        if not exact:
            _relax_schema(self.schema)
        _spell_out_names(self.schema, value, self._searches)
        self._whole = self._compile()
        self._pointers = {
            id(part): pointer for pointer, part in _schemas_by_pointer(self.schema) if isinstance(part, dict)
        }

    def is_valid(self, value: Any, part: Schema | bool) -> bool:
        """Whether a value fits a part of `self.schema`."""
        if isinstance(part, bool):
            return part
        is_valid = self._validators_by_pointer()[self._pointers[id(part)]].is_valid(_with_finite_numbers(value))
        self._searches.raise_if_slow()
        return is_valid

    def find_errors(self, value: Any) -> list[Reason]:
        """The places where the value does not fit, with reasons; raises `CheckTooLong`."""
        value = _with_finite_numbers(value)
        is_valid = self._whole.is_valid(value)
        self._searches.raise_if_slow()
        if is_valid:
            return []
        if self._count_applications(self.schema, value, {}) > self.steps.limit:
            raise CheckTooLong("the schema has too many ways to read them")
        reasons = list(dict.fromkeys(self._explain_errors(self._whole.iter_errors(value), value)))
        self._searches.raise_if_slow()
        return reasons

    def resolve_schema(self, schema: Schema | bool) -> Schema | bool:
        """The target of a local reference, merged with the keywords beside the reference."""
        for _ in range(LONGEST_CHAIN):
            if isinstance(schema, bool) or not is_local(schema.get("$ref")):
                return schema
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            target = resolve_reference(self.schema, schema["$ref"])
            if isinstance(target, bool):
                return {**beside, "allOf": [*beside.get("allOf", []), target]}
            both = beside.keys() & target.keys() - {"title", "description", "default", "examples"}
            schema = {**beside, "allOf": [*beside.get("allOf", []), target]} if both else {**target, **beside}
        raise RecursionError("references in a circle")

    def _compile(self) -> Validator:
        from jsonschema_rs import ValidationError, validator_for

        for _ in range(MOST_REPAIRS):
            try:
                return validator_for(
                    self.schema,
                    **self._validator_options(propertyNames=_make_names_keyword(self._validators_by_pointer)),
                )
            except ValidationError as error:
                if self._exact or not error.instance_path:
                    raise BrokenSchema([str(step) for step in error.instance_path], error.message) from None
                _remove_value(self.schema, error.instance_path)
            except ValueError as error:  # from the library: a schema that cannot be read at all
                raise BrokenSchema([], str(error)) from None
        raise BrokenSchema([], "too many keywords that are no JSON Schema")

    def _validator_options(self, **keywords: type) -> dict[str, Any]:
        from jsonschema_rs import RegexOptions

        own = {
            "format": _make_text_keyword("format", lambda text, name: has_format(text, name, self._exact)),
            "pattern": _make_text_keyword("to match", lambda text, pattern: self._searches.is_match(pattern, text)),
        }
        options = RegexOptions(LARGEST_SPELT, LARGEST_SPELT)
        return {"offline": True, "pattern_options": options, "keywords": {**own, **keywords}}

    def _validators_by_pointer(self) -> ValidatorMap:
        from jsonschema_rs import validator_map_for

        if self._parts is None:
            self._parts = validator_map_for(self.schema, **self._validator_options())
        return self._parts

    def _explain_errors(self, errors: Iterable[ValidationError], root: Any) -> Iterator[Reason]:
        for error in errors:
            path = [str(step) for step in error.instance_path]
            kind: Any = error.kind
            if type(kind).__name__ in ("AnyOf", "OneOfNotValid"):
                yield from self._explain_union_error(error, path, root)
            else:
                yield from ((".".join([*path, *inner]), reason) for inner, reason in self._explain_error(error, root))

    def _explain_error(self, error: ValidationError, root: Any) -> Iterator[tuple[list[str], str]]:
        """The reasons of one error, with their places below its own."""
        kind: Any = error.kind
        value: Any = error.instance
        name, keyword = kind.name, str(error.schema_path[-1]) if error.schema_path else ""
        if name == "propertyNames":
            yield from (([key], "invalid property name") for key in codec.decode(kind.message))
        elif name == "required":
            wanted = _find_value(self.schema, error.schema_path)
            others = wanted.items() if isinstance(wanted, dict) else ()
            keys = [key for key, names in others if key in value and kind.property in names]
            yield [kind.property], f"required when {keys[0]} is present" if keys else "missing"
        elif name == "additionalProperties":
            yield from (([key], "unknown field") for key in kind.unexpected)
        elif name == "falseSchema" and keyword == "additionalProperties":
            # Nothing is allowed at all; the error does not name the key.
            yield from (([key], "unknown field") for key in _find_value(root, error.instance_path))
        elif name == "falseSchema" and keyword == "items":
            yield [], "unexpected item"
        elif name == "additionalItems":
            yield from (([str(index)], "unexpected item") for index in range(kind.limit, len(value)))
        else:
            word = _REASONS.get(type(kind).__name__) or _REASONS.get(name)
            yield [], word(kind, value) if word else error.message[:LONGEST_REASON]

    def _explain_union_error(self, error: ValidationError, path: list[str], root: Any) -> Iterator[Reason]:
        """By the property that distinguishes the branches, else by the branch that is nearest to the value."""
        kind: Any = error.kind
        value: Any = error.instance
        place = ".".join(path)
        followed = [self.resolve_schema(branch) for branch in _find_value(self.schema, error.schema_path)]
        found = [(form, errors) for form, errors in zip(followed, kind.context, strict=True) if isinstance(form, dict)]
        found = [(form, errors) for form, errors in found if _is_of_type(value, form)]
        if not found:
            types = [types_of(form) if isinstance(form, dict) else [] for form in followed]
            names = dict.fromkeys(name for listed in types for name in listed)
            yield place, explain_wrong_type(list(names), value) if all(types) else NO_ALTERNATIVE
            return
        tag = _find_discriminator([form for form, _ in found]) if isinstance(value, dict) else None
        if tag is not None:
            key, values = tag
            if key not in value or not any(is_same_json(value[key], listed) for listed in values):
                yield ".".join([*path, key]), explain_unlisted_value(values)
                return
            found = [one for one in found if value[key] in fixed_values(one[0]["properties"][key])]
        found.sort(key=lambda one: -_count_known_keys(value, one[0]))
        reasons = [list(self._explain_errors(errors, root)) for _, errors in found]
        yield from min(filter(None, reasons), key=len, default=[(place, NO_ALTERNATIVE)])

    def _count_applications(self, part: Any, value: Any, known: dict[tuple[int, int], int]) -> int:
        """How often a schema is applied to a value to find all of its errors."""
        if not isinstance(part, dict):
            return 1
        pair = (id(part), id(value))
        if pair not in known:
            known[pair] = 0  # ends circles
            applied = [*self._schemas_for_value(part, value), *_schemas_for_children(part, value)]
            known[pair] = 1 + sum(self._count_applications(inner, item, known) for inner, item in applied)
        return known[pair]

    def _schemas_for_value(self, part: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
        yield from ((inner, value) for inner in part.get("allOf", []))
        for branches in (part[key] for key in ("anyOf", "oneOf") if key in part):
            if not any(self.is_valid(value, branch) for branch in branches):
                yield from ((branch, value) for branch in branches)
        yield from ((part[key], value) for key in ("then", "else") if key in part)
        for key in ("dependentSchemas", "dependencies"):
            yield from ((inner, value) for inner in part.get(key, {}).values())
        if is_local(part.get("$ref")):
            yield resolve_reference(self.schema, part["$ref"]), value


def _schemas_for_children(part: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
    """Each child of a value with the schemas that a part of a schema may apply to it."""
    if isinstance(value, dict):
        named, rest = part.get("properties", {}), [*part.get("patternProperties", {}).values()]
        rest += [part[key] for key in ("additionalProperties", "unevaluatedProperties") if key in part]
        for key, item in value.items():
            yield from ((inner, item) for inner in ([named[key], *rest] if key in named else rest))
    elif isinstance(value, list):
        first, rest = part.get("prefixItems", []), [part[key] for key in ("items", "unevaluatedItems") if key in part]
        if isinstance(part.get("items"), list):
            first, rest = part["items"], [part.get("additionalItems", True)]
        for index, item in enumerate(value):
            yield from ((inner, item) for inner in (first[index : index + 1] or rest))


def check_keywords(schema: Schema) -> None:
    """Raise `BrokenSchema` if a keyword does not have the form that its draft requires, except for references and
    patterns."""
    from jsonschema_rs import ReferencingError, ValidationError, meta

    try:
        meta.validate({**schema, "$schema": draft_of(schema)})
    except ValidationError as error:
        raise BrokenSchema([str(step) for step in error.instance_path], error.message) from None
    except (ReferencingError, ValueError) as error:
        raise BrokenSchema([], str(error)) from None


def check_patterns(schema: Schema) -> None:
    """Raises `BrokenSchema` for a pattern that could not be searched for later, and `CheckTooLong` for too many."""
    searches = PatternSearches()
    for pointer, part in _schemas_by_pointer(schema):
        if not isinstance(part, dict):
            continue
        patterns = [(["patternProperties", name], name) for name in part.get("patternProperties", {})]
        patterns += [([key], part[key]) for key in ("pattern",) if key in part]
        for path, pattern in patterns:
            if not searches.is_readable(pattern):
                above = [unescape_step(step) for step in pointer.split("/")[1:]]
                raise BrokenSchema([*above, *path], f"{pattern} is no pattern of ECMA-262")
            searches.raise_if_slow()


class _Steps:
    """Counts the steps of a walk through a value, which are limited by its size."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._values = 0
        self._done = 0

    def count_values(self) -> int:
        """The number of values in the value, including itself."""
        if not self._values:
            self._values = sum(1 for _ in _values_in(self._value))
        return self._values

    @property
    def limit(self) -> int:
        return FREE_STEPS + STEPS_PER_VALUE * self.count_values()

    def count_step(self) -> None:
        """Raise `CheckTooLong` if there were too many steps."""
        self._done += 1
        if self._done > self.limit:
            raise CheckTooLong("the schema has too many ways to read them")


def _make_names_keyword(parts: Callable[[], ValidatorMap]) -> type:
    """`propertyNames` with one error for all names: each error of the library has a copy of the whole object."""

    class PropertyNames:
        def __init__(self, _: Schema, __: Any, path: list[str | int]) -> None:
            self._pointer = pointer_of(path)

        def validate(self, value: Any) -> None:
            check = parts()[self._pointer]
            wrong = [name for name in value if not check.is_valid(name)] if isinstance(value, dict) else []
            if wrong:
                raise ValueError(codec.encode(wrong).decode())

    return PropertyNames


def _make_text_keyword(expected: str, is_fitting: Callable[[str, Any], bool]) -> type:
    class TextKeyword:
        def __init__(self, _: Schema, wanted: Any, __: list[str | int]) -> None:
            self._wanted = wanted

        def validate(self, value: Any) -> None:
            if isinstance(value, str) and not is_fitting(value, self._wanted):
                raise ValueError(f"expected {expected} {self._wanted}")

    return TextKeyword


def has_format(text: str, name: str, exact: bool = False) -> bool:
    """Whether a text has the form that a schema names, and with `exact` exists; true for names that are not known."""
    form = _FORMATS.get(name)
    if form is None or re.fullmatch(form, text) is None:
        return form is None
    if not exact:
        return True
    import datetime
    import uuid

    readers: dict[str, Callable[[str], Any]] = {
        "date": datetime.date.fromisoformat,
        "time": datetime.time.fromisoformat,
        "date-time": datetime.datetime.fromisoformat,
        "uuid": uuid.UUID,
    }
    try:
        return name not in readers or readers[name](text) is not None
    except ValueError:
        return False


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: true is not 1, even inside a list or an object."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def is_of_kind(value: Any, name: str) -> bool:
    """Whether a value has a type named by JSON Schema; False for an unknown type."""
    return name in _KINDS and _KINDS[name](value)


def kind_of(value: Any) -> str:
    """The type of a value in JSON Schema."""
    return next((name for name, is_kind in _KINDS.items() if is_kind(value)), "unknown")


def types_of(schema: Schema) -> list[str]:
    """The allowed types of a schema; empty if it allows all."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared]
    return list(declared) if isinstance(declared, list) else []


def fixed_values(schema: Any) -> list[Any]:
    """The allowed values of a schema, if it lists them."""
    if not isinstance(schema, dict):
        return []
    return [schema["const"]] if "const" in schema else list(schema.get("enum", []))


def explain_wrong_type(types: Iterable[str], value: Any) -> str:
    """The error text for a value of the wrong type."""
    return f"expected {' or '.join(types)}, got {kind_of(value)}"


def explain_unlisted_value(values: list[Any]) -> str:
    """The error text for a value that is not listed: the listed values, or the first of many."""
    listed = ",".join(codec.encode(value).decode() for value in values[:MOST_VALUES])
    more = len(values) - MOST_VALUES
    return f"expected one of [{listed}{f', ... and {more} more' if more > 0 else ''}]"


def is_local(reference: Any) -> bool:
    """Whether a reference points into the same schema."""
    return reference == "#" or (isinstance(reference, str) and reference.startswith("#/"))


def resolve_reference(root: Schema, reference: str) -> Any:
    """The target of a local reference; raises `LookupError`, `ValueError` or `TypeError` if there is none."""
    return _find_value(root, [unescape_step(step) for step in reference.split("/")[1:]])


def _target_of(root: Schema, reference: str) -> Any:
    with contextlib.suppress(LookupError, ValueError, TypeError):
        return resolve_reference(root, reference)
    return None


def unescape_step(step: str) -> str:
    """The key for a step of a reference."""
    from urllib.parse import unquote

    return unquote(step).replace("~1", "/").replace("~0", "~")


def pointer_of(path: Iterable[str | int]) -> str:
    """A place in a schema in the library's notation."""
    return "#" + "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def schemas_in(schema: Any) -> Iterator[Any]:
    """The schema and every schema in it."""
    return (part for _, part in _schemas_by_pointer(schema))


def draft_of(schema: Schema) -> str:
    """The version of the standard: the named one, else the newest in which all keywords have a valid form."""
    named = schema.get("$schema")
    if isinstance(named, str) and named.removesuffix("#") in DRAFTS:
        return named.removesuffix("#")
    draft = NEWEST_DRAFT
    for part in schemas_in(schema):
        if isinstance(part, dict):
            if isinstance(part.get("exclusiveMinimum"), bool) or isinstance(part.get("exclusiveMaximum"), bool):
                return "http://json-schema.org/draft-04/schema"
            if "dependencies" in part or isinstance(part.get("items"), list):
                draft = "http://json-schema.org/draft-07/schema"
    return draft


def _relax_schema(schema: Schema) -> None:
    """Replace `oneOf` by `anyOf`, and separate references from the keywords beside them, which old drafts ignore."""
    parts = [part for part in schemas_in(schema) if isinstance(part, dict)]
    is_old = any(draft in schema["$schema"] for draft in _NO_SIBLINGS)
    for part in parts:
        if is_old and isinstance(part.get("$ref"), str) and part.keys() - _REMARKS > {"$ref"}:
            others = part.get("allOf", [])
            part["allOf"] = [*(others if isinstance(others, list) else []), {"$ref": part.pop("$ref")}]
    if any("/oneOf/" in str(part.get("$ref")) for part in parts):
        return
    for part in parts:
        if isinstance(part.get("oneOf"), list):
            branches = part.pop("oneOf")
            if "anyOf" not in part:
                part["anyOf"] = branches
            else:
                others = part.get("allOf", [])
                part["allOf"] = [*(others if isinstance(others, list) else []), {"anyOf": branches}]


def _spell_out_names(schema: Schema, value: Any, searches: PatternSearches) -> None:
    """Make the patterns for names match the names in the value that they match now, without a search."""
    parts = [part for part in schemas_in(schema) if isinstance(part, dict)]
    patterned = [part for part in parts if isinstance(part.get("patternProperties"), dict)]
    if not patterned:
        return
    from urllib.parse import quote

    names = {name for item in _values_in(value) if isinstance(item, dict) for name in item}
    references = [(part, _target_of(schema, part["$ref"])) for part in parts if is_local(part.get("$ref"))]
    for part in patterned:
        entries = enumerate(part["patternProperties"].items())
        spelt = {searches.spell_out(pattern, names, number): inner for number, (pattern, inner) in entries}
        part["patternProperties"] = spelt
    pointers = {id(part): pointer for pointer, part in _schemas_by_pointer(schema)}
    for part, target in references:
        if "/patternProperties/" in part["$ref"] and id(target) in pointers:
            part["$ref"] = "#" + quote(pointers[id(target)][1:])


def _schemas_by_pointer(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schema and every schema in it, by their places in the library's notation."""
    waiting: list[tuple[str, Any]] = [("#", schema)]
    while waiting:
        pointer, part = waiting.pop()
        yield pointer, part
        if isinstance(part, list):
            waiting.extend((f"{pointer}/{number}", inner) for number, inner in enumerate(part))
        elif isinstance(part, dict):
            for key, inner in part.items():
                place = pointer + pointer_of([key])[1:]
                if key in _MAPS and isinstance(inner, dict):
                    waiting.extend((place + pointer_of([name])[1:], one) for name, one in inner.items())
                elif key not in _VALUES:
                    waiting.append((place, inner))


def _find_value(value: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        value = value[int(step) if isinstance(value, list) else step]
    return value


def _remove_value(schema: Any, path: list[str | int]) -> None:
    del _find_value(schema, path[:-1])[path[-1]]


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _is_of_type(value: Any, schema: Schema) -> bool:
    types = types_of(schema)
    return not types or any(is_of_kind(value, name) for name in types)


def _count_known_keys(value: Any, schema: Schema) -> int:
    return len(value.keys() & schema.get("properties", {}).keys()) if isinstance(value, dict) else 0


def _find_discriminator(forms: list[Schema]) -> tuple[str, list[Any]] | None:
    """The required property that distinguishes several forms, with its values in all of them."""
    if len(forms) < 2:
        return None
    for key in forms[0].get("required", []):
        values = [fixed_values(form.get("properties", {}).get(key)) for form in forms]
        if all(values) and all(key in form.get("required", []) for form in forms):
            return key, [value for listed in values for value in listed]
    return None


def _values_in(value: Any) -> Iterator[Any]:
    """The value and every value in it."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
