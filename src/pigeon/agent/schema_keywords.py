"""The keywords of JSON Schema that `agent/arguments` does not know, checked by the `jsonschema` library.

Only a schema that has such a keyword gets here, so the library, which takes a tenth of a second to import, is not
needed for the built-in tools. Three things are done otherwise than the library does them: regular expressions are
searched with a limit on time, nothing is ever fetched to resolve a reference, and `oneOf` is satisfied by more than one
branch, as it is in `agent/arguments`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from pigeon.system.expressions import Expression

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
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_VALUES = ("enum", "const", "default", "examples")
_REASONS: dict[str, Callable[[Any], str]] = {
    "exclusiveMinimum": lambda limit: f"must be more than {limit}",
    "exclusiveMaximum": lambda limit: f"must be less than {limit}",
    "multipleOf": lambda step: f"must be a multiple of {step}",
    "uniqueItems": lambda _: "must not have the same item twice",
    "minProperties": lambda limit: f"must have at least {limit} properties",
    "maxProperties": lambda limit: f"must have at most {limit} properties",
    "not": lambda _: "must not have the form that the schema excludes",
    "contains": lambda _: "must have an item of the form that the schema asks for",
}


def needs_library(schema: Any) -> bool:
    """Whether a schema says something that only the library checks."""
    objects = (part for part in _parts(schema) if isinstance(part, dict))
    return any(KEYWORDS & part.keys() or not is_local(part.get("$ref", "#")) for part in objects)


def library_errors(value: Any, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where the value does not fit, and why; raises whatever the library raises on a schema that is none."""
    from jsonschema.validators import extend
    from referencing import Registry

    validator = extend(_draft(schema), _own_checks(schema))(schema, registry=Registry())
    for error in validator.iter_errors(value):
        path = ".".join(str(part) for part in error.absolute_path)
        reason = _REASONS.get(error.validator)
        yield path, reason(error.validator_value) if reason else error.message[:LONGEST_REASON]


class SchemaPattern:
    """The pattern of a schema. One that cannot be understood or once took too long refuses nothing."""

    def __init__(self, text: str) -> None:
        self._expression: Expression | None = None
        with contextlib.suppress(ValueError):
            self._expression = Expression(text)

    def fits(self, text: str) -> bool:
        """False if the text certainly does not match."""
        try:
            return self._expression is None or self._expression.search(text) is not None
        except TimeoutError:
            self._expression = None
            return True


@lru_cache(maxsize=256)
def pattern_of(text: str) -> SchemaPattern:
    """The same object for the same pattern, so that a slow one is tried once."""
    return SchemaPattern(text)


def matches(pattern: Any, text: str) -> bool:
    """Whether a text fits a pattern of a schema."""
    return not isinstance(pattern, str) or pattern_of(pattern).fits(text)


def is_local(reference: Any) -> bool:
    """True for a place in the same schema, which `agent/arguments` follows itself."""
    return reference == "#" or (isinstance(reference, str) and reference.startswith("#/"))


def _parts(schema: Any) -> Iterator[Any]:
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


def _draft(schema: dict[str, Any]) -> Any:
    """The version of the standard: the one it names, else the newest in which its keywords have the form they have."""
    from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
    from jsonschema.validators import validator_for

    newest: Any = Draft202012Validator
    for part in _parts(schema):
        if isinstance(part, dict):
            if isinstance(part.get("exclusiveMinimum"), bool) or isinstance(part.get("exclusiveMaximum"), bool):
                newest = Draft4Validator
                break
            if "dependencies" in part or isinstance(part.get("items"), list):
                newest = Draft7Validator
    return validator_for(schema, default=newest)


def _own_checks(root: Any) -> dict[str, Callable[..., Iterator[Any]]]:
    checks: dict[str, Callable[..., Iterator[Any]]] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "oneOf": _one_of,
    }
    if any(isinstance(part, dict) and "patternProperties" in part for part in _parts(root)):
        # The library would search the patterns for this one without a limit on time.
        checks["unevaluatedProperties"] = lambda *_: iter(())
    return checks


def _error(text: str, *path: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(text, path=path)


def _pattern(_: Any, wanted: Any, value: Any, __: Any) -> Iterator[Any]:
    if isinstance(value, str) and not matches(wanted, value):
        yield _error(f"must match {wanted}")


def _pattern_properties(validator: Any, patterns: Any, value: Any, _: Any) -> Iterator[Any]:
    for wanted, inner in patterns.items() if isinstance(value, dict) else ():
        for key in value:
            if matches(wanted, key):
                yield from validator.descend(value[key], inner, path=key, schema_path=wanted)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Any]:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key in value if isinstance(value, dict) else ():
        if key in known or any(matches(wanted, key) for wanted in patterns):
            continue
        if allowed is False:
            yield _error("is not an allowed property", key)
        elif isinstance(allowed, dict):
            yield from validator.descend(value[key], allowed, path=key)


def _unique_items(_: Any, wanted: Any, value: Any, __: Any) -> Iterator[Any]:
    """The library compares each item with each other, which takes minutes for some thousand objects."""
    if wanted and isinstance(value, list):
        import json

        different = {json.dumps(item, sort_keys=True) for item in value}
        if len(different) < len(value):
            yield _error("same item twice")


def _one_of(validator: Any, branches: Any, value: Any, _: Any) -> Iterator[Any]:
    if all(next(iter(validator.descend(value, branch)), None) is not None for branch in branches):
        yield _error("must match one of the allowed forms")
