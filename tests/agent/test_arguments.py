from __future__ import annotations

import contextlib
import copy
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.agent import schema_check
from pigeon.agent.arguments import validate_arguments
from pigeon.wire.errors import ToolFailed
from support.strategies import json_objects, words

TEXTS = ["true", "false", "1", "0", "1.5"]
RICH = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0},
        "b": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "number"}}]},
        "c": {"type": ["string", "null"]},
        "d": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}}, "required": ["a"]},
    },
    "required": ["a"],
    "additionalProperties": {"type": "string"},
}


def one(schema: Any, value: Any, required: bool = True) -> Any:
    """What becomes of one property."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}
    return validate_arguments("t", whole, {"x": value}).get("x", "(gone)")


def refusal_of(schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    with pytest.raises(ToolFailed) as caught:
        validate_arguments("t", schema, arguments)
    return caught.value.text


@pytest.mark.parametrize(
    ("kind", "sent", "used"),
    [
        ("integer", "42", 42),
        ("integer", " -3 ", -3),
        ("integer", "4.0", 4),
        ("integer", True, 1),
        ("integer", None, 0),
        ("number", "1.5", 1.5),
        ("number", "2", 2),
        ("number", False, 0),
        ("number", None, 0),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("boolean", "True", True),
        ("boolean", "FALSE", False),
        ("integer", 4.0, 4),
        ("boolean", 1, True),
        ("boolean", 0, False),
        ("boolean", None, False),
        ("string", 5, "5"),
        ("string", 1.5, "1.5"),
        ("string", True, "true"),
        ("string", False, "false"),
        ("string", None, ""),
        ("null", "", None),
        ("null", 0, None),
        ("null", False, None),
    ],
)
def test_sloppy_scalars_are_put_right(kind: str, sent: Any, used: Any) -> None:
    result = one({"type": kind}, sent)
    assert (result, type(result)) == (used, type(used))


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("integer", "1.5"),
        ("integer", 1.5),
        ("integer", "many"),
        ("integer", ""),
        ("number", "nan"),
        ("number", "inf"),
        ("number", "1e999"),
        ("boolean", "yes"),
        ("boolean", 2),
        ("boolean", [1]),
        ("string", ["a"]),
        ("string", {"a": 1}),
        ("object", "{}"),
        ("null", "null"),
    ],
)
def test_what_cannot_be_put_right_is_refused(kind: str, sent: Any) -> None:
    schema = {"properties": {"x": {"type": kind}}}
    assert f"- x: expected {kind}, got " in refusal_of(schema, {"x": sent})


@pytest.mark.parametrize(
    ("schema", "sent", "used"),
    [
        ({"type": ["string", "integer"]}, 5, 5),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": [0, 1]}, True, 1),
        ({"const": 1}, True, 1),
        ({"enum": ["1", "2"]}, 2, "2"),
        ({"enum": ["1", 1]}, 1, 1),
        ({"format": "date-time"}, "2026-11-16T12:00:00Z", "2026-11-16T12:00:00Z"),
        ({"format": "ipv6"}, "::1", "::1"),
        ({"format": "made-up"}, "x", "x"),
        ({"type": "array", "items": {"type": "integer"}}, "5", [5]),
        ({"type": "array", "items": {"type": "object"}}, {"a": 1}, [{"a": 1}]),
        ({"type": ["array", "string"]}, "5", "5"),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"type": ["boolean", "integer"]}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
        ({"oneOf": [{"const": 1}, {"type": "number", "maximum": 3}]}, "2", 2),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "4", 4),
        ({"type": "array", "items": {"type": "integer"}}, ["1", 2, None], [1, 2, 0]),
        ({"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}]}, ["1", "true", "x"], [1, True, "x"]),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, [1, "2"], ["1", 2]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"k": "9"}, {"k": 9}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": "1", "m": "1"}, {"n": 1, "m": "1"}),
    ],
)
def test_unions_and_structures_are_followed(schema: Any, sent: Any, used: Any) -> None:
    result = one(schema, sent)
    assert (result, type(result)) == (used, type(used))


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "object"}, {"enum": ["a", "b"]}])
def test_the_null_of_an_optional_property_is_dropped(schema: Any) -> None:
    assert one(schema, None, required=False) == "(gone)"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"const": None},
        {"enum": ["a", None]},
    ],
)
def test_a_null_that_is_meant_stays(schema: Any) -> None:
    assert one(schema, None, required=False) is None


def test_nulls_are_dropped_inside_objects_and_lists() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}
    sent = [{"a": None, "b": None}, {"a": "1", "b": "2"}]
    assert one({"type": "array", "items": inner}, sent) == [{"b": ""}, {"a": "1", "b": "2"}]


def test_more_properties_pass_unless_the_schema_forbids_them() -> None:
    assert validate_arguments("t", {"properties": {}}, {"more": 1}) == {"more": 1}
    forbidden = {"properties": {"a": {}}, "additionalProperties": False}
    assert "- more: unknown field" in refusal_of(forbidden, {"a": 1, "more": 1})


def test_the_refusal_names_the_tool_each_place_and_what_came() -> None:
    schema = {
        "type": "object",
        "properties": {"edits": {"type": "array", "items": {"properties": {"line": {"type": "integer"}}}}},
        "required": ["path"],
    }
    text = refusal_of(schema, {"edits": [{"line": 1}, {"line": "x"}]})
    assert text.startswith('Validation failed for tool "t":\n')
    assert "  - path: missing\n" in text
    assert "  - edits.1.line: expected integer, got string\n" in text
    assert text.endswith('"line": "x"\n    }\n  ]\n}')


@pytest.mark.parametrize(
    ("schema", "sent", "reason"),
    [
        ({"enum": ["a", 1]}, "b", 'expected one of ["a",1]'),
        ({"const": "a"}, "b", 'expected "a"'),
        ({"minLength": 2}, "b", "expected at least 2 characters"),
        ({"maxLength": 2}, "bbb", "expected at most 2 characters"),
        ({"pattern": "^a"}, "b", "expected to match ^a"),
        ({"minimum": 2}, 1, "expected >= 2"),
        ({"maximum": 2}, 3, "expected <= 2"),
        ({"minItems": 1}, [], "expected at least 1 items"),
        ({"maxItems": 1}, [1, 2], "expected at most 1 items"),
        ({"anyOf": [{"type": "null"}, {"type": "object"}]}, 1, "expected null or object, got integer"),
        ({"type": "object"}, 1.5, "expected object, got number"),
        ({"format": "date"}, "tomorrow", "expected format date"),
        ({"format": "email"}, "me", "expected format email"),
        ({"format": "uri"}, "a b", "expected format uri"),
        ({"format": "ipv4"}, "localhost", "expected format ipv4"),
        ({"format": "uuid"}, "1", "expected format uuid"),
        ({"const": True}, 2, "expected true"),
    ],
)
def test_limits_are_checked_and_named(schema: Any, sent: Any, reason: str) -> None:
    assert f"- x: {reason}" in refusal_of({"properties": {"x": schema}}, {"x": sent})


SHAPES = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "dot"}, "at": {"type": "integer"}},
            "required": ["kind", "at"],
        },
        {"type": "object", "properties": {"kind": {"enum": ["line", "arc"]}}, "required": ["kind", "to"]},
        {"type": "string", "maxLength": 2},
    ]
}


NAMED = {
    "anyOf": [
        {"type": "object", "properties": {"p": {}}, "required": ["p"]},
        {"type": "object", "properties": {"q": {}, "r": {}}, "required": ["q", "r"]},
    ]
}


@pytest.mark.parametrize(
    ("schema", "sent", "errors"),
    [
        (SHAPES, {"kind": "blob"}, ['x.kind: expected one of ["dot","line","arc"]']),
        (SHAPES, {}, ['x.kind: expected one of ["dot","line","arc"]']),
        (SHAPES, {"kind": None}, ['x.kind: expected one of ["dot","line","arc"]']),
        (NAMED, {"q": 1}, ["x.r: missing"]),
        (SHAPES, {"kind": "dot", "at": []}, ["x.at: expected integer, got array"]),
        (SHAPES, {"kind": "arc"}, ["x.to: missing"]),
        (SHAPES, "abc", ["x: expected at most 2 characters"]),
        (SHAPES, [1], ["x: expected object or string, got array"]),
        ({"anyOf": [{"required": ["a", "b"]}, {"required": ["c"]}]}, {"d": 1}, ["x.c: missing"]),
        ({"anyOf": [{"const": 1}, False]}, 2, ["x: expected 1"]),
        ({"enum": list(range(23))}, 99, [f"x: expected one of [{','.join(map(str, range(20)))}, ... and 3 more]"]),
        ({"type": ["integer", "object"]}, [], ["x: expected integer or object, got array"]),
        ({"type": "object"}, True, ["x: expected object, got boolean"]),
    ],
)
def test_of_several_forms_the_nearest_says_what_is_wrong(schema: Any, sent: Any, errors: list[str]) -> None:
    text = refusal_of({"properties": {"x": schema}}, {"x": sent})
    assert [line[4:] for line in text.splitlines() if line.startswith("  - ")] == errors


def test_properties_are_put_right_also_beside_alternatives() -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "anyOf": [{"required": ["n"]}, {"required": ["m"]}]}
    assert validate_arguments("t", schema, {"n": "5"}) == {"n": 5}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "reason"),
    [
        ({"exclusiveMinimum": 2}, 3, 2, "x: expected > 2"),
        ({"exclusiveMaximum": 2}, 1, 2, "x: expected < 2"),
        ({"minimum": 0, "exclusiveMinimum": True}, 1, 0, "x: "),
        ({"multipleOf": 5}, 10, 12, "x: expected a multiple of 5"),
        ({"uniqueItems": True}, [1, 2, "1", True], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], "x: expected unique items"),
        ({"not": {"type": "string"}}, 1, "a", "x: must not match the schema in not"),
        ({"contains": {"const": 1}}, [2, 1], [2], "x: expected an item that matches"),
        ({"minProperties": 1}, {"a": 1}, {}, "x: expected at least 1 properties"),
        ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 1}, "x: expected at most 1 properties"),
        ({"propertyNames": {"pattern": "^a"}}, {"ab": 1}, {"b": 1}, "x.b: invalid property name"),
        ({"prefixItems": [{"type": "object"}]}, [{}, 1], [1], "x.0: "),
        ({"prefixItems": [{}], "items": False}, [1], [1, 2], "x.1: unexpected item"),
        ({"items": [{}], "additionalItems": False}, [1], [1, 2], "x.1: unexpected item"),
        ({"items": [{"type": "object"}], "uniqueItems": True}, [{}, 1], [1, 2], "x.0: "),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}, "x.b: required when a is present"),
        ({"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}, "x.b: required when a is present"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"c": 1}, {"a": 1}, "x.b: missing"),
        ({"if": {"type": "string"}, "else": {"minimum": 3}}, "a", 2, "x: expected >= 3"),
        ({"patternProperties": {"^n": {"type": "array"}}}, {"n": [], "m": 1}, {"na": 1}, "x.na: "),
        (
            {"patternProperties": {"^x-": {}}, "properties": {"a": {}}, "additionalProperties": False},
            {"x-1": 1, "a": 1},
            {"x-1": 1, "b": 1},
            "x.b: unknown field",
        ),
        ({"patternProperties": {"^x": {}}, "additionalProperties": {"type": "array"}}, {"x": 1}, {"b": 1}, "x.b: "),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, {"b": 1}, "x: "),
        ({"oneOf": [{"type": "integer"}, {"multipleOf": 2}]}, 4, 3.5, "x: expected a multiple of 2"),
    ],
)  # fmt: skip
def test_other_keywords_are_checked_too_and_the_field_is_named(schema: Any, good: Any, bad: Any, reason: str) -> None:
    assert one(schema, good) == good
    assert f"- {reason}" in refusal_of({"properties": {"x": schema}}, {"x": bad})


POINT = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
LINKED = {
    "$defs": {"a/b ": POINT, "again": {"$ref": "#/$defs/a~1b%20"}, "either": {"type": ["integer", "null"]}},
    "properties": {
        "one": {"$ref": "#/$defs/again", "description": "a point"},
        "some": {"type": "array", "items": {"$ref": "#/$defs/a~1b%20"}},
        "more": {"$ref": "#/$defs/again", "required": ["m"]},
        "none": {"$ref": "#/$defs/either"},
        "deep": {"$ref": "#"},
        "any": {"anyOf": [{"$ref": "#/$defs/again"}, {"type": "array"}]},
    },
}


def test_references_are_followed_for_putting_right_and_for_refusing() -> None:
    sent = {"one": {"n": "5"}, "some": [{"n": "6"}], "deep": {"deep": {"one": {"n": "7"}}}, "any": {"n": "8"}}
    assert validate_arguments("t", LINKED, sent) == {
        "one": {"n": 5}, "some": [{"n": 6}], "deep": {"deep": {"one": {"n": 7}}}, "any": {"n": 8},
    }  # fmt: skip
    assert validate_arguments("t", LINKED, {"one": None, "none": None}) == {"none": None}
    assert "- one.n: expected integer, got string" in refusal_of(LINKED, {"one": {"n": "x"}})
    assert "- some.1.n: expected >= 1" in refusal_of(LINKED, {"some": [{"n": 1}, {"n": 0}]})
    assert "- deep.deep.one: expected object, got integer" in refusal_of(LINKED, {"deep": {"deep": {"one": 1}}})
    text = refusal_of(LINKED, {"more": {}})
    assert "- more.m: missing" in text
    assert "- more.n: missing" in text
    assert validate_arguments("t", {**LINKED, "not": {"required": ["bad"]}}, sent)["one"] == {"n": 5}
    assert "- root: must not" in refusal_of({**LINKED, "not": {"required": ["bad"]}}, {"bad": 1})
    assert refusal_of({"$defs": {"no": False}, "properties": {"x": {"$ref": "#/$defs/no"}}}, {"x": 1})


@pytest.mark.parametrize(
    "broken",
    [
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "other.json#/x"},
        {"$ref": 5},
        {"anyOf": [{"$ref": "#"}], "not": {"$ref": "#"}},
        {"properties": 5},
        {"properties": {"x": 5}},
        {"required": 5},
        {"enum": 5},
        {"type": "object", "multipleOf": "x", "not": {"minimum": []}},
        {"properties": {"x": {"minLength": "a"}}},
        {"properties": {"x": {"type": "weird", "not": {"type": "weird"}}}},
        {"$schema": "https://nowhere/schema", "properties": {"x": {"multipleOf": 0}}},
        {"$schema": 5, "not": {}},
    ],
)
def test_a_broken_schema_refuses_nothing_and_nothing_is_fetched(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr("urllib.request.urlopen", forbidden)
    monkeypatch.setattr("socket.socket.connect", forbidden)
    with contextlib.suppress(ToolFailed):
        assert validate_arguments("t", broken, {"x": "y"}) == {"x": "y"}


def test_a_remote_reference_is_no_reason_to_refuse() -> None:
    remote = {"properties": {"x": {"$ref": "https://example.com/schema", "not": {"const": 5}}}}
    assert validate_arguments("t", remote, {"x": 5}) == {"x": 5}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "array", "items": {"pattern": r"(a|aa)+\1b"}}}},
        {"properties": {"x": {"items": {"pattern": r"(a|aa)+\1b"}, "uniqueItems": True}}},
        {"patternProperties": {r"(a|aa)+\1b": {}}, "additionalProperties": False, "unevaluatedProperties": False},
        {"propertyNames": {"pattern": r"(a|aa)+\1b"}},
    ],
)
def test_a_pattern_made_to_hang_refuses_the_arguments_in_a_moment(schema: Any) -> None:
    many = [f"{'a' * 300}{number}" for number in range(200)]
    began = time.process_time()
    with pytest.raises(ToolFailed, match=r"could not be checked .* in time: the pattern .* takes too long"):
        validate_arguments("t", schema, {"x": many, **dict.fromkeys(many)})
    assert time.process_time() - began < 5


def test_many_texts_that_are_slow_to_search_have_one_limit_together() -> None:
    schema = {"properties": {"x": {"type": "array", "items": {"pattern": r"^(a*)\1*b|a"}}}}
    began = time.process_time()
    with pytest.raises(ToolFailed, match="takes too long"):
        validate_arguments("t", schema, {"x": ["a" * 400] * 5_000})
    assert time.process_time() - began < 5


def test_patterns_without_back_references_are_searched_in_linear_time() -> None:
    schema = {"properties": {"x": {"type": "array", "items": {"pattern": "(a*)*c|a*b"}}}}
    began = time.process_time()
    assert "- x.99: expected to match" in refusal_of(schema, {"x": ["a" * 2_000] * 100})
    assert time.process_time() - began < 5


def test_patterns_that_take_long_to_compile_refuse_the_arguments_in_a_moment() -> None:
    began = time.process_time()
    assert "takes too long" in refusal_of({"properties": {"x": {"pattern": "a|b" * 10_000}}}, {"x": "c"})
    many = [{"properties": {"x": {"pattern": f"(?=c{n}?)" * 1_000}}} for n in range(50)]
    assert "takes too long" in refusal_of({"allOf": many}, {"x": "c"})
    assert one({"pattern": "((a{100}){100}){100}"}, "too large to be searched, so it refuses nothing")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("more", "free_steps"),
    [({}, schema_check.FREE_STEPS), ({"properties": {"n": {"exclusiveMinimum": 0}}}, 3000)],
)
def test_a_schema_with_exponentially_many_readings_refuses_the_arguments_in_a_moment(
    more: Any, free_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_check, "FREE_STEPS", free_steps)
    node = {"type": "object", "properties": {"c": {"$ref": "#/$defs/node"}}}
    last = {"type": "object", "properties": {"c": {"$ref": "#/$defs/node"}, "z": {}}, "required": ["z"]}
    schema = {"$defs": {"node": {"anyOf": [{**node, "required": ["z"]}, last]}}, **more}
    schema["properties"] = {"x": {"$ref": "#/$defs/node"}, **more.get("properties", {})}
    value: Any = {"c": 5}
    for _ in range(60):
        value = {"c": value, "z": 1}
    began = time.process_time()
    with pytest.raises(ToolFailed, match="too many ways"):
        validate_arguments("t", schema, {"x": value, "n": 1})
    assert time.process_time() - began < 5


def test_large_arguments_are_checked_to_their_end() -> None:
    rows = [{"n": number, "s": "x"} for number in range(20_000)]
    schema = {"items": {"properties": {"n": {"type": "integer"}, "s": {"type": "string", "pattern": "^x"}}}}
    assert one(schema, rows) == rows


def test_thousands_of_items_are_compared_in_no_time() -> None:
    began = time.process_time()
    assert one({"uniqueItems": True}, [{"n": number} for number in range(5_000)])
    assert time.process_time() - began < 5


def test_the_library_is_loaded_by_the_first_schema_that_is_not_plain() -> None:
    code = (
        "import sys; from pigeon.agent.arguments import validate_arguments;"
        "validate_arguments('t', {'type': 'object'}, {'a': 1}); print('jsonschema_rs' in sys.modules);"
        "validate_arguments('t', {'minProperties': 1}, {'a': 1}); print('jsonschema_rs' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "True"]


@pytest.mark.parametrize(
    "sloppy",
    [{"required": True}, {"description": 5}, {"pattern": "("}, {"minLength": "a"}, {"format": 5}, {"enum": 5}],
)
def test_a_keyword_that_is_no_json_schema_is_left_out_and_the_others_are_checked(sloppy: Any) -> None:
    schema = {"properties": {"x": {"type": "integer", **sloppy}}}
    assert validate_arguments("t", schema, {"x": "5"}) == {"x": 5}
    assert "- x: expected integer, got string" in refusal_of(schema, {"x": "many"})


@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema"])
def test_what_stands_beside_a_reference_counts_in_old_drafts_too(draft: str) -> None:
    schema = {"$schema": draft, "definitions": {"a": {}}, "properties": {"x": {"$ref": "#/definitions/a", "enum": [1]}}}
    assert "- x: expected one of [1]" in refusal_of(schema, {"x": 2})


def test_an_error_deep_in_a_recursive_union_is_found_at_once() -> None:
    kinds = [f"kind{number}" for number in range(6)]
    node = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, "below": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["kind"],
        }
        for kind in kinds
    ]
    schema = {"$defs": {"node": {"oneOf": node}}, "properties": {"x": {"$ref": "#/$defs/node"}}}
    value: Any = {"kind": "kind3", "below": [{"kind": "kind4", "below": [{"kind": "none"}]}]}
    began = time.process_time()
    assert "- x.below.0.below.0.kind: expected one of" in refusal_of(schema, {"x": value})
    assert time.process_time() - began < 5


def test_errors_that_grow_exponentially_refuse_the_arguments_in_a_moment() -> None:
    again = {"properties": {"c": {"$ref": "#/$defs/node"}}}
    schema = {
        "$defs": {"node": {"type": "object", "dependentSchemas": {"c": again}, **again}},
        "properties": {"x": {"$ref": "#/$defs/node"}},
    }
    value: Any = 5
    for _ in range(60):
        value = {"c": value}
    began = time.process_time()
    with pytest.raises(ToolFailed, match="too many ways"):
        validate_arguments("t", schema, {"x": value})
    assert time.process_time() - began < 5


def test_a_pattern_that_nobody_can_read_refuses_nothing() -> None:
    assert one({"pattern": "("}, "anything") == "anything"


def test_a_schema_without_a_word_takes_everything() -> None:
    assert validate_arguments("t", {}, {"a": [None, {"b": 1}]}) == {"a": [None, {"b": 1}]}


@given(json_objects(keys=words(*"abcdz"), scalars=TEXTS))
def test_arguments_are_never_changed_in_place_and_a_second_check_changes_nothing(arguments: dict[str, Any]) -> None:
    before = copy.deepcopy(arguments)
    checked = None
    with contextlib.suppress(ToolFailed):
        checked = validate_arguments("t", RICH, arguments)
    assert checked is None or validate_arguments("t", RICH, checked) == checked
    assert arguments == before


@given(json_objects(scalars=TEXTS))
def test_what_fits_already_comes_back_as_it_was(arguments: dict[str, Any]) -> None:
    schema = {"type": "object", "additionalProperties": {"anyOf": [{}, {"type": "string"}]}}
    assert validate_arguments("t", schema, arguments) == arguments


@given(st.integers(-(2**53), 2**53))
def test_every_whole_number_survives_being_sent_as_text(number: int) -> None:
    assert one({"type": "integer"}, str(number)) == number
    assert one({"type": "string"}, number) == str(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_survives_being_sent_as_text(number: float) -> None:
    assert one({"type": "number"}, repr(number)) == number
