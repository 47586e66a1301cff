"""The keywords of JSON Schema that `agent/arguments` does not know, checked by the `jsonschema` library.

Only a schema that has such a keyword gets here, so the library, which takes a tenth of a second to import, is not
needed for the built-in tools. Three things are done otherwise than the library does them: regular expressions are
searched with a limit on time, nothing is ever fetched to resolve a reference, and `oneOf` is satisfied by more than one
branch, as it is in `agent/arguments`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from pigeon.system.expressions import Expression
from pigeon.wire import codec

# fmt: off
KEYWORDS = frozenset(
    {
        "not", "if", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "patternProperties", "propertyNames",
        "dependentRequired", "dependentSchemas", "dependencies", "contains", "prefixItems", "additionalItems",
        "uniqueItems", "minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
        "$recursiveRef",
    }
)
# fmt: on
LONGEST_REASON = 200
LONGEST_PATTERN = 10_000
MOST_COMPILED = 2 * LONGEST_PATTERN  # characters of patterns that one check compiles: about a tenth of a second
SEARCH_SECONDS = 0.1
LEAST_SECONDS = 0.001
FREE_STEPS = 30_000
STEPS_PER_VALUE = 20
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_VALUES = ("enum", "const", "default", "examples")
MOST_VALUES = 20
NO_ALTERNATIVE = "matches no alternative"
CHECKS: dict[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "integer": lambda v: (isinstance(v, int) or (isinstance(v, float) and v.is_integer())) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}
_KINDS = ("null", "boolean", "string", "array", "object", "integer", "number")
# Formats that are checked, all of them generously; others are taken as remarks for the reader.
_FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:?\d\d)?",
    "date-time": r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:?\d\d)?",
    "email": r"[^@\s]+@[^@\s]+",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:\S+",
    "url": r"[A-Za-z][A-Za-z0-9+.-]*:\S+",
    "ipv4": r"(?:\d{1,3}\.){3}\d{1,3}",
    "ipv6": r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%\S+)?",
    "uuid": r"(?i:(?:urn:uuid:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
}
# What is wrong with a value, by the keyword, its value in the schema, and the value. Others say it by themselves.
_REASONS: dict[str, Callable[[Any, Any], str]] = {
    "type": lambda types, value: expected_type([types] if isinstance(types, str) else types, value),
    "enum": lambda values, _: one_of(values),
    "const": lambda wanted, _: f"expected {codec.encode(wanted).decode()}",
    "minimum": lambda limit, _: f"expected >= {limit}",
    "maximum": lambda limit, _: f"expected <= {limit}",
    "exclusiveMinimum": lambda limit, _: f"expected > {limit}",
    "exclusiveMaximum": lambda limit, _: f"expected < {limit}",
    "multipleOf": lambda step, _: f"expected a multiple of {step}",
    "minLength": lambda limit, _: f"expected at least {limit} characters",
    "maxLength": lambda limit, _: f"expected at most {limit} characters",
    "minItems": lambda limit, _: f"expected at least {limit} items",
    "maxItems": lambda limit, _: f"expected at most {limit} items",
    "minProperties": lambda limit, _: f"expected at least {limit} properties",
    "maxProperties": lambda limit, _: f"expected at most {limit} properties",
    "uniqueItems": lambda *_: "expected unique items",
    "not": lambda *_: "must not match the schema in not",
    "contains": lambda *_: "expected an item that matches the schema in contains",
}


def needs_library(schema: Any) -> bool:
    """Whether a schema says something that only the library checks."""
    objects = (part for part in schemas_in(schema) if isinstance(part, dict))
    return any(KEYWORDS & part.keys() or not is_local(part.get("$ref", "#")) for part in objects)


def library_errors(
    value: Any, schema: dict[str, Any], budget: CheckBudget, *, exact: bool = False
) -> Iterator[tuple[str, str]]:
    """Where the value does not fit, and why; raises `CheckTooLong`, and what the library raises on a broken schema.

    With `exact`, `oneOf` means one and no more, and the formats of dates, times and UUIDs are checked as well.
    """
    from jsonschema.validators import extend
    from referencing import Registry

    draft = draft_of(schema)
    checks = {**draft.VALIDATORS, **_own_checks(schema, budget)}
    if exact:
        checks.update(oneOf=draft.VALIDATORS.get("oneOf", _one_of), format=_format)
    counted = {name: _counted(check, budget) for name, check in checks.items()}
    validator = extend(draft, counted)(schema, registry=Registry())
    for error in validator.iter_errors(value):
        path = [str(part) for part in error.absolute_path]
        for inner, reason in _reasons(error):
            yield ".".join([*path, *inner]), reason


def _reasons(error: Any) -> Iterator[tuple[list[str], str]]:
    """What an error of the library says, and where below its place."""
    keyword, wanted, value = error.validator, error.validator_value, error.instance
    if "propertyNames" in error.absolute_schema_path:
        yield [str(value)], "invalid property name"
    elif keyword in ("items", "additionalItems") and isinstance(value, list):
        named = error.schema["items"] if keyword == "additionalItems" else error.schema.get("prefixItems", [])
        yield from (([str(index)], "unexpected item") for index in range(len(named), len(value)))
    elif keyword == "required":
        yield from (([key], "missing") for key in wanted if key not in value)
    elif keyword in ("dependentRequired", "dependencies") and error.context == []:
        for key, others in wanted.items():
            for other in others if key in value and isinstance(others, list) else ():
                if other not in value:
                    yield [other], f"required when {key} is present"
    else:
        reason = _REASONS.get(keyword)
        yield [], reason(wanted, value) if reason else error.message[:LONGEST_REASON]


def has_format(text: str, name: Any) -> bool:
    """Whether a text has the form that a schema names; true for names that are not known here."""
    form = _FORMATS.get(name) if isinstance(name, str) else None
    return form is None or re.fullmatch(form, text) is not None


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are one JSON: true is not 1, also inside a list or an object."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def kind_of(value: Any) -> str:
    """What JSON calls the type of a value."""
    return next((name for name in _KINDS if CHECKS[name](value)), "unknown")


def expected_type(types: list[str], value: Any) -> str:
    """What is said of a value of another type."""
    return f"expected {' or '.join(types)}, got {kind_of(value)}"


def one_of(values: list[Any]) -> str:
    """Which values are allowed, the first of them if there are many."""
    shown = ",".join(codec.encode(value).decode() for value in values[:MOST_VALUES])
    more = len(values) - MOST_VALUES
    return f"expected one of [{shown}{f', ... and {more} more' if more > 0 else ''}]"


class CheckTooLong(Exception):
    """The arguments cannot be checked in the time that a check may take; the text says why."""


class CheckBudget:
    """What one check of arguments may cost, so that no schema and no arguments hold up the process.

    A check walks through a schema and the arguments side by side. With references and alternatives in the schema that
    can take exponentially many steps, and a pattern can take for ever on a text that is made for it.
    """

    def __init__(self, arguments: Any) -> None:
        self._arguments = arguments
        self._steps = 0
        self._most_steps = FREE_STEPS
        self._seconds = SEARCH_SECONDS
        self._compiled = 0

    def step(self) -> None:
        """One more step of the walk; raises `CheckTooLong` if there were too many for arguments of this size."""
        self._steps += 1
        if self._steps > self._most_steps:
            if self._most_steps > FREE_STEPS:
                raise CheckTooLong("the schema has too many ways to read them")
            self._most_steps += STEPS_PER_VALUE * sum(1 for _ in _values(self._arguments))

    def matches(self, pattern: Any, text: str) -> bool:
        """Whether a text fits a pattern of a schema; one that is no pattern fits all; raises `CheckTooLong`."""
        if not isinstance(pattern, str):
            return True
        too_long = CheckTooLong(f"the pattern {pattern[:LONGEST_REASON]} takes too long")
        if len(pattern) > LONGEST_PATTERN:
            raise too_long
        known = pattern_of.cache_info().misses
        expression = pattern_of(pattern)
        self._compiled += len(pattern) if pattern_of.cache_info().misses > known else 0
        if self._compiled > MOST_COMPILED:
            raise too_long
        if expression is None:
            return True
        began = time.process_time()
        try:
            return expression.search(text, seconds=self._seconds) is not None
        except TimeoutError:
            raise too_long from None
        finally:
            self._seconds = max(self._seconds - (time.process_time() - began), LEAST_SECONDS)


@lru_cache(maxsize=256)
def pattern_of(text: str) -> Expression | None:
    """A pattern to search with; none if it cannot be understood."""
    with contextlib.suppress(ValueError):
        return Expression(text)
    return None


def _values(value: Any) -> Iterator[Any]:
    """The value and every value in it."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def is_local(reference: Any) -> bool:
    """True for a place in the same schema, which `agent/arguments` follows itself."""
    return reference == "#" or (isinstance(reference, str) and reference.startswith("#/"))


def schemas_in(schema: Any) -> Iterator[Any]:
    """The schema and every schema in it."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            for key, inner in part.items():
                if key in _MAPS and isinstance(inner, dict):
                    waiting.extend(inner.values())
                elif key not in _VALUES:
                    waiting.append(inner)


def draft_of(schema: dict[str, Any]) -> Any:
    """The version of the standard: the one it names, else the newest in which its keywords have the form they have."""
    from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
    from jsonschema.validators import validator_for

    newest: Any = Draft202012Validator
    for part in schemas_in(schema):
        if isinstance(part, dict):
            if isinstance(part.get("exclusiveMinimum"), bool) or isinstance(part.get("exclusiveMaximum"), bool):
                newest = Draft4Validator
                break
            if "dependencies" in part or isinstance(part.get("items"), list):
                newest = Draft7Validator
    return validator_for(schema, default=newest)


def _counted(check: Callable[..., Any], budget: CheckBudget) -> Callable[..., Iterator[Any]]:
    def counted(*given: Any) -> Iterator[Any]:
        budget.step()
        yield from check(*given) or ()

    return counted


def _own_checks(root: Any, budget: CheckBudget) -> dict[str, Callable[..., Iterator[Any]]]:
    checks: dict[str, Callable[..., Iterator[Any]]] = {
        "pattern": partial(_pattern, budget),
        "patternProperties": partial(_pattern_properties, budget),
        "additionalProperties": partial(_additional_properties, budget),
        "uniqueItems": _unique_items,
        "oneOf": _one_of,
    }
    if any(isinstance(part, dict) and "patternProperties" in part for part in schemas_in(root)):
        # The library would search the patterns for this one without a limit on time.
        checks["unevaluatedProperties"] = lambda *_: iter(())
    return checks


def _error(text: str, *path: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(text, path=path)


def _pattern(budget: CheckBudget, _: Any, wanted: Any, value: Any, __: Any) -> Iterator[Any]:
    if isinstance(value, str) and not budget.matches(wanted, value):
        yield _error(f"expected to match {wanted}")


def _pattern_properties(budget: CheckBudget, validator: Any, patterns: Any, value: Any, _: Any) -> Iterator[Any]:
    for wanted, inner in patterns.items() if isinstance(value, dict) else ():
        for key in value:
            if budget.matches(wanted, key):
                yield from validator.descend(value[key], inner, path=key, schema_path=wanted)


def _additional_properties(budget: CheckBudget, validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Any]:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key in value if isinstance(value, dict) else ():
        if key in known or any(budget.matches(wanted, key) for wanted in patterns):
            continue
        if allowed is False:
            yield _error("unknown field", key)
        elif isinstance(allowed, dict):
            yield from validator.descend(value[key], allowed, path=key)


def _format(_: Any, wanted: Any, value: Any, __: Any) -> Iterator[Any]:
    if isinstance(value, str) and not (has_format(value, wanted) and _is_readable(value, wanted)):
        yield _error(f"expected format {wanted}")


def _is_readable(text: str, name: Any) -> bool:
    """Whether a date, a time or a UUID exists, and does not only look like one."""
    import datetime
    import uuid

    readers: dict[Any, Callable[[str], Any]] = {
        "date": datetime.date.fromisoformat,
        "time": datetime.time.fromisoformat,
        "date-time": datetime.datetime.fromisoformat,
        "uuid": uuid.UUID,
    }
    try:
        return name not in readers or readers[name](text) is not None
    except ValueError:
        return False


def _unique_items(_: Any, wanted: Any, value: Any, __: Any) -> Iterator[Any]:
    """The library compares each item with each other, which takes minutes for some thousand objects."""
    if wanted and isinstance(value, list):
        import json

        different = {json.dumps(item, sort_keys=True) for item in value}
        if len(different) < len(value):
            yield _error("same item twice")


def _one_of(validator: Any, branches: Any, value: Any, _: Any) -> Iterator[Any]:
    if all(next(iter(validator.descend(value, branch)), None) is not None for branch in branches):
        yield _error(NO_ALTERNATIVE)
