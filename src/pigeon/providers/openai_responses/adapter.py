"""`openai-responses`: requests to OpenAI's Responses API, and to Azure's, with the history as input items.

`stream.py` reads the answers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pigeon.agent.inference import Delta, ModelMessage, ModelRequest, ToolSpec
from pigeon.providers.history.cache import HistoryCache, convert_conversation
from pigeon.providers.history.normalize import is_same_model, result_text, without_blank_texts
from pigeon.providers.http.exchange import encode_body, stream_exchange
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.openai_chat.compat import is_openai_host
from pigeon.providers.openai_responses.api import AZURE_OPENAI_RESPONSES, OPENAI_RESPONSES
from pigeon.providers.openai_responses.stream import ResponsesStream
from pigeon.providers.request import (
    Access,
    RequestSetup,
    choose_output_cap,
    compat_of,
    join_url,
    make_request_headers,
    mapped_level,
    sampling_of,
)
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.content import AssistantBlock, TextContent, ThinkingContent, ToolCall, UserBlock, has_images
from pigeon.wire.errors import BadRecord, Refusal
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model

ITEM_ID_CHARS = 64
Items = list[dict[str, Any]]
CACHE_KEY_CHARS = 64
CALL_ID_CHARS = 64
MIN_OUTPUT_TOKENS = 16
AZURE_VERSION = "v1"
OUTPUT_NAME = "final_answer"


def stream(request: ModelRequest, setup: RequestSetup) -> AsyncIterator[Delta]:
    """One answer of the Responses API."""
    body = body_of(request, setup.history)
    url = join_url(request.model.base_url, "responses")
    if _is_azure(request.model):
        url = azure_url(request.model, setup.access.env)
        body["model"] = _find_deployment_name(request.model.id, setup.access.env)
    outgoing = HttpRequest(url=url, headers=headers_of(request, setup.access), body=encode_body(body))
    return stream_exchange(setup, outgoing, ResponsesStream(request.model.id, setup.policy.new_id), "message")


def headers_of(request: ModelRequest, access: Access) -> dict[str, str]:
    """Authentication, and the session for the cache."""
    api = AZURE_OPENAI_RESPONSES if _is_azure(request.model) else OPENAI_RESPONSES
    headers = api.key_headers(access.key, access.bearer)
    if request.session_id and request.cache != "none":
        style = compat_of(request.model).get("sessionAffinityFormat")
        if style == "openrouter" or "openrouter.ai" in request.model.base_url:
            headers["x-session-id"] = request.session_id
        else:
            headers["x-client-request-id"] = request.session_id
            if style != "openai-nosession":
                headers["session_id"] = request.session_id
    return make_request_headers(headers, access.headers)


def convert_ahead(request: ModelRequest, cache: HistoryCache) -> None:
    body_of(request, cache)


def body_of(request: ModelRequest, cache: HistoryCache | None = None) -> dict[str, Any]:
    model = request.model
    compat = compat_of(model)
    developer = model.reasoning and compat.get("supportsDeveloperRole", True)
    prompt = instruction_items(request.system_prompt, "developer" if developer else "system")
    history = convert_conversation(
        request, cache, to_call_id, lambda messages, before: input_items(messages, model, before)
    )
    body: dict[str, Any] = {
        "model": model.id,
        "input": [*prompt, *history],
        "stream": True,
        "store": False,
    }
    cap = choose_output_cap(request)
    if cap and compat.get("supportsMaxOutputTokens", True):
        body["max_output_tokens"] = max(cap, MIN_OUTPUT_TOKENS)
    if request.tools:
        body["tools"] = _to_tool_records(request.tools, compat.get("supportsStrictMode") is True)
    if request.session_id and request.cache != "none":
        body["prompt_cache_key"] = request.session_id[:CACHE_KEY_CHARS]
        if request.cache == "long" and compat.get("supportsLongCacheRetention", is_openai_host(model)):
            body["prompt_cache_retention"] = "24h"
    body.update(_thinking_fields(request))
    body.update(sampling_of(request))
    if request.output is not None:
        form = {"type": "json_schema", "name": OUTPUT_NAME, "schema": request.output.schema, "strict": True}
        body["text"] = {**body.get("text", {}), "format": form}
    return body


def _to_tool_records(tools: list[ToolSpec], may_be_strict: bool) -> Items:
    if may_be_strict:
        from pigeon.providers.strict_schemas import make_strict_parameters
    out: Items = []
    for tool in tools:
        strict = make_strict_parameters(tool) if may_be_strict else None
        out.append(
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": strict or tool.parameters,
                "strict": strict is not None,
            }
        )
    return out


def to_call_id(text: str, same: bool = False) -> str:
    """The call half of an id in the form of this API; item ids of another model are left out."""
    call = text.split("|", maxsplit=1)[0]
    half = re.sub(r"[^A-Za-z0-9_-]", "_", call)
    if len(half) > CALL_ID_CHARS:
        half = f"{half[: CALL_ID_CHARS - 9]}_{hashlib.sha256(half.encode()).hexdigest()[:8]}"
    if same and half == call and half:
        return text
    return half.rstrip("_") or "call"


def _thinking_fields(request: ModelRequest) -> dict[str, Any]:
    model = request.model
    if not model.reasoning:
        return {}
    include = {"include": ["reasoning.encrypted_content"]}
    if request.thinking == "off":
        effort = mapped_level(model, "off", "none")
        return {"reasoning": {"effort": effort}, **include} if effort else include
    effort = mapped_level(model, request.thinking, request.thinking)
    return {"reasoning": {"effort": effort or request.thinking, "summary": "auto"}, **include}


def _is_azure(model: Model) -> bool:
    return model.api == AZURE_OPENAI_RESPONSES.name


def azure_url(model: Model, env: Mapping[str, str]) -> str:
    """The endpoint of an Azure resource, from the model or the environment, normalised to `/openai/v1`."""
    base = model.base_url or env.get("AZURE_OPENAI_BASE_URL", "")
    resource = env.get("AZURE_OPENAI_RESOURCE_NAME", "")
    if not base and resource:
        base = f"https://{resource}.openai.azure.com"
    if not base:
        raise Refusal("set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME")
    base = base.rstrip("/")
    if ".azure.com" in base:
        base = re.sub(r"/openai(?:/v1)?$", "", base) + "/openai/v1"
    version = env.get("AZURE_OPENAI_API_VERSION") or AZURE_VERSION
    return f"{base}/responses?api-version={version}"


def _find_deployment_name(model_id: str, env: Mapping[str, str]) -> str:
    """The model's name in this Azure resource: `model=deployment,...`."""
    for pair in env.get("AZURE_OPENAI_DEPLOYMENT_NAME_MAP", "").split(","):
        name, _, deployment = pair.partition("=")
        if name.strip() == model_id and deployment.strip():
            return deployment.strip()
    return model_id


def instruction_items(system_prompt: str, role: str) -> Items:
    """The system prompt, if there is one, as an item."""
    return [{"role": role, "content": system_prompt}] if system_prompt.strip() else []


def input_items(history: list[ModelMessage], model: Model, before: int) -> Items:
    """The conversation, or the part of it after so many messages."""
    out: Items = []
    for index, message in enumerate(history, before):
        if isinstance(message, UserMessage):
            content = _user_content(message.content)
            if content:
                out.append({"role": "user", "content": content})
        elif isinstance(message, ToolResultMessage):
            out.append(_to_output_item(message))
        else:
            out.extend(_items_of_answer(message, is_same_model(message, model), index))
    return out


def _user_content(content: str | list[UserBlock]) -> Items:
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}] if content.strip() else []
    return [_content_part(block) for block in without_blank_texts(content)]


def _content_part(block: UserBlock) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "input_text", "text": block.text}
    return {
        "type": "input_image",
        "detail": "auto",
        "image_url": f"data:{block.mime_type};base64,{block.data}",
    }


def _to_output_item(message: ToolResultMessage) -> dict[str, Any]:
    content = message.content
    output: str | Items = _user_content(content) if has_images(content) else result_text(content)
    return {"type": "function_call_output", "call_id": message.tool_call_id.split("|")[0], "output": output}


def _items_of_answer(message: AssistantMessage, same: bool, index: int) -> Items:
    out: Items = []
    used: set[str] = set()
    for place, block in enumerate(message.content):
        item = _item_of_block(block, same)
        if item is not None and _try_ensure_unique_id(item, used, f"msg_{index}_{place}"):
            out.append(item)
    # The API refuses a reasoning item that nothing follows.
    while out and out[-1]["type"] == "reasoning":
        out.pop()
    return out


def _item_of_block(block: AssistantBlock, same: bool) -> dict[str, Any] | None:
    if isinstance(block, ThinkingContent):
        return _reasoning_item(block)
    if isinstance(block, TextContent):
        return _message_item(block) if block.text.strip() else None
    return _item_of_call(block, same)


def _try_ensure_unique_id(item: dict[str, Any], used: set[str], fallback: str) -> bool:
    """Give a text an id that no other item of the answer has, because the API refuses duplicates. Returns False for a
    repeated thought."""
    known = item.get("id", "")
    if item["type"] == "message" and (not known or known in used):
        item["id"] = fallback
    elif known in used:
        if item["type"] == "reasoning":
            return False
        del item["id"]
    used.add(item.get("id", ""))
    used.discard("")
    return True


def _reasoning_item(block: ThinkingContent) -> dict[str, Any] | None:
    if isinstance(block.thinking_signature, Absent):
        return None
    try:
        item = codec.decode(block.thinking_signature)
    except BadRecord:
        return None
    is_reasoning = isinstance(item, dict) and item.get("type") == "reasoning" and isinstance(item.get("id", ""), str)
    return item if is_reasoning else None


def _message_item(block: TextContent) -> dict[str, Any]:
    item_id, phase = _parse_text_signature(block)
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "id": item_id,
        "content": [{"type": "output_text", "text": block.text, "annotations": []}],
    }
    if phase:
        item["phase"] = phase
    return item


def _parse_text_signature(block: TextContent) -> tuple[str, str]:
    if isinstance(block.text_signature, Absent) or not block.text_signature:
        return "", ""
    signature = block.text_signature
    if not signature.startswith("{"):
        return _to_valid_item_id(signature), ""
    try:
        value = codec.decode(signature)
    except BadRecord:
        return "", ""
    return _to_valid_item_id(str(value.get("id") or "")), str(value.get("phase") or "")


def _to_valid_item_id(text: str) -> str:
    if len(text) <= ITEM_ID_CHARS:
        return text
    return f"msg_{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _item_of_call(call: ToolCall, same: bool) -> dict[str, Any]:
    call_id, _, item_id = call.id.partition("|")
    item: dict[str, Any] = {
        "type": "function_call",
        "call_id": call_id,
        "name": call.name,
        "arguments": encode_body(call.arguments).decode(),
    }
    if same and item_id.startswith("fc_") and len(item_id) <= ITEM_ID_CHARS:
        item["id"] = item_id
    return item
