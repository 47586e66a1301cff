"""Answers for programs by a field of the API: which models are asked so, with which schemas, in which words."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.http_server import HttpServer, plain
from pigeon.agent.inference import OutputFormat
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.gateway import Gateway
from pigeon.providers.google import adapter as google
from pigeon.providers.http.client import HttpClient
from pigeon.providers.openai_chat import adapter as openai_chat
from pigeon.providers.openai_responses import adapter as openai_responses
from pigeon.providers.output_formats import find_native_format
from pigeon.wire.model import Model
from support.model_requests import a_model, a_request, collect_answer, request_setup

APIS = ("anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai")
TEXT = {"type": "string"}
PLAIN = {"type": "object", "properties": {"n": TEXT}, "required": ["n"], "additionalProperties": False}
ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com/v1"
GOOGLE = "https://generativelanguage.googleapis.com/v1beta"


def taking(api: str) -> Model:
    return a_model(api=api, compat={"supportsStructuredOutput": True})


def with_key(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"key": schema}, "required": ["key"]}


@pytest.mark.parametrize(
    ("facts", "alone", "beside_tools"),
    [
        ({"base_url": ANTHROPIC, "compat": {"supportsStrictTools": True}}, True, True),
        ({"base_url": ANTHROPIC}, False, False),
        ({"base_url": "https://proxy.example", "compat": {"supportsStrictTools": True}}, False, False),
        ({"base_url": "https://notanthropic.com", "compat": {"supportsStrictTools": True}}, False, False),
        ({"api": "openai-responses", "base_url": OPENAI, "id": "gpt-6-sol"}, True, True),
        ({"api": "openai-completions", "base_url": OPENAI, "id": "gpt-4o"}, True, True),
        ({"api": "openai-completions", "base_url": OPENAI, "id": "gpt-4.1-mini"}, True, True),
        ({"api": "openai-completions", "base_url": OPENAI, "id": "gpt-4-turbo"}, False, False),
        ({"api": "openai-completions", "base_url": OPENAI, "id": "gpt-4"}, False, False),
        ({"api": "openai-completions", "base_url": OPENAI, "id": "gpt-3.5-turbo"}, False, False),
        ({"api": "openai-completions", "base_url": "http://127.0.0.1:8000", "id": "gpt-6"}, False, False),
        ({"api": "azure-openai-responses", "base_url": "", "id": "gpt-5"}, True, True),
        ({"api": "google-generative-ai", "base_url": GOOGLE, "id": "gemini-3.5-flash"}, True, True),
        ({"api": "google-generative-ai", "base_url": GOOGLE, "id": "gemini-flash-latest"}, True, True),
        ({"api": "google-generative-ai", "base_url": GOOGLE, "id": "gemini-2.5-pro"}, True, False),
        ({"api": "google-generative-ai", "base_url": GOOGLE, "id": "gemini-2.0-flash"}, False, False),
        ({"api": "google-generative-ai", "base_url": GOOGLE, "id": "gemma-4-31b-it"}, False, False),
        ({"api": "google-generative-ai", "base_url": "http://127.0.0.1:8000", "id": "gemini-3-pro"}, False, False),
        ({"api": "scripted"}, False, False),
        ({"api": "of-an-extension", "compat": {"supportsStructuredOutput": True}}, False, False),
    ],
)
def test_only_models_that_are_known_for_it_are_asked_so(facts: Any, alone: bool, beside_tools: bool) -> None:
    model = a_model(**facts)
    assert (find_native_format(model, PLAIN, False) is not None) == alone
    assert (find_native_format(model, PLAIN, True) is not None) == beside_tools


@pytest.mark.parametrize("api", APIS)
def test_a_compat_flag_decides_for_any_server(api: str) -> None:
    assert find_native_format(taking(api), PLAIN, True) is not None
    known = {"base_url": OPENAI, "id": "gpt-6"} if "openai" in api else {"base_url": GOOGLE, "id": "gemini-3-pro"}
    assert (
        find_native_format(a_model(api=api, **known, compat={"supportsStructuredOutput": False}), PLAIN, True) is None
    )


@pytest.mark.parametrize(
    ("part", "takers"),
    [
        (TEXT, APIS),
        ({"type": ["string", "null"]}, APIS),
        ({"anyOf": [TEXT, {"type": "null"}]}, APIS),
        ({"const": "a"}, APIS),
        ({"enum": ["a", 1, None]}, APIS),
        ({"type": "integer", "default": 3, "examples": [4]}, APIS),
        ({"type": "array", "items": PLAIN}, APIS),
        ({"type": "string", "format": "date-time"}, APIS),
        ({"type": "string", "format": "uuid"}, APIS[:3]),
        ({"type": "array", "items": TEXT, "minItems": 1}, APIS),
        ({"type": "array", "items": TEXT, "minItems": 2}, APIS[1:]),
        ({"type": "integer", "minimum": 0}, APIS[1:]),
        ({"type": "integer", "exclusiveMinimum": 0}, APIS[1:3]),
        ({"type": "object", "properties": {}, "additionalProperties": False}, APIS[:3]),
        ({"type": "object", "properties": {"größe": TEXT}, "required": ["größe"]}, APIS[1:]),
        ({"type": "string", "pattern": "a+"}, ()),
        ({"type": "string", "minLength": 1}, ()),
        ({"type": "object", "additionalProperties": TEXT}, ()),
        ({"type": "object"}, ()),
        ({"type": "array"}, ()),
        ({"type": "array", "prefixItems": [TEXT]}, ()),
        ({"oneOf": [TEXT]}, ()),
        ({"allOf": [TEXT]}, ()),
        ({"enum": [[1]]}, ()),
        ({}, ()),
        (True, ()),
    ],
)
def test_a_schema_is_asked_for_so_only_if_the_server_takes_all_of_it(part: Any, takers: tuple[str, ...]) -> None:
    taken = {api for api in APIS if find_native_format(taking(api), with_key(part), True) is not None}
    assert taken == set(takers)


def test_a_schema_is_put_in_the_words_of_the_server() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"enum": ["x"], "default": "x"}},
        "required": ["a"],
    }
    strict = find_native_format(taking("openai-responses"), schema, True)
    one, text = {"enum": [1], "type": "integer"}, {"enum": ["x"], "type": "string"}
    assert strict == OutputFormat(
        {
            "type": "object",
            "properties": {"a": one, "b": {"anyOf": [text, {"type": "null"}]}},
            "required": ["a", "b"],
            "additionalProperties": False,
        }
    )
    loose = find_native_format(taking("google-generative-ai"), schema, True)
    assert loose == OutputFormat({**schema, "properties": {"a": one, "b": text}})


async def body_sent(adapter: Any, http: HttpClient, **facts: Any) -> Any:
    async with HttpServer([plain(400, {})]) as server:
        request = a_request(a_model(base_url=server.url, **facts), output=OutputFormat(PLAIN), thinking="high")
        await collect_answer(adapter.stream(request, request_setup(http)))
        return server.body


async def test_each_api_has_a_field_for_it_and_tools_beside_it(http: HttpClient) -> None:
    facts: dict[str, Any] = {"reasoning": True, "compat": {"forceAdaptiveThinking": True}}
    body = await body_sent(anthropic, http, **facts)
    assert body["output_config"] == {"effort": "high", "format": {"type": "json_schema", "schema": PLAIN}}
    assert body["tools"]
    named = {"name": "final_answer", "schema": PLAIN, "strict": True}
    body = await body_sent(openai_chat, http, api="openai-completions")
    assert (body["response_format"], len(body["tools"])) == ({"type": "json_schema", "json_schema": named}, 1)
    body = await body_sent(
        openai_responses, http, api="openai-responses", sampling_params={"text": {"verbosity": "low"}}
    )
    assert (body["text"], len(body["tools"])) == ({"verbosity": "low", "format": {"type": "json_schema", **named}}, 1)
    body = await body_sent(google, http, api="google-generative-ai")
    config = body["generationConfig"]
    assert (config["responseMimeType"], config["responseJsonSchema"]) == ("application/json", PLAIN)
    assert body["tools"]


def test_a_gateway_remembers_who_refused(http: HttpClient) -> None:
    gateway = Gateway(None, http, None)  # type: ignore[arg-type]
    model, other = taking("openai-responses"), taking("anthropic-messages")
    assert gateway.find_output_format(model, PLAIN, True) is not None
    gateway.on_format_refused(a_model(api="openai-responses", id="m-2"))
    assert gateway.find_output_format(other, PLAIN, True) is not None
    gateway.on_format_refused(model)
    assert gateway.find_output_format(model, PLAIN, True) is None
