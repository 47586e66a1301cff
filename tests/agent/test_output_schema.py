"""Schemas of final answers: refused if anything in them could not be checked, and held against values exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pigeon.agent.output_schema import MOST_BYTES, OutputSchema
from pigeon.wire.errors import Refusal, ToolFailed

TEXT = {"type": "string"}
PERSON = {
    "type": "object",
    "properties": {"name": TEXT, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


def doubling_schema(levels: int) -> dict[str, Any]:
    """A schema of a few hundred bytes that has 2 ** levels parts once its references are followed."""
    defs: dict[str, Any] = {"d0": TEXT}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {"type": "object", "properties": {"a": below, "b": below}}
    return {"$ref": f"#/$defs/d{levels}", "$defs": defs}


def nested_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ([], "expected a JSON Schema, which is an object, got array"),
        ("object", "got string"),
        (None, "got null"),
        (True, "got boolean"),
        ({"type": "objekt"}, "outputSchema.type: not a valid JSON Schema"),
        ({"type": "object", "properties": []}, "outputSchema.properties: not a valid JSON Schema"),
        ({"properties": {"a": {"minimum": "1"}}}, "outputSchema.properties.a.minimum: not a valid JSON Schema"),
        ({"$ref": "#/$defs/none"}, "$ref #/$defs/none names nothing"),
        ({"title": "t", "$ref": "#/title/x"}, "$ref #/title/x names nothing"),
        ({"type": "object", "required": ["a"], "$ref": "#/required/a"}, "$ref #/required/a names nothing"),
        ({"properties": {"a": {"$ref": "https://example.com/x"}}}, "names no place in the schema itself"),
        ({"$ref": "#"}, "$ref # leads to nothing but itself"),
        (
            {"$defs": {"t": {"anyOf": [TEXT, {"$ref": "#/$defs/t"}]}}, "$ref": "#/$defs/t"},
            "leads to nothing but itself",
        ),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "but itself"),
        ({"$dynamicRef": "#x"}, "$dynamicRef is not supported"),
        ({"pattern": "("}, "outputSchema.pattern: not a valid JSON Schema"),
        ({"patternProperties": {"(": {}}}, "outputSchema.patternProperties.(: not a valid JSON Schema"),
        ({"enum": ["x" * MOST_BYTES]}, "too large"),
        (doubling_schema(20), "too large, more than"),
        (nested_schema(100), "outputSchema: "),
    ],
)
def test_a_schema_that_could_not_be_held_is_refused_with_what_is_wrong(schema: Any, says: str) -> None:
    with pytest.raises(Refusal) as refused:
        OutputSchema(schema)
    assert str(refused.value).startswith("outputSchema")
    assert says in str(refused.value)


def test_a_plain_object_is_the_parameters_of_the_tool_and_everything_else_a_member_of_it() -> None:
    assert OutputSchema(PERSON).parameters == PERSON
    wrapped = OutputSchema({"type": "array", "items": TEXT})
    assert wrapped.parameters["properties"] == {"value": {"type": "array", "items": TEXT}}
    assert wrapped.validate_arguments({"value": ["a"]}) == ["a"]
    for wrong in ({}, {"value": ["a"], "more": 1}, {"value": [1]}):
        with pytest.raises(ToolFailed):
            wrapped.validate_arguments(wrong)


def test_references_are_replaced_by_what_they_name() -> None:
    schema = OutputSchema(
        {
            "type": "object",
            "properties": {"one": {"$ref": "#/$defs/p", "description": "first"}, "b": {"properties": {"$ref": TEXT}}},
            "$defs": {"p": PERSON},
        }
    )
    assert schema.parameters["properties"] == {
        "one": {**PERSON, "description": "first"},
        "b": {"properties": {"$ref": TEXT}},
    }
    assert "$defs" not in schema.parameters
    assert OutputSchema({"$ref": "#/$defs/p", "$defs": {"p": PERSON}}).parameters == PERSON
    with pytest.raises(ToolFailed, match=r"one\.name: missing"):
        schema.validate_arguments({"one": {}})


def test_nothing_is_coerced_and_everything_wrong_is_named() -> None:
    schema = OutputSchema(PERSON)
    with pytest.raises(ToolFailed) as failed:
        schema.validate_arguments({"name": None, "age": "7", "extra": 1})
    lines = str(failed.value).splitlines()[1:]
    assert sorted(lines) == [
        "  - age: expected integer, got string",
        "  - extra: unknown field",
        "  - name: expected string, got null",
    ]


def test_a_null_that_stands_for_absent_is_left_out() -> None:
    assert OutputSchema(PERSON).validate_arguments({"name": "Ann", "age": None}) == {"name": "Ann"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1),
        ({"format": "date"}, "2024-02-31"),
        ({"format": "date-time"}, "2024-02-01T25:00:00Z"),
        ({"format": "uuid"}, "x"),
        ({"const": 1}, True),
        ({"type": "number"}, float("inf")),
        ({"pattern": "^(a+)+$"}, "a" * 40 + "b"),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1}]),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}),
    ],
)
def test_a_value_that_does_not_fit_exactly_is_not_taken(schema: Any, value: Any) -> None:
    with pytest.raises(ToolFailed):
        OutputSchema(schema).validate_value(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
SCHEMAS = st.recursive(
    st.sampled_from(
        [{}, TEXT, {"type": "integer"}, {"type": "null"}, {"enum": [1, "a"]}, {"type": ["string", "null"]}]
    ),
    lambda inner: (
        st.builds(lambda a: {"type": "array", "items": a}, inner)
        | st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(lambda a, b: {"oneOf": [a, b]}, inner, inner)
        | st.builds(lambda a: {"not": a}, inner)
        | st.builds(
            lambda a, b, closed: {
                "type": "object",
                "properties": {"a": a, "b": b},
                "required": ["a"],
                "additionalProperties": not closed,
            },
            inner,
            inner,
            st.booleans(),
        )
    ),
    max_leaves=5,
)


@given(schema=SCHEMAS, value=VALUES)
def test_what_is_taken_fits_by_the_standard(schema: dict[str, Any], value: Any) -> None:
    try:
        taken = OutputSchema(schema).validate_value(value)
    except ToolFailed:
        assert not Draft202012Validator(schema).is_valid(value)
    else:
        assert Draft202012Validator(schema).is_valid(taken)


TREE = {
    "type": "object",
    "properties": {"name": TEXT, "below": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}


def test_a_recursive_schema_is_shown_to_some_depth_and_checked_to_any() -> None:
    schema = OutputSchema(TREE)
    below = schema.parameters["properties"]["below"]["items"]
    assert below["properties"]["below"]["items"] == {
        "type": "object",
        "description": "The same form as the whole answer.",
    }
    assert not schema.strict
    deep: dict[str, Any] = {"name": "leaf"}
    for _ in range(5):
        deep = {"name": "branch", "below": [deep]}
    assert schema.validate_arguments(deep) == deep
    deep["below"][0]["below"][0]["below"][0]["name"] = 7
    with pytest.raises(ToolFailed, match=r"below\.0\.below\.0\.below\.0\.name: expected string"):
        schema.validate_arguments(deep)


def test_schemas_that_name_each_other_are_cut_before_they_grow_without_end() -> None:
    names = "abcdef"
    parts = {name: {"type": "object", "properties": {to: {"$ref": f"#/$defs/{to}"} for to in names}} for name in names}
    schema = OutputSchema({"$ref": "#/$defs/a", "$defs": parts})
    assert schema.validate_arguments({"b": {"c": {"a": {}}}}) == {"b": {"c": {"a": {}}}}


@pytest.mark.parametrize("part", [{}, True, {"type": "object"}, {"type": "array", "items": True}])
def test_what_may_be_anything_is_not_asked_for_strictly(part: Any) -> None:
    assert not OutputSchema({"type": "object", "properties": {"a": part}, "required": ["a"]}).strict


def test_names_that_not_every_server_takes_stand_below_the_top() -> None:
    schema = OutputSchema({"type": "object", "properties": {"größe": TEXT}})
    assert list(schema.parameters["properties"]) == ["value"]
    assert schema.validate_arguments({"value": {"größe": "7"}}) == {"größe": "7"}
