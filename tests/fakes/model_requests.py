"""Requests to models and what comes back, with few words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

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
from pigeon.providers.http.client import HttpClient
from pigeon.providers.request import Access, Connection, RequestPolicy
from pigeon.session.hooks import NoHooks
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
    return ModelRequest(model=model, messages=list(messages) or [said("hello")], **{**defaults, **more})


def said(content: Any, timestamp: int = 1) -> UserMessage:
    return UserMessage(content=content, timestamp=timestamp)


def answered(*blocks: Any, by: Model | None = None, **more: Any) -> AssistantMessage:
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


def returned(call_id: str, *blocks: Any, is_error: bool = False, timestamp: int = 1) -> ToolResultMessage:
    content = [TextContent(text=block) if isinstance(block, str) else block for block in blocks]
    return ToolResultMessage(
        tool_call_id=call_id, tool_name="bash", content=content, is_error=is_error, timestamp=timestamp
    )


def text(words: str, signature: str | None = None) -> TextContent:
    return TextContent(text=words, text_signature=ABSENT if signature is None else signature)


def thought(words: str, signature: str | None = None, redacted: bool = False) -> ThinkingContent:
    return ThinkingContent(
        thinking=words,
        thinking_signature=ABSENT if signature is None else signature,
        redacted=True if redacted else ABSENT,
    )


def called(call_id: str, signature: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(
        id=call_id,
        name="bash",
        arguments=arguments or {"command": "ls"},
        thought_signature=ABSENT if signature is None else signature,
    )


def connection(
    http: HttpClient,
    *,
    key: str = KEY,
    policy: RequestPolicy | None = None,
    thinking_budgets: dict[str, int] | None = None,
    **access: Any,
) -> Connection:
    return Connection(
        http=http,
        hooks=NoHooks(),
        access=Access(key=key, **access),
        policy=policy or RequestPolicy(),
        thinking_budgets=thinking_budgets or {},
        mask_text=lambda text: text.replace(key, "***") if key else text,
    )


class Told:
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
            self._take(delta)
        assert isinstance(deltas[-1], Finished), "the last delta is not the end"
        self.end = deltas[-1]

    def _take(self, delta: Delta) -> None:
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


async def told(stream: AsyncIterator[Delta]) -> Told:
    """The whole answer."""
    return Told([delta async for delta in stream])
