"""`openai-completions`: requests for chat completions, as OpenAI and every compatible server take them.

`compat.py` describes how the servers differ, `thinking.py` how each is told to think, `stream.py` reads the answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pigeon.agent.inference import Delta, ModelMessage, ModelRequest, ToolSpec
from pigeon.providers.history.cache import HistoryCache, convert_conversation
from pigeon.providers.history.normalize import (
    IMAGE_NOTE,
    IMAGES_LEAD,
    has_sent_tool_calls,
    result_text,
    without_blank_texts,
)
from pigeon.providers.http.exchange import encode_body, stream_exchange
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.openai_chat.api import OPENAI_COMPLETIONS
from pigeon.providers.openai_chat.compat import ChatCompat, chat_compat_of
from pigeon.providers.openai_chat.stream import ChatStream
from pigeon.providers.openai_chat.thinking import thinking_fields
from pigeon.providers.request import RequestSetup, choose_output_cap, join_url, make_request_headers, sampling_of
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall, UserBlock, has_images
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
BRIDGE = "The tool results are in."
CACHE_KEY_CHARS = 64
CALL_ID_CHARS = 40
OWN_CALL_ID_CHARS = 64
OUTPUT_NAME = "final_answer"


def stream(request: ModelRequest, setup: RequestSetup) -> AsyncIterator[Delta]:
    """One answer of a chat completions server."""
    compat = chat_compat_of(request.model)
    outgoing = HttpRequest(
        url=join_url(request.model.base_url, "chat/completions"),
        headers=headers_of(request, setup, compat),
        body=encode_body(body_of(request, compat, setup.thinking_budgets, setup.history)),
    )
    translator = ChatStream(request.model.id, setup.policy.new_id, needs_finish=compat.supports_finish_reason)
    return stream_exchange(setup, outgoing, translator, "message")


def headers_of(request: ModelRequest, setup: RequestSetup, compat: ChatCompat) -> dict[str, str]:
    """Authentication, and the session if the server caches by session."""
    headers = OPENAI_COMPLETIONS.key_headers(setup.access.key, setup.access.bearer)
    if compat.send_session_affinity_headers and request.session_id and request.cache != "none":
        headers.update(affinity_headers(request.session_id, compat.session_affinity_format))
    return make_request_headers(headers, setup.access.headers)


def affinity_headers(session_id: str, style: str) -> dict[str, str]:
    """The headers that route a session back to the same machine."""
    if style == "openrouter":
        return {"x-session-id": session_id}
    if style == "mistral":
        return {"x-affinity": session_id}
    headers = {"x-client-request-id": session_id, "x-session-affinity": session_id}
    if style != "openai-nosession":
        headers["session_id"] = session_id
    return headers


def convert_ahead(request: ModelRequest, cache: HistoryCache) -> None:
    body_of(request, chat_compat_of(request.model), {}, cache)


def body_of(
    request: ModelRequest, compat: ChatCompat, budgets: Mapping[str, int], cache: HistoryCache | None = None
) -> dict[str, Any]:
    model = request.model
    form = to_short_call_id if compat.short_call_ids else to_openai_call_id if compat.is_openai else to_call_id
    prompt = instruction_messages(request, compat)
    history = convert_conversation(request, cache, form, lambda messages, _: to_chat_messages(messages, compat))
    body: dict[str, Any] = {
        "model": model.id,
        "messages": [*prompt, *history],
        "stream": True,
    }
    if compat.supports_usage_in_streaming:
        body["stream_options"] = {"include_usage": True}
    if compat.supports_store:
        body["store"] = False
    cap = choose_output_cap(request)
    if cap:
        body[compat.max_tokens_field] = cap
    if request.tools:
        body["tools"] = _to_tool_records(request.tools, compat)
        if compat.zai_tool_stream:
            body["tool_stream"] = True
    elif not compat.is_openai and has_sent_tool_calls(request.messages):
        # Some proxies refuse a history with calls without this list; OpenAI itself refuses an empty one.
        body["tools"] = []
    body.update(_cache_fields(request, compat))
    body.update(_vllm_fields(compat))
    body.update(thinking_fields(request, compat, budgets, cap))
    if compat.open_router_routing:
        body["provider"] = compat.open_router_routing
    if compat.vercel_gateway_routing:
        body["providerOptions"] = {"gateway": compat.vercel_gateway_routing}
    if compat.cache_control_format == "anthropic" and request.cache != "none":
        _mark_for_cache(prompt, history, body.get("tools"))
    body.update(sampling_of(request))
    if request.output is not None:
        wanted = {"name": OUTPUT_NAME, "schema": request.output.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return body


def _vllm_fields(compat: ChatCompat) -> dict[str, Any]:
    """The fields that servers such as vLLM accept beyond the API."""
    fields = {
        "priority": compat.vllm_priority,
        "return_token_ids": compat.return_token_ids or None,
        "logprobs": compat.return_logprobs or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def to_call_id(text: str, same: bool = False) -> str:
    """A tool call id in the form of these servers. Their own ids may be longer, and models repeat the form that they
    see."""
    if same and len(text) <= OWN_CALL_ID_CHARS:
        return text
    return to_openai_call_id(text)


def to_openai_call_id(text: str, _same: bool = False) -> str:
    """A tool call id in the form of OpenAI."""
    joined = text.replace("|", "_")
    if len(joined) <= CALL_ID_CHARS:
        return joined
    return f"{joined[: CALL_ID_CHARS - 9]}_{_hash_text(text)[:8]}"


def to_short_call_id(text: str, _same: bool = False) -> str:
    """Nine letters and digits, for servers that insist on that."""
    return text if len(text) == 9 and text.isascii() and text.isalnum() else _hash_text(text)[:9]


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _to_tool_records(tools: list[ToolSpec], compat: ChatCompat) -> list[dict[str, Any]]:
    if compat.supports_strict_mode:
        from pigeon.providers.strict_schemas import make_strict_parameters
    out = []
    for tool in tools:
        function: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        if compat.supports_strict_mode:
            strict = make_strict_parameters(tool)
            function.update(parameters=strict or tool.parameters, strict=strict is not None)
        out.append({"type": "function", "function": function})
    return out


def _cache_fields(request: ModelRequest, compat: ChatCompat) -> dict[str, Any]:
    long = request.cache == "long" and compat.supports_long_cache_retention
    if request.cache == "none" or not request.session_id or not (compat.takes_cache_key or long):
        return {}
    fields: dict[str, Any] = {"prompt_cache_key": request.session_id[:CACHE_KEY_CHARS]}
    if long:
        fields["prompt_cache_retention"] = "24h"
    return fields


def _mark_for_cache(prompt: list[dict[str, Any]], history: list[Any], tools: list[dict[str, Any]] | None) -> None:
    """Set cache marks like those of the Messages API: instructions, last tool, end of the conversation."""
    # Encoded JSON comes before the last chunk of the conversation, and that chunk always has a text.
    end = next((item for item in reversed(history) if isinstance(item, dict) and _has_text(item)), None)
    for message in [*prompt, *([] if end is None else [end])]:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        text = next(part for part in reversed(message["content"]) if part["type"] == "text")
        text["cache_control"] = {"type": "ephemeral"}
    if tools:
        tools[-1]["cache_control"] = {"type": "ephemeral"}


def _has_text(message: dict[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        return bool(content)
    return isinstance(content, list) and any(part["type"] == "text" for part in content)


def instruction_messages(request: ModelRequest, compat: ChatCompat) -> list[dict[str, Any]]:
    """The system prompt, if there is one, as a message."""
    if not request.system_prompt.strip():
        return []
    role = "developer" if request.model.reasoning and compat.supports_developer_role else "system"
    return [{"role": role, "content": request.system_prompt}]


def to_chat_messages(history: list[ModelMessage], compat: ChatCompat) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    images: list[ImageContent] = []
    for message in history:
        if isinstance(message, ToolResultMessage):
            out.append(_to_tool_message(message, compat))
            images.extend(block for block in message.content if isinstance(block, ImageContent))
            continue
        _flush_images(out, images, compat)
        if isinstance(message, UserMessage):
            content = _user_content(message.content)
            if content:
                _add_bridge_message(out, compat)
                out.append({"role": "user", "content": content})
        else:
            answer = _to_assistant_message(message, compat)
            if answer is not None:
                out.append(answer)
    _flush_images(out, images, compat)
    return out


def _flush_images(out: list[dict[str, Any]], images: list[ImageContent], compat: ChatCompat) -> None:
    """A tool message cannot carry images: those of a whole group follow as the user's."""
    if images:
        _add_bridge_message(out, compat)
        out.append({"role": "user", "content": [_to_text_part(IMAGES_LEAD), *map(_to_image_part, images)]})
        images.clear()


def _add_bridge_message(out: list[dict[str, Any]], compat: ChatCompat) -> None:
    if compat.requires_assistant_after_tool_result and out and out[-1]["role"] == "tool":
        out.append({"role": "assistant", "content": BRIDGE})


def _to_image_part(block: ImageContent) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _user_content(content: str | list[UserBlock]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content if content.strip() else ""
    blocks = without_blank_texts(content)
    if not has_images(blocks):
        return "\n".join(block.text for block in blocks if isinstance(block, TextContent))
    return [_to_image_part(block) if isinstance(block, ImageContent) else _to_text_part(block.text) for block in blocks]


def _to_tool_message(message: ToolResultMessage, compat: ChatCompat) -> dict[str, Any]:
    text = result_text(message.content) or IMAGE_NOTE
    out: dict[str, Any] = {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    if compat.requires_tool_result_name:
        out["name"] = message.tool_name
    return out


def _to_assistant_message(message: AssistantMessage, compat: ChatCompat) -> dict[str, Any] | None:
    """Content is one string if possible: lists make some models imitate the structure."""
    texts = [block.text for block in message.content if isinstance(block, TextContent) and block.text.strip()]
    thoughts = [block for block in message.content if isinstance(block, ThinkingContent)]
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    if compat.requires_thinking_as_text:
        texts = [thought.thinking for thought in thoughts if thought.thinking.strip()] + texts
    if not texts and not calls:
        return None
    out: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
    if not compat.requires_thinking_as_text:
        out.update(
            _content_with_thinking(thoughts, texts)
            if compat.thinking_format == "mistral"
            else _reasoning_fields(thoughts)
        )
    if compat.requires_reasoning_content_on_assistant_messages:
        out.setdefault("reasoning_content", "")
    if calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": encode_body(call.arguments).decode()},
            }
            for call in calls
        ]
    return out


def _content_with_thinking(thoughts: list[ThinkingContent], texts: list[str]) -> dict[str, Any]:
    """Thinking is sent back in the part of the content in which it came."""
    thinking = [thought.thinking for thought in thoughts if thought.thinking.strip()]
    if not thinking:
        return {}
    parts: list[dict[str, Any]] = [{"type": "thinking", "thinking": [_to_text_part(thought)]} for thought in thinking]
    return {"content": [*parts, *map(_to_text_part, texts)]}


def _to_text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _reasoning_fields(thoughts: list[ThinkingContent]) -> dict[str, Any]:
    """Thinking is sent back in the field in which it came."""
    if not thoughts or isinstance(thoughts[0].thinking_signature, Absent):
        return {}
    signature = thoughts[0].thinking_signature
    if signature in REASONING_FIELDS:
        return {signature: "\n".join(thought.thinking for thought in thoughts)}
    if signature.startswith("["):
        try:
            return {"reasoning_details": codec.decode(signature)}
        except BadRecord:
            return {}
    return {}
