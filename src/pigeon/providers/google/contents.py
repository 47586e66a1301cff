"""History as contents of the Gemini API."""

from __future__ import annotations

import re
from typing import Any

from pigeon.agent.inference import ModelMessage
from pigeon.providers.history.normalize import IMAGE_NOTE, IMAGES_LEAD, is_same_model, result_text
from pigeon.wire.base import Absent
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, UserBlock
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model

# Google's word for a call that these models did not make themselves; without any signature they refuse it.
FOREIGN_CALL = "skip_thought_signature_validator"
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
Parts = list[dict[str, Any]]


def contents_of(history: list[ModelMessage], model: Model, generation: int) -> list[dict[str, Any]]:
    """The conversation, roles `user` and `model`."""
    return _Contents(model, generation).of(history)


class _Contents:
    def __init__(self, model: Model, generation: int) -> None:
        self._model = model
        self._nested_images = generation >= 3
        self._signed_calls = generation >= 3
        self._with_ids = generation >= 3 or model.id.startswith(("claude-", "gpt-oss-"))

    def of(self, history: list[ModelMessage]) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        responses: Parts | None = None
        images: list[ImageContent] = []
        for message in history:
            if isinstance(message, ToolResultMessage):
                if responses is None:
                    responses = []
                    out.append({"role": "user", "parts": responses})
                responses.append(self._response(message))
                if not self._nested_images:
                    images.extend(_images(message.content))
                continue
            responses = None
            _flush(out, images)
            if isinstance(message, UserMessage):
                parts = _user_parts(message.content)
                role = "user"
            else:
                parts = self._answer_parts(message)
                role = "model"
            if parts:
                out.append({"role": role, "parts": parts})
        _flush(out, images)
        return out

    def _answer_parts(self, message: AssistantMessage) -> Parts:
        same = is_same_model(message, self._model)
        parts: Parts = []
        for block in message.content:
            if isinstance(block, TextContent):
                part: dict[str, Any] = {"text": block.text}
                signature = block.text_signature
                worth = bool(block.text.strip())
            elif isinstance(block, ThinkingContent):
                part = {"text": block.thinking, "thought": True}
                signature = block.thinking_signature
                worth = bool(block.thinking.strip())
            else:
                call: dict[str, Any] = {"name": block.name, "args": block.arguments}
                if self._with_ids:
                    call["id"] = block.id
                part = {"functionCall": call}
                signature = block.thought_signature
                worth = True
            if same and not isinstance(signature, Absent) and _is_base64(signature):
                part["thoughtSignature"] = signature
                worth = True
            if worth:
                parts.append(part)
        if self._signed_calls:
            _sign_first_call(parts)
        return parts

    def _response(self, message: ToolResultMessage) -> dict[str, Any]:
        text = result_text(message.content)
        images = _images(message.content)
        if images and not text.strip():
            text = IMAGE_NOTE
        response: dict[str, Any] = {
            "name": message.tool_name,
            "response": {"error" if message.is_error else "output": text},
        }
        if self._with_ids:
            response["id"] = message.tool_call_id
        if images and self._nested_images:
            response["parts"] = [_image(block) for block in images]
        return {"functionResponse": response}


def _sign_first_call(parts: Parts) -> None:
    """Of calls that were made together only the first one has a signature, and that one must have it."""
    call = next((part for part in parts if "functionCall" in part), None)
    if call is not None:
        call.setdefault("thoughtSignature", FOREIGN_CALL)


def _flush(out: list[dict[str, Any]], images: list[ImageContent]) -> None:
    """Older models take no images inside a function response: they follow as the user's."""
    if images:
        out.append({"role": "user", "parts": [{"text": IMAGES_LEAD}, *(_image(block) for block in images)]})
        images.clear()


def _images(blocks: list[UserBlock]) -> list[ImageContent]:
    return [block for block in blocks if isinstance(block, ImageContent)]


def _image(block: ImageContent) -> dict[str, Any]:
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _user_parts(content: str | list[UserBlock]) -> Parts:
    if isinstance(content, str):
        return [{"text": content}] if content.strip() else []
    return [
        _image(block) if isinstance(block, ImageContent) else {"text": block.text}
        for block in content
        if isinstance(block, ImageContent) or block.text.strip()
    ]


def _is_base64(text: str) -> bool:
    return len(text) % 4 == 0 and _BASE64.fullmatch(text) is not None
