"""One reply of the scripted model, as the bytes that each API sends: a stream of events, or a whole answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]
USAGE_INPUT, USAGE_OUTPUT = 100, 20


def api_of(path: str) -> str:
    """The API that a request path belongs to; empty if it is none that answers prompts."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/messages"):
        return "messages"
    return "google" if "enerateContent" in path else ""


def is_streamed(api: str, path: str, request: Record) -> bool:
    return "streamGenerateContent" in path if api == "google" else bool(request.get("stream"))


def encode_stream(api: str, model: str, number: int, reply: Record) -> Iterator[bytes]:
    """Server-sent events. `reply` has `text` (and `pieces`, how many parts it comes in) or `calls`."""
    return {
        "chat": _stream_chat,
        "responses": _stream_responses,
        "messages": _stream_messages,
        "google": _stream_google,
    }[api](model, number, reply)


def encode_whole(api: str, model: str, number: int, reply: Record) -> Record:
    """The answer to a request that wants no stream."""
    text, calls = reply.get("text", ""), reply.get("calls", [])
    if api == "chat":
        message: Record = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [_chat_call(number, index, call) for index, call in enumerate(calls)]
        finish = "tool_calls" if calls else "stop"
        usage = {
            "prompt_tokens": USAGE_INPUT,
            "completion_tokens": USAGE_OUTPUT,
            "total_tokens": USAGE_INPUT + USAGE_OUTPUT,
        }
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {
            "id": f"c{number}",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [choice],
            "usage": usage,
        }
    if api == "messages":
        return _message(model, number, _message_blocks(number, reply), "tool_use" if calls else "end_turn")
    if api == "responses":
        return _response(number, model, _response_items(number, reply))
    return _candidate([{"text": text}] if text else [_google_call(call) for call in calls], is_last=True)


def _event(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _pieces(reply: Record) -> list[str]:
    text = reply.get("text", "")
    size = max(1, -(-len(text) // reply.get("pieces", 3)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _chat_call(number: int, index: int, call: Record) -> Record:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"id": f"call_{number}_{index}", "type": "function", "function": function}


def _stream_chat(model: str, number: int, reply: Record) -> Iterator[bytes]:
    def chunk(delta: Record, finish: str | None = None) -> Record:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": f"c{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
            "choices": [choice],
        }

    yield _event(chunk({"role": "assistant", "content": ""}))
    for piece in _pieces(reply):
        yield _event(chunk({"content": piece}))
    for index, call in enumerate(reply.get("calls", [])):
        yield _event(chunk({"tool_calls": [{"index": index, **_chat_call(number, index, call)}]}))
    last = chunk({}, "tool_calls" if reply.get("calls") else "stop")
    last["usage"] = {
        "prompt_tokens": USAGE_INPUT,
        "completion_tokens": USAGE_OUTPUT,
        "total_tokens": USAGE_INPUT + USAGE_OUTPUT,
    }
    yield _event(last)
    yield b"data: [DONE]\n\n"


def _message(model: str, number: int, content: list[Record], reason: str | None) -> Record:
    usage = {"input_tokens": USAGE_INPUT, "output_tokens": USAGE_OUTPUT}
    usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": content}
    return {**message, "stop_reason": reason, "stop_sequence": None, "usage": usage}


def _message_blocks(number: int, reply: Record) -> list[Record]:
    text = [{"type": "text", "text": reply["text"]}] if reply.get("text") else []
    calls = enumerate(reply.get("calls", []))
    return text + [
        {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": call["name"], "input": call["arguments"]}
        for index, call in calls
    ]


def _stream_messages(model: str, number: int, reply: Record) -> Iterator[bytes]:
    def named(kind: str, **members: Any) -> bytes:
        return _event({"type": kind, **members}, kind)

    yield named("message_start", message=_message(model, number, [], None))
    for index, block in enumerate(_message_blocks(number, reply)):
        if block["type"] == "text":
            yield named("content_block_start", index=index, content_block={"type": "text", "text": ""})
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(reply)]
        else:
            yield named("content_block_start", index=index, content_block={**block, "input": {}})
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        for delta in deltas:
            yield named("content_block_delta", index=index, delta=delta)
        yield named("content_block_stop", index=index)
    reason = "tool_use" if reply.get("calls") else "end_turn"
    yield named(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": USAGE_OUTPUT}
    )
    yield named("message_stop")


def _response_items(number: int, reply: Record) -> list[Record]:
    items: list[Record] = []
    if reply.get("text"):
        part = {"type": "output_text", "text": reply["text"], "annotations": []}
        items.append(
            {"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant", "content": [part]}
        )
    for index, call in enumerate(reply.get("calls", [])):
        item = {"type": "function_call", "id": f"fc_{number}_{index}", "call_id": f"call_{number}_{index}"}
        item |= {"status": "completed", "name": call["name"], "arguments": json.dumps(call["arguments"])}
        items.append(item | ({"namespace": call["namespace"]} if "namespace" in call else {}))
    return items


def _response(number: int, model: str, items: list[Record]) -> Record:
    usage: Record = {
        "input_tokens": USAGE_INPUT,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": USAGE_OUTPUT,
    }
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": USAGE_INPUT + USAGE_OUTPUT}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "status": "completed",
        "model": model,
        "output": items,
        "usage": usage,
    }


def _stream_responses(model: str, number: int, reply: Record) -> Iterator[bytes]:
    def named(kind: str, **members: Any) -> bytes:
        return _event({"type": kind, **members}, kind)

    yield named("response.created", response={**_response(number, model, []), "status": "in_progress"})
    items = _response_items(number, reply)
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            part = {**place, "content_index": 0}
            yield named(
                "response.output_item.added", output_index=index, item={**item, "status": "in_progress", "content": []}
            )
            yield named(
                "response.content_part.added", **part, part={"type": "output_text", "text": "", "annotations": []}
            )
            for piece in _pieces(reply):
                yield named("response.output_text.delta", **part, delta=piece)
            yield named("response.output_text.done", **part, text=reply["text"])
            yield named("response.content_part.done", **part, part=item["content"][0])
        else:
            yield named(
                "response.output_item.added",
                output_index=index,
                item={**item, "status": "in_progress", "arguments": ""},
            )
            yield named("response.function_call_arguments.delta", **place, delta=item["arguments"])
            yield named("response.function_call_arguments.done", **place, arguments=item["arguments"])
        yield named("response.output_item.done", output_index=index, item=item)
    yield named("response.completed", response=_response(number, model, items))


def _google_call(call: Record) -> Record:
    return {"functionCall": {"name": call["name"], "args": call["arguments"]}}


def _candidate(parts: list[Record], is_last: bool) -> Record:
    candidate: Record = {"content": {"role": "model", "parts": parts}, "index": 0}
    if is_last:
        candidate["finishReason"] = "STOP"
    usage = {
        "promptTokenCount": USAGE_INPUT,
        "candidatesTokenCount": USAGE_OUTPUT,
        "totalTokenCount": USAGE_INPUT + USAGE_OUTPUT,
    }
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "bench"}


def _stream_google(model: str, number: int, reply: Record) -> Iterator[bytes]:
    parts: list[list[Record]] = [[{"text": piece}] for piece in _pieces(reply)]
    if reply.get("calls"):
        parts.append([_google_call(call) for call in reply["calls"]])
    for index, some in enumerate(parts):
        yield _event(_candidate(some, is_last=index == len(parts) - 1))
