"""`google-generative-ai`: the Gemini API."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from pigeon.agent.inference import Delta, ModelRequest
from pigeon.providers.connection import Connection, endpoint, mapped_level, merged
from pigeon.providers.google.contents import contents_of
from pigeon.providers.google.stream import GoogleStream
from pigeon.providers.history.cache import Replay, conversation
from pigeon.providers.http.client import Outgoing
from pigeon.providers.http.exchange import encoded, exchange
from pigeon.providers.token_budget import output_cap
from pigeon.wire.base import Absent
from pigeon.wire.model import Model, levels_of

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


def stream(request: ModelRequest, connection: Connection) -> AsyncIterator[Delta]:
    """One answer of the Gemini API."""
    access = connection.access
    path = f"models/{quote(request.model.id, safe='/')}:streamGenerateContent?alt=sse"
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if access.bearer:
        headers["authorization"] = f"Bearer {access.key}"
    elif access.key:
        headers["x-goog-api-key"] = access.key
    outgoing = Outgoing(
        url=endpoint(request.model.base_url, path),
        headers=merged(headers, access.headers),
        body=encoded(body_of(request, access.budgets, connection.replay)),
    )
    return exchange(connection.line, outgoing, GoogleStream(request.model.id), "message")


def body_of(request: ModelRequest, budgets: dict[str, int], replay: Replay | None = None) -> dict[str, Any]:
    """The JSON body."""
    model = request.model
    era = generation(model.id)
    history = conversation(request, replay, call_id, lambda messages, _: contents_of(messages, model, era))
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
    cap = output_cap(request)
    if cap:
        config["maxOutputTokens"] = cap
    if model.reasoning:
        config["thinkingConfig"] = _thinking(request, budgets)
    if not isinstance(model.sampling_params, Absent):
        config.update(model.sampling_params)
    if config:
        body["generationConfig"] = config
    return body


def call_id(text: str) -> str:
    """A tool call id of another API as this one takes it."""
    return _BAD_ID.sub("_", text)[:64]


def generation(model_id: str) -> int:
    """Which Gemini this is, the newest for a name that moves along; 0 for anything else."""
    found = _GEMINI.search(model_id.lower())
    return int(found[1] or _NEWEST) if found else 0


def _has_levels(model_id: str) -> bool:
    return generation(model_id) >= 3 or bool(re.search(r"gemma-?4", model_id.lower()))


def _thinking(request: ModelRequest, budgets: dict[str, int]) -> dict[str, Any]:
    model = request.model
    if _has_levels(model.id):
        return _by_level(request)
    if request.thinking == "off":
        # Pro cannot be told not to think: its smallest budget comes nearest.
        return {"thinkingBudget": _BUDGETS["pro"]["minimal"] if _family(model) == "pro" else 0}
    return {"includeThoughts": True, "thinkingBudget": _budget(model, request.thinking, budgets)}


def _by_level(request: ModelRequest) -> dict[str, Any]:
    level = request.thinking
    if level != "off":
        return {"includeThoughts": True, "thinkingLevel": _level(request.model, level)}
    # These models cannot be told not to think: the lowest level they know comes nearest.
    lowest = next((known for known in levels_of(request.model) if known != "off"), "minimal")
    return {"thinkingLevel": _level(request.model, lowest)}


def _level(model: Model, level: str) -> str:
    return (mapped_level(model, level, None) or _LEVELS[level]).upper()


def _budget(model: Model, level: str, own: dict[str, int]) -> int:
    known = level if level in ("minimal", "low", "medium", "high") else "high"
    if known in own:
        return own[known]
    family = _family(model)
    return _BUDGETS[family][known] if family else _DYNAMIC


def _family(model: Model) -> str:
    """Which budgets the model takes; nothing if that is not known."""
    if generation(model.id) != 2:
        return ""
    return next((family for family in _BUDGETS if family in model.id), "")
