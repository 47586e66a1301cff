from __future__ import annotations

from typing import Any

import pytest

from fakes.http_server import HttpServer, Reply, plain, sse
from pigeon.providers.google import adapter as google
from pigeon.providers.google.adapter import FOREIGN_CALL
from pigeon.providers.history.normalize import IMAGE_NOTE, IMAGES_LEAD, TOOL_IMAGE
from pigeon.providers.http.client import HttpClient
from pigeon.wire.base import ABSENT
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

SIGNATURE = "c2lnbmF0dXJl"
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}


def gemini(model_id: str = "gemini-3-pro", **facts: Any) -> Model:
    return a_model(**{"api": "google-generative-ai", "id": model_id, **facts})


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "r-1", "modelVersion": "gemini-3-pro", **more}


async def play(http: HttpClient, *chunks: Any) -> CollectedAnswer:
    async with HttpServer([Reply(sse(*chunks))]) as server:
        return await collect_answer(google.stream(a_request(gemini(base_url=server.url)), request_setup(http)))


def contents(model: Model, *messages: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = google.body_of(a_request(model, *messages), {})["contents"]
    return found


def thinking(model_id: str, level: str, **facts: Any) -> dict[str, Any]:
    request = a_request(gemini(model_id, reasoning=True, **facts), thinking=level)
    config: dict[str, Any] = google.body_of(request, {})["generationConfig"]["thinkingConfig"]
    return config


async def test_the_request_as_the_server_gets_it(http: HttpClient) -> None:
    async with HttpServer([plain(400, {})]) as server:
        await collect_answer(google.stream(a_request(gemini(base_url=server.url + "/v1beta")), request_setup(http)))
        received = server.requests[0]
    assert received.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert received.headers["x-goog-api-key"] == KEY
    assert received.body == {
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "bash",
                        "description": "Run a command.",
                        "parametersJsonSchema": {
                            "type": "object",
                            "properties": {"command": {"type": "string"}},
                            "required": ["command"],
                        },
                    }
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 32_000},
    }


async def test_parts_become_blocks(http: HttpClient) -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 30,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 4,
    }
    whole = await play(
        http,
        chunk({"text": "h", "thought": True}),
        chunk({"text": "m", "thought": True, "thoughtSignature": SIGNATURE}),
        chunk({"text": "I "}),
        chunk({"text": "see"}, {"functionCall": {"name": "bash", "args": {"command": "ls"}}, "thoughtSignature": "x"}),
        chunk({"functionCall": {"name": "bash", "id": "own", "args": {}}}),
        chunk({"text": ""}, finish="STOP", usageMetadata=usage),
    )
    assert whole.kinds == ["thinking", "text", "toolCall", "toolCall"]
    assert whole.texts == ["hm", "I see", '{"command":"ls"}', "{}"]
    assert whole.signatures == {0: SIGNATURE, 1: ABSENT, 2: "x", 3: ABSENT}
    assert whole.calls[2][0].startswith("bash_")
    assert whole.calls[3] == ("own", "bash")
    assert whole.counts == (70, 9, 30, 0)
    assert (whole.end.stop, whole.end.raw_stop, whole.name.response_id) == ("toolUse", "STOP", "r-1")


async def test_two_calls_with_one_id_get_two(http: HttpClient) -> None:
    call = {"functionCall": {"name": "bash", "id": "same", "args": {}}}
    whole = await play(http, chunk(call, call, finish="STOP"))
    assert len({call_id for call_id, _ in whole.calls.values()}) == 2


async def test_a_signature_alone_does_not_make_a_thought(http: HttpClient) -> None:
    whole = await play(http, chunk({"text": "hi", "thoughtSignature": SIGNATURE}, finish="STOP"))
    assert whole.kinds == ["text"]
    assert whole.signatures[0] == SIGNATURE
    late = await play(http, chunk({"text": "hi"}), chunk({"text": "", "thoughtSignature": SIGNATURE}, finish="STOP"))
    assert late.signatures == {0: SIGNATURE}


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "error"),
        ("RECITATION", "error"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("NEW_REASON", "error"),
    ],
)
async def test_each_finish_reason_has_its_meaning(http: HttpClient, reason: str, stop: str) -> None:
    whole = await play(http, chunk({"text": "x"}, finish=reason))
    assert (whole.end.stop, whole.end.raw_stop) == (stop, reason)
    if stop == "error":
        assert whole.failure.code == reason


async def test_a_blocked_prompt_says_so(http: HttpClient) -> None:
    blocked = await play(http, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
    assert "PROHIBITED_CONTENT" in blocked.failure.message


async def test_errors_and_truncation(http: HttpClient) -> None:
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}}
    assert (await play(http, chunk({"text": "x"}), error)).failure.retryable
    assert (await play(http, chunk({"text": "x"}))).failure.code == "truncated"


def test_a_whole_conversation_is_converted() -> None:
    model = gemini()
    assert contents(
        model,
        user_message([PNG]),
        assistant_message(
            thinking_block("hm", SIGNATURE),
            text_block("I look", "not base64!"),
            text_block("", SIGNATURE),
            tool_call("c1", SIGNATURE),
            tool_call("c2"),
            by=model,
        ),
        tool_result("c1", "out", PNG),
        tool_result("c2", "no", is_error=True),
        user_message("more"),
    ) == [
        {"role": "user", "parts": [IMAGE]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thoughtSignature": SIGNATURE},
                {"text": "I look"},
                {"text": "", "thoughtSignature": SIGNATURE},
                {
                    "functionCall": {"name": "bash", "args": {"command": "ls"}, "id": "c1"},
                    "thoughtSignature": SIGNATURE,
                },
                {"functionCall": {"name": "bash", "args": {"command": "ls"}, "id": "c2"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "bash", "response": {"output": "out"}, "id": "c1", "parts": [IMAGE]}},
                {"functionResponse": {"name": "bash", "response": {"error": "no"}, "id": "c2"}},
            ],
        },
        {"role": "user", "parts": [{"text": "more"}]},
    ]


def test_older_models_get_no_ids_and_images_behind_the_results() -> None:
    model = gemini("gemini-2.5-flash")
    sent = contents(
        model, user_message("a"), assistant_message(tool_call("c"), by=model), tool_result("c", PNG), user_message("b")
    )
    assert sent[1]["parts"] == [{"functionCall": {"name": "bash", "args": {"command": "ls"}}}]
    assert sent[2]["parts"] == [{"functionResponse": {"name": "bash", "response": {"output": IMAGE_NOTE}}}]
    assert sent[3] == {"role": "user", "parts": [{"text": IMAGES_LEAD}, IMAGE]}
    assert sent[4]["parts"] == [{"text": "b"}]


def test_signatures_of_another_model_are_not_sent() -> None:
    sent = contents(
        gemini(),
        user_message("a"),
        assistant_message(text_block("t", SIGNATURE), by=gemini("gemini-3-flash")),
        user_message("b"),
    )
    assert sent[1]["parts"] == [{"text": "t"}]


def test_a_call_that_a_newer_model_did_not_make_is_marked_as_such() -> None:
    other = assistant_message(text_block("t"), tool_call("a", SIGNATURE), tool_call("b"), by=gemini("gemini-3-flash"))
    results = (tool_result("a", "x"), tool_result("b", "y"))
    for model in (gemini(), gemini("gemini-flash-latest")):
        words, first, second = contents(model, user_message("go"), other, *results)[1]["parts"]
        assert first["thoughtSignature"] == FOREIGN_CALL == "skip_thought_signature_validator"
        assert "thoughtSignature" not in words
        assert "thoughtSignature" not in second
    older = contents(gemini("gemini-2.5-pro"), user_message("go"), other, *results)[1]["parts"]
    assert not any("thoughtSignature" in part for part in older)


def test_a_call_that_lost_its_signature_is_marked_too() -> None:
    model = gemini()
    sent = contents(
        model, user_message("go"), assistant_message(tool_call("a", "no base64!"), by=model), tool_result("a", "x")
    )
    assert sent[1]["parts"][0]["thoughtSignature"] == FOREIGN_CALL


def test_texts_of_a_result_stand_on_lines_of_their_own() -> None:
    model = gemini(input=["text"])
    sent = contents(
        model, user_message("a"), assistant_message(tool_call("c"), by=model), tool_result("c", "one", "", "two", PNG)
    )
    output = sent[2]["parts"][0]["functionResponse"]["response"]["output"]
    assert output == f"one\ntwo\n{TOOL_IMAGE}"


def test_a_name_that_moves_along_means_the_newest_model() -> None:
    sent = contents(
        gemini("gemini-flash-latest"), user_message("a"), assistant_message(tool_call("c")), tool_result("c", PNG)
    )
    assert sent[1]["parts"][0]["functionCall"]["id"] == "c"
    assert sent[2]["parts"][0]["functionResponse"]["parts"] == [IMAGE]
    assert (
        google.gemini_generation("gemini-flash-lite-latest")
        == google.gemini_generation("models/gemini-pro-latest")
        == 3
    )
    assert google.gemini_generation("gemini-2.5-flash-latest") == 2
    assert google.gemini_generation("latest") == google.gemini_generation("gemini-exp-1206") == 0


def test_newer_models_think_by_level() -> None:
    named = {"off": None, "minimal": "minimal", "low": "low"}
    assert thinking("gemini-flash-latest", "low", thinking_level_map=named)["thinkingLevel"] == "LOW"
    assert thinking("gemini-flash-latest", "off", thinking_level_map=named) == {"thinkingLevel": "MINIMAL"}
    assert thinking("gemini-3-pro", "low") == {"includeThoughts": True, "thinkingLevel": "LOW"}
    assert thinking("gemma-4-27b", "high")["thinkingLevel"] == "HIGH"
    assert thinking("gemini-3-pro", "off") == {"thinkingLevel": "MINIMAL"}
    assert thinking("gemini-3-pro", "off", thinking_level_map={"minimal": None}) == {"thinkingLevel": "LOW"}


@pytest.mark.parametrize(
    ("model_id", "level", "budget"),
    [
        ("gemini-2.5-pro", "minimal", 128),
        ("gemini-2.5-pro", "high", 32_768),
        ("gemini-2.5-flash", "high", 24_576),
        ("gemini-2.5-flash-lite", "minimal", 512),
        ("gemini-2.5-flash", "xhigh", 24_576),
        ("something-else", "low", -1),
    ],
)
def test_older_models_think_with_a_budget(model_id: str, level: str, budget: int) -> None:
    assert thinking(model_id, level) == {"includeThoughts": True, "thinkingBudget": budget}


def test_off_is_the_smallest_budget_and_own_budgets_win() -> None:
    assert thinking("gemini-2.5-flash", "off") == {"thinkingBudget": 0}
    assert thinking("gemini-2.5-flash-lite", "off") == {"thinkingBudget": 0}
    assert thinking("gemini-2.5-pro", "off") == {"thinkingBudget": 128}
    request = a_request(gemini("gemini-2.5-pro", reasoning=True), thinking="low")
    config = google.body_of(request, {"low": 99})["generationConfig"]["thinkingConfig"]
    assert config["thinkingBudget"] == 99
