"""`google-generative-ai`: requests to the Gemini API, with the history as contents. `stream.py` reads the answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from pigeon.agent.inference import Delta, ModelMessage, ModelRequest
from pigeon.providers.google.api import GOOGLE_GENERATIVE_AI
from pigeon.providers.google.stream import GoogleStream
from pigeon.providers.history.cache import HistoryCache, convert_conversation
from pigeon.providers.history.normalize import (
    IMAGE_NOTE,
    IMAGES_LEAD,
    is_same_model,
    result_text,
    without_blank_texts,
)
from pigeon.providers.http.exchange import encode_body, stream_exchange
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.request import RequestSetup, choose_output_cap, join_url, make_request_headers, mapped_level
from pigeon.wire.base import Absent
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, UserBlock
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model, levels_of

# The signature that Google requires for a call that its models did not make; calls without any are refused.
FOREIGN_CALL = "skip_thought_signature_validator"
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
Parts = list[dict[str, Any]]
_BUDGETS = {
    "flash-lite": {"minimal": 512, "low": 2048, "medium": 8192, "high": 24576},
    "flash": {"minimal": 128, "low": 2048, "medium": 8192, "high": 24576},
    "pro": {"minimal": 128, "low": 2048, "medium": 8192, "high": 32768},
}
_LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "HIGH", "max": "HIGH"}
_GEMINI = re.compile(r"gemini-(?:live-)?(?:(\d+)|[a-z-]*\blatest\b)")
_NEWEST = 3
_BAD_ID = re.compile(r"[^A-Za-z0-9_.:-]")
_DYNAMIC = -1


def stream(request: ModelRequest, setup: RequestSetup) -> AsyncIterator[Delta]:
    access = setup.access
    path = f"models/{quote(request.model.id, safe='/')}:streamGenerateContent?alt=sse"
    headers = GOOGLE_GENERATIVE_AI.key_headers(access.key, access.bearer)
    outgoing = HttpRequest(
        url=join_url(request.model.base_url, path),
        headers=make_request_headers(headers, access.headers),
        body=encode_body(body_of(request, setup.thinking_budgets, setup.history)),
    )
    return stream_exchange(setup, outgoing, GoogleStream(request.model.id, setup.policy.new_id), "message")


def convert_ahead(request: ModelRequest, cache: HistoryCache) -> None:
    body_of(request, {}, cache)


def body_of(request: ModelRequest, budgets: Mapping[str, int], cache: HistoryCache | None = None) -> dict[str, Any]:
    model = request.model
    era = gemini_generation(model.id)
    history = convert_conversation(request, cache, to_call_id, lambda messages, _: contents_of(messages, model, era))
    body: dict[str, Any] = {"contents": history}
    if request.system_prompt.strip():
        body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
    if request.tools:
        body["tools"] = [
            {
                "functionDeclarations": [
                    {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
                    for tool in request.tools
                ]
            }
        ]
    config: dict[str, Any] = {}
    cap = choose_output_cap(request)
    if cap:
        config["maxOutputTokens"] = cap
    if request.output is not None:
        config.update(responseMimeType="application/json", responseJsonSchema=request.output.schema)
    if model.reasoning:
        config["thinkingConfig"] = _thinking_fields(request, budgets)
    if config:
        body["generationConfig"] = config
    return body


def to_call_id(text: str, _same: bool = False) -> str:
    """A tool call id of another API in the form of this one."""
    return _BAD_ID.sub("_", text)[:64]


def gemini_generation(model_id: str) -> int:
    """The generation of a Gemini model, the newest for an alias; 0 for any other model."""
    found = _GEMINI.search(model_id.lower())
    return int(found[1] or _NEWEST) if found else 0


def _takes_thinking_levels(model_id: str) -> bool:
    return gemini_generation(model_id) >= 3 or bool(re.search(r"gemma-?4", model_id.lower()))


def _thinking_fields(request: ModelRequest, budgets: Mapping[str, int]) -> dict[str, Any]:
    model = request.model
    if _takes_thinking_levels(model.id):
        return _level_fields(request)
    if request.thinking == "off":
        # Pro always thinks: its smallest budget comes nearest to "off".
        return {"thinkingBudget": _BUDGETS["pro"]["minimal"] if _budget_family_of(model) == "pro" else 0}
    return {"includeThoughts": True, "thinkingBudget": _choose_thinking_budget(model, request.thinking, budgets)}


def _level_fields(request: ModelRequest) -> dict[str, Any]:
    level = request.thinking
    if level != "off":
        return {"includeThoughts": True, "thinkingLevel": _to_api_level(request.model, level)}
    # These models always think: the lowest level they know comes nearest to "off".
    lowest = next((known for known in levels_of(request.model) if known != "off"), "minimal")
    return {"thinkingLevel": _to_api_level(request.model, lowest)}


def _to_api_level(model: Model, level: str) -> str:
    return (mapped_level(model, level, None) or _LEVELS[level]).upper()


def _choose_thinking_budget(model: Model, level: str, own: Mapping[str, int]) -> int:
    known = level if level in ("minimal", "low", "medium", "high") else "high"
    if known in own:
        return own[known]
    family = _budget_family_of(model)
    return _BUDGETS[family][known] if family else _DYNAMIC


def _budget_family_of(model: Model) -> str:
    """The family that decides the model's budgets; empty if unknown."""
    if gemini_generation(model.id) != 2:
        return ""
    return next((family for family in _BUDGETS if family in model.id), "")


def contents_of(history: list[ModelMessage], model: Model, generation: int) -> list[dict[str, Any]]:
    """The conversation, roles `user` and `model`."""
    return _ContentsBuilder(model, generation).build(history)


class _ContentsBuilder:
    def __init__(self, model: Model, generation: int) -> None:
        self._model = model
        self._nested_images = generation >= 3
        self._signed_calls = generation >= 3
        self._with_ids = generation >= 3 or model.id.startswith(("claude-", "gpt-oss-"))

    def build(self, history: list[ModelMessage]) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        responses: Parts | None = None
        images: list[ImageContent] = []
        for message in history:
            if isinstance(message, ToolResultMessage):
                if responses is None:
                    responses = []
                    out.append({"role": "user", "parts": responses})
                responses.append(self._function_response(message))
                if not self._nested_images:
                    images.extend(_images(message.content))
                continue
            responses = None
            _flush_images(out, images)
            if isinstance(message, UserMessage):
                parts = _user_parts(message.content)
                role = "user"
            else:
                parts = self._parts_of_answer(message)
                role = "model"
            if parts:
                out.append({"role": role, "parts": parts})
        _flush_images(out, images)
        return out

    def _parts_of_answer(self, message: AssistantMessage) -> Parts:
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

    def _function_response(self, message: ToolResultMessage) -> dict[str, Any]:
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
            response["parts"] = [_to_image_part(block) for block in images]
        return {"functionResponse": response}


def _sign_first_call(parts: Parts) -> None:
    """Of calls that were made together only the first one has a signature, and it must have it."""
    call = next((part for part in parts if "functionCall" in part), None)
    if call is not None:
        call.setdefault("thoughtSignature", FOREIGN_CALL)


def _flush_images(out: list[dict[str, Any]], images: list[ImageContent]) -> None:
    """Older models accept no images inside a function response: they follow as the user's."""
    if images:
        out.append({"role": "user", "parts": [{"text": IMAGES_LEAD}, *(_to_image_part(block) for block in images)]})
        images.clear()


def _images(blocks: list[UserBlock]) -> list[ImageContent]:
    return [block for block in blocks if isinstance(block, ImageContent)]


def _to_image_part(block: ImageContent) -> dict[str, Any]:
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _user_parts(content: str | list[UserBlock]) -> Parts:
    if isinstance(content, str):
        return [{"text": content}] if content.strip() else []
    return [
        _to_image_part(block) if isinstance(block, ImageContent) else {"text": block.text}
        for block in without_blank_texts(content)
    ]


def _is_base64(text: str) -> bool:
    return len(text) % 4 == 0 and _BASE64.fullmatch(text) is not None
