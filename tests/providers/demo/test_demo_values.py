"""What the demo model gives programs: a value for any schema, of what the conversation has shown."""

from __future__ import annotations

from typing import Any

import pytest

from pigeon.agent.inference import OutputFormat
from pigeon.agent.output_schema import OutputSchema
from pigeon.providers.demo.model import build_answer, make_demo_model
from pigeon.providers.demo.values import build_matching_value, select_relevant_files
from pigeon.providers.scripted.script import CallBlock, TextBlock
from pigeon.sdk.output import OutputType
from pigeon.wire import codec
from support.model_requests import a_request, assistant_message, tool_call, tool_result, user_message
from support.output_cases import CASES, TEXT

LISTED = ["README.md", "main.py", "test_a.py", "tests/"]
TEXTS = {"type": "array", "items": TEXT}
ODD: list[Any] = [
    {"type": "integer", "minimum": 10, "multipleOf": 7},
    {"type": "integer", "exclusiveMaximum": 3},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.1},
    {"type": "integer", "maximum": -5},
    {"type": "string", "minLength": 60},
    {"type": "string", "maxLength": 2},
    {"type": "string", "pattern": r"^v\d+\.\d{2}(-(rc|beta))?$", "examples": [5, "v1", "v1.00-rc"]},
    {"type": "string", "pattern": "^(fixed)?-text$", "examples": ["-text"]},
    {"type": "string", "pattern": "^[0-9a-f]{40}$"},
    {"type": "string", "pattern": r"^[A-Z]{3}$"},
    {"type": "string", "pattern": r"^v?\d+\.\d+\.\d+$"},
    {"type": "string", "pattern": "^plain words$"},
    {"type": "string", "pattern": r"^\S+@\S+$", "minLength": 8},
    {"type": "string", "format": "uuid"},
    {"type": "string", "contentEncoding": "base64"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "items": TEXT, "maxItems": 1},
    {"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "items": False, "minItems": 2},
    {"type": "array", "contains": {"const": "x"}},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "required": ["a"], "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {}},
    {"allOf": [{"type": "object", "properties": {"a": TEXT}}, {"required": ["a", "b"], "properties": {"b": TEXT}}]},
    {"oneOf": [{"type": "number"}, {"type": "integer"}, TEXT]},
    {"type": ["null", "string"], "not": {"type": "null"}},
    {"enum": [3, "x"]},
    {},
]


@pytest.mark.parametrize(
    "schema", [*(OutputType(kind).schema for kind, _ in CASES.values()), *ODD], ids=lambda given: str(given)[:60]
)
@pytest.mark.parametrize("listed", [[], LISTED], ids=["nothing", "files"])
def test_there_is_a_value_for_any_schema(schema: Any, listed: list[str]) -> None:
    accepted = OutputSchema(schema)
    accepted.validate_arguments(
        build_matching_value(accepted.parameters, select_relevant_files("Which of them are tests?", listed))
    )


def test_a_text_for_a_pattern_that_cannot_be_guessed_is_a_plain_one() -> None:
    assert isinstance(
        build_matching_value({"type": "string", "pattern": "^(?:x|y)-[0-9]{4}$"}, select_relevant_files("Which?", [])),
        str,
    )


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Which of them are tests?", ["test_a.py", "tests/"]),
        ("list the files", LISTED),
        ("Which Python files are there?", ["main.py", "test_a.py"]),
        ("which are *.md", ["README.md"]),
        ("Which of them are pictures?", []),
    ],
)
def test_a_list_of_texts_has_the_files_that_the_question_names(question: str, names: list[str]) -> None:
    assert build_matching_value(TEXTS, select_relevant_files(question, LISTED)) == names


def test_tools_come_first_and_then_the_value() -> None:
    wanted = OutputFormat(TEXTS)
    (text, call) = build_answer(a_request(make_demo_model(), user_message("list the files"), output=wanted))
    assert isinstance(text, TextBlock)
    assert isinstance(call, CallBlock)
    history = [
        user_message("list the files"),
        assistant_message(tool_call("c1", command="ls -A .")),
        tool_result("c1", "a.py\nb.py"),
    ]
    (text,) = build_answer(a_request(make_demo_model(), *history, output=wanted))
    assert isinstance(text, TextBlock)
    assert codec.decode(text.text) == ["a.py", "b.py"]


def test_a_reminder_of_the_agent_is_not_the_question() -> None:
    history = [
        user_message("list the files"),
        assistant_message(tool_call("c1", command="ls -A .")),
        tool_result("c1", "a.py"),
    ]
    history += [assistant_message(), user_message("<reminder>\nIs all of it done?\n</reminder>")]
    (text,) = build_answer(a_request(make_demo_model(), *history, output=OutputFormat(TEXTS)))
    assert isinstance(text, TextBlock)
    assert codec.decode(text.text) == ["a.py"]
