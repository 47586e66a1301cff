"""Verdicts on generated schemas and values are those of the reference implementation of JSON Schema."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError

from pigeon.agent.arguments import validate_arguments
from pigeon.agent.schema_check import BrokenSchema, SchemaCheck, is_plainly_valid
from pigeon.wire.errors import ToolFailed

KEYS = st.sampled_from(["a", "b", "ab", "a/b", "a~b"])
NUMBERS = (
    st.integers(-4, 4)
    | st.sampled_from([0.5, -1.5, 2.0, 10**30, 10**30 + 1, -(2**64), 2**63, 1e300, 1e-300])
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.sampled_from(["", "a", "b", "ab", "ba", "12", "😀", "é"]) | st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\n"), max_size=4
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
TYPES = st.sampled_from(["null", "boolean", "string", "array", "object", "integer", "number"])
PATTERNS = st.sampled_from(["^a", "b$", "a|b", "^[a-z]+$", "[0-9]{2}", "^(a|b)*$", "(?=a)a", "^$", r"\S"])
COUNTS = st.integers(0, 3)
# Checked with every schema, since a single value rarely meets what the schema says.
COMMON = [
    None, True, 1, 2.5, "", "a", "ab", "12", "-", [], [1, "a"], ["b", "b"], {}, {"a": 1}, {"b": "ab"},
    {"a": "a", "b": None, "ab": [1], "a/b": {"a": 1}},
]  # fmt: skip
PLAIN_KEYWORDS: dict[str, st.SearchStrategy[Any]] = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
    "enum": st.lists(SCALARS | st.lists(SCALARS, max_size=2), min_size=1, max_size=3),
    "const": VALUES,
    "minimum": NUMBERS,
    "maximum": NUMBERS,
    "exclusiveMinimum": NUMBERS,
    "exclusiveMaximum": NUMBERS,
    "multipleOf": st.integers(1, 5),
    "minLength": COUNTS,
    "maxLength": COUNTS,
    "pattern": PATTERNS,
    "format": st.sampled_from(["made-up", "hostname", "regex", "json-pointer"]),
    "minItems": COUNTS,
    "maxItems": COUNTS,
    "uniqueItems": st.booleans(),
    "minProperties": COUNTS,
    "maxProperties": COUNTS,
    "required": st.lists(KEYS, max_size=2, unique=True),
    "dependentRequired": st.dictionaries(KEYS, st.lists(KEYS, max_size=2, unique=True), max_size=2),
}
# Keywords with schemas in them, by the names of those: of properties, of patterns, of a list, or none for a single one.
OUTER_KEYWORDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(["properties", "dependentSchemas"], st.lists(KEYS, max_size=2, unique=True)),
    "patternProperties": st.lists(PATTERNS, max_size=2, unique=True),
    **dict.fromkeys(["prefixItems", "allOf", "anyOf", "oneOf"], st.integers(1, 3)),
    **dict.fromkeys(
        [
            "additionalProperties", "propertyNames", "unevaluatedProperties", "items", "contains", "unevaluatedItems",
            "not", "if", "then", "else",
        ],
        st.none(),
    ),
}  # fmt: skip
TARGETS = st.sampled_from(["#/$defs/one", "#/$defs/two"])


@st.composite
def parts(draw: st.DrawFn, levels: int, most: int = 3, *, with_references: bool = True) -> Any:
    """Few keywords at a time: a value that fails one of many says nothing about the others."""
    if levels == 0 and draw(st.integers(0, 5)) == 0:
        return draw(st.booleans())
    plain = draw(st.lists(st.sampled_from(sorted(PLAIN_KEYWORDS)), max_size=most - 1, unique=True))
    schema = {keyword: draw(PLAIN_KEYWORDS[keyword]) for keyword in plain}
    outer = draw(st.lists(st.sampled_from(sorted(OUTER_KEYWORDS)), max_size=most, unique=True)) if levels else []
    for keyword in outer:
        names = draw(OUTER_KEYWORDS[keyword])
        inner = parts(levels - 1, 2, with_references=with_references)
        if isinstance(names, list):
            schema[keyword] = {name: draw(inner) for name in names}
        else:
            schema[keyword] = draw(inner) if names is None else [draw(inner) for _ in range(names)]
    if levels and with_references and draw(st.integers(0, 4)) == 0:
        schema["$ref"] = draw(TARGETS)
    return schema


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """References lead to parts without references, so that no schema leads to itself."""
    one, two = draw(parts(0)), draw(parts(1, with_references=False))
    return {**draw(parts(2)), "$defs": {"one": one, "two": two}}


def _with_any_of(schema: Any) -> Any:
    """The schema as generous checks understand it: `oneOf` may be satisfied by more than one branch."""
    if isinstance(schema, list):
        return [_with_any_of(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: value if key in ("enum", "const") else _with_any_of(value) for key, value in schema.items()}
    if isinstance(out.get("oneOf"), list):
        out["allOf"] = [*out.get("allOf", []), {"anyOf": out.pop("oneOf")}]
    return out


@settings(max_examples=settings().max_examples // 2)
@given(schemas(), VALUES)
@example({"oneOf": [{"type": "integer"}, {"minimum": 0}], "$defs": {}}, 1)
@example({"anyOf": [{"properties": {"a": True}}], "unevaluatedProperties": False, "$defs": {}}, {"a": 1})
@example({"const": 1, "$defs": {}}, True)
@example({"enum": [10**30], "$defs": {}}, 10**30 + 1)
def test_an_exact_check_gives_the_verdict_of_the_reference(schema: dict[str, Any], value: Any) -> None:
    reference = Draft202012Validator(schema)
    for one in (value, *COMMON):
        errors = SchemaCheck(schema, one, exact=True).find_errors(one)
        assert bool(errors) is not reference.is_valid(one), errors
        assert all(reason for _, reason in errors)


@settings(max_examples=settings().max_examples // 2)
@given(schemas(), VALUES)
@example({"anyOf": [{"oneOf": [True, True]}], "not": {"oneOf": [False, False]}, "$defs": {}}, 1)
@example({"oneOf": [True, True], "anyOf": [{"type": "string"}], "$defs": {}}, 1)
def test_a_generous_check_differs_only_in_one_of(schema: dict[str, Any], value: Any) -> None:
    before = copy.deepcopy(schema)
    reference = Draft202012Validator(_with_any_of(schema))
    for one in (value, *COMMON):
        errors = SchemaCheck(schema, one).find_errors(one)
        assert bool(errors) is not reference.is_valid(one), errors
    assert schema == before


def _simple_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": TYPES},
        optional={
            "properties": st.dictionaries(KEYS, inner, max_size=3),
            "required": st.lists(KEYS, max_size=2, unique=True),
            "items": inner,
            "additionalProperties": st.booleans() | inner,
            "minLength": COUNTS,
        },
    )


@given(st.recursive(_simple_schemas(st.booleans()), _simple_schemas, max_leaves=5), VALUES)
@example({"type": "object", "required": [["a"]]}, {"a": 1})
@example({"type": "array", "items": False}, [])
@example({"type": "integer"}, True)
def test_plain_schemas_are_checked_like_all_others(schema: dict[str, Any], value: Any) -> None:
    plain = {"type": "object", "properties": {"x": schema}}
    outcomes = []
    for whole in (plain, {**plain, "minProperties": 0}):
        try:
            outcomes.append(repr(validate_arguments("t", whole, {"x": value})))
        except ToolFailed as error:
            outcomes.append(error.text)
    assert outcomes[0] == outcomes[1]


def test_the_usual_call_is_plainly_valid() -> None:
    schema = {
        "type": "object",
        "properties": {"command": {"type": "string"}, "edits": {"type": "array", "items": {"type": "object"}}},
        "required": ["command"],
    }
    assert is_plainly_valid(schema, {"command": "ls", "edits": [{}], "more": 1.5})
    assert not is_plainly_valid(schema, {"command": 5})
    assert not is_plainly_valid(schema, {"edits": []})
    assert not is_plainly_valid(schema | {"additionalProperties": False}, {"command": "ls", "more": 1})
    assert not is_plainly_valid(schema | {"minProperties": 1}, {"command": "ls"})


@pytest.mark.parametrize(
    ("schema", "reference"),
    [
        ({"minimum": 0, "exclusiveMinimum": True}, Draft4Validator),
        ({"items": [{"type": "integer"}], "additionalItems": False}, Draft7Validator),
        ({"dependencies": {"a": ["b"], "b": {"required": ["ab"]}}}, Draft7Validator),
    ],
)
@given(value=VALUES)
def test_schemas_in_the_words_of_older_drafts_mean_what_those_say(schema: Any, reference: Any, value: Any) -> None:
    assert bool(SchemaCheck(schema, value).find_errors(value)) is not reference(schema).is_valid(value)


@given(st.dictionaries(st.sampled_from(["type", "required", "properties", "items", "enum", "minLength"]), VALUES))
def test_a_schema_is_broken_where_the_reference_says_so(schema: dict[str, Any]) -> None:
    if isinstance(schema.get("items"), list):
        return
    try:
        Draft202012Validator.check_schema(schema)
        is_sound = True
    except SchemaError:
        is_sound = False
    try:
        SchemaCheck(schema, exact=True)
        assert is_sound
    except BrokenSchema:
        assert not is_sound


@given(VALUES, VALUES)
def test_a_generous_check_never_fails_by_the_schema(schema: Any, value: Any) -> None:
    whole = {"properties": {"x": schema}, "anyOf": [schema, {}]}
    with contextlib.suppress(BrokenSchema):
        SchemaCheck(whole, value).find_errors(value)
