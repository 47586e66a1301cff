from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.http_server import HttpServer, Reply, sse
from pigeon.agent.inference import ToolSpec
from pigeon.providers.gateway import Gateway
from pigeon.providers.http.client import HttpClient
from pigeon.providers.request import Access, NoProviderHooks
from pigeon.providers.tool_specs import is_plain_object, to_object_schema, to_sent_tools
from pigeon.wire.model import Model
from support.model_requests import a_model, a_request, collect_answer

PLAIN = {"type": "object", "properties": {"a": {"type": "string"}}}


def specs_named(*names: str) -> list[ToolSpec]:
    return [ToolSpec(name, "A tool.", PLAIN) for name in names]


def test_tools_that_every_api_takes_are_the_very_same() -> None:
    tools = specs_named("read", "my-tool", "_x")
    sent, own_names = to_sent_tools(tools)
    assert all(one is other for one, other in zip(sent, tools, strict=True))
    assert own_names == {}


def test_names_that_providers_refuse_are_rewritten_and_known_again() -> None:
    sent, own_names = to_sent_tools(specs_named("two words", "3d", "ns.tool", "x" * 99))
    assert [tool.name for tool in sent] == ["two_words", "_3d", "ns_tool", "x" * 64]
    assert own_names == {"two_words": "two words", "_3d": "3d", "ns_tool": "ns.tool", "x" * 64: "x" * 99}


@given(st.lists(st.text("ab .1-_", min_size=1, max_size=4), unique=True, max_size=8))
def test_whatever_the_names_they_are_legal_and_stay_apart(names: list[str]) -> None:
    sent, own_names = to_sent_tools(specs_named(*names))
    found = [tool.name for tool in sent]
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in found)
    assert [own_names.get(name, name) for name in found] == names


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}, True], "description": "d"},
            {"type": "object", "properties": {"a": {}, "b": {}}, "description": "d"},
        ),
        ({**PLAIN, "oneOf": [{"required": ["a"]}]}, PLAIN),
        ({"type": "object", "required": ["ghost"]}, {"type": "object", "properties": {}}),
        ({"$ref": "#/$defs/x", "$defs": {"x": PLAIN}}, {"type": "object", "properties": {}, "$defs": {"x": PLAIN}}),
    ],
)
def test_a_schema_becomes_that_of_an_object(schema: Any, sent: Any) -> None:
    assert to_object_schema(schema) == sent
    assert is_plain_object(sent)


class Keys:
    async def resolve_access(self, model: Model) -> Access:
        return Access(key="k")


async def test_a_call_comes_back_under_the_name_that_the_tool_has(http: HttpClient) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "two_words", "arguments": "{}"}}
    chunks = sse({"id": "c", "choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}, "[DONE]")
    async with HttpServer([Reply(chunks)]) as server:
        model = a_model(api="openai-completions", base_url=server.url)
        odd = ToolSpec("two words", "A tool.", {"type": "object"})
        answer = await collect_answer(Gateway(Keys(), http, NoProviderHooks()).stream(a_request(model, tools=[odd])))
        [function] = [tool["function"] for tool in server.body["tools"]]
    assert (function["name"], function["parameters"]) == ("two_words", {"type": "object", "properties": {}})
    assert [delta.name for delta in answer.deltas if getattr(delta, "kind", "") == "toolCall"] == ["two words"]
