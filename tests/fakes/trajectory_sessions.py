"""Small sessions for trajectories: two compactions, branches, retries, token ids, results without a call."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pigeon.system.environment import Environment

AT = "2026-11-01T10:00:00.000Z"
COST = {"input": 0.001, "output": 0.002, "cacheRead": 0, "cacheWrite": 0, "total": 0.003}
USAGE = {"input": 10, "output": 5, "cacheRead": 20, "cacheWrite": 3, "totalTokens": 38, "cost": COST}


def environment_in(folder: Path) -> Environment:
    """Nothing of the user's."""
    return Environment(variables={"PATH": os.environ["PATH"]}, home=str(folder), cwd=str(folder))


def session(*entries: dict[str, Any]) -> str:
    """A session file; each entry hangs on the one before it unless it says otherwise."""
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s1", "timestamp": AT, "cwd": "/w"}]
    before: str | None = None
    for number, entry in enumerate(entries, 1):
        lines.append({"id": f"e{number}", "parentId": before, "timestamp": AT, **entry})
        before = lines[-1]["id"]
    return "".join(json.dumps(line) + "\n" for line in lines)


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": "user", "content": text, "timestamp": 1}, **more}


def answer(*content: dict[str, Any] | str, stop: str = "stop", **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
    message = {"role": "assistant", "content": blocks, "api": "a", "provider": "p", "model": "m", "usage": USAGE}
    return {"type": "message", "message": {**message, "stopReason": stop, "timestamp": 1, **more}}


def call(id: str, name: str = "bash") -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": name, "arguments": {"command": "ls"}}


def result(id: str, text: str = "ok") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    message = {"role": "toolResult", "toolCallId": id, "toolName": "bash", "content": content, "isError": False}
    return {"type": "message", "message": {**message, "timestamp": 1}}


def compaction(first_kept: str) -> dict[str, Any]:
    return {
        "type": "compaction",
        "summary": "So far.",
        "firstKeptEntryId": first_kept,
        "tokensBefore": 100,
        "usage": USAGE,
    }


def tokens(message: str, **data: Any) -> dict[str, Any]:
    return {"type": "custom", "customType": "pigeon.tokens", "data": {"messageId": message, **data}}


SESSIONS = {
    "twice compacted": session(
        user("one"),
        answer(call("c1")),
        result("c1"),
        answer("done one"),
        compaction("e4"),
        user("two"),
        answer("done two"),
        compaction("e4"),
        user("three"),
        answer("done three"),
    ),
    "branches": session(
        user("one"), answer("first"), user("left"), answer("left"), user("right", parentId="e2"), answer("right")
    ),
    "retried": session(
        user("one"),
        answer(stop="error", errorMessage="Overloaded"),
        {"type": "context_edit", "targetId": "e2", "replacement": None},
        answer("well"),
    ),
    "a result without its call": session(user("one"), result("gone"), answer("well")),
    "token ids": session(
        user("one"), answer("two"), tokens("e2", promptTokenIds=[1, 2], tokenIds=[3, 4], logprobs=[-0.1, -0.2])
    ),
    "thinking and declared tools": session(
        {
            "type": "message",
            "message": {
                "role": "system",
                "content": "",
                "timestamp": 1,
                "toolsAdded": [{"name": "bash", "description": "runs", "parameters": {"type": "object"}}],
            },
        },
        user("one"),
        answer({"type": "thinking", "thinking": "hm"}, "well", thinkingLevel="high", durationMs=7, responseId="r"),
    ),
}
