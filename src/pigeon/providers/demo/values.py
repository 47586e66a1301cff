"""The demo model's answers for programs: a value that fits a JSON Schema, built from the conversation.

Lists of texts are the files of the last listing that the question names, numbers count them, other texts are of the
question. Where the schema wants something special (a format, limits) a plain value of that form is made up; for a
pattern, its examples and plain texts are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from pigeon.wire.base import Json

MOST_ITEMS = 1_000
MOST_REPEATS = 64
_LISTED_DEPTH = 2  # how deep lists have items and objects have optional members: a recursive schema ends there
_FORMATS = {
    "date": "2000-01-01",
    "time": "12:00:00Z",
    "date-time": "2000-01-01T12:00:00Z",
    "duration": "PT1H",
    "email": "demo@example.com",
    "hostname": "example.com",
    "uri": "https://example.com/",
    "uri-reference": "/",
    "url": "https://example.com/",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "regex": ".*",
    "json-pointer": "/a",
    "byte": "",
    "decimal": "0",
}
_FILLERS = frozenset(
    re.findall(
        r"\w+",
        "a about all an and answer any are as by can count directory do each every file files find folder for from "
        "give had has have here how i in is it its list many me must my name names number of on or only our please "
        "show tell that the their them then there these they this those to was we were what which who with you your",
    )
)
_ENDINGS = {
    "python": ".py",
    "markdown": ".md",
    "text": ".txt",
    "javascript": ".js",
    "typescript": ".ts",
    "shell": ".sh",
}


class Known(Struct, frozen=True):
    """What an answer is built from: the question, and the files of the last listing that it names."""

    question: str
    names: list[str]


def select_relevant_files(question: str, listed: list[str]) -> Known:
    """The question, and those files that match its words; all of them if it has no words about files."""
    words = [word for word in re.findall(r"[a-z0-9_.*-]+", question.lower().rstrip("?.! ")) if word not in _FILLERS]
    wanted = [_ENDINGS.get(word, word.lstrip("*").removesuffix("s") or word) for word in words]
    names = [name for name in listed if any(word in name.lower() for word in wanted)] if wanted else listed
    return Known(question, names)


def build_matching_value(schema: Any, known: Known) -> Json:
    """A value that fits the schema, as far as one can be found by building it."""
    return _build_value(schema, known, 0)


def _build_value(schema: Any, known: Known, depth: int) -> Json:
    if not isinstance(schema, dict):
        return known.names if schema is True else None
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return next((value for value in schema["enum"] if _is_valid(value, schema)), schema["enum"][0])
    first: list[Json] = []
    for value in _candidates(schema, known, depth):
        if _is_valid(value, schema):
            return value
        first = first or [value]
    return first[0] if first else None


def _candidates(schema: dict[str, Any], known: Known, depth: int) -> Iterator[Json]:
    """Values that may fit, the most meaningful one first."""
    if "$ref" in schema:
        yield None  # a reference that was cut off: nothing is known about it
    base = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "allOf", "not", "if")}
    for part in schema.get("allOf", []):
        base = _merge_schemas(base, part)
    variants = [part for key in ("anyOf", "oneOf") for part in schema.get(key, [])]
    if depth >= _LISTED_DEPTH:
        variants.sort(key=lambda part: not (isinstance(part, dict) and part.get("type") == "null"))
    for part in variants:
        yield _build_value(_merge_schemas(base, part), known, depth)
    if not variants and base.keys() != schema.keys() and ({"anyOf", "oneOf", "allOf"} & schema.keys()):
        yield _build_value(base, known, depth)
    for kind in _guess_types(base):
        yield from _candidates_of_type(kind, base, known, depth)


def _merge_schemas(one: dict[str, Any], other: Any) -> dict[str, Any]:
    if not isinstance(other, dict):
        return one
    out = {**one, **other}
    if "properties" in one and "properties" in other:
        out["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        out["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return out


def _guess_types(schema: dict[str, Any]) -> list[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list) and named:
        return named
    hints = {"object": ("properties", "required", "minProperties"), "array": ("items", "minItems", "prefixItems")}
    hints |= {"number": ("minimum", "maximum", "multipleOf"), "string": ("pattern", "minLength", "format")}
    likely = [kind for kind, keys in hints.items() if any(key in schema for key in keys)]
    return [*likely, "string", "null", "object", "array", "integer", "boolean"]


def _candidates_of_type(kind: str, schema: dict[str, Any], known: Known, depth: int) -> Iterator[Json]:
    if kind == "object":
        if depth < _LISTED_DEPTH:
            yield _build_object(schema, known, depth, with_optional=True)
        yield _build_object(schema, known, depth, with_optional=False)
    elif kind == "array":
        yield _build_array(schema, known, depth)
    elif kind == "string":
        yield from _candidate_texts(schema, known)
    elif kind in ("integer", "number"):
        yield _build_number(schema, len(known.names), kind)
    elif kind == "boolean":
        yield from (bool(known.names), not known.names)
    else:
        yield None


def _build_object(schema: dict[str, Any], known: Known, depth: int, with_optional: bool) -> dict[str, Json]:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    more = schema.get("additionalProperties", {})
    wanted = [name for name in properties if name in required or with_optional]
    out = {name: _build_value(properties[name], known, depth + 1) for name in wanted if properties[name] is not False}
    patterns = schema.get("patternProperties", {})
    for name in required:
        if name not in out:
            named = next((part for pattern, part in patterns.items() if re.search(pattern, name)), more)
            out[name] = _build_value(named, known, depth + 1)
    if more is not False and "additionalProperties" in schema and with_optional and not properties:
        for name in known.names:
            out.setdefault(name, _build_value(more, Known(known.question, [name]), depth + 1))
    for number in range(int(schema.get("minProperties", 0))):
        if len(out) >= schema["minProperties"]:
            break
        out.setdefault(f"key{number + 1}", _build_value(more, known, depth + 1))
    return dict(list(out.items())[: int(schema.get("maxProperties", MOST_ITEMS))])


def _build_array(schema: dict[str, Any], known: Known, depth: int) -> list[Json]:
    first = [_build_value(part, known, depth + 1) for part in schema.get("prefixItems", [])]
    items = schema.get("items", schema.get("contains", True))
    least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", MOST_ITEMS))
    least = max(least, int("contains" in schema))
    if items is False:
        return first[:most]
    names = known.names if depth < _LISTED_DEPTH else []
    rest = [_build_value(items, Known(known.question, [name]), depth + 1) for name in names]
    if schema.get("uniqueItems"):
        rest = [value for at, value in enumerate(rest) if value not in rest[:at]]
    for number in range(len(first) + len(rest), min(least, MOST_ITEMS)):
        rest.append(_build_next_item(items, known, depth, number, [*first, *rest] if schema.get("uniqueItems") else []))
    return [*first, *rest][:most]


def _build_next_item(items: Any, known: Known, depth: int, number: int, beside: list[Json]) -> Json:
    """One more item, different from those beside it if counting can achieve that."""
    value = _build_value(items, known, depth + 1)
    if value not in beside:
        return value
    if isinstance(items, dict) and "enum" in items:
        return next((one for one in items["enum"] if one not in beside), value)
    if isinstance(value, str):
        return f"{value}{number}"
    return value + number if isinstance(value, int | float) and not isinstance(value, bool) else value


def _candidate_texts(schema: dict[str, Any], known: Known) -> Iterator[str]:
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    if "contentEncoding" in schema:
        yield ""
    if "format" in schema and schema["format"] in _FORMATS:
        yield _FORMATS[schema["format"]]
    if "pattern" in schema:
        yield from _candidates_for_pattern(schema)
    text = known.names[0] if len(known.names) == 1 else ", ".join(known.names) or known.question
    text = text + "." * (min(least, MOST_ITEMS) - len(text))
    yield text if most is None else text[: int(most)]


def _candidates_for_pattern(schema: dict[str, Any]) -> Iterator[str]:
    """Texts that a pattern may match; a pattern cannot be analysed by public means, so these are only tried."""
    yield from (text for text in schema.get("examples", []) if isinstance(text, str))
    yield schema["pattern"].removeprefix("^").removesuffix("$")
    for size in range(1, MOST_REPEATS + 1):
        yield from (char * size for char in "a0A")
    yield from _FORMATS.values()
    yield from ("0.0.0", "v0.0.0", "a-a", "a_a", "a.a")


def _build_number(schema: dict[str, Any], wanted: int, kind: str) -> Json:
    """The wanted number, or one near a limit."""
    step = schema.get("multipleOf", 1)
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    near = [wanted, *(limit // step * step + add for limit in (*lows, *highs, wanted) for add in (0, step, -step))]
    if kind == "number":
        near += [*lows, *highs, *((low + high) / 2 for low in lows for high in highs)]
    found = next((value for value in near if _is_valid(value, schema)), near[0])
    return int(found) if kind == "integer" else found


def _is_valid(value: Json, schema: dict[str, Any]) -> bool:
    """Whether a value fits; true for a schema that cannot be checked: then the run's own check decides."""
    from pigeon.agent.schema_check import BrokenSchema, SchemaCheck
    from pigeon.agent.schema_patterns import CheckTooLong

    try:
        return not SchemaCheck(schema, value, exact=True).find_errors(value)
    except (BrokenSchema, CheckTooLong):
        return True
