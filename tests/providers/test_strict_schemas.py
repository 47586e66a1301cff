from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.http_server import HttpServer, Reply, plain, sse
from pigeon.agent.arguments import validate_arguments
from pigeon.agent.inference import ToolSpec
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.http.client import HttpClient
from pigeon.providers.openai_chat import adapter as openai_chat
from pigeon.providers.openai_chat.compat import chat_compat_of
from pigeon.providers.openai_responses import adapter as openai_responses
from pigeon.providers.strict_schemas import TOO_MUCH, make_strict_parameters
from pigeon.tools.bash import BashTool
from pigeon.tools.edit import EditTool
from pigeon.tools.grep import GrepTool
from pigeon.tools.read import ReadTool
from pigeon.tools.write import WriteTool
from support.model_requests import a_model, a_request, collect_answer, request_setup


def a_tool(schema: Any, strict: bool = True) -> ToolSpec:
    return ToolSpec("tool", "A tool.", schema, strict)


def with_key(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"key": schema}, "required": ["key"]}


READ = ToolSpec("read", "Reads.", ReadTool.parameters, strict=True)


def test_every_key_is_required_and_known_and_an_optional_one_may_be_null() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "number"},
            "empty": {"type": ["string", "null"]},
            "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {"type": "string"}}}},
        },
        "required": ["path", "edits"],
    }
    found = make_strict_parameters(a_tool(schema))
    assert found is not None
    assert (found["required"], found["additionalProperties"]) == (["path", "limit", "empty", "edits"], False)
    assert found["properties"] == {
        "path": {"type": "string"},
        "limit": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "empty": {"type": ["string", "null"]},
        "edits": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"old": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["old"],
                "additionalProperties": False,
            },
        },
    }
    assert schema["required"] == ["path", "edits"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/x"},
        {"allOf": [{"type": "string"}]},
        {"oneOf": [{"type": "string"}]},
        {"not": {"type": "string"}},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {}},
        {"type": "object", "properties": {}, "required": ["ghost"]},
        {"type": "object", "properties": {}, "required": "ghost"},
        {"properties": {"a": {"type": "string"}}},
        {"type": "array", "items": [{"type": "string"}]},
        {"anyOf": []},
        {"anyOf": [{"type": "object"}, {"type": "string"}]},
        {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        True,
    ],
)
def test_what_cannot_be_said_strictly_is_sent_as_it_is(schema: Any) -> None:
    assert make_strict_parameters(a_tool(with_key(schema))) is None


def test_only_objects_and_only_tools_that_ask_for_it() -> None:
    assert make_strict_parameters(a_tool({"type": "string"})) is None
    assert make_strict_parameters(a_tool({})) is None
    assert make_strict_parameters(a_tool(with_key({"type": "string"}), strict=False)) is None


@pytest.mark.parametrize("tool", [ReadTool, BashTool, EditTool, WriteTool])
def test_the_tools_that_change_files_and_run_commands_are_strict_everywhere(tool: Any) -> None:
    spec = ToolSpec(tool.name, tool.description, tool.parameters, tool.strict)
    assert make_strict_parameters(spec) is not None
    assert "strict" in anthropic_tool(spec)
    assert GrepTool.strict is False


def anthropic_tool(spec: ToolSpec) -> dict[str, Any]:
    model = a_model(compat={"supportsStrictTools": True})
    [tool] = anthropic.body_of(a_request(model, tools=[spec]), {}, may_be_strict=True)["tools"]
    return dict(tool)


@pytest.mark.parametrize(
    "keywords",
    [
        {"type": "number", "minimum": 1},
        {"type": "number", "maximum": 1},
        {"type": "number", "exclusiveMinimum": 1},
        {"type": "number", "exclusiveMaximum": 1},
        {"type": "number", "multipleOf": 2},
        {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        {"type": "array", "items": {"type": "string"}, "minItems": 2},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"type": "array", "items": {"type": "string"}, "minContains": 1},
        {"type": "object", "properties": {}, "minProperties": 1},
        {"type": "object", "properties": {}, "maxProperties": 1},
        {"type": "string", "format": "regex"},
        {"type": "string", "format": 3},
    ],
)
def test_keywords_that_one_server_does_not_know_make_a_tool_not_strict_there(keywords: Any) -> None:
    spec = a_tool(with_key(keywords))
    tool = anthropic_tool(spec)
    assert "strict" not in tool
    assert tool["input_schema"] == with_key(keywords)
    assert make_strict_parameters(spec) is not None


@pytest.mark.parametrize(
    "keywords",
    [
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "array", "items": {"type": "string"}, "minItems": 0},
        {"type": "string", "format": "date-time"},
        {"type": "string", "enum": ["a"], "minLength": 1},
    ],
)
def test_keywords_that_it_knows_stay(keywords: Any) -> None:
    tool = anthropic_tool(a_tool(with_key(keywords)))
    assert tool["strict"] is True
    assert tool["input_schema"]["properties"]["key"] == keywords


def test_nothing_is_strict_unless_compat_says_so() -> None:
    model = a_model()
    assert "strict" not in anthropic.body_of(a_request(model, tools=[READ]), {})["tools"][0]
    chat = openai_chat.body_of(a_request(model, tools=[READ]), chat_compat_of(model), {})["tools"][0]["function"]
    assert ("strict" in chat, chat["parameters"]) == (False, READ.parameters)
    sent = openai_responses.body_of(a_request(model, tools=[READ]))["tools"][0]
    assert (sent["strict"], sent["parameters"]) == (False, READ.parameters)


def test_servers_that_take_it_get_strict_tools_and_others_beside_them() -> None:
    model = a_model(compat={"supportsStrictMode": True})
    odd = a_tool(with_key({"oneOf": []}))
    functions = openai_chat.body_of(a_request(model, tools=[READ, odd]), chat_compat_of(model), {})["tools"]
    items = openai_responses.body_of(a_request(model, tools=[READ, odd]))["tools"]
    for first, second in ([one["function"] for one in functions], items):
        assert (first["strict"], first["parameters"]) == (True, make_strict_parameters(READ))
        assert (second["strict"], second["parameters"]) == (False, odd.parameters)


ANSWER = sse(
    {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "fine"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
    {"type": "message_stop"},
    named=True,
)


def refusal(message: str, status: int = 400) -> Reply:
    return plain(status, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})


@pytest.mark.parametrize("message", TOO_MUCH)
async def test_a_server_for_which_it_is_too_much_is_asked_again_without(http: HttpClient, message: str) -> None:
    async with HttpServer([refusal(f"{message} 20)"), Reply(ANSWER), Reply(ANSWER)]) as server:
        model = a_model(base_url=server.url, compat={"supportsStrictTools": True})
        given = request_setup(http)
        for _ in range(2):
            answer = await collect_answer(anthropic.stream(a_request(model, tools=[READ]), given))
            assert answer.end.stop == "stop"
        assert ["strict" in received.body["tools"][0] for received in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    "reply", [refusal("Too many strict tools (20)", 500), refusal("no such model"), refusal("strict is not known")]
)
async def test_any_other_refusal_stands(http: HttpClient, reply: Reply) -> None:
    async with HttpServer([reply, Reply(ANSWER)]) as server:
        model = a_model(base_url=server.url, compat={"supportsStrictTools": True})
        answer = await collect_answer(anthropic.stream(a_request(model, tools=[READ]), request_setup(http)))
        assert answer.failure is not None
        assert len(server.requests) == 1


async def test_a_second_refusal_is_the_end(http: HttpClient) -> None:
    async with HttpServer([refusal(TOO_MUCH[0]), refusal(TOO_MUCH[0]), Reply(ANSWER)]) as server:
        model = a_model(base_url=server.url, compat={"supportsStrictTools": True})
        answer = await collect_answer(anthropic.stream(a_request(model, tools=[READ]), request_setup(http)))
        assert answer.failure is not None
        assert len(server.requests) == 2


leaves = st.sampled_from([{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": ["string", "null"]}])
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(
            lambda keys, required: {
                "type": "object",
                "properties": keys,
                "required": [k for k in keys if k in required],
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.sets(st.sampled_from("abc")),
        ),
    ),
    max_leaves=6,
)


def example_of(schema: Any) -> Any:
    """What a model that is held to the strict schema sends: null wherever it may."""
    if "anyOf" in schema:
        return None
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "null" in kinds:
        return None
    if "object" in kinds:
        return {key: example_of(value) for key, value in schema["properties"].items()}
    return {"array": [], "string": "x", "integer": 1, "boolean": True}[kinds[0]]


@given(schemas)
def test_what_a_strict_model_sends_is_valid_for_the_tool(schema: Any) -> None:
    whole = {"type": "object", "properties": {"key": schema}}
    strict = make_strict_parameters(a_tool(whole))
    assert strict is not None
    validate_arguments("tool", whole, example_of(strict))
