"""The members of each record that pi 0.73.1 declares, by the names on the wire.

A shape is a mapping from the members of an object to their shapes, or a function that finds it by the object; `None`
stands for any value. The shape of a list is that of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pigeon.wire.base import Json

Shape: TypeAlias = "Mapping[str, Shape] | Callable[[dict[str, Json]], Shape] | None"


def keep_members(value: Json, shape: Shape) -> Json:
    """The value without members that the shape does not have."""
    if shape is None or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [keep_members(item, shape) for item in value]
    if callable(shape):
        return keep_members(value, shape(value))
    return {name: keep_members(item, shape[name]) for name, item in value.items() if name in shape}


def _members(names: str, **shapes: Shape) -> dict[str, Shape]:
    return {**dict.fromkeys(names.split()), **shapes}


def _by(member: str, shapes: dict[str, dict[str, Shape]]) -> Callable[[dict[str, Json]], Shape]:
    return lambda value: shapes.get(value.get(member, ""))


COST = _members("input output cacheRead cacheWrite total")
USAGE = _members("input output cacheRead cacheWrite totalTokens", cost=COST)
BLOCK = _by(
    "type",
    {
        "text": _members("type text textSignature"),
        "thinking": _members("type thinking thinkingSignature redacted"),
        "image": _members("type data mimeType"),
        "toolCall": _members("type id name arguments thoughtSignature"),
    },
)
MESSAGE = _by(
    "role",
    {
        "user": _members("role timestamp", content=BLOCK),
        "assistant": _members(
            "role api provider model responseModel responseId diagnostics stopReason errorMessage timestamp",
            content=BLOCK,
            usage=USAGE,
        ),
        "toolResult": _members("role toolCallId toolName details isError timestamp", content=BLOCK),
        "bashExecution": _members(
            "role command output exitCode cancelled truncated fullOutputPath timestamp excludeFromContext"
        ),
        "custom": _members("role customType display details timestamp", content=BLOCK),
        "branchSummary": _members("role summary fromId timestamp"),
        "compactionSummary": _members("role summary tokensBefore timestamp"),
    },
)
MODEL = _members(
    "id name api provider baseUrl reasoning thinkingLevelMap input contextWindow maxTokens headers compat",
    cost=_members("input output cacheRead cacheWrite"),
)
COMPACTION = _members("summary firstKeptEntryId tokensBefore details")
TOOL_RESULT = _members("details terminate", content=BLOCK)
DIALOGS: dict[str, dict[str, Shape]] = {
    "select": _members("type id method title options timeout"),
    "confirm": _members("type id method title message timeout"),
    "input": _members("type id method title placeholder timeout"),
    "editor": _members("type id method title prefill"),
    "notify": _members("type id method message notifyType"),
    "setStatus": _members("type id method statusKey statusText"),
    "setWidget": _members("type id method widgetKey widgetLines widgetPlacement"),
    "setTitle": _members("type id method title"),
    "set_editor_text": _members("type id method text"),
}
EVENTS: dict[str, Shape] = {
    "agent_start": _members("type"),
    "agent_end": _members("type", messages=MESSAGE),
    "turn_start": _members("type"),
    "turn_end": _members("type", message=MESSAGE, toolResults=MESSAGE),
    "message_start": _members("type", message=MESSAGE),
    "message_end": _members("type", message=MESSAGE),
    "tool_execution_start": _members("type toolCallId toolName args"),
    "tool_execution_update": _members("type toolCallId toolName args", partialResult=TOOL_RESULT),
    "tool_execution_end": _members("type toolCallId toolName isError", result=TOOL_RESULT),
    "queue_update": _members("type steering followUp"),
    "session_info_changed": _members("type name"),
    "thinking_level_changed": _members("type level"),
    "compaction_start": _members("type reason"),
    "compaction_end": _members("type reason aborted willRetry errorMessage", result=COMPACTION),
    "auto_retry_start": _members("type attempt maxAttempts delayMs errorMessage"),
    "auto_retry_end": _members("type success attempt finalError"),
    "extension_error": _members("type extensionPath event error"),
    "extension_ui_request": _by("method", DIALOGS),
}
_CANCELLED = _members("cancelled")
# The data of answers; that of commands which came later is sent as it is.
ANSWERS: dict[str, Shape] = {
    "prompt": _members(""),
    "steer": _members(""),
    "follow_up": _members(""),
    "new_session": _CANCELLED,
    "switch_session": _CANCELLED,
    "clone": _CANCELLED,
    "fork": _members("text cancelled"),
    "get_state": _members(
        "thinkingLevel isStreaming isCompacting steeringMode followUpMode sessionFile sessionId sessionName "
        "autoCompactionEnabled messageCount pendingMessageCount",
        model=MODEL,
    ),
    "set_model": MODEL,
    "cycle_model": _members("thinkingLevel isScoped", model=MODEL),
    "get_available_models": _members("", models=MODEL),
    "cycle_thinking_level": _members("level"),
    "compact": COMPACTION,
    "bash": _members("output exitCode cancelled truncated fullOutputPath"),
    "get_session_stats": _members(
        "sessionFile sessionId userMessages assistantMessages toolCalls toolResults totalMessages cost",
        tokens=_members("input output cacheRead cacheWrite total"),
        contextUsage=_members("tokens contextWindow percent"),
    ),
    "export_html": _members("path"),
    "get_fork_messages": _members("", messages=_members("entryId text")),
    "get_last_assistant_text": _members("text"),
    "get_messages": _members("", messages=MESSAGE),
    "get_commands": _members(
        "", commands=_members("name description source", sourceInfo=_members("path source scope origin baseDir"))
    ),
}


def keep_event_members(record: dict[str, Any]) -> dict[str, Any] | None:
    """The event as pi 0.73.1 has it; None if it has none of this type."""
    shape = EVENTS.get(record["type"])
    if callable(shape):
        shape = shape(record)
    return None if shape is None else dict(keep_members(record, shape))
