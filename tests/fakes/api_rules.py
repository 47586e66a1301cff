"""What each API refuses, as rules over the body of a request.

A provider that refuses a request for what the history holds refuses every later one too. `broken_rules` lists what is
wrong with a body, empty for one that the provider takes. Sources: the APIs' references and the errors that they are
known to answer with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_google_name = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}").fullmatch
_id = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_data_url = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*").fullmatch


def broken_rules(api: str, sent: bytes) -> list[str]:
    """Everything in this body that the API refuses."""
    sent.decode("utf-8")
    body = msgspec.json.decode(sent)
    rules = {
        "anthropic-messages": _anthropic,
        "openai-completions": _chat,
        "openai-responses": _responses,
        "google-generative-ai": _google,
    }
    return [*_lone_surrogates(body), *rules[api](body)]


def _lone_surrogates(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            yield f"half of a surrogate pair in {value!r}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _lone_surrogates(key)
            yield from _lone_surrogates(item)
    elif isinstance(value, list):
        for item in value:
            yield from _lone_surrogates(item)


def _blank(value: Any) -> bool:
    return not isinstance(value, str) or not value.strip()


# The Messages API.


def _anthropic(body: dict[str, Any]) -> Iterator[str]:
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "the first message is not the user's"
    if messages and messages[-1]["role"] != "user":
        yield "the last message is not the user's"
    seen: set[str] = set()
    open_calls: list[str] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            yield "a message without content"
        for block in blocks:
            yield from _anthropic_block(block, message["role"])
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if results != open_calls:
            yield f"results {results} for calls {open_calls}"
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield "results do not come first"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for one in open_calls:
            if one in seen:
                yield f"two calls with the id {one!r}"
            seen.add(one)
        if message["role"] == "assistant" and blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            yield "an answer that ends in thinking"
    if open_calls:
        yield "calls without results"


def _anthropic_block(block: dict[str, Any], role: str) -> Iterator[str]:
    kind = block["type"]
    allowed = {
        "user": ("text", "image", "tool_result"),
        "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    }
    if kind not in allowed[role]:
        yield f"{kind} of {role}"
    if kind == "text" and _blank(block["text"]):
        yield "a blank text"
    if kind == "image":
        yield from _anthropic_image(block)
    if kind == "redacted_thinking" and not block["data"]:
        yield "redacted thinking without data"
    if kind == "tool_use":
        well_formed = _id(block["id"]) and _name(block["name"]) and isinstance(block["input"], dict)
        yield from () if well_formed else (f"a malformed call {block}",)
    if kind == "tool_result":
        yield from _anthropic_result(block)


def _anthropic_result(block: dict[str, Any]) -> Iterator[str]:
    content = block["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not parts:
        yield "an empty result"
    for part in parts:
        if part["type"] == "text" and _blank(part["text"]):
            yield "a blank text in a result"
        if part["type"] == "image":
            yield from _anthropic_image(part)
            if block["is_error"]:
                yield "an image in the result of a failure"


def _anthropic_image(block: dict[str, Any]) -> Iterator[str]:
    source = block["source"]
    if source["media_type"] not in IMAGES or not source["data"]:
        yield f"an image that is none: {source}"


# Chat completions.


def _chat(body: dict[str, Any]) -> Iterator[str]:
    messages = body["messages"]
    talk = [message for message in messages if message["role"] not in ("system", "developer")]
    if not talk or talk[0]["role"] != "user":
        yield "the first message is not the user's"
    if talk and talk[-1]["role"] == "assistant":
        yield "the last message is an answer"
    seen: set[str] = set()
    open_calls: list[str] = []
    for message in talk:
        if message["role"] == "tool":
            yield from _chat_result(message, open_calls)
            continue
        if open_calls:
            yield f"calls without results: {open_calls}"
        open_calls = []
        content = message.get("content")
        calls = message.get("tool_calls", [])
        if not content and not calls:
            yield f"an empty message of {message['role']}"
        yield from _chat_parts(content)
        for call in calls:
            yield from _chat_call(call, seen)
            open_calls.append(call["id"])
    if open_calls:
        yield f"calls without results: {open_calls}"


def _chat_call(call: dict[str, Any], seen: set[str]) -> Iterator[str]:
    if call["id"] in seen or not call["id"] or len(call["id"]) > 64:
        yield f"a bad or repeated id {call['id']!r}"
    seen.add(call["id"])
    if not _name(call["function"]["name"]):
        yield f"a bad name {call['function']['name']!r}"
    if not isinstance(msgspec.json.decode(call["function"]["arguments"]), dict):
        yield "arguments that are no object"


def _chat_result(message: dict[str, Any], open_calls: list[str]) -> Iterator[str]:
    if message["tool_call_id"] not in open_calls:
        yield f"a result without a call: {message['tool_call_id']!r}"
    else:
        open_calls.remove(message["tool_call_id"])
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    if not texts or any(map(_blank, texts)):
        yield "a blank result"


def _chat_parts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        if _blank(content):
            yield "a blank text"
        return
    for part in content or []:
        if part["type"] == "text" and _blank(part["text"]):
            yield "a blank text"
        if part["type"] == "image_url" and not _data_url(part["image_url"]["url"]):
            yield "an image that is none"


# The Responses API.


def _responses(body: dict[str, Any]) -> Iterator[str]:
    items = [item for item in body["input"] if item.get("role") not in ("system", "developer")]
    if not items or items[0].get("role") != "user":
        yield "the first item is not the user's"
    if items and items[-1].get("role") == "assistant":
        yield "the last item is an answer"
    open_calls: set[str] = set()
    seen: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            yield from _responses_call(item, seen)
            open_calls.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in open_calls:
                yield "a result without a call"
            open_calls.discard(item["call_id"])
            yield from _responses_content(item["output"])
        elif kind == "reasoning":
            if at + 1 == len(items) or items[at + 1].get("role") == "user":
                yield "reasoning that nothing follows"
        else:
            if item["role"] == "assistant" and not 1 <= len(item["id"]) <= 64:
                yield f"a bad item id {item['id']!r}"
            yield from _responses_content(item["content"])
    if open_calls:
        yield f"calls without results: {open_calls}"


def _responses_call(item: dict[str, Any], seen: set[str]) -> Iterator[str]:
    if item["call_id"] in seen or not _id(item["call_id"]):
        yield f"a bad or repeated id {item['call_id']!r}"
    seen.add(item["call_id"])
    if not _name(item["name"]) or not isinstance(msgspec.json.decode(item["arguments"]), dict):
        yield f"a malformed call {item}"
    if "id" in item and not (item["id"].startswith("fc_") and len(item["id"]) <= 64):
        yield f"a bad item id {item['id']!r}"


def _responses_content(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        if _blank(content):
            yield "a blank text"
        return
    if not content:
        yield "empty content"
    for part in content:
        if part["type"] in ("input_text", "output_text") and _blank(part["text"]):
            yield "a blank text"
        if part["type"] == "input_image" and not _data_url(part["image_url"]):
            yield "an image that is none"


# The Gemini API.


def _google(body: dict[str, Any]) -> Iterator[str]:
    contents = body["contents"]
    if not contents or contents[0]["role"] != "user":
        yield "the first content is not the user's"
    if contents and contents[-1]["role"] != "user":
        yield "the last content is not the user's"
    calls: list[str] = []
    for content in contents:
        parts = content["parts"]
        if not parts:
            yield "a content without parts"
        answers = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if answers != calls:
            yield f"responses {answers} for calls {calls}"
        calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        for part in parts:
            yield from _google_part(part)
    if calls:
        yield f"calls without responses: {calls}"


def _google_part(part: dict[str, Any]) -> Iterator[str]:
    kinds = [key for key in part if key in ("text", "functionCall", "functionResponse", "inlineData")]
    if len(kinds) != 1:
        yield f"a part of {kinds}"
    elif kinds == ["text"]:
        if _blank(part["text"]) and "thoughtSignature" not in part:
            yield "a blank text"
    elif kinds == ["inlineData"]:
        yield from _google_image(part)
    elif kinds == ["functionCall"]:
        call = part["functionCall"]
        if not _google_name(call["name"]) or not isinstance(call["args"], dict) or len(call.get("id", "x")) > 64:
            yield f"a malformed call {call}"
    else:
        response = part["functionResponse"]
        if not _google_name(response["name"]) or any(map(_blank, response["response"].values())):
            yield f"a malformed response {response}"
        for image in response.get("parts", []):
            yield from _google_image(image)


def _google_image(part: dict[str, Any]) -> Iterator[str]:
    if part["inlineData"]["mimeType"] not in IMAGES or not part["inlineData"]["data"]:
        yield "an image that is none"
