from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.http_server import HttpServer, Reply, plain, sse
from pigeon.agent.inference import Metered
from pigeon.providers.history.normalize import TOOL_IMAGE
from pigeon.providers.http.client import HttpClient
from pigeon.providers.openai_responses import adapter as openai_responses
from pigeon.providers.openai_responses.adapter import azure_url, body_of, to_call_id
from pigeon.wire.content import TextContent
from pigeon.wire.errors import Refusal
from pigeon.wire.model import Model
from support.model_requests import (
    KEY,
    PNG,
    CollectedAnswer,
    a_model,
    a_request,
    assistant_message,
    collect_answer,
    request_setup,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    user_message,
)

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "blob"}


def responses_model(**facts: Any) -> Model:
    return a_model(**{"api": "openai-responses", **facts})


def item_added(place: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def item_done(place: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def delta(kind: str, place: int, words: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": place, "delta": words, **more}


def end(status: str = "completed", **response: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 5},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    return {
        "type": f"response.{status}",
        "response": {"id": "resp_1", "model": "m-1", "status": status, "usage": usage, **response},
    }


async def play(http: HttpClient, *events: Any) -> CollectedAnswer:
    async with HttpServer([Reply(sse(*events, named=True))]) as server:
        return await collect_answer(
            openai_responses.stream(a_request(responses_model(base_url=server.url)), request_setup(http))
        )


async def test_the_request_as_the_server_gets_it(http: HttpClient) -> None:
    async with HttpServer([plain(400, {})]) as server:
        request = a_request(responses_model(base_url=server.url + "/v1", reasoning=True), thinking="high")
        await collect_answer(openai_responses.stream(request, request_setup(http)))
        received = server.requests[0]
    assert received.path == "/v1/responses"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["session_id"] == received.headers["x-client-request-id"] == "s-1"
    assert received.body == {
        "model": "m-1",
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        ],
        "stream": True,
        "store": False,
        "max_output_tokens": 32_000,
        "tools": [
            {
                "type": "function",
                "name": "bash",
                "description": "Run a command.",
                "parameters": {
                    "type": "object",
                    "properties": {"command": {"type": "string"}},
                    "required": ["command"],
                },
                "strict": False,
            }
        ],
        "prompt_cache_key": "s-1",
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }


async def test_items_become_blocks(http: HttpClient) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "bash"}
    whole = await play(
        http,
        {"type": "response.created", "response": {"id": "resp_1", "model": "m-1"}},
        item_added(0, type="reasoning", id="rs_1", summary=[]),
        delta("reasoning_summary_text", 0, "one", summary_index=0),
        delta("reasoning_summary_text", 0, "two", summary_index=1),
        item_done(0, **REASONING),
        item_added(1, type="message", id="msg_1", content=[]),
        delta("output_text", 1, "I see"),
        item_done(1, type="message", id="msg_1", phase="final", content=[{"type": "output_text", "text": "I see"}]),
        item_added(2, **call, arguments=""),
        delta("function_call_arguments", 2, '{"command":'),
        delta("function_call_arguments", 2, '"ls"}'),
        item_done(2, **call, arguments='{"command":"ls"}'),
        end(),
    )
    assert whole.kinds == ["thinking", "text", "toolCall"]
    assert whole.texts == ["one\n\ntwo", "I see", '{"command":"ls"}']
    assert json.loads(whole.signatures[0]) == REASONING
    assert json.loads(whole.signatures[1]) == {"v": 1, "id": "msg_1", "phase": "final"}
    assert whole.calls == {2: ("call_1|fc_1", "bash")}
    assert whole.counts == (65, 9, 30, 5)
    assert (whole.end.stop, whole.end.raw_stop, whole.name.response_id) == ("toolUse", "completed", "resp_1")


async def test_items_that_come_without_deltas_are_read_whole(http: HttpClient) -> None:
    whole = await play(
        http,
        item_done(0, type="message", id="m", content=[{"type": "output_text", "text": "hi"}]),
        item_done(1, type="function_call", call_id="c", name="bash", arguments="{}"),
        end(),
    )
    assert whole.texts == ["hi", "{}"]
    assert whole.calls[1][0] == "c"


@pytest.mark.parametrize(
    ("tier", "model_id", "rate"),
    [("default", "m-1", 1), ("flex", "m-1", 0.5), ("priority", "m-1", 2), ("priority", "gpt-5.5", 2.5)],
)
async def test_a_service_tier_has_its_price(http: HttpClient, tier: str, model_id: str, rate: float) -> None:
    async with HttpServer([Reply(sse(end(service_tier=tier)))]) as server:
        request = a_request(a_model(id=model_id, api="openai-responses", base_url=server.url))
        deltas = [delta async for delta in openai_responses.stream(request, request_setup(http))]
    assert [delta.rate for delta in deltas if isinstance(delta, Metered)] == [rate]


async def test_encrypted_reasoning_may_come_with_the_end(http: HttpClient) -> None:
    whole = await play(
        http,
        item_added(0, type="reasoning", id="rs_1", summary=[]),
        item_done(0, type="reasoning", id="rs_1", summary=[]),
        end(output=[REASONING]),
    )
    assert json.loads(whole.signatures[0]) == REASONING


async def test_a_refusal_is_text(http: HttpClient) -> None:
    whole = await play(http, item_added(0, type="message", id="m"), delta("refusal", 0, "I won't"), end())
    assert whole.texts == ["I won't"]


async def test_running_out_of_tokens_is_a_length(http: HttpClient) -> None:
    assert (
        await play(http, end("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    ).end.stop == "length"


async def test_other_ends_are_errors(http: HttpClient) -> None:
    filtered = await play(http, end("incomplete", incomplete_details={"reason": "content_filter"}))
    assert filtered.failure.code == "content_filter"
    failed = await play(http, end("failed", error={"code": "server_error", "message": "oops"}))
    assert (failed.failure.message, failed.failure.retryable) == ("server_error: oops", True)
    full = await play(http, end("failed", error={"code": "context_length_exceeded", "message": "too long"}))
    assert full.failure.overflow


async def test_an_error_event_is_the_failure(http: HttpClient) -> None:
    broken = await play(http, {"type": "error", "code": "rate_limit_exceeded", "message": "slow down"})
    assert (broken.failure.message, broken.failure.retryable) == ("rate_limit_exceeded: slow down", True)


async def test_no_final_event_is_a_truncation(http: HttpClient) -> None:
    assert (
        await play(http, item_added(0, type="message", id="m"), delta("output_text", 0, "x"))
    ).failure.code == "truncated"


def test_a_whole_conversation_is_converted() -> None:
    model = responses_model()
    signature = json.dumps(REASONING)
    sent = body_of(
        a_request(
            model,
            user_message([TextContent(text="look"), PNG]),
            assistant_message(
                thinking_block("hm", signature),
                text_block("I look", '{"v":1,"id":"msg_1","phase":"p"}'),
                tool_call("c|fc_1"),
                by=model,
            ),
            tool_result("c|fc_1", "out", PNG),
            assistant_message(text_block("done", "msg_old"), by=model),
            user_message("more"),
        )
    )["input"]
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}
    message = {"type": "message", "role": "assistant", "status": "completed"}
    assert sent == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "look"}, image]},
        REASONING,
        {
            **message,
            "id": "msg_1",
            "content": [{"type": "output_text", "text": "I look", "annotations": []}],
            "phase": "p",
        },
        {"type": "function_call", "call_id": "c", "name": "bash", "arguments": '{"command":"ls"}', "id": "fc_1"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "out"}, image]},
        {**message, "id": "msg_old", "content": [{"type": "output_text", "text": "done", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "more"}]},
    ]


def test_another_models_calls_lose_their_item_id_and_its_thoughts_are_left_out() -> None:
    other = responses_model(id="older")
    sent = body_of(
        a_request(
            responses_model(),
            user_message("a"),
            assistant_message(thinking_block("hm", json.dumps(REASONING)), tool_call("c|fc_1"), by=other),
            tool_result("c|fc_1", "x"),
        )
    )["input"]
    assert "reasoning" not in [item.get("type") for item in sent]
    assert "id" not in sent[2]
    assert sent[2]["call_id"] == sent[3]["call_id"] == "c"


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    model = responses_model()
    sent = body_of(
        a_request(
            model,
            user_message("a"),
            assistant_message(thinking_block("hm", json.dumps(REASONING)), by=model),
            user_message("b"),
        )
    )
    assert "reasoning" not in [item.get("type") for item in sent["input"]]


def test_texts_of_a_result_stand_on_lines_of_their_own() -> None:
    model = responses_model(input=["text"])
    sent = body_of(
        a_request(
            model,
            user_message("a"),
            assistant_message(tool_call("c"), by=model),
            tool_result("c", "one", "", "two", PNG),
        )
    )
    assert sent["input"][-1]["output"] == f"one\ntwo\n{TOOL_IMAGE}"


def test_off_and_the_level_map() -> None:
    model = responses_model(reasoning=True)
    assert body_of(a_request(model, thinking="off"))["reasoning"] == {"effort": "none"}
    never = responses_model(reasoning=True, thinking_level_map={"off": None})
    assert "reasoning" not in body_of(a_request(never, thinking="off"))
    mapped = responses_model(reasoning=True, thinking_level_map={"minimal": "tiny"})
    assert body_of(a_request(mapped, thinking="minimal"))["reasoning"]["effort"] == "tiny"


def test_caching_follows_the_retention() -> None:
    openai = responses_model(base_url="https://api.openai.com/v1")
    assert body_of(a_request(openai, cache="long"))["prompt_cache_retention"] == "24h"
    assert "prompt_cache_retention" not in body_of(a_request(responses_model(), cache="long"))
    assert "prompt_cache_key" not in body_of(a_request(openai, cache="none"))


def test_the_smallest_answer_is_sixteen_tokens() -> None:
    assert body_of(a_request(responses_model(), max_tokens=1))["max_output_tokens"] == 16


async def test_azure_is_found_by_its_base_url(http: HttpClient) -> None:
    env = {"AZURE_OPENAI_DEPLOYMENT_NAME_MAP": "x=y, m-1 = mine"}
    async with HttpServer([plain(400, {})]) as server:
        model = responses_model(api="azure-openai-responses", base_url=server.url + "/openai/v1")
        await collect_answer(openai_responses.stream(a_request(model), request_setup(http, env=env)))
        received = server.requests[0]
    assert received.path == "/openai/v1/responses?api-version=v1"
    assert received.headers["api-key"] == KEY
    assert received.body["model"] == "mine"


def test_azure_base_urls_are_normalised() -> None:
    azure = responses_model(base_url="", api="azure-openai-responses")
    wanted = "https://me.openai.azure.com/openai/v1/responses?api-version="
    assert azure_url(azure, {"AZURE_OPENAI_RESOURCE_NAME": "me"}) == wanted + "v1"
    for base in ("https://me.openai.azure.com", "https://me.openai.azure.com/openai/"):
        env = {"AZURE_OPENAI_BASE_URL": base, "AZURE_OPENAI_API_VERSION": "2"}
        assert azure_url(azure, env) == wanted + "2"
    with pytest.raises(Refusal, match="AZURE_OPENAI_BASE_URL"):
        azure_url(azure, {})


def test_ids_of_other_apis_fit() -> None:
    assert to_call_id("call_1|fc_2") == "call_1"
    assert to_call_id("a b__") == "a_b"
    assert len(to_call_id("x" * 200)) <= 64
    assert to_call_id("___") == "call"


def test_an_unknown_signature_is_no_reasoning_item() -> None:
    model = responses_model()
    for signature in ("not json", '{"type":"x"}', "[]"):
        sent = body_of(
            a_request(
                model, user_message("a"), assistant_message(thinking_block("hm", signature), text_block("t"), by=model)
            )
        )
        assert [item.get("type") for item in sent["input"][:3]] == [None, None, "message"]
