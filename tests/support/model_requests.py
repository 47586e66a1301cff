"""Requests to models and what comes back, in few words; and strategies for histories of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

from hypothesis import strategies as st

from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockOpened,
    Delta,
    Finished,
    Metered,
    ModelRequest,
    Named,
    ToolSpec,
)
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.google import adapter as google
from pigeon.providers.history.cache import HistoryCache
from pigeon.providers.http.client import HttpClient
from pigeon.providers.openai_chat import adapter as openai_chat
from pigeon.providers.openai_chat.compat import chat_compat_of
from pigeon.providers.openai_responses import adapter as openai_responses
from pigeon.providers.request import Access, NoProviderHooks, RequestPolicy, RequestSetup
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Cost, Model, ModelCost, Usage

KEY = "secret-key-1234"
PNG = ImageContent(data="aGk=", mime_type="image/png")
BASH = ToolSpec(
    "bash",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
Body = Callable[[ModelRequest, HistoryCache | None], dict[str, Any]]
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


def a_model(**facts: Any) -> Model:
    defaults: dict[str, Any] = {
        "id": "m-1",
        "name": "M",
        "api": "anthropic-messages",
        "provider": "here",
        "base_url": "http://127.0.0.1:1",
        "reasoning": False,
        "input": ["text", "image"],
        "cost": ModelCost(input=3, output=15),
        "context_window": 200_000,
        "max_tokens": 32_000,
    }
    return Model(**{**defaults, **facts})


def a_request(model: Model, *messages: Any, **more: Any) -> ModelRequest:
    defaults: dict[str, Any] = {"system_prompt": "Be brief.", "tools": [BASH], "session_id": "s-1"}
    return ModelRequest(model=model, messages=list(messages) or [user_message("hello")], **{**defaults, **more})


def user_message(content: Any, timestamp: int = 1) -> UserMessage:
    return UserMessage(content=content, timestamp=timestamp)


def assistant_message(*blocks: Any, by: Model | None = None, **more: Any) -> AssistantMessage:
    model = by or a_model()
    tokens = more.pop("tokens", 0)
    return AssistantMessage(
        content=list(blocks),
        api=model.api,
        provider=model.provider,
        model=model.id,
        usage=Usage(cost=Cost(), total_tokens=tokens),
        **{"stop_reason": "stop", "timestamp": 1, **more},
    )


def tool_result(call_id: str, *blocks: Any, is_error: bool = False, timestamp: int = 1) -> ToolResultMessage:
    content = [TextContent(text=block) if isinstance(block, str) else block for block in blocks]
    return ToolResultMessage(
        tool_call_id=call_id, tool_name="bash", content=content, is_error=is_error, timestamp=timestamp
    )


def text_block(words: str, signature: str | None = None) -> TextContent:
    return TextContent(text=words, text_signature=ABSENT if signature is None else signature)


def thinking_block(words: str, signature: str | None = None, redacted: bool = False) -> ThinkingContent:
    return ThinkingContent(
        thinking=words,
        thinking_signature=ABSENT if signature is None else signature,
        redacted=True if redacted else ABSENT,
    )


def tool_call(call_id: str, signature: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(
        id=call_id,
        name="bash",
        arguments=arguments or {"command": "ls"},
        thought_signature=ABSENT if signature is None else signature,
    )


def request_setup(
    http: HttpClient,
    *,
    key: str = KEY,
    policy: RequestPolicy | None = None,
    thinking_budgets: dict[str, int] | None = None,
    **access: Any,
) -> RequestSetup:
    return RequestSetup(
        http=http,
        hooks=NoProviderHooks(),
        access=Access(key=key, **access),
        policy=policy or RequestPolicy(),
        thinking_budgets=thinking_budgets or {},
        mask_text=lambda text: text.replace(key, "***") if key else text,
    )


class CollectedAnswer:
    """The deltas of one answer, put together; checks the rules that every adapter must keep."""

    def __init__(self, deltas: list[Delta]) -> None:
        self.deltas = deltas
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.calls: dict[int, tuple[str, str]] = {}
        self.signatures: dict[int, Any] = {}
        self.redacted: set[int] = set()
        self.usage: Usage | None = None
        self.name = Named()
        for delta in deltas[:-1]:
            self._add_delta(delta)
        assert isinstance(deltas[-1], Finished), "the last delta is not the end"
        self.end = deltas[-1]

    def _add_delta(self, delta: Delta) -> None:
        assert not isinstance(delta, Finished), "the answer ended twice"
        if isinstance(delta, BlockOpened):
            assert delta.index == len(self.kinds)
            self.kinds.append(delta.kind)
            self.texts.append("")
            if delta.kind == "toolCall":
                self.calls[delta.index] = (delta.call_id, delta.name)
        elif isinstance(delta, BlockGrew):
            assert delta.index not in self.signatures, "a closed block grew"
            self.texts[delta.index] += delta.text
        elif isinstance(delta, BlockClosed):
            assert delta.index not in self.signatures, "a block was closed twice"
            self.signatures[delta.index] = delta.signature
            if delta.redacted:
                self.redacted.add(delta.index)
        elif isinstance(delta, Metered):
            self.usage = delta.usage
        else:
            assert isinstance(delta, Named)
            self.name = delta

    @property
    def failure(self) -> Any:
        assert self.end.failure is not None, "the answer did not fail"
        return self.end.failure

    @property
    def counts(self) -> tuple[int, int, int, int]:
        assert self.usage is not None
        return (self.usage.input, self.usage.output, self.usage.cache_read, self.usage.cache_write)


async def collect_answer(stream: AsyncIterator[Delta]) -> CollectedAnswer:
    return CollectedAnswer([delta async for delta in stream])


def to_chat(request: ModelRequest, memory: HistoryCache | None) -> dict[str, Any]:
    return openai_chat.body_of(request, chat_compat_of(request.model), {}, memory)


BODIES: dict[str, Body] = {
    "anthropic-messages": lambda request, memory: anthropic.body_of(request, {}, memory),
    "openai-completions": to_chat,
    "openai-responses": openai_responses.body_of,
    "google-generative-ai": lambda request, memory: google.body_of(request, {}, memory),
}


def models_of(api: str) -> list[Model]:
    """Every kind of model that the adapter tells a conversation differently to."""
    ids = NAMES.get(api, ("m-1", "m-2"))
    seeing = [a_model(api=api, id=name, compat=flags) for flags in FLAGS[api] for name in ids]
    return [*seeing, a_model(api=api, id=ids[0], input=["text"], reasoning=True)]


MODELS = {api: models_of(api) for api in BODIES}


def rename_call(call: ToolCall, name: str) -> ToolCall:
    return ToolCall(id=call.id, name=name, arguments=call.arguments, thought_signature=call.thought_signature)


def user_blocks(chance: Random, most: int) -> list[Any]:
    return [
        text_block(chance.choice(WORDS)) if chance.random() < 0.5 else chance.choice(IMAGES)
        for _ in range(chance.randint(0, most))
    ]


def block(chance: Random) -> Any:
    kind = chance.randrange(3)
    if kind == 0:
        return text_block(chance.choice(WORDS), chance.choice(SIGNATURES))
    if kind == 1:
        return thinking_block(chance.choice(WORDS), chance.choice(SIGNATURES), chance.random() < 0.5)
    call = tool_call(chance.choice(IDS), chance.choice(SIGNATURES), **chance.choice(ARGUMENTS))
    return rename_call(call, chance.choice(NAMES_OF_TOOLS))


def message(api: str, chance: Random) -> Any:
    """A message of the user, a result, or (every second time) an answer of some model of the API."""
    kind = chance.randrange(4)
    if kind == 0:
        return user_message(chance.choice(WORDS) if chance.random() < 0.5 else user_blocks(chance, 3))
    if kind == 1:
        failed = chance.random() < 0.5
        return tool_result(chance.choice(IDS), *user_blocks(chance, 2), is_error=failed)
    blocks = [block(chance) for _ in range(chance.randint(0, 4))]
    return assistant_message(*blocks, by=chance.choice(MODELS[api]), stop_reason=chance.choice(REASONS))


def messages_of(api: str) -> st.SearchStrategy[Any]:
    """One draw for a message: what fails is reduced to the fewest messages, not to the smallest ones."""
    return st.integers(0, 2**32 - 1).map(lambda seed: message(api, Random(seed)))
