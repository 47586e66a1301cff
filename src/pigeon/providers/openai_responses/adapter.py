"""`openai-responses`: OpenAI's Responses API, and Azure's by its base URL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pigeon.agent.inference import Delta, ModelRequest
from pigeon.providers.connection import Access, Connection, compat_of, endpoint, mapped_level, merged
from pigeon.providers.history.cache import Replay, conversation
from pigeon.providers.http.client import Outgoing
from pigeon.providers.http.exchange import encoded, exchange
from pigeon.providers.openai_chat.compat import is_openai_host
from pigeon.providers.openai_responses.input_items import input_items, instructions
from pigeon.providers.openai_responses.stream import ResponsesStream
from pigeon.providers.token_budget import output_cap
from pigeon.wire.base import Absent
from pigeon.wire.model import Model

CACHE_KEY_CHARS = 64
CALL_ID_CHARS = 64
MIN_OUTPUT_TOKENS = 16
AZURE_API = "azure-openai-responses"
AZURE_VERSION = "v1"


def stream(request: ModelRequest, connection: Connection) -> AsyncIterator[Delta]:
    """One answer of the Responses API."""
    body = body_of(request, connection.replay)
    url = endpoint(request.model.base_url, "responses")
    if request.model.api == AZURE_API:
        url = azure_url(request.model, connection.access.env)
        body["model"] = _deployment(request.model.id, connection.access.env)
    outgoing = Outgoing(url=url, headers=headers_of(request, connection.access), body=encoded(body))
    return exchange(connection.line, outgoing, ResponsesStream(request.model.id), "message")


def headers_of(request: ModelRequest, access: Access) -> dict[str, str]:
    """Authentication, and the session for the cache."""
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if access.key:
        if request.model.api == AZURE_API and not access.bearer:
            headers["api-key"] = access.key
        else:
            headers["authorization"] = f"Bearer {access.key}"
    if request.session_id and request.cache != "none":
        style = compat_of(request.model).get("sessionAffinityFormat")
        if style == "openrouter" or "openrouter.ai" in request.model.base_url:
            headers["x-session-id"] = request.session_id
        else:
            headers["x-client-request-id"] = request.session_id
            if style != "openai-nosession":
                headers["session_id"] = request.session_id
    return merged(headers, access.headers)


def body_of(request: ModelRequest, replay: Replay | None = None) -> dict[str, Any]:
    """The JSON body."""
    model = request.model
    compat = compat_of(model)
    developer = model.reasoning and compat.get("supportsDeveloperRole", True)
    prompt = instructions(request.system_prompt, "developer" if developer else "system")
    history = conversation(request, replay, call_id, lambda messages, before: input_items(messages, model, before))
    body: dict[str, Any] = {
        "model": model.id,
        "input": [*prompt, *history],
        "stream": True,
        "store": False,
    }
    cap = output_cap(request)
    if cap and compat.get("supportsMaxOutputTokens", True):
        body["max_output_tokens"] = max(cap, MIN_OUTPUT_TOKENS)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
    if request.session_id and request.cache != "none":
        body["prompt_cache_key"] = request.session_id[:CACHE_KEY_CHARS]
        if request.cache == "long" and compat.get("supportsLongCacheRetention", is_openai_host(model)):
            body["prompt_cache_retention"] = "24h"
    body.update(_reasoning(request))
    if not isinstance(model.sampling_params, Absent):
        body.update(model.sampling_params)
    return body


def call_id(text: str) -> str:
    """The call half of an id, as this API takes it; item ids of another model are left out."""
    half = re.sub(r"[^A-Za-z0-9_-]", "_", text.split("|", maxsplit=1)[0])
    if len(half) > CALL_ID_CHARS:
        half = f"{half[: CALL_ID_CHARS - 9]}_{hashlib.sha256(half.encode()).hexdigest()[:8]}"
    return half.rstrip("_") or "call"


def _reasoning(request: ModelRequest) -> dict[str, Any]:
    model = request.model
    if not model.reasoning:
        return {}
    include = {"include": ["reasoning.encrypted_content"]}
    if request.thinking == "off":
        effort = mapped_level(model, "off", "none")
        return {"reasoning": {"effort": effort}, **include} if effort else include
    effort = mapped_level(model, request.thinking, request.thinking)
    return {"reasoning": {"effort": effort or request.thinking, "summary": "auto"}, **include}


def azure_url(model: Model, env: Mapping[str, str]) -> str:
    """The endpoint of an Azure resource, from the model or the environment, normalised to `/openai/v1`."""
    base = model.base_url or env.get("AZURE_OPENAI_BASE_URL", "")
    resource = env.get("AZURE_OPENAI_RESOURCE_NAME", "")
    if not base and resource:
        base = f"https://{resource}.openai.azure.com"
    if not base:
        raise ValueError("set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME")
    base = base.rstrip("/")
    if ".azure.com" in base:
        base = re.sub(r"/openai(?:/v1)?$", "", base) + "/openai/v1"
    version = env.get("AZURE_OPENAI_API_VERSION") or AZURE_VERSION
    return f"{base}/responses?api-version={version}"


def _deployment(model_id: str, env: Mapping[str, str]) -> str:
    """What the model is called in this resource: `model=deployment,...`."""
    for pair in env.get("AZURE_OPENAI_DEPLOYMENT_NAME_MAP", "").split(","):
        name, _, deployment = pair.partition("=")
        if name.strip() == model_id and deployment.strip():
            return deployment.strip()
    return model_id
