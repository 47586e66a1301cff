"""History as input items of the Responses API."""

from __future__ import annotations

import hashlib
from typing import Any

from pigeon.agent.inference import ModelMessage
from pigeon.providers.history.normalize import NO_OUTPUT, is_same_model, result_text
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall, UserBlock
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model

ITEM_ID_CHARS = 64
Items = list[dict[str, Any]]


def instructions(system_prompt: str, role: str) -> Items:
    """The system prompt, if there is one, as an item."""
    return [{"role": role, "content": system_prompt}] if system_prompt.strip() else []


def input_items(history: list[ModelMessage], model: Model, before: int) -> Items:
    """The conversation, or the part of it that comes after so many messages."""
    out: Items = []
    for index, message in enumerate(history, before):
        if isinstance(message, UserMessage):
            content = _user_content(message.content)
            if content:
                out.append({"role": "user", "content": content})
        elif isinstance(message, ToolResultMessage):
            out.append(_output(message))
        else:
            out.extend(_answer(message, is_same_model(message, model), index))
    return out


def _user_content(content: str | list[UserBlock]) -> Items:
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}] if content.strip() else []
    return [_part(block) for block in content if isinstance(block, ImageContent) or block.text.strip()]


def _part(block: UserBlock) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "input_text", "text": block.text}
    return {
        "type": "input_image",
        "detail": "auto",
        "image_url": f"data:{block.mime_type};base64,{block.data}",
    }


def _output(message: ToolResultMessage) -> dict[str, Any]:
    output: str | Items
    if any(isinstance(block, ImageContent) for block in message.content):
        output = _user_content(message.content)
    else:
        output = result_text(message.content) or NO_OUTPUT
    return {"type": "function_call_output", "call_id": message.tool_call_id.split("|")[0], "output": output}


def _answer(message: AssistantMessage, same: bool, index: int) -> Items:
    out: Items = []
    for place, block in enumerate(message.content):
        if isinstance(block, ThinkingContent):
            item = _reasoning_item(block)
            if item is not None:
                out.append(item)
        elif isinstance(block, TextContent):
            if block.text.strip():
                out.append(_message_item(block, f"msg_{index}_{place}"))
        else:
            out.append(_call_item(block, same))
    if out and out[-1].get("type") == "reasoning":
        # The API refuses a reasoning item that nothing follows.
        while out and out[-1].get("type") == "reasoning":
            out.pop()
    return out


def _reasoning_item(block: ThinkingContent) -> dict[str, Any] | None:
    if isinstance(block.thinking_signature, Absent):
        return None
    try:
        item = codec.decode(block.thinking_signature)
    except BadRecord:
        return None
    return item if isinstance(item, dict) and item.get("type") == "reasoning" else None


def _message_item(block: TextContent, fallback: str) -> dict[str, Any]:
    item_id, phase = _text_signature(block)
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "id": item_id or fallback,
        "content": [{"type": "output_text", "text": block.text, "annotations": []}],
    }
    if phase:
        item["phase"] = phase
    return item


def _text_signature(block: TextContent) -> tuple[str, str]:
    if isinstance(block.text_signature, Absent) or not block.text_signature:
        return "", ""
    signature = block.text_signature
    if not signature.startswith("{"):
        return _item_id(signature), ""
    try:
        value = codec.decode(signature)
    except BadRecord:
        return "", ""
    return _item_id(str(value.get("id") or "")), str(value.get("phase") or "")


def _item_id(text: str) -> str:
    if len(text) <= ITEM_ID_CHARS:
        return text
    return f"msg_{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _call_item(call: ToolCall, same: bool) -> dict[str, Any]:
    call_id, _, item_id = call.id.partition("|")
    item: dict[str, Any] = {
        "type": "function_call",
        "call_id": call_id,
        "name": call.name,
        "arguments": codec.encode(call.arguments).decode(),
    }
    if same and item_id.startswith("fc_") and len(item_id) <= ITEM_ID_CHARS:
        item["id"] = item_id
    return item
