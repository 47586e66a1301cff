"""What a strict client of the forks raises on: every frame it knows must have exactly the shape it expects.

One complaint ends such a client's session, so a conversation has to pass without any. Frames of unknown type and
additional members are fine.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
ROLES = {
    "user", "developer", "assistant", "toolResult", "bashExecution", "pythonExecution", "custom", "hookMessage",
    "branchSummary", "compactionSummary", "fileMention",
}  # fmt: skip
UI_METHODS = {
    "select", "confirm", "input", "editor", "cancel", "notify", "setStatus", "setWidget", "setTitle",
    "set_editor_text",
}  # fmt: skip
LEVELS = {"off", "minimal", "low", "medium", "high", "xhigh"}
STATUSES = {"pending", "in_progress", "completed", "abandoned"}
QUEUE_MODES = {"all", "one-at-a-time"}
STREAM = {
    "start": {}, "text_start": {}, "thinking_start": {}, "toolcall_start": {},
    "text_delta": {"delta": str}, "thinking_delta": {"delta": str}, "toolcall_delta": {"delta": str},
    "text_end": {"content": str}, "thinking_end": {"content": str}, "toolcall_end": {"toolCall": dict},
}  # fmt: skip


def complaints(record: Record) -> list[str]:
    """What is wrong with one frame."""
    kind = record["type"]
    found: list[str] = []
    if kind == "response":
        found += _response(record)
    elif kind in ("message_start", "message_end", "message_update", "turn_end"):
        found += _message(record.get("message"))
    if kind == "message_update":
        found += _stream_event(record.get("assistantMessageEvent"))
    elif kind == "turn_end":
        found += [text for result in record["toolResults"] for text in _message(result, {"toolResult"})]
    elif kind == "agent_end":
        found += [text for message in record["messages"] for text in _message(message)]
    elif kind == "extension_ui_request":
        found += _ui(record)
    elif kind == "extension_error":
        found += _typed(record, extensionPath=str, event=str, error=str)
    elif kind.startswith("tool_execution_"):
        found += _typed(record, toolCallId=str, toolName=str)
        found += _typed(record, isError=bool) if kind.endswith("end") else []
    elif kind.startswith("auto_compaction_"):
        found += _one_of(record.get("reason", "threshold"), {"threshold", "overflow", "idle"}, "reason")
        found += _typed({"result": record.get("result") or {}}, result=dict)
    elif kind == "todo_reminder":
        found += [text for task in record["todos"] for text in _task(task)]
    return [f"{kind}: {text}" for text in found]


def _response(record: Record) -> list[str]:
    found = _typed(record, command=str, success=bool)
    found += _typed(record, id=str) if "id" in record else []
    data = record.get("data")
    if data is not None and not isinstance(data, dict):
        found.append(f"data is {data!r}")
    if record["success"] is False:
        return found + _typed(record, error=str)
    if record["command"] == "get_state":
        found += _state(record["data"])
    elif record["command"] == "bash":
        found += _typed(record["data"], output=str, cancelled=bool, truncated=bool)
    elif record["command"] == "export_html":
        found += _typed(record["data"], path=str)
    return found


def _state(data: Record) -> list[str]:
    found = _typed(data, sessionId=str, isStreaming=bool, isCompacting=bool, messageCount=int, queuedMessageCount=int)
    found += _one_of(data.get("thinkingLevel", "off"), LEVELS, "thinkingLevel")
    found += _one_of(data["steeringMode"], QUEUE_MODES, "steeringMode")
    found += _one_of(data["followUpMode"], QUEUE_MODES, "followUpMode")
    found += _one_of(data["interruptMode"], {"immediate", "wait"}, "interruptMode")
    # A list of texts in oh-my-pi, one text in the others.
    if not isinstance(prompt := data.get("systemPrompt", ""), str):
        found += [text for part in prompt for text in _typed({"systemPrompt": part}, systemPrompt=str)]
    if data.get("model") is not None:
        found += _typed(data["model"], id=str, name=str, api=str, provider=str, baseUrl=str)
        found += _typed(data["model"], contextWindow=int, maxTokens=int)
    for phase in data["todoPhases"]:
        found += [*_typed(phase, name=str), *(text for task in phase["tasks"] for text in _task(task))]
    return found


def _task(task: Record) -> list[str]:
    return _typed(task, content=str) + _one_of(task["status"], STATUSES, "status")


def _stream_event(event: Any) -> list[str]:
    if not isinstance(event, dict) or event.get("type") not in STREAM:
        return [f"assistantMessageEvent is {event!r}"]
    shape = {} if event["type"] == "start" else {"contentIndex": int}
    return _typed(event, **shape, **STREAM[event["type"]]) + _message(event.get("partial"), {"assistant"})


def _message(message: Any, roles: set[str] = ROLES) -> list[str]:
    if not isinstance(message, dict):
        return [f"a message is {message!r}"]
    return _one_of(message.get("role"), roles, "role")


def _ui(record: Record) -> list[str]:
    found = _typed(record, id=str) + _one_of(record["method"], UI_METHODS, "method")
    found += _typed(record, timeout=int) if "timeout" in record else []
    found += _one_of(record.get("notifyType", "info"), {"info", "warning", "error"}, "notifyType")
    return found + _one_of(record.get("widgetPlacement", "aboveEditor"), {"aboveEditor", "belowEditor"}, "placement")


def _typed(record: Record, **kinds: type) -> list[str]:
    return [f"{key} is {record.get(key)!r}" for key, kind in kinds.items() if not isinstance(record.get(key), kind)]


def _one_of(value: Any, allowed: set[str], name: str) -> list[str]:
    return [] if value in allowed else [f"{name} is {value!r}"]
