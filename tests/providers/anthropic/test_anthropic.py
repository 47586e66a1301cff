from __future__ import annotations

from typing import Any

import pytest

from fakes.http_server import HttpServer, Reply, plain, sse
from pigeon.agent.inference import ModelRequest
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.anthropic.stream import AnthropicStream
from pigeon.providers.errors import StreamBroken
from pigeon.providers.http.client import HttpClient
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent
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

EPHEMERAL = {"type": "ephemeral"}


def body(request: ModelRequest, **budgets: int) -> dict[str, Any]:
    return anthropic.body_of(request, budgets)


def start(**usage: Any) -> dict[str, Any]:
    counts = {"input_tokens": 10, "output_tokens": 1, **usage}
    return {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": counts}}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


async def play(http: HttpClient, *events: dict[str, Any]) -> CollectedAnswer:
    async with HttpServer([Reply(sse(*events, named=True))]) as server:
        return await collect_answer(anthropic.stream(a_request(a_model(base_url=server.url)), request_setup(http)))


async def test_the_request_as_the_server_gets_it(http: HttpClient) -> None:
    async with HttpServer([plain(400, {})]) as server:
        request = a_request(a_model(base_url=server.url + "/"))
        await collect_answer(anthropic.stream(request, request_setup(http)))
        received = server.requests[0]
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == KEY
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-beta" not in received.headers
    assert received.body == {
        "model": "m-1",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": EPHEMERAL}]}],
        "max_tokens": 32_000,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": EPHEMERAL}],
        "tools": [
            {
                "name": "bash",
                "description": "Run a command.",
                "input_schema": {
                    "type": "object",
                    "properties": {"command": {"type": "string"}},
                    "required": ["command"],
                },
                "eager_input_streaming": True,
                "cache_control": EPHEMERAL,
            }
        ],
    }


async def test_a_bearer_token_and_own_headers_go_out(http: HttpClient) -> None:
    async with HttpServer([plain(400, {})]) as server:
        given = request_setup(http, bearer=True, headers={"X-Team": "blue", "anthropic-version": None})
        await collect_answer(anthropic.stream(a_request(a_model(base_url=server.url)), given))
        headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in headers
    assert headers["x-team"] == "blue"
    assert "anthropic-version" not in headers


async def test_text_thinking_and_calls_become_blocks(http: HttpClient) -> None:
    whole = await play(
        http,
        start(cache_read_input_tokens=3, cache_creation_input_tokens=4),
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "sig-"},
            {"type": "signature_delta", "signature": "A"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "blob"}),
        *block(2, {"type": "text", "text": "I "}, {"type": "text_delta", "text": "see"}),
        *block(
            3,
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"command":'},
            {"type": "input_json_delta", "partial_json": '"ls"}'},
        ),
        *end("tool_use", output_tokens=9, input_tokens=None),
    )
    assert whole.kinds == ["thinking", "thinking", "text", "toolCall"]
    assert whole.texts == ["hm", "", "I see", '{"command":"ls"}']
    assert whole.signatures == {0: "sig-A", 1: "blob", 2: ABSENT, 3: ABSENT}
    assert whole.redacted == {1}
    assert whole.calls == {3: ("toolu_1", "bash")}
    assert whole.counts == (10, 9, 3, 4)
    assert (whole.end.stop, whole.end.raw_stop, whole.name.response_id) == ("toolUse", "tool_use", "msg_1")


async def test_unknown_blocks_and_deltas_are_passed_over(http: HttpClient) -> None:
    whole = await play(
        http,
        start(),
        *block(0, {"type": "server_tool_use", "id": "x", "name": "y"}, {"type": "citations_delta", "citation": {}}),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "ok"}, {"type": "new_delta"}),
        *end(),
    )
    assert whole.texts == ["ok"]


async def test_arguments_that_come_with_the_start_of_a_call_count(http: HttpClient) -> None:
    whole = await play(
        http,
        start(),
        *block(0, {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}}),
        *end("tool_use"),
    )
    assert whole.texts == ['{"command":"ls"}']


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "toolUse"),
        ("refusal", "error"),
        ("sensitive", "error"),
        ("something_new", "error"),
    ],
)
async def test_each_stop_reason_has_its_meaning(http: HttpClient, reason: str, stop: str) -> None:
    whole = await play(http, start(), *end(reason))
    assert (whole.end.stop, whole.end.raw_stop) == (stop, reason)
    if stop == "error":
        assert whole.failure.code == reason
        assert not whole.failure.retryable


async def test_an_answer_that_filled_the_window_is_an_overflow(http: HttpClient) -> None:
    assert (await play(http, start(), *end("model_context_window_exceeded"))).failure.overflow


async def test_an_error_event_is_the_failure(http: HttpClient) -> None:
    whole = await play(http, start(), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert (whole.failure.code, whole.failure.retryable) == ("overloaded_error", True)
    assert "Overloaded" in whole.failure.message


async def test_a_stream_that_never_gives_a_reason_is_truncated(http: HttpClient) -> None:
    assert (await play(http, start(), {"type": "message_stop"})).failure.code == "truncated"


def test_the_end_mark_of_another_api_is_passed_over_and_other_words_are_shown_as_they_came() -> None:
    out: list[Any] = []
    AnthropicStream("m").translate_event(b"", b"[DONE]", out)
    assert out == []
    with pytest.raises(StreamBroken, match=r"The event \(unnamed\) cannot be read: .* in \[OVER\]$"):
        AnthropicStream("m").translate_event(b"", b"[OVER]", out)


async def test_another_model_in_the_answer_is_noted(http: HttpClient) -> None:
    event = start()
    event["message"]["model"] = "m-2"
    assert (await play(http, event, *end())).name.response_model == "m-2"


def test_a_whole_conversation_is_converted() -> None:
    model = a_model()
    request = a_request(
        model,
        user_message([TextContent(text="look"), PNG, TextContent(text="  ")]),
        assistant_message(
            thinking_block("hm", "sig"),
            thinking_block("", "blob", redacted=True),
            text_block("I look"),
            tool_call("t1"),
            by=model,
        ),
        tool_result("t1", "out", PNG),
        user_message("and?"),
    )
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    assert body(request)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "blob"},
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "out"}, image],
                    "is_error": False,
                }
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "and?", "cache_control": EPHEMERAL}]},
    ]


def test_neighbouring_results_share_one_message_and_the_mark_is_on_its_end() -> None:
    request = a_request(
        a_model(),
        user_message("go"),
        assistant_message(tool_call("a"), tool_call("b")),
        tool_result("a", "1", is_error=True),
        tool_result("b", PNG),
    )
    results = body(request)["messages"][-1]["content"]
    assert [result["tool_use_id"] for result in results] == ["a", "b"]
    assert [result["is_error"] for result in results] == [True, False]
    assert results[1]["content"][0] == {"type": "text", "text": anthropic.IMAGE_NOTE}
    assert "cache_control" not in results[0]
    assert results[1]["cache_control"] == EPHEMERAL


def test_blank_texts_and_empty_messages_are_left_out() -> None:
    request = a_request(a_model(), user_message("  "), assistant_message(text_block("  ")), user_message("x"))
    assert [message["role"] for message in body(request)["messages"]] == ["user"]


def test_thinking_without_a_signature_goes_as_text() -> None:
    model = a_model()
    request = a_request(
        model, user_message("x"), assistant_message(thinking_block("hm"), text_block("t"), by=model), user_message("y")
    )
    assert body(request)["messages"][1]["content"][0] == {"type": "text", "text": "hm"}
    lenient = a_model(compat={"allowEmptySignature": True})
    request = a_request(
        lenient,
        user_message("x"),
        assistant_message(thinking_block("hm"), text_block("t"), by=lenient),
        user_message("y"),
    )
    assert body(request)["messages"][1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}


def test_cache_marks_follow_the_retention() -> None:
    none = body(a_request(a_model(), cache="none"))
    assert "cache_control" not in str(none)
    long = body(a_request(a_model(), cache="long"))
    assert long["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    refuses = a_model(compat={"supportsLongCacheRetention": False, "supportsCacheControlOnTools": False})
    short = body(a_request(refuses, cache="long"))
    assert short["system"][0]["cache_control"] == EPHEMERAL
    assert "cache_control" not in short["tools"][0]


def test_older_models_think_with_a_budget() -> None:
    model = a_model(reasoning=True)
    low = body(a_request(model, thinking="low"))
    assert low["thinking"] == {"type": "enabled", "budget_tokens": 2048, "display": "summarized"}
    assert low["max_tokens"] == 32_000
    headers = anthropic.headers_of(a_request(model), request_setup(HttpClient({})), low)
    assert headers["anthropic-beta"] == anthropic.INTERLEAVED
    own = body(a_request(model, thinking="xhigh"), high=20_000)
    assert own["thinking"]["budget_tokens"] == 20_000


def test_a_small_model_keeps_room_for_its_answer() -> None:
    small = body(a_request(a_model(reasoning=True, max_tokens=4096), thinking="high"))
    assert small["max_tokens"] == 4096
    assert small["thinking"]["budget_tokens"] == 3072
    tiny = body(a_request(a_model(reasoning=True, max_tokens=1500), thinking="high"))
    assert tiny["thinking"] == {"type": "disabled"}


def test_newer_models_think_by_effort() -> None:
    facts = {"reasoning": True, "compat": {"forceAdaptiveThinking": True}}
    for level, effort in (("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high")):
        sent = body(a_request(a_model(**facts), thinking=level))
        assert sent["thinking"] == {"type": "adaptive", "display": "summarized"}
        assert sent["output_config"] == {"effort": effort}
    mapped = a_model(**facts, thinking_level_map={"xhigh": "max"})
    assert body(a_request(mapped, thinking="xhigh"))["output_config"] == {"effort": "max"}


def test_off_is_said_unless_the_model_cannot_be_off() -> None:
    assert body(a_request(a_model(reasoning=True), thinking="off"))["thinking"] == {"type": "disabled"}
    always = a_model(reasoning=True, thinking_level_map={"off": None})
    assert "thinking" not in body(a_request(always, thinking="off"))
    assert "thinking" not in body(a_request(a_model(reasoning=False), thinking="off"))


def test_the_betas_are_only_those_needed_and_the_user_may_replace_them() -> None:
    model = a_model(compat={"supportsEagerToolInputStreaming": False})
    request = a_request(model)
    sent = body(request)
    assert "eager_input_streaming" not in sent["tools"][0]
    assert (
        anthropic.headers_of(request, request_setup(HttpClient({})), sent)["anthropic-beta"] == anthropic.FINE_GRAINED
    )
    own = request_setup(HttpClient({}), headers={"Anthropic-Beta": "mine"})
    assert anthropic.headers_of(request, own, sent)["anthropic-beta"] == "mine"
    none = request_setup(HttpClient({}), headers={"anthropic-beta": None})
    assert "anthropic-beta" not in anthropic.headers_of(request, none, sent)


def test_session_affinity_is_sent_where_it_is_wanted() -> None:
    for compat, name in (
        ({"sendSessionAffinityHeaders": True}, "x-session-affinity"),
        ({"sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openrouter"}, "x-session-id"),
    ):
        request = a_request(a_model(compat=compat))
        assert anthropic.headers_of(request, request_setup(HttpClient({})), {})[name] == "s-1"
    assert "x-session-affinity" not in anthropic.headers_of(a_request(a_model()), request_setup(HttpClient({})), {})


def test_ids_of_other_apis_fit() -> None:
    assert anthropic.to_call_id("call_1|fc_2") == "call_1_fc_2"
    assert len(anthropic.to_call_id("x" * 500)) == 64
