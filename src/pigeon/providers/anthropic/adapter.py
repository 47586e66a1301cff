"""`anthropic-messages`: requests to the Messages API and servers that implement it. `stream.py` reads the answers."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from pigeon.agent.inference import Delta, Finished, ModelMessage, ModelRequest, ToolSpec
from pigeon.providers.anthropic.api import ANTHROPIC_MESSAGES
from pigeon.providers.anthropic.stream import AnthropicStream
from pigeon.providers.api import STRING_FORMATS
from pigeon.providers.history.cache import HistoryCache, convert_conversation
from pigeon.providers.history.normalize import IMAGE_NOTE, result_text, without_blank_texts
from pigeon.providers.http.exchange import encode_body, stream_exchange
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.request import (
    RequestSetup,
    choose_output_cap,
    compat_of,
    join_url,
    make_request_headers,
    mapped_level,
    split_budget,
)
from pigeon.wire.base import Absent, Json
from pigeon.wire.content import AssistantBlock, ImageContent, TextContent, ThinkingContent, UserBlock, has_images
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage

INTERLEAVED = "interleaved-thinking-2025-05-14"
FINE_GRAINED = "fine-grained-tool-streaming-2025-05-14"
FALLBACK_MAX_TOKENS = 8192
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_BAD_ID = re.compile(r"[^A-Za-z0-9_-]")


_BY_STRICT_REFUSED = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems", "uniqueItems",
    "minContains", "maxContains", "minProperties", "maxProperties",
}  # fmt: skip


def stream(request: ModelRequest, setup: RequestSetup) -> AsyncIterator[Delta]:
    if compat_of(request.model).get("supportsStrictTools") is True and request.model.reference not in setup.not_strict:
        return _stream_strict_first(request, setup)
    return _stream_request(request, setup, may_be_strict=False)


async def _stream_strict_first(request: ModelRequest, setup: RequestSetup) -> AsyncGenerator[Delta, None]:
    """Ask with strict tools; if the server cannot handle them, ask again without, and always without from then on."""
    from pigeon.providers.strict_schemas import is_strict_limit_error

    async with aclosing(_stream_request(request, setup, may_be_strict=True)) as deltas:
        async for delta in deltas:
            failure = delta.failure if isinstance(delta, Finished) else None
            if failure is not None and failure.status == 400 and is_strict_limit_error(failure.message):
                setup.not_strict.add(request.model.reference)
                break
            yield delta
        else:
            return
    async with aclosing(_stream_request(request, setup, may_be_strict=False)) as deltas:
        async for delta in deltas:
            yield delta


def _stream_request(request: ModelRequest, setup: RequestSetup, may_be_strict: bool) -> AsyncGenerator[Delta, None]:
    body = body_of(request, setup.thinking_budgets, setup.history, may_be_strict)
    outgoing = HttpRequest(
        url=join_url(request.model.base_url, "v1/messages"),
        headers=headers_of(request, setup, body),
        body=encode_body(body),
    )
    return stream_exchange(setup, outgoing, AnthropicStream(request.model.id, setup.policy.new_id), "body")


def headers_of(request: ModelRequest, setup: RequestSetup, body: dict[str, Any]) -> dict[str, str]:
    """Authentication, version, and only the betas that this request needs."""
    access = setup.access
    compat = compat_of(request.model)
    headers = {**ANTHROPIC_MESSAGES.headers, **ANTHROPIC_MESSAGES.key_headers(access.key, access.bearer)}
    betas = []
    if body.get("thinking", {}).get("type") == "enabled":
        betas.append(INTERLEAVED)
    if body.get("tools") and compat.get("supportsEagerToolInputStreaming") is False:
        betas.append(FINE_GRAINED)
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    if compat.get("sendSessionAffinityHeaders") and request.session_id and request.cache != "none":
        name = "x-session-id" if compat.get("sessionAffinityFormat") == "openrouter" else "x-session-affinity"
        headers[name] = request.session_id
    return make_request_headers(headers, access.headers)


def convert_ahead(request: ModelRequest, cache: HistoryCache) -> None:
    body_of(request, {}, cache)


def body_of(
    request: ModelRequest,
    budgets: Mapping[str, int],
    cache: HistoryCache | None = None,
    may_be_strict: bool = False,
) -> dict[str, Any]:
    model = request.model
    compat = compat_of(model)
    mark = _cache_mark(request, compat)
    unsigned = bool(compat.get("allowEmptySignature"))
    messages = convert_conversation(request, cache, to_call_id, lambda history, _: _to_messages(history, unsigned))
    _mark_last_user_message(messages, mark)
    thinking = _thinking_fields(request, compat, budgets)
    body: dict[str, Any] = {
        "model": model.id,
        "messages": messages,
        "max_tokens": thinking.pop("max_tokens", 0) or choose_output_cap(request) or FALLBACK_MAX_TOKENS,
        "stream": True,
    }
    if request.system_prompt.strip():
        body["system"] = [_set_cache_mark({"type": "text", "text": request.system_prompt}, mark)]
    if request.tools:
        body["tools"] = _to_tool_records(request.tools, compat, mark, may_be_strict)
    body.update(thinking)
    if request.output is not None:
        form = {"type": "json_schema", "schema": request.output.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": form}
    return body


def to_call_id(text: str, _same: bool = False) -> str:
    """A tool call id in the form of this API."""
    return _BAD_ID.sub("_", text)[:64]


def _cache_mark(request: ModelRequest, compat: dict[str, Any]) -> dict[str, str] | None:
    if request.cache == "none":
        return None
    if request.cache == "long" and compat.get("supportsLongCacheRetention", True):
        return {"type": "ephemeral", "ttl": "1h"}
    return {"type": "ephemeral"}


def _set_cache_mark(block: dict[str, Any], mark: dict[str, str] | None) -> dict[str, Any]:
    if mark:
        block["cache_control"] = mark
    return block


def _mark_last_user_message(messages: list[dict[str, Any]], mark: dict[str, str] | None) -> None:
    """Mark the end of the conversation as a cache entry, if it is the user's."""
    if mark and messages and messages[-1]["role"] == "user":
        content = messages[-1]["content"]
        if isinstance(content, str):
            messages[-1]["content"] = [_set_cache_mark({"type": "text", "text": content}, mark)]
        else:
            _set_cache_mark(content[-1], mark)


def _to_tool_records(
    tools: list[ToolSpec], compat: dict[str, Any], mark: dict[str, str] | None, may_be_strict: bool
) -> list[dict[str, Any]]:
    if may_be_strict:
        from pigeon.providers.strict_schemas import make_strict_parameters
    eager = compat.get("supportsEagerToolInputStreaming", True)
    out = []
    for tool in tools:
        strict = make_strict_parameters(tool, _is_refused_when_strict) if may_be_strict else None
        schema = {"type": "object", "properties": {}, **(strict or tool.parameters)}
        entry: dict[str, Any] = {"name": tool.name, "description": tool.description, "input_schema": schema}
        if strict is not None:
            entry["strict"] = True
        if eager:
            entry["eager_input_streaming"] = True
        out.append(entry)
    if compat.get("supportsCacheControlOnTools", True):
        _set_cache_mark(out[-1], mark)
    return out


def _is_refused_when_strict(key: str, value: Json) -> bool:
    if key == "minItems":
        return value not in (0, 1)
    if key == "format":
        return value not in STRING_FORMATS | {"uri"}
    return key in _BY_STRICT_REFUSED


def _thinking_fields(request: ModelRequest, compat: dict[str, Any], budgets: Mapping[str, int]) -> dict[str, Any]:
    model = request.model
    if not model.reasoning:
        return {}
    adaptive = bool(compat.get("forceAdaptiveThinking"))
    if request.thinking == "off":
        return {} if mapped_level(model, "off", "") is None else {"thinking": {"type": "disabled"}}
    if adaptive:
        effort = mapped_level(model, request.thinking, _EFFORTS.get(request.thinking, "high"))
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort or "high"},
        }
    total, budget = split_budget(request, budgets)
    if budget < 1024:
        # The API refuses smaller budgets, and the answer needs what is left.
        return {"thinking": {"type": "disabled"}}
    return {
        "max_tokens": total,
        "thinking": {"type": "enabled", "budget_tokens": budget, "display": "summarized"},
    }


def _to_messages(messages: list[ModelMessage], unsigned: bool) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for is_result, group in itertools.groupby(messages, lambda message: isinstance(message, ToolResultMessage)):
        if is_result:
            results = [message for message in group if isinstance(message, ToolResultMessage)]
            images = [block for message in results for block in _images_of_failure(message)]
            out.append({"role": "user", "content": [*map(_to_tool_result, results), *images]})
            continue
        for message in group:
            if isinstance(message, UserMessage):
                role, content = "user", _user_content(message.content)
            else:
                assert isinstance(message, AssistantMessage)
                role, content = "assistant", _assistant_blocks(message, unsigned)
            if content:
                out.append({"role": role, "content": content})
    return out


def _user_content(content: str | list[UserBlock]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content if content.strip() else ""
    return [_user_block(block) for block in without_blank_texts(content)]


def _user_block(block: UserBlock) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _assistant_blocks(message: AssistantMessage, unsigned: bool) -> list[dict[str, Any]]:
    blocks = [_assistant_block(block, unsigned) for block in message.content]
    sent = [block for block in blocks if block is not None]
    # The API refuses an answer that ends in thinking.
    while sent and sent[-1]["type"] in ("thinking", "redacted_thinking"):
        sent.pop()
    return sent


def _assistant_block(block: AssistantBlock, unsigned: bool) -> dict[str, Any] | None:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text} if block.text.strip() else None
    if isinstance(block, ThinkingContent):
        return _thinking_block(block, unsigned)
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}


def _thinking_block(block: ThinkingContent, unsigned: bool) -> dict[str, Any] | None:
    signature = "" if isinstance(block.thinking_signature, Absent) else block.thinking_signature
    if block.redacted is True:
        return {"type": "redacted_thinking", "data": signature} if signature else None
    if signature or unsigned:
        return {"type": "thinking", "thinking": block.thinking, "signature": signature}
    # A stream that was cut off left no signature; the thought is still worth keeping.
    return {"type": "text", "text": block.thinking} if block.thinking.strip() else None


def _to_tool_result(message: ToolResultMessage) -> dict[str, Any]:
    content: str | list[dict[str, Any]]
    if not has_images(message.content):
        content = result_text(message.content)
    elif message.is_error:
        content = result_text(message.content) or IMAGE_NOTE
    else:
        blocks = without_blank_texts(message.content)
        content = [_user_block(block) for block in blocks]
        if not any(isinstance(block, TextContent) for block in blocks):
            content.insert(0, {"type": "text", "text": IMAGE_NOTE})
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": content,
        "is_error": message.is_error,
    }


def _images_of_failure(message: ToolResultMessage) -> list[dict[str, Any]]:
    """The images of a failed result. The API accepts only text in it, so its images follow all results, as the
    user's."""
    if not message.is_error or not has_images(message.content):
        return []
    lead = {"type": "text", "text": f"Images of the failed call {message.tool_call_id} ({message.tool_name}):"}
    return [lead, *(_user_block(block) for block in message.content if isinstance(block, ImageContent))]
