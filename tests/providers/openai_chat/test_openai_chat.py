"""Requests to chat servers, those that differ from the rest included, and answers from them."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.http_server import HttpServer, Reply, plain, sse
from pigeon.agent.inference import ModelRequest
from pigeon.providers.history.cache import HistoryCache
from pigeon.providers.history.normalize import IMAGE_NOTE, IMAGES_LEAD, NO_OUTPUT, TOOL_IMAGE
from pigeon.providers.http.client import HttpClient
from pigeon.providers.openai_chat import adapter as openai_chat
from pigeon.providers.openai_chat.adapter import BRIDGE
from pigeon.providers.openai_chat.compat import chat_compat_of
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent
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


def chat_model(**facts: Any) -> Model:
    return a_model(**{"api": "openai-completions", "base_url": "http://127.0.0.1:1/v1", **facts})


def openai(**facts: Any) -> Model:
    return chat_model(base_url="https://api.openai.com/v1", provider="openai", **facts)


def body(request: ModelRequest, memory: HistoryCache | None = None, **budgets: int) -> dict[str, Any]:
    return openai_chat.body_of(request, chat_compat_of(request.model), budgets, memory)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "chat-1", "model": "m-1", "choices": choices, **more}


def call(
    index: int | None, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    piece: dict[str, Any] = {"function": {"name": name, "arguments": arguments}, "type": "function"}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece["id"] = call_id
    return {"tool_calls": [piece]}


async def play(http: HttpClient, *chunks: Any, **facts: Any) -> CollectedAnswer:
    async with HttpServer([Reply(sse(*chunks))]) as server:
        model = chat_model(base_url=server.url, **facts)
        return await collect_answer(openai_chat.stream(a_request(model), request_setup(http)))


async def test_the_request_as_the_server_gets_it(http: HttpClient) -> None:
    async with HttpServer([plain(400, {})]) as server:
        request = a_request(chat_model(base_url=server.url + "/v1", reasoning=True), thinking="low")
        await collect_answer(openai_chat.stream(request, request_setup(http)))
        received = server.requests[0]
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.body == {
        "model": "m-1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 32_000,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "bash",
                    "description": "Run a command.",
                    "parameters": {
                        "type": "object",
                        "properties": {"command": {"type": "string"}},
                        "required": ["command"],
                    },
                },
            }
        ],
        "reasoning_effort": "low",
    }


def test_openai_itself_gets_what_only_it_knows() -> None:
    sent = body(a_request(openai(reasoning=True), thinking="medium", cache="long"))
    assert sent["messages"][0]["role"] == "developer"
    assert sent["store"] is False
    assert sent["prompt_cache_key"] == "s-1"
    assert sent["prompt_cache_retention"] == "24h"
    assert body(a_request(openai()))["messages"][0]["role"] == "system"
    assert "prompt_cache_key" not in body(a_request(openai(), cache="none"))
    assert len(body(a_request(openai(), session_id="x" * 99))["prompt_cache_key"]) == 64


async def test_text_thinking_and_calls_become_blocks(http: HttpClient) -> None:
    whole = await play(
        http,
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "I "}),
        chunk({"content": "see"}),
        chunk(call(0, "c0", "bash", "")),
        chunk(call(0, None, None, '{"command":')),
        chunk(call(1, "c1", "bash", '{"command":"b"}')),
        chunk(call(0, None, None, '"a"}')),
        chunk({}, "tool_calls"),
        chunk(
            usage={
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 4},
            }
        ),
        "[DONE]",
    )
    assert whole.kinds == ["thinking", "text", "toolCall", "toolCall"]
    assert whole.texts == ["hm", "I see", '{"command":"a"}', '{"command":"b"}']
    assert whole.calls == {2: ("c0", "bash"), 3: ("c1", "bash")}
    assert whole.signatures[0] == "reasoning_content"
    assert whole.counts == (65, 9, 30, 5)
    assert whole.usage is not None
    assert whole.usage.reasoning == 4
    assert (whole.end.stop, whole.end.raw_stop, whole.name.response_id) == ("toolUse", "tool_calls", "chat-1")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_text"])
async def test_thinking_comes_under_several_names(http: HttpClient, name: str) -> None:
    whole = await play(http, chunk({name: "hm"}), chunk({"content": "x"}, "stop"))
    assert whole.kinds == ["thinking", "text"]
    assert whole.signatures[0] == name


async def test_reasoning_details_are_kept_for_replay(http: HttpClient) -> None:
    pieces = [{"type": "reasoning.text", "index": 0, "text": text} for text in ("h", "m")]
    secret = {"type": "reasoning.encrypted", "index": 1, "data": "blob"}
    whole = await play(
        http,
        chunk({"reasoning": "h", "reasoning_details": [pieces[0]]}),
        chunk({"reasoning": "m", "reasoning_details": [pieces[1]]}),
        chunk({"reasoning_details": [secret]}),
        chunk({"content": "x"}, "stop"),
    )
    assert whole.texts[0] == "hm"
    model = chat_model()
    block = thinking_block("hm", whole.signatures[0])
    sent = body(
        a_request(model, user_message("a"), assistant_message(block, text_block("x"), by=model), user_message("b"))
    )["messages"][2]
    assert sent["reasoning_details"] == [{"type": "reasoning.text", "index": 0, "text": "hm"}, secret]


async def test_calls_without_index_or_with_the_same_index_are_kept_apart(http: HttpClient) -> None:
    same = await play(
        http, chunk(call(0, "a", "bash", "{}")), chunk(call(0, "b", "bash", '{"x":1}')), chunk({}, "tool_calls")
    )
    assert [one for one, _ in same.calls.values()] == ["a", "b"]
    assert same.texts == ["{}", '{"x":1}']
    none = await play(
        http,
        chunk(call(None, "a", "bash", "{")),
        chunk(call(None, None, None, "}")),
        chunk(call(None, "b", "bash", {"x": 1})),
        chunk({}, "tool_calls"),
    )
    assert none.texts == ["{}", '{"x":1}']


async def test_a_call_without_id_gets_one_and_waits_for_its_name(http: HttpClient) -> None:
    whole = await play(
        http,
        chunk(call(0, None, None, '{"command":')),
        chunk(call(0, None, "bash", '"a"}')),
        chunk({}, "tool_calls"),
    )
    [(call_id, name)] = whole.calls.values()
    assert call_id.startswith("call_")
    assert name == "bash"
    assert whole.texts == ['{"command":"a"}']


@pytest.mark.parametrize(
    ("reason", "stop", "retryable"),
    [
        ("stop", "stop", None),
        ("length", "length", None),
        ("content_filter", "error", False),
        ("network_error", "error", True),
        ("odd", "error", False),
    ],
)
async def test_each_finish_reason_has_its_meaning(
    http: HttpClient, reason: str, stop: str, retryable: bool | None
) -> None:
    whole = await play(http, chunk({"content": "x"}, reason), "[DONE]")
    assert whole.end.stop == stop
    if retryable is not None:
        assert whole.failure.retryable is retryable


async def test_calls_behind_a_plain_stop_still_run(http: HttpClient) -> None:
    assert (await play(http, chunk(call(0, "a", "bash", "{}")), chunk({}, "stop"))).end.stop == "toolUse"


async def test_no_finish_reason_is_a_truncation_unless_the_server_never_gives_one(http: HttpClient) -> None:
    assert (await play(http, chunk({"content": "x"}), "[DONE]")).failure.code == "truncated"
    lenient = {"supportsFinishReason": False}
    assert (await play(http, chunk({"content": "x"}), "[DONE]", compat=lenient)).end.stop == "stop"
    assert (await play(http, chunk(call(0, "a", "bash", "{}")), compat=lenient)).end.stop == "toolUse"


async def test_an_error_chunk_is_the_failure(http: HttpClient) -> None:
    broken = await play(http, chunk({"content": "x"}), {"error": {"message": "Overloaded", "code": 502}})
    assert broken.texts == ["x"]
    assert (broken.failure.status, broken.failure.retryable) == (502, True)


async def test_usage_is_found_in_all_its_places(http: HttpClient) -> None:
    deepseek = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}
    assert (await play(http, chunk({"content": "x"}, "stop", usage=deepseek))).counts == (6, 2, 4, 0)
    event = chunk({"content": "x"}, "stop")
    event["choices"][0]["usage"] = {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 10}
    assert (await play(http, event)).counts == (0, 2, 10, 0)


async def test_content_as_a_list_of_parts_is_read(http: HttpClient) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert (await play(http, chunk({"content": parts}, "stop"))).texts == ["ab"]


async def test_another_model_in_the_answer_is_noted(http: HttpClient) -> None:
    assert (await play(http, chunk({"content": "x"}, "stop", model="m-2"))).name.response_model == "m-2"
    assert (await play(http, chunk({"content": "x"}, "stop"))).name.response_model is ABSENT


def test_a_whole_conversation_is_converted() -> None:
    model = chat_model()
    sent = body(
        a_request(
            model,
            user_message([TextContent(text="look"), PNG]),
            assistant_message(
                thinking_block("hm", "reasoning_content"),
                text_block("I look"),
                tool_call("c1"),
                tool_call("c2"),
                by=model,
            ),
            tool_result("c1", "out", PNG),
            tool_result("c2", PNG),
            user_message([TextContent(text="and"), TextContent(text="then?")]),
        )
    )["messages"]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    function = {"name": "bash", "arguments": '{"command":"ls"}'}
    assert sent[1:] == [
        {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
        {
            "role": "assistant",
            "content": "I look",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": function},
                {"id": "c2", "type": "function", "function": function},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
        {"role": "tool", "tool_call_id": "c2", "content": IMAGE_NOTE},
        {"role": "user", "content": [{"type": "text", "text": IMAGES_LEAD}, image, image]},
        {"role": "user", "content": "and\nthen?"},
    ]


def test_calls_without_text_have_no_content_and_empty_answers_are_skipped() -> None:
    model = chat_model()
    sent = body(
        a_request(
            model,
            user_message("a"),
            assistant_message(tool_call("c"), by=model),
            tool_result("c"),
            assistant_message(by=model),
            user_message("b"),
        )
    )
    assert sent["messages"][2]["content"] is None
    assert sent["messages"][3]["content"] == NO_OUTPUT
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "user"]


def test_tools_are_an_empty_list_when_only_the_history_has_calls() -> None:
    history = (user_message("a"), assistant_message(tool_call("c")), tool_result("c", "x"))
    assert body(a_request(chat_model(), *history, tools=[]))["tools"] == []
    assert "tools" not in body(a_request(chat_model(), user_message("a"), tools=[]))
    assert "tools" not in body(a_request(openai(), *history, tools=[]))


def test_compat_flags_change_the_messages() -> None:
    flags = {
        "requiresToolResultName": True,
        "requiresAssistantAfterToolResult": True,
        "requiresThinkingAsText": True,
        "requiresReasoningContentOnAssistantMessages": True,
    }
    model = chat_model(compat=flags)
    sent = body(
        a_request(
            model,
            user_message("a"),
            assistant_message(thinking_block("hm", "reasoning"), text_block("t"), tool_call("c"), by=model),
            tool_result("c", "x"),
            user_message("b"),
        )
    )["messages"]
    assert sent[2]["content"] == "hm\n\nt"
    assert sent[2]["reasoning_content"] == ""
    assert "reasoning" not in sent[2]
    assert sent[3]["name"] == "bash"
    assert sent[4] == {"role": "assistant", "content": BRIDGE}
    assert sent[5]["role"] == "user"


def test_compat_flags_change_the_fields() -> None:
    flags = {
        "supportsUsageInStreaming": False,
        "supportsStore": True,
        "maxTokensField": "max_tokens",
        "supportsStrictMode": True,
        "zaiToolStream": True,
        "openRouterRouting": {"only": ["x"]},
        "vercelGatewayRouting": {"order": ["y"]},
    }
    sent = body(a_request(chat_model(compat=flags, sampling_params={"temperature": 0.1, "max_tokens": 5})))
    assert "stream_options" not in sent
    assert sent["store"] is False
    assert sent["max_tokens"] == 5
    assert sent["tools"][0]["function"]["strict"] is False
    assert sent["tool_stream"] is True
    assert sent["provider"] == {"only": ["x"]}
    assert sent["providerOptions"] == {"gateway": {"order": ["y"]}}
    assert sent["temperature"] == 0.1


def test_anthropic_models_behind_a_router_get_cache_marks() -> None:
    model = chat_model(base_url="https://openrouter.ai/api/v1", provider="openrouter", id="anthropic/claude")
    sent = body(a_request(model, user_message("a"), assistant_message(text_block("b"), by=model), user_message("c")))
    mark = {"type": "ephemeral"}
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert sent["messages"][3]["content"] == [{"type": "text", "text": "c", "cache_control": mark}]
    assert sent["messages"][1]["content"] == "a"
    assert sent["tools"][0]["cache_control"] == mark
    assert "cache_control" not in str(body(a_request(model, cache="none")))


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("openai", {"session_id", "x-client-request-id", "x-session-affinity"}),
        ("openai-nosession", {"x-client-request-id", "x-session-affinity"}),
        ("openrouter", {"x-session-id"}),
    ],
)
def test_session_affinity_is_sent_where_it_is_wanted(style: str, names: set[str]) -> None:
    model = chat_model(compat={"sendSessionAffinityHeaders": True, "sessionAffinityFormat": style})
    request = a_request(model)
    plain_headers = openai_chat.headers_of(request, request_setup(HttpClient({})), chat_compat_of(chat_model()))
    headers = openai_chat.headers_of(request, request_setup(HttpClient({})), chat_compat_of(model))
    assert set(headers) - set(plain_headers) == names


def test_mistral_gets_ids_of_nine_characters() -> None:
    model = chat_model(base_url="https://api.mistral.ai/v1", provider="mistral")
    sent = body(
        a_request(
            model,
            user_message("a"),
            assistant_message(tool_call("toolu_0123456789")),
            tool_result("toolu_0123456789", "x"),
        )
    )
    call_id = sent["messages"][2]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert sent["messages"][3]["tool_call_id"] == call_id
    assert "stream_options" not in sent
    assert "store" not in sent


def mistral(model_id: str = "mistral-small-latest", **facts: Any) -> Model:
    url = "https://api.mistral.ai/v1"
    return chat_model(**{"base_url": url, "provider": "mistral", "reasoning": True, "id": model_id, **facts})


def thinking(model: Model, level: str) -> dict[str, Any]:
    sent = body(a_request(model, thinking=level))
    return {name: sent[name] for name in ("reasoning_effort", "prompt_mode") if name in sent}


@pytest.mark.parametrize("level", ["minimal", "low", "medium", "high"])
def test_mistral_knows_two_words_for_effort(level: str) -> None:
    for model_id in ("mistral-small-2603", "mistral-medium-3.5", "zai-glm-5-2"):
        assert thinking(mistral(model_id), level) == {"reasoning_effort": "high"}
    assert thinking(mistral("magistral-medium-latest"), level) == {"prompt_mode": "reasoning"}


def test_mistral_is_told_not_to_think_where_it_knows_the_word() -> None:
    assert thinking(mistral("mistral-medium-3.5"), "off") == {"reasoning_effort": "none"}
    assert thinking(mistral("magistral-small"), "off") == {}
    assert thinking(mistral("zai-glm-5-2"), "off") == {}
    assert thinking(mistral(reasoning=False), "off") == {}


def test_the_level_map_of_a_mistral_model_wins() -> None:
    model = mistral("mistral-large-4", thinking_level_map={"off": None, "low": "low"})
    assert thinking(model, "low") == {"reasoning_effort": "low"}
    assert thinking(model, "off") == {}
    assert thinking(mistral(compat={"supportsReasoningEffort": False}), "high") == {}


def test_mistral_gets_its_thinking_back_in_the_parts_it_came_in() -> None:
    model = mistral()
    said_thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    history = (
        user_message("a"),
        assistant_message(thinking_block("hm"), text_block("I look"), tool_call("123456789"), by=model),
        tool_result("123456789", "x"),
        assistant_message(thinking_block("hm"), tool_call("abcdefghi"), by=model),
        tool_result("abcdefghi", "y"),
        assistant_message(thinking_block(" ", "thinking"), text_block("done"), by=model),
        user_message("b"),
    )
    sent = body(a_request(model, *history))["messages"]
    assert sent[2]["content"] == [said_thinking, {"type": "text", "text": "I look"}]
    assert sent[4]["content"] == [said_thinking]
    assert sent[6]["content"] == "done"
    assert not any(name.startswith("reasoning") for message in sent for name in message)


def test_mistral_gets_no_thinking_of_another_model() -> None:
    sent = body(
        a_request(
            mistral(), user_message("a"), assistant_message(thinking_block("hm"), text_block("t")), user_message("b")
        )
    )["messages"]
    assert sent[2]["content"] == "t"


def test_mistral_keeps_a_cache_for_the_session() -> None:
    model = mistral()
    for cache in ("short", "long"):
        request = a_request(model, cache=cache)
        assert body(request)["prompt_cache_key"] == "s-1"
        assert "prompt_cache_retention" not in body(request)
        assert (
            openai_chat.headers_of(request, request_setup(HttpClient({})), chat_compat_of(model))["x-affinity"] == "s-1"
        )
    request = a_request(model, cache="none")
    assert "prompt_cache_key" not in body(request)
    assert "x-affinity" not in openai_chat.headers_of(request, request_setup(HttpClient({})), chat_compat_of(model))


@pytest.mark.parametrize("priority", [0, -5, 7])
def test_a_priority_goes_to_the_server_that_knows_it(priority: int) -> None:
    assert body(a_request(chat_model(compat={"vllmPriority": priority})))["priority"] == priority
    assert "priority" not in body(a_request(chat_model()))


def test_texts_of_a_result_stand_on_lines_of_their_own() -> None:
    model = chat_model(input=["text"])
    request = a_request(
        model, user_message("a"), assistant_message(tool_call("c"), by=model), tool_result("c", "one", "", "two", PNG)
    )
    assert body(request)["messages"][-1]["content"] == f"one\ntwo\n{TOOL_IMAGE}"


def test_cache_marks_need_no_instructions_and_move_along_with_a_memory() -> None:
    model, memory = chat_model(compat={"cacheControlFormat": "anthropic"}), HistoryCache()
    history: list[Any] = [user_message("one")]
    for number in range(3):
        sent = body(a_request(model, *history, system_prompt=" ", tools=[]), memory)["messages"]
        assert sent[-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
        assert len(sent) == len(history)
        history += [assistant_message(text_block(f"answer {number}"), by=model), user_message(f"question {number}")]
