"""The published schema: complete, strict, and made of names that classes can have."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

import pytest
from jsonschema import Draft202012Validator

from fakes.strict_client import complaint, is_valid, published_schema
from pigeon.wire import answers, commands, content, dialogs, entries, events, messages, model, steering
from pigeon.wire.codec import command_of
from pigeon.wire.errors import BadRecord
from support.source_tree import ROOT

Schema = dict[str, Any]
MODULES = (answers, commands, content, dialogs, entries, events, messages, model, steering)
DEFINITIONS: dict[str, Schema] = published_schema()["$defs"]
COMMANDS = [
    found["$ref"].rpartition("/")[2] for name in ("Command", "HostReport") for found in DEFINITIONS[name]["oneOf"]
]
WRONG = (0.5, {"what": "no record has"}, [[]])


def references(value: Any) -> Iterable[str]:
    """The names of all definitions that a piece of schema refers to."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].removeprefix("#/$defs/")
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from references(inner)


def example(schema: Schema) -> Any:
    """The smallest value that a piece of schema accepts."""
    if "$ref" in schema:
        return example(DEFINITIONS[schema["$ref"].removeprefix("#/$defs/")])
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return example(schema[key][0])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: example(schema["properties"][name]) for name in schema.get("required", ())}
    if not schema:
        return "anything"
    return {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "null": None}[schema["type"]]


def readable(value: Any) -> bool:
    try:
        command_of(value)
    except BadRecord:
        return False
    return True


def records() -> list[str]:
    return [name for name, shape in DEFINITIONS.items() if "properties" in shape]


def test_it_is_a_schema_of_the_draft_that_it_names() -> None:
    assert published_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(published_schema())


def test_the_root_leads_to_every_definition() -> None:
    found: set[str] = set()
    waiting = list(references(published_schema()["oneOf"]))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(references(DEFINITIONS[name]))
    assert found == set(DEFINITIONS)


def test_every_name_can_be_that_of_a_class_and_is_no_numbered_one() -> None:
    assert not [name for name in DEFINITIONS if not re.fullmatch(r"([A-Z][a-z]+)+", name)]
    assert not [name for name, shape in DEFINITIONS.items() if shape["title"] != name]
    assert not {name for name, count in Counter(map(str.lower, DEFINITIONS)).items() if count > 1}
    assert published_schema()["title"] not in DEFINITIONS


def test_every_record_is_described() -> None:
    assert not [name for name in records() if not DEFINITIONS[name].get("description")]


def test_every_set_of_words_has_one_name() -> None:
    named = {
        name: frozenset(get_args(value))
        for module in MODULES
        for name, value in vars(module).items()
        if get_origin(value) is Literal and name in DEFINITIONS
    }
    assert not [words for words, count in Counter(named.values()).items() if count > 1]


def test_nothing_without_a_name_is_told_apart_inside_a_record() -> None:
    inside = json.dumps([shape.get("properties", {}) for shape in DEFINITIONS.values()])
    assert not [word for word in ('"enum"', '"oneOf"', '"properties"', '"discriminator"') if f"{word}: " in inside]


def test_lines_of_different_kinds_never_have_the_same_type() -> None:
    for root in (published_schema(), *(shape for shape in DEFINITIONS.values() if "oneOf" in shape)):
        key = root.get("discriminator", {}).get("propertyName")
        kinds = [values_of(member, key) for member in root["oneOf"]] if key else []
        assert sum(map(len, kinds)) == len(set().union(*kinds)), root["title"]


def values_of(schema: Schema, key: str) -> set[str]:
    """The values that a member has in a record, or in any record of a union."""
    if "$ref" in schema:
        return values_of(DEFINITIONS[schema["$ref"].removeprefix("#/$defs/")], key)
    if "oneOf" in schema:
        return set().union(*(values_of(member, key) for member in schema["oneOf"]))
    return {schema["properties"][key]["const"]}


@pytest.mark.parametrize(
    "line",
    [
        {},
        [],
        None,
        "prompt",
        {"type": "garbage"},
        {"type": None},
        {"type": "response"},
        {"type": "response", "command": "get_state", "success": True},
        {"type": "response", "command": "get_state", "success": True, "data": {}},
        {"type": "response", "command": "get_state", "success": False},
        {"type": "response", "command": "garbage", "success": True},
        {"type": "prompt"},
        {"type": "prompt", "message": None},
        {"type": "message_update"},
        {"type": "extension_ui_request", "id": "1", "method": "garbage"},
        {"type": "message_start", "message": {"role": "garbage"}},
        {"type": "agent_end", "messages": {}},
        {"type": "host_tool_result", "result": {"content": []}},
        {"type": "list_sessions", "limit": 0},
        {"type": "list_sessions", "limit": -0.0},
        {"type": "list_sessions", "limit": 501},
    ],
)
def test_what_is_no_line_is_refused(line: Any) -> None:
    assert not is_valid(line, "ProtocolLine")


@pytest.mark.parametrize("name", records())
def test_a_record_without_one_of_its_members_or_with_a_wrong_one_is_refused(name: str) -> None:
    shape = DEFINITIONS[name]
    whole = example(shape)
    assert is_valid(whole, name)
    for key in shape["required"]:
        assert not is_valid({other: value for other, value in whole.items() if other != key}, name), key
    for key, member in shape["properties"].items():
        if member:
            assert not all(is_valid({**whole, key: value}, name) for value in WRONG), key


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_read_if_it_has_what_the_schema_requires_and_not_otherwise(name: str) -> None:
    whole = example(DEFINITIONS[name])
    assert readable(whole)
    assert is_valid(whole, "HostLine")
    nulls = {key: None for key in DEFINITIONS[name]["properties"] if key not in DEFINITIONS[name]["required"]}
    assert readable({**whole, **nulls})
    assert is_valid({**whole, **nulls}, "HostLine")


@pytest.mark.parametrize("name", ["pigeon", "pi-0.73.1"])
def test_recorded_session_files_are_as_it_says(name: str) -> None:
    lines = (ROOT / "tests" / "session" / "recorded" / f"{name}.jsonl").read_text("utf-8").split("\n")[:-1]
    assert lines
    assert [complaint(json.loads(line), "SessionFileLine") for line in lines] == [None] * len(lines)
