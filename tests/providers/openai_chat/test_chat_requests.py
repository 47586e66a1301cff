"""Bodies for chat servers that differ from the rest."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_requests import PNG, a_model, a_request, answered, called, connection, returned, said, text, thought
from pigeon.agent.inference import ModelRequest
from pigeon.providers.history.cache import Replay
from pigeon.providers.history.normalize import TOOL_IMAGE
from pigeon.providers.http.client import Http
from pigeon.providers.openai_chat import adapter as openai_chat
from pigeon.providers.openai_chat.compat import chat_compat
from pigeon.wire.model import Model


def chat_model(**facts: Any) -> Model:
    return a_model(**{"api": "openai-completions", "base_url": "http://127.0.0.1:1/v1", **facts})


def mistral(model_id: str = "mistral-small-latest", **facts: Any) -> Model:
    url = "https://api.mistral.ai/v1"
    return chat_model(**{"base_url": url, "provider": "mistral", "reasoning": True, "id": model_id, **facts})


def body(request: ModelRequest, memory: Replay | None = None) -> dict[str, Any]:
    return openai_chat.body_of(request, chat_compat(request.model), {}, memory)


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
        said("a"),
        answered(thought("hm"), text("I look"), called("123456789"), by=model),
        returned("123456789", "x"),
        answered(thought("hm"), called("abcdefghi"), by=model),
        returned("abcdefghi", "y"),
        answered(thought(" ", "thinking"), text("done"), by=model),
        said("b"),
    )
    sent = body(a_request(model, *history))["messages"]
    assert sent[2]["content"] == [said_thinking, {"type": "text", "text": "I look"}]
    assert sent[4]["content"] == [said_thinking]
    assert sent[6]["content"] == "done"
    assert not any(name.startswith("reasoning") for message in sent for name in message)


def test_mistral_gets_the_thinking_of_another_model_as_plain_text() -> None:
    sent = body(a_request(mistral(), said("a"), answered(thought("hm"), text("t")), said("b")))["messages"]
    assert sent[2]["content"] == "hm\n\nt"


def test_mistral_keeps_a_cache_for_the_session() -> None:
    model = mistral()
    for cache in ("short", "long"):
        request = a_request(model, cache=cache)
        assert body(request)["prompt_cache_key"] == "s-1"
        assert "prompt_cache_retention" not in body(request)
        assert openai_chat.headers_of(request, connection(Http()), chat_compat(model))["x-affinity"] == "s-1"
    request = a_request(model, cache="none")
    assert "prompt_cache_key" not in body(request)
    assert "x-affinity" not in openai_chat.headers_of(request, connection(Http()), chat_compat(model))


@pytest.mark.parametrize("priority", [0, -5, 7])
def test_a_priority_goes_to_the_server_that_knows_it(priority: int) -> None:
    assert body(a_request(chat_model(compat={"vllmPriority": priority})))["priority"] == priority
    assert "priority" not in body(a_request(chat_model()))


def test_texts_of_a_result_stand_on_lines_of_their_own() -> None:
    model = chat_model(input=["text"])
    request = a_request(model, said("a"), answered(called("c"), by=model), returned("c", "one", "", "two", PNG))
    assert body(request)["messages"][-1]["content"] == f"one\ntwo\n{TOOL_IMAGE}"


def test_cache_marks_need_no_instructions_and_move_along_with_a_memory() -> None:
    model, memory = chat_model(compat={"cacheControlFormat": "anthropic"}), Replay()
    history: list[Any] = [said("one")]
    for number in range(3):
        sent = body(a_request(model, *history, system_prompt=" ", tools=[]), memory)["messages"]
        assert sent[-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
        assert len(sent) == len(history)
        history += [answered(text(f"answer {number}"), by=model), said(f"question {number}")]
