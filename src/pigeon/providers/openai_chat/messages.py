"""History as chat messages."""

from __future__ import annotations

from typing import Any

from pigeon.agent.inference import ModelMessage, ModelRequest
from pigeon.providers.history.normalize import IMAGE_NOTE, IMAGES_LEAD, NO_OUTPUT, result_text
from pigeon.providers.openai_chat.compat import ChatCompat
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall, UserBlock
from pigeon.wire.errors import BadRecord
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
BRIDGE = "The tool results are in."


def instructions(request: ModelRequest, compat: ChatCompat) -> list[dict[str, Any]]:
    """The system prompt, if there is one, as a message."""
    if not request.system_prompt.strip():
        return []
    role = "developer" if request.model.reasoning and compat.supports_developer_role else "system"
    return [{"role": role, "content": request.system_prompt}]


def chat_messages(history: list[ModelMessage], compat: ChatCompat) -> list[dict[str, Any]]:
    """The conversation."""
    out: list[dict[str, Any]] = []
    images: list[ImageContent] = []
    for message in history:
        if isinstance(message, ToolResultMessage):
            out.append(_result(message, compat))
            images.extend(block for block in message.content if isinstance(block, ImageContent))
            continue
        _flush(out, images, compat)
        if isinstance(message, UserMessage):
            content = _user_content(message.content)
            if content:
                _bridge(out, compat)
                out.append({"role": "user", "content": content})
        else:
            answer = _assistant(message, compat)
            if answer is not None:
                out.append(answer)
    _flush(out, images, compat)
    return out


def _flush(out: list[dict[str, Any]], images: list[ImageContent], compat: ChatCompat) -> None:
    """A tool message cannot carry images: those of a whole group follow as the user's."""
    if images:
        _bridge(out, compat)
        parts: list[dict[str, Any]] = [{"type": "text", "text": IMAGES_LEAD}]
        parts.extend(_image(block) for block in images)
        out.append({"role": "user", "content": parts})
        images.clear()


def _bridge(out: list[dict[str, Any]], compat: ChatCompat) -> None:
    if compat.requires_assistant_after_tool_result and out and out[-1]["role"] == "tool":
        out.append({"role": "assistant", "content": BRIDGE})


def _image(block: ImageContent) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _user_content(content: str | list[UserBlock]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content if content.strip() else ""
    if not any(isinstance(block, ImageContent) for block in content):
        texts = [block.text for block in content if isinstance(block, TextContent) and block.text.strip()]
        return "\n".join(texts)
    return [
        _image(block) if isinstance(block, ImageContent) else {"type": "text", "text": block.text}
        for block in content
        if isinstance(block, ImageContent) or block.text.strip()
    ]


def _result(message: ToolResultMessage, compat: ChatCompat) -> dict[str, Any]:
    text = result_text(message.content)
    if not text.strip():
        has_image = any(isinstance(block, ImageContent) for block in message.content)
        text = IMAGE_NOTE if has_image else NO_OUTPUT
    out: dict[str, Any] = {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    if compat.requires_tool_result_name:
        out["name"] = message.tool_name
    return out


def _assistant(message: AssistantMessage, compat: ChatCompat) -> dict[str, Any] | None:
    """Content is one string wherever that is enough: lists make some models imitate the structure."""
    texts = [block.text for block in message.content if isinstance(block, TextContent) and block.text.strip()]
    thoughts = [block for block in message.content if isinstance(block, ThinkingContent)]
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    if compat.requires_thinking_as_text:
        texts = [thought.thinking for thought in thoughts if thought.thinking.strip()] + texts
    if not texts and not calls:
        return None
    out: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
    if not compat.requires_thinking_as_text:
        out.update(_in_parts(thoughts, texts) if compat.thinking_format == "mistral" else _reasoning(thoughts))
    if compat.requires_reasoning_content_on_assistant_messages:
        out.setdefault("reasoning_content", "")
    if calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": codec.encode(call.arguments).decode()},
            }
            for call in calls
        ]
    return out


def _in_parts(thoughts: list[ThinkingContent], texts: list[str]) -> dict[str, Any]:
    """Thinking goes back as the part of the content that it came as."""
    thinking = [thought.thinking for thought in thoughts if thought.thinking.strip()]
    if not thinking:
        return {}
    parts: list[dict[str, Any]] = [{"type": "thinking", "thinking": [_text(thought)]} for thought in thinking]
    return {"content": [*parts, *map(_text, texts)]}


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _reasoning(thoughts: list[ThinkingContent]) -> dict[str, Any]:
    """Thinking goes back in the field that it came in."""
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
