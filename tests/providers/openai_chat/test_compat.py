from __future__ import annotations

from typing import Any

import pytest

from pigeon.providers.catalog.built_in import BuiltInCatalog
from pigeon.providers.google import adapter as google
from pigeon.providers.http.exchange import encode_body
from pigeon.providers.openai_chat import adapter as openai_chat
from pigeon.providers.openai_chat.compat import ChatCompat, chat_compat_of, is_openai_host
from pigeon.providers.openai_chat.thinking import thinking_fields
from pigeon.providers.request import ANSWER_TOKENS
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import levels_of
from support.model_requests import a_model, a_request


def at(url: str, **facts: Any) -> ChatCompat:
    return chat_compat_of(a_model(base_url=url, **facts))


def thinks(level: str, compat: dict[str, Any], **facts: Any) -> dict[str, Any]:
    model = a_model(reasoning=True, compat=compat, **facts)
    return thinking_fields(a_request(model, thinking=level), chat_compat_of(model), {})


def test_hosts_are_known_by_the_end_of_their_names() -> None:
    assert at("https://api.openai.com/v1").supports_developer_role
    assert not at("https://notopenai.com/v1").supports_developer_role
    assert at("https://api.deepseek.com").thinking_format == "deepseek"
    assert at("https://api.z.ai/api/paas/v4").max_tokens_field == "max_tokens"
    assert not at("https://api.x.ai/v1").supports_reasoning_effort
    assert is_openai_host(a_model(base_url="https://me.openai.azure.com/openai/v1"))


def test_a_provider_is_known_by_its_id_behind_a_proxy_but_not_on_this_machine() -> None:
    assert at("https://proxy.example/v1", provider="deepseek").thinking_format == "deepseek"
    assert at("http://localhost:11434/v1", provider="openai") == ChatCompat()
    assert at("http://127.0.0.1:8000/v1", provider="mistral") == ChatCompat()


def test_what_is_configured_wins_and_unknown_flags_do_no_harm() -> None:
    compat = at("https://api.openai.com/v1", compat={"supportsStore": False, "someday": 1, "thinkingFormat": None})
    assert not compat.supports_store
    assert compat.supports_developer_role


@pytest.mark.parametrize(
    ("compat", "on", "off"),
    [
        ({}, {"reasoning_effort": "low"}, {}),
        ({"supportsReasoningEffort": False}, {}, {}),
        ({"thinkingFormat": "openrouter"}, {"reasoning": {"effort": "low"}}, {"reasoning": {"effort": "none"}}),
        (
            {"thinkingFormat": "deepseek"},
            {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
            {"thinking": {"type": "disabled"}},
        ),
        (
            {"thinkingFormat": "zai"},
            {"thinking": {"type": "enabled", "clear_thinking": False}, "reasoning_effort": "low"},
            {"thinking": {"type": "disabled", "clear_thinking": False}},
        ),
        (
            {"thinkingFormat": "zai", "supportsReasoningEffort": False},
            {"thinking": {"type": "enabled", "clear_thinking": False}},
            {"thinking": {"type": "disabled", "clear_thinking": False}},
        ),
        (
            {"thinkingFormat": "qwen"},
            {"enable_thinking": True, "reasoning_effort": "low"},
            {"enable_thinking": False},
        ),
        (
            {"thinkingFormat": "qwen-chat-template"},
            {"chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": True}},
            {"chat_template_kwargs": {"enable_thinking": False, "preserve_thinking": True}},
        ),
        (
            {"thinkingFormat": "together"},
            {"reasoning": {"enabled": True}, "reasoning_effort": "low"},
            {"reasoning": {"enabled": False}},
        ),
        ({"thinkingFormat": "string-thinking"}, {"thinking": "low"}, {"thinking": "none"}),
        ({"thinkingFormat": "ant-ling"}, {}, {}),
        (
            {"thinkingFormat": "baseten", "chatTemplateArgs": {"enable_thinking": {"$var": "thinking.enabled"}}},
            {"chat_template_args": {"enable_thinking": True}, "reasoning_effort": "low"},
            {"chat_template_args": {"enable_thinking": False}},
        ),
        (
            {
                "thinkingFormat": "chat-template",
                "chatTemplateKwargs": {
                    "effort": {"$var": "thinking.effort", "omitWhenOff": True},
                    "budget": {"$var": "thinking.budget"},
                    "fixed": 1,
                },
            },
            {"chat_template_kwargs": {"effort": "low", "budget": 2048, "fixed": 1}},
            {"chat_template_kwargs": {"budget": 0, "fixed": 1}},
        ),
        ({"thinkingTokenBudgetField": "thinking_budget"}, {"reasoning_effort": "low", "thinking_budget": 2048}, {}),
        ({"supportsThinkingTokenBudget": True}, {"reasoning_effort": "low", "thinking_token_budget": 2048}, {}),
    ],
)
def test_each_server_is_told_in_its_own_words(compat: dict[str, Any], on: dict[str, Any], off: dict[str, Any]) -> None:
    assert thinks("low", compat) == on
    assert thinks("off", compat) == off


def test_the_level_map_names_the_levels() -> None:
    assert thinks("low", {}, thinking_level_map={"low": "tiny"}) == {"reasoning_effort": "tiny"}
    assert thinks("off", {}, thinking_level_map={"off": "none"}) == {"reasoning_effort": "none"}
    assert thinks("off", {"thinkingFormat": "openrouter"}, thinking_level_map={"off": None}) == {}
    ling = thinks("low", {"thinkingFormat": "ant-ling"}, thinking_level_map={"low": "l", "off": "o"})
    assert ling == {"reasoning": {"effort": "l"}}
    assert thinks("off", {"thinkingFormat": "ant-ling"}, thinking_level_map={"low": "l", "off": "o"}) == {}
    assert thinks("off", {"thinkingFormat": "baseten"}, thinking_level_map={"off": "no"}) == {"reasoning_effort": "no"}


@pytest.mark.parametrize("style", ["openrouter", "deepseek", "zai", "string-thinking", "openai", "mistral"])
def test_a_model_that_always_thinks_is_not_told_to_stop(style: str) -> None:
    assert thinks("off", {"thinkingFormat": style}, thinking_level_map={"off": None}) == {}


@pytest.mark.parametrize(
    ("provider", "model_id"),
    [
        ("baseten", "zai-org/GLM-5.2"),
        ("google", "gemini-flash-latest"),
        ("google", "gemini-flash-lite-latest"),
        ("together", "deepseek-ai/DeepSeek-V4-Pro-0813"),
        ("zai", "glm-5.2"),
        ("zai", "glm-5.3"),
    ],
)
def test_each_level_of_a_model_makes_another_request(provider: str, model_id: str) -> None:
    [model] = [known for known in BuiltInCatalog().models(provider) if known.id == model_id]
    requests = [a_request(model, thinking=level) for level in levels_of(model)]
    if model.api == "google-generative-ai":
        bodies = [google.body_of(request, {}) for request in requests]
    else:
        bodies = [openai_chat.body_of(request, chat_compat_of(model), {}) for request in requests]
    assert len({encode_body(body) for body in bodies}) == len(bodies) > 1


def test_thinking_leaves_room_for_the_answer() -> None:
    compat = {"supportsThinkingTokenBudget": True}
    model = a_model(reasoning=True, compat=compat, max_tokens=3000)
    sent = openai_chat.body_of(a_request(model, thinking="high"), chat_compat_of(model), {})
    assert sent["thinking_token_budget"] == 3000 - ANSWER_TOKENS
    small = a_request(model, thinking="high", max_tokens=500)
    assert "thinking_token_budget" not in openai_chat.body_of(small, chat_compat_of(model), {})


def test_a_model_that_does_not_reason_is_told_nothing() -> None:
    model = a_model(reasoning=False)
    assert thinking_fields(a_request(model, thinking="off"), chat_compat_of(model), {}) == {}


def test_a_flag_of_the_wrong_kind_is_named() -> None:
    said = 'compat in models.json: Missing or invalid field "supportsStrictMode": expected true or false, got a string'
    with pytest.raises(BadRecord, match=said):
        chat_compat_of(a_model(compat={"supportsStrictMode": "maybe"}))
    assert chat_compat_of(a_model(compat={"supportsStore": "true"})).supports_store
