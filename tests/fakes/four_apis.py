"""Answers of a model in the words of four APIs, for `fakes.http_server`: texts, tool calls, and how the answer ends."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fakes.http_server import Reply, sse

APIS = ("anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai")
PATHS = {"anthropic-messages": "", "openai-completions": "/v1", "openai-responses": "/v1", "google-generative-ai": ""}


class Calling(NamedTuple):
    """A tool call; `raw` instead of the arguments as JSON, where the API has them as a text."""

    name: str
    arguments: dict[str, Any]


Part = str | Calling


def answer(api: str, *parts: Part, stop: str = "stop") -> Reply:
    """An answer; `stop` is "stop", "length" or "refusal"."""
    calls = any(isinstance(part, Calling) for part in parts)
    if api == "anthropic-messages":
        return Reply(sse(*_anthropic(parts, calls, stop), named=True))
    if api == "openai-completions":
        return Reply(sse(*_chat(parts, calls, stop), "[DONE]"))
    if api == "openai-responses":
        return Reply(sse(*_responses(parts, stop), named=True))
    return Reply(sse(_google(parts, stop)))


def tool_names(api: str, body: dict[str, Any]) -> list[str]:
    """The tools that a request offers."""
    tools = body.get("tools", [])
    if api == "openai-completions":
        return [tool["function"]["name"] for tool in tools]
    if api == "google-generative-ai":
        return [one["name"] for tool in tools for one in tool["functionDeclarations"]]
    return [tool["name"] for tool in tools]


def asked_schema(api: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that a request has for its answer by a field of the API."""
    found: Any
    if api == "anthropic-messages":
        found = body.get("output_config", {}).get("format", {}).get("schema")
    elif api == "openai-completions":
        found = body.get("response_format", {}).get("json_schema", {}).get("schema")
    elif api == "openai-responses":
        found = body.get("text", {}).get("format", {}).get("schema")
    else:
        found = body.get("generationConfig", {}).get("responseJsonSchema")
    return found


def _anthropic(parts: tuple[Part, ...], calls: bool, stop: str) -> list[dict[str, Any]]:
    usage = {"input_tokens": 5, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "usage": usage}}]
    for index, part in enumerate(parts):
        if isinstance(part, str):
            block: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": part}
        else:
            block = {"type": "tool_use", "id": f"c{index}", "name": part.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(part.arguments)}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    reason = {"length": "max_tokens", "refusal": "refusal"}.get(stop, "tool_use" if calls else "end_turn")
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})
    return [*events, {"type": "message_stop"}]


def _chat(parts: tuple[Part, ...], calls: bool, stop: str) -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            delta: dict[str, Any] = {"refusal" if stop == "refusal" else "content": part}
        else:
            function = {"name": part.name, "arguments": json.dumps(part.arguments)}
            delta = {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}
        chunks.append({"id": "r", "choices": [{"index": 0, "delta": delta}]})
    reason = "length" if stop == "length" else "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    return [*chunks, {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}]


def _responses(parts: tuple[Part, ...], stop: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r", "model": "m"}}]
    for index, part in enumerate(parts):
        if isinstance(part, str):
            kind = "refusal" if stop == "refusal" else "output_text"
            item: dict[str, Any] = {"type": "message", "id": f"msg_{index}", "content": []}
            name, grown = f"response.{kind}.delta", part
            key = "refusal" if stop == "refusal" else "text"
            whole = {**item, "content": [{"type": kind, key: part}]}
        else:
            item = {"type": "function_call", "id": f"fc_{index}", "call_id": f"c{index}", "name": part.name}
            name, grown = "response.function_call_arguments.delta", json.dumps(part.arguments)
            whole, item = {**item, "arguments": grown}, {**item, "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": name, "output_index": index, "delta": grown})
        events.append({"type": "response.output_item.done", "output_index": index, "item": whole})
    status = "incomplete" if stop == "length" else "completed"
    response: dict[str, Any] = {"id": "r", "status": status, "usage": {"input_tokens": 5, "output_tokens": 1}}
    if stop == "length":
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    return [*events, {"type": f"response.{status}", "response": response}]


def _google(parts: tuple[Part, ...], stop: str) -> dict[str, Any]:
    sent: list[dict[str, Any]] = [
        {"text": part} if isinstance(part, str) else {"functionCall": {"name": part.name, "args": part.arguments}}
        for part in parts
    ]
    reason = {"length": "MAX_TOKENS", "refusal": "SAFETY"}.get(stop, "STOP")
    candidate = {"content": {"role": "model", "parts": sent}, "finishReason": reason}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 1}}
