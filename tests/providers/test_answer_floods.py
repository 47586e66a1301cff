"""What servers can send without end, and without a word of content, is limited in every API."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fakes.http_server import HttpServer, Reply, sse
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.anthropic.stream import AnthropicStream
from pigeon.providers.errors import StreamBroken
from pigeon.providers.http.client import HttpClient
from pigeon.providers.openai_chat.stream import ChatStream
from pigeon.providers.openai_responses.stream import ResponsesStream
from pigeon.providers.request import RequestPolicy
from pigeon.providers.stream_translator import StreamTranslator
from support.model_requests import CollectedAnswer, a_model, a_request, collect_answer, request_setup

START = {"type": "message_start", "message": {"id": "msg_1"}}
THOUGHT = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}}
COUNTS = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient({})
    await client.warm("http://127.0.0.1")
    yield client
    await client.aclose()


def signatures(number: int) -> dict[str, Any]:
    change = {"type": "signature_delta", "signature": "s" * 10_000}
    return {"type": "content_block_delta", "index": 0, "delta": change} if number else THOUGHT


def chat(**change: Any) -> dict[str, Any]:
    return {"choices": [{"delta": change}]}


def details(number: int) -> dict[str, Any]:
    return chat(reasoning_details=[{"type": "reasoning.text", "index": number, "pad": "x" * 10_000}])


def pieces_of_one_detail(number: int) -> dict[str, Any]:
    return chat(reasoning_details=[{"type": "reasoning.encrypted", "index": 0, "data": "x" * 10_000}])


def calls_without_a_name(number: int) -> dict[str, Any]:
    return chat(tool_calls=[{"index": number, "function": {"arguments": ""}}])


def arguments_without_a_name(number: int) -> dict[str, Any]:
    return chat(tool_calls=[{"index": 0, "function": {"arguments": "x" * 10_000}}])


def ids(number: int) -> dict[str, Any]:
    return chat(tool_calls=[{"index": 0, "id": f"{number}" + "x" * 10_000, "function": {"arguments": "x"}}])


def places(number: int) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": number, "item": {"type": "news"}}


def items_without_a_place(number: int) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": {"type": "news"}}


def unsealed_thoughts(number: int) -> dict[str, Any]:
    item = {"type": "reasoning", "id": f"r{number}", "pad": "x" * 10_000}
    return {"type": "response.output_item.done", "output_index": number, "item": item}


@pytest.mark.parametrize(
    ("translator", "event"),
    [
        (AnthropicStream, signatures),
        (ChatStream, details),
        (ChatStream, pieces_of_one_detail),
        (ChatStream, calls_without_a_name),
        (ChatStream, arguments_without_a_name),
        (ChatStream, ids),
        (ResponsesStream, places),
        (ResponsesStream, items_without_a_place),
        (ResponsesStream, unsealed_thoughts),
    ],
)
def test_what_is_kept_without_being_said_has_a_limit(
    translator: Callable[[str], StreamTranslator], event: Callable[[int], dict[str, Any]]
) -> None:
    stream = translator("m")

    def flood() -> None:
        for number in range(50_000):
            stream.translate_event(b"", json.dumps(event(number)).encode(), [])

    with pytest.raises(StreamBroken, match="data beside its text") as broken:
        flood()
    assert broken.value.failure.code == "answer_too_long"


@pytest.mark.parametrize("translator", [AnthropicStream, ChatStream, ResponsesStream])
@pytest.mark.parametrize("unit", ["[", '{"a":'])
def test_an_event_nested_too_deeply_breaks_the_stream(translator: Callable[[str], StreamTranslator], unit: str) -> None:
    with pytest.raises(StreamBroken, match="nested more than 200 levels") as broken:
        translator("m").translate_event(b"ping", b'{"error":' + unit.encode() * 300, [])
    assert broken.value.failure.code == "malformed_stream"


def test_an_event_of_very_many_values_breaks_the_stream() -> None:
    with pytest.raises(StreamBroken, match="more than 100000 values"):
        ChatStream("m").translate_event(b"", b'{"error":[' + b"{}," * 100_001 + b"{}]}", [])


async def answer(http: HttpClient, *parts: bytes, **reply: Any) -> CollectedAnswer:
    policy = RequestPolicy(max_retries=0, most_empty_bytes=10_000)
    async with HttpServer([Reply(list(parts), **reply)]) as server:
        return await collect_answer(
            anthropic.stream(a_request(a_model(base_url=server.url)), request_setup(http, policy=policy))
        )


@pytest.mark.parametrize(
    "nothing",
    [b": ping\n\n", b"\n", *sse({"type": "ping"}, named=True), *sse(COUNTS), b"event: " + b"n" * 999 + b"\n\n"],
)
async def test_much_without_content_ends_the_request(http: HttpClient, nothing: bytes) -> None:
    whole = await answer(http, *sse(START), *[nothing * 30] * 600)
    assert whole.failure.code == "no_content"
    assert "without any content" in whole.failure.message


async def test_a_small_body_that_unpacks_into_a_large_one_is_given_up(http: HttpClient) -> None:
    packed = zlib.compress(b": ping\n\n" * 1_000_000)
    whole = await answer(http, packed, headers={"content-encoding": "deflate"})
    assert whole.failure.code == "no_content"
