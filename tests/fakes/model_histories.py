"""Histories of every kind, in the way each API is told them: for tests that hold whatever the history is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import strategies as st

from fakes.model_requests import PNG, a_model, answered, called, returned, said, text, thought
from pigeon.agent.inference import ModelRequest
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.google import adapter as google
from pigeon.providers.history.cache import HistoryCache
from pigeon.providers.openai_chat import adapter as openai_chat
from pigeon.providers.openai_chat.compat import chat_compat
from pigeon.providers.openai_responses import adapter as openai_responses
from pigeon.wire.content import ImageContent, ToolCall
from pigeon.wire.model import Model

Body = Callable[[ModelRequest, HistoryCache | None], dict[str, Any]]


def to_chat(request: ModelRequest, memory: HistoryCache | None) -> dict[str, Any]:
    return openai_chat.body_of(request, chat_compat(request.model), {}, memory)


BODIES: dict[str, Body] = {
    "anthropic-messages": lambda request, memory: anthropic.body_of(request, {}, memory),
    "openai-completions": to_chat,
    "openai-responses": openai_responses.body_of,
    "google-generative-ai": lambda request, memory: google.body_of(request, {}, memory),
}
PLACES = {"google-generative-ai": "contents", "openai-responses": "input"}
FLAGS: dict[str, list[dict[str, Any]]] = {
    "anthropic-messages": [{}, {"allowEmptySignature": True}],
    "openai-completions": [
        {},
        {"requiresAssistantAfterToolResult": True, "requiresToolResultName": True},
        {"cacheControlFormat": "anthropic", "requiresThinkingAsText": True},
        {"shortCallIds": True, "requiresReasoningContentOnAssistantMessages": True},
        {"shortCallIds": True, "thinkingFormat": "mistral"},
        {"cacheControlFormat": "anthropic", "requiresAssistantAfterToolResult": True, "isOpenai": True},
    ],
    "openai-responses": [{}],
    "google-generative-ai": [{}],
}
NAMES = {"google-generative-ai": ("gemini-2.5-pro", "gemini-3-pro")}


def models_of(api: str) -> list[Model]:
    """Every kind of model that the adapter tells a conversation differently to."""
    ids = NAMES.get(api, ("m-1", "m-2"))
    seeing = [a_model(api=api, id=name, compat=flags) for flags in FLAGS[api] for name in ids]
    return [*seeing, a_model(api=api, id=ids[0], input=["text"], reasoning=True)]


MODELS = {api: models_of(api) for api in BODIES}


def named(call: ToolCall, name: str) -> ToolCall:
    """The call of another tool."""
    return ToolCall(id=call.id, name=name, arguments=call.arguments, thought_signature=call.thought_signature)


WORDS = ["", " \n", "hi", "a\u2028b", "half \ud83d", "\ud83d\ude00", "é" * 3]
SIGNATURES = [
    None, "", "sig!", "c2ln", "reasoning_content", '[{"type":"x"}]', '{"type":"reasoning","id":"rs"}', '{"id":"i"}'
]  # fmt: skip
IDS = ["", "a", "a!", "a_", "2_a", "a|fc_1", "a|fc_2", "123456789", "x" * 70, "half \ud83d"]
ARGUMENTS: list[dict[str, Any]] = [
    {}, {"command": "ls"}, {"n": 10**30, "x": 0.5}, {"half \ud83d": ["\ud83d", None]}
]  # fmt: skip
NAMES_OF_TOOLS = ["bash", "bash", "", "3d", "-x", "two words", "n" * 70, "é", "half \ud83d"]
IMAGES = [PNG, PNG, ImageContent(data="", mime_type="image/png"), ImageContent(data="aGk=", mime_type="image/bmp")]
REASONS = ["stop", "toolUse", "length", "stop", "toolUse", "error", "aborted"]


def user_blocks(chance: Random, most: int) -> list[Any]:
    return [
        text(chance.choice(WORDS)) if chance.random() < 0.5 else chance.choice(IMAGES)
        for _ in range(chance.randint(0, most))
    ]


def block(chance: Random) -> Any:
    kind = chance.randrange(3)
    if kind == 0:
        return text(chance.choice(WORDS), chance.choice(SIGNATURES))
    if kind == 1:
        return thought(chance.choice(WORDS), chance.choice(SIGNATURES), chance.random() < 0.5)
    call = called(chance.choice(IDS), chance.choice(SIGNATURES), **chance.choice(ARGUMENTS))
    return named(call, chance.choice(NAMES_OF_TOOLS))


def message(api: str, chance: Random) -> Any:
    """A message of the user, a result, or (every second time) an answer of some model of the API."""
    kind = chance.randrange(4)
    if kind == 0:
        return said(chance.choice(WORDS) if chance.random() < 0.5 else user_blocks(chance, 3))
    if kind == 1:
        failed = chance.random() < 0.5
        return returned(chance.choice(IDS), *user_blocks(chance, 2), is_error=failed)
    blocks = [block(chance) for _ in range(chance.randint(0, 4))]
    return answered(*blocks, by=chance.choice(MODELS[api]), stop_reason=chance.choice(REASONS))


def messages_of(api: str) -> st.SearchStrategy[Any]:
    """One draw for a message: what fails is reduced to the fewest messages, not to the smallest ones."""
    return st.integers(0, 2**32 - 1).map(lambda seed: message(api, Random(seed)))
