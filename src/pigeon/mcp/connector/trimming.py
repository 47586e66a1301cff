"""Trims the answers of servers before the package parses them: lists are cut to their limits, and items that do not
fit the protocol are left out or replaced. So one bad tool or block does not spoil the others, and an endless list costs
no time.

Output schemas are removed, too: a server's results are not checked against them, and patterns in a schema could take
forever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import mcp_types as types

MOST_TOOLS = 2_000
MOST_OFFERED = 1_000
MOST_BLOCKS = 500
DEEPEST_SCHEMA = 50
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
# Characters that move, hide or reverse text on a screen, or that only a model sees.
_HIDDEN = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
Entry = dict[str, Any]


def strip_hidden_chars(text: str) -> str:
    """A text without invisible characters."""
    return re.sub(_HIDDEN, "", text)


def trim_message(message: Any) -> Any:
    """The message, trimmed if it is an answer."""
    if not isinstance(message, types.JSONRPCResponse):
        return message
    result = message.result
    for key, (most, entry) in _LISTS.items():
        listed = result.get(key)
        if isinstance(listed, list):
            # One more than the limit, so that the excess is noticed.
            found = (entry(one) for one in listed[: most + 1] if isinstance(one, dict))
            result[key] = [one for one in found if one is not None]
    if isinstance(result.get("content"), list):
        result["content"] = [_trim_block(one) for one in result["content"][: MOST_BLOCKS + 1]]
    elif "structuredContent" in result or "isError" in result:
        result.setdefault("content", [])
    return message


def is_too_deep(schema: Any, most: int = DEEPEST_SCHEMA) -> bool:
    """Whether a schema has more levels than are taken."""
    level = [schema]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _trim_tool(given: Entry) -> Entry | None:
    name, schema, hints = given.get("name"), given.get("inputSchema"), given.get("annotations")
    if not isinstance(name, str):
        return None
    if not isinstance(schema, dict) or schema.get("type", "object") != "object" or is_too_deep(schema):
        schema = {}
    found: Entry = {"name": name, "inputSchema": {**schema, "type": "object"}}
    if isinstance(hints, dict):
        found["annotations"] = {hint: hints[hint] for hint in _HINTS if isinstance(hints.get(hint), bool)}
    return found | _trim_texts(given, "title", "description")


def _trim_prompt(given: Entry) -> Entry | None:
    listed = given.get("arguments")
    arguments = [
        {"name": one["name"], "required": one.get("required") is True, **_trim_texts(one, "description")}
        for one in (listed if isinstance(listed, list) else [])[:100]
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    ]
    if not isinstance(given.get("name"), str):
        return None
    return {"name": given["name"], "arguments": arguments, **_trim_texts(given, "title", "description")}


def _trim_resource(given: Entry) -> Entry | None:
    return _trim_addressed(given, "uri")


def _trim_template(given: Entry) -> Entry | None:
    return _trim_addressed(given, "uriTemplate")


def _trim_addressed(given: Entry, address: str) -> Entry | None:
    where = given.get(address)
    if not isinstance(where, str) or not where or strip_hidden_chars(where) != where or re.search(r"\s", where):
        return None
    more = _trim_texts(given, "name", "title", "description", "mimeType")
    return {"name": where, **more, address: where}


def _trim_texts(given: Entry, *names: str) -> Entry:
    return {name: strip_hidden_chars(given[name]) for name in names if isinstance(given.get(name), str)}


def _trim_block(given: Any) -> Any:
    """A block of content, or a text that names one that is not known."""
    fields: dict[str, tuple[str, ...]] = {
        "text": ("text",),
        "image": ("data", "mimeType"),
        "audio": ("data", "mimeType"),
        "resource_link": ("uri", "name"),
    }
    kind = given.get("type") if isinstance(given, dict) else None
    if kind in fields and all(isinstance(given.get(name), str) for name in fields[kind]):
        return {"type": kind, **{name: given[name] for name in fields[kind]}, **_trim_texts(given, "description")}
    inner = given.get("resource") if kind == "resource" else None
    if isinstance(inner, dict) and isinstance(inner.get("uri"), str):
        held = {name: inner[name] for name in ("uri", "mimeType", "text", "blob") if isinstance(inner.get(name), str)}
        if "text" in held or "blob" in held:
            return {"type": "resource", "resource": held}
    return {"type": "text", "text": f"[Content that cannot be shown: {str(kind)[:50]}]"}


_LISTS: dict[str, tuple[int, Callable[[Entry], Entry | None]]] = {
    "tools": (MOST_TOOLS, _trim_tool),
    "prompts": (MOST_OFFERED, _trim_prompt),
    "resources": (MOST_OFFERED, _trim_resource),
    "resourceTemplates": (MOST_OFFERED, _trim_template),
}
