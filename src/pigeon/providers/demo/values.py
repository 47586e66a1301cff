"""The demo model's answers for programs: a value that fits a JSON Schema, made of what the conversation has shown.

Lists of texts are the files of the last listing that the question names, numbers count them, other texts are of the
question. Where the schema wants something special (a format, a pattern, limits) a plain value of that form is made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from pigeon.wire.base import Json

MOST_ITEMS = 1_000
MOST_REPEATS = 20
_LISTED_DEPTH = 2  # how deep lists have items and objects what may be left out: a recursive schema ends there
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
    """What an answer is made of: the question, and the files of the last listing that it names."""

    question: str
    names: list[str]


def known_of(question: str, listed: list[str]) -> Known:
    """The question, and those files that fit its words; all of them if it has no words about files."""
    words = [word for word in re.findall(r"[a-z0-9_.*-]+", question.lower().rstrip("?.! ")) if word not in _FILLERS]
    wanted = [_ENDINGS.get(word, word.lstrip("*").removesuffix("s") or word) for word in words]
    names = [name for name in listed if any(word in name.lower() for word in wanted)] if wanted else listed
    return Known(question, names)


def value_for(schema: Any, known: Known) -> Json:
    """A value that fits the schema, as far as one can be found by building it."""
    return _value(schema, known, 0)


def _value(schema: Any, known: Known, depth: int) -> Json:
    if not isinstance(schema, dict):
        return known.names if schema is True else None
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return next((value for value in schema["enum"] if _fits(value, schema)), schema["enum"][0])
    first: list[Json] = []
    for value in _candidates(schema, known, depth):
        if _fits(value, schema):
            return value
        first = first or [value]
    return first[0] if first else None


def _candidates(schema: dict[str, Any], known: Known, depth: int) -> Iterator[Json]:
    """Values that may fit, the most telling one first."""
    if "$ref" in schema:
        yield None  # a reference that was cut: nothing is known of it
    base = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "allOf", "not", "if")}
    for part in schema.get("allOf", []):
        base = _merged(base, part)
    variants = [part for key in ("anyOf", "oneOf") for part in schema.get(key, [])]
    if depth >= _LISTED_DEPTH:
        variants.sort(key=lambda part: not (isinstance(part, dict) and part.get("type") == "null"))
    for part in variants:
        yield _value(_merged(base, part), known, depth)
    if not variants and base.keys() != schema.keys() and ({"anyOf", "oneOf", "allOf"} & schema.keys()):
        yield _value(base, known, depth)
    for kind in _kinds(base):
        yield from _of_kind(kind, base, known, depth)


def _merged(one: dict[str, Any], other: Any) -> dict[str, Any]:
    if not isinstance(other, dict):
        return one
    out = {**one, **other}
    if "properties" in one and "properties" in other:
        out["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        out["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return out


def _kinds(schema: dict[str, Any]) -> list[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list) and named:
        return named
    hints = {"object": ("properties", "required", "minProperties"), "array": ("items", "minItems", "prefixItems")}
    hints |= {"number": ("minimum", "maximum", "multipleOf"), "string": ("pattern", "minLength", "format")}
    likely = [kind for kind, keys in hints.items() if any(key in schema for key in keys)]
    return [*likely, "string", "null", "object", "array", "integer", "boolean"]


def _of_kind(kind: str, schema: dict[str, Any], known: Known, depth: int) -> Iterator[Json]:
    if kind == "object":
        if depth < _LISTED_DEPTH:
            yield _object(schema, known, depth, with_optional=True)
        yield _object(schema, known, depth, with_optional=False)
    elif kind == "array":
        yield _array(schema, known, depth)
    elif kind == "string":
        yield from _texts(schema, known)
    elif kind in ("integer", "number"):
        yield _number(schema, len(known.names), kind)
    elif kind == "boolean":
        yield from (bool(known.names), not known.names)
    else:
        yield None


def _object(schema: dict[str, Any], known: Known, depth: int, with_optional: bool) -> dict[str, Json]:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    more = schema.get("additionalProperties", {})
    wanted = [name for name in properties if name in required or with_optional]
    out = {name: _value(properties[name], known, depth + 1) for name in wanted if properties[name] is not False}
    patterns = schema.get("patternProperties", {})
    for name in required:
        if name not in out:
            named = next((part for pattern, part in patterns.items() if re.search(pattern, name)), more)
            out[name] = _value(named, known, depth + 1)
    if more is not False and "additionalProperties" in schema and with_optional and not properties:
        for name in known.names:
            out.setdefault(name, _value(more, Known(known.question, [name]), depth + 1))
    for number in range(int(schema.get("minProperties", 0))):
        if len(out) >= schema["minProperties"]:
            break
        out.setdefault(f"key{number + 1}", _value(more, known, depth + 1))
    return dict(list(out.items())[: int(schema.get("maxProperties", MOST_ITEMS))])


def _array(schema: dict[str, Any], known: Known, depth: int) -> list[Json]:
    first = [_value(part, known, depth + 1) for part in schema.get("prefixItems", [])]
    items = schema.get("items", schema.get("contains", True))
    least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", MOST_ITEMS))
    least = max(least, int("contains" in schema))
    if items is False:
        return first[:most]
    names = known.names if depth < _LISTED_DEPTH else []
    rest = [_value(items, Known(known.question, [name]), depth + 1) for name in names]
    if schema.get("uniqueItems"):
        rest = [value for at, value in enumerate(rest) if value not in rest[:at]]
    for number in range(len(first) + len(rest), min(least, MOST_ITEMS)):
        rest.append(_another(items, known, depth, number, [*first, *rest] if schema.get("uniqueItems") else []))
    return [*first, *rest][:most]


def _another(items: Any, known: Known, depth: int, number: int, beside: list[Json]) -> Json:
    """One more item, another one than those beside it if that can be had by counting."""
    value = _value(items, known, depth + 1)
    if value not in beside:
        return value
    if isinstance(items, dict) and "enum" in items:
        return next((one for one in items["enum"] if one not in beside), value)
    if isinstance(value, str):
        return f"{value}{number}"
    return value + number if isinstance(value, int | float) and not isinstance(value, bool) else value


def _texts(schema: dict[str, Any], known: Known) -> Iterator[str]:
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    if "contentEncoding" in schema:
        yield ""
    if "format" in schema and schema["format"] in _FORMATS:
        yield _FORMATS[schema["format"]]
    if "pattern" in schema:
        yield from _matching(schema["pattern"], least)
    text = known.names[0] if len(known.names) == 1 else ", ".join(known.names) or known.question
    text = text + "." * (min(least, MOST_ITEMS) - len(text))
    yield text if most is None else text[: int(most)]


def _matching(pattern: str, least: int) -> Iterator[str]:
    """Texts that a regular expression without look-arounds and back references matches."""
    from re import _parser  # type: ignore[attr-defined]

    for repeats in (0, min(least, MOST_REPEATS)):
        try:
            yield "".join(_piece(part, repeats) for part in _parser.parse(pattern))
        except (re.error, NotImplementedError, OverflowError):
            return


def _piece(part: tuple[Any, Any], repeats: int) -> str:
    kind, given = str(part[0]), part[1]
    if kind == "LITERAL":
        return chr(given)
    if kind in ("ANY", "NOT_LITERAL"):
        return "b" if given == ord("a") else "a"
    if kind == "IN":
        return _member(given)
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        count: int = min(max(given[0], repeats), int(given[1]))
        return "".join(_piece(inner, 0) for inner in given[2]) * min(count, MOST_ITEMS)
    if kind == "SUBPATTERN":
        return "".join(_piece(inner, repeats) for inner in given[-1])
    if kind == "BRANCH":
        return "".join(_piece(inner, repeats) for inner in given[1][0])
    if kind == "AT":
        return ""
    raise NotImplementedError(kind)


def _member(members: list[tuple[Any, Any]]) -> str:
    """A character of a class."""
    kinds = {"CATEGORY_DIGIT": "0", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " ", "CATEGORY_NOT_SPACE": "a"}
    if str(members[0][0]) == "NEGATE":
        literals = {chr(given) for kind, given in members if str(kind) == "LITERAL"}
        ranges = [given for kind, given in members if str(kind) == "RANGE"]
        free = (char for char in "aA0_ é" if char not in literals)
        return next((char for char in free if not any(low <= ord(char) <= high for low, high in ranges)), "a")
    kind, given = str(members[0][0]), members[0][1]
    if kind == "LITERAL":
        return chr(given)
    return str(chr(given[0])) if kind == "RANGE" else kinds.get(str(given), "-")


def _number(schema: dict[str, Any], wanted: int, kind: str) -> Json:
    """The number that is wanted, or one near a limit."""
    step = schema.get("multipleOf", 1)
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    near = [wanted, *(limit // step * step + add for limit in (*lows, *highs, wanted) for add in (0, step, -step))]
    if kind == "number":
        near += [*lows, *highs, *((low + high) / 2 for low in lows for high in highs)]
    found = next((value for value in near if _fits(value, schema)), near[0])
    return int(found) if kind == "integer" else found


def _fits(value: Json, schema: dict[str, Any]) -> bool:
    """Whether a value fits; true for a schema that cannot be checked: then the run's own check decides."""
    from pigeon.agent.schema_check import BrokenSchema, CheckTooLong, SchemaCheck

    try:
        return not SchemaCheck(schema, value, exact=True).errors(value)
    except (BrokenSchema, CheckTooLong):
        return True
