"""What a strict client refuses: records that are not exactly as it expects them, or not valid by the published schema.

One complaint ends the session of a strict client of the forks, so a conversation has to pass without any; frames of
unknown type and additional members are fine there. The schema is checked line by line while any test talks to an agent.
What Pigeon sends must be valid although every record is closed here, so that a member which the schema does not know is
found, too. What a host sends is valid if the command was carried out, and whatever is valid can be read as a command.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema_rs

from pigeon.wire.codec import command_of
from pigeon.wire.errors import BadRecord
from support.source_tree import ROOT

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
Schema = dict[str, Any]
SURROGATE = re.compile(r"\\ud[89a-f][0-9a-f]{2}", re.IGNORECASE)
# Their answers have entries and messages as they stand in files, which other agents may have written.
FROM_FILES = ("get_entries", "get_tree", "get_messages", "get_messages_page")
FILE = ROOT / "schema" / "protocol.schema.json"


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
        found += _check_types(record, extensionPath=str, event=str, error=str)
    elif kind.startswith("tool_execution_"):
        found += _check_types(record, toolCallId=str, toolName=str)
        found += _check_types(record, isError=bool) if kind.endswith("end") else []
    elif kind.startswith("auto_compaction_"):
        found += _one_of(record.get("reason", "threshold"), {"threshold", "overflow", "idle"}, "reason")
        found += _check_types({"result": record.get("result") or {}}, result=dict)
    elif kind == "todo_reminder":
        found += [text for task in record["todos"] for text in _task(task)]
    return [f"{kind}: {text}" for text in found]


def _response(record: Record) -> list[str]:
    found = _check_types(record, command=str, success=bool)
    found += _check_types(record, id=str) if "id" in record else []
    data = record.get("data")
    if data is not None and not isinstance(data, dict):
        found.append(f"data is {data!r}")
    if record["success"] is False:
        return found + _check_types(record, error=str)
    if record["command"] == "get_state":
        found += _state(record["data"])
    elif record["command"] == "bash":
        found += _check_types(record["data"], output=str, cancelled=bool, truncated=bool)
    elif record["command"] == "export_html":
        found += _check_types(record["data"], path=str)
    return found


def _state(data: Record) -> list[str]:
    found = _check_types(
        data, sessionId=str, isStreaming=bool, isCompacting=bool, messageCount=int, queuedMessageCount=int
    )
    found += _one_of(data.get("thinkingLevel", "off"), LEVELS, "thinkingLevel")
    found += _one_of(data["steeringMode"], QUEUE_MODES, "steeringMode")
    found += _one_of(data["followUpMode"], QUEUE_MODES, "followUpMode")
    found += _one_of(data["interruptMode"], {"immediate", "wait"}, "interruptMode")
    # A list of texts in oh-my-pi, one text in the others.
    if not isinstance(prompt := data.get("systemPrompt", ""), str):
        found += [text for part in prompt for text in _check_types({"systemPrompt": part}, systemPrompt=str)]
    if data.get("model") is not None:
        found += _check_types(data["model"], id=str, name=str, api=str, provider=str, baseUrl=str)
        found += _check_types(data["model"], contextWindow=int, maxTokens=int)
    for phase in data["todoPhases"]:
        found += [*_check_types(phase, name=str), *(text for task in phase["tasks"] for text in _task(task))]
    return found


def _task(task: Record) -> list[str]:
    return _check_types(task, content=str) + _one_of(task["status"], STATUSES, "status")


def _stream_event(event: Any) -> list[str]:
    if not isinstance(event, dict) or event.get("type") not in STREAM:
        return [f"assistantMessageEvent is {event!r}"]
    shape = {} if event["type"] == "start" else {"contentIndex": int}
    return _check_types(event, **shape, **STREAM[event["type"]]) + _message(event.get("partial"), {"assistant"})


def _message(message: Any, roles: set[str] = ROLES) -> list[str]:
    if not isinstance(message, dict):
        return [f"a message is {message!r}"]
    return _one_of(message.get("role"), roles, "role")


def _ui(record: Record) -> list[str]:
    found = _check_types(record, id=str) + _one_of(record["method"], UI_METHODS, "method")
    found += _check_types(record, timeout=int) if "timeout" in record else []
    found += _one_of(record.get("notifyType", "info"), {"info", "warning", "error"}, "notifyType")
    return found + _one_of(record.get("widgetPlacement", "aboveEditor"), {"aboveEditor", "belowEditor"}, "placement")


def _check_types(record: Record, **kinds: type) -> list[str]:
    return [f"{key} is {record.get(key)!r}" for key, kind in kinds.items() if not isinstance(record.get(key), kind)]


def _one_of(value: Any, allowed: set[str], name: str) -> list[str]:
    return [] if value in allowed else [f"{name} is {value!r}"]


@cache
def published_schema() -> Schema:
    """The schema as it is in the repository."""
    found: Schema = json.loads(FILE.read_text("utf-8"))
    return found


def close_schema(schema: Schema) -> Schema:
    """The same schema without room for members that it does not name."""
    definitions = {
        name: {**shape, "additionalProperties": False} if "properties" in shape else shape
        for name, shape in schema["$defs"].items()
    }
    return {**schema, "$defs": definitions}


@cache
def validator(definition: str, is_closed: bool = False) -> Any:
    """What checks values of one definition of the published schema, or lines of any kind for `ProtocolLine`."""
    schema = close_schema(published_schema()) if is_closed else published_schema()
    if definition == schema["title"]:
        return jsonschema_rs.validator_for(schema)
    start = {"$schema": schema["$schema"], "$ref": f"#/$defs/{definition}"}
    return jsonschema_rs.validator_for({**start, "$defs": schema["$defs"]})


def is_valid(value: Any, definition: str, is_closed: bool = False) -> bool:
    """True if the value is what the definition says."""
    check = validator(definition, is_closed)
    try:
        return bool(check.is_valid(value))
    except UnicodeEncodeError:  # half of a surrogate pair, which is a character like others here
        return bool(check.is_valid(json.loads(SURROGATE.sub("?", json.dumps(value)))))


def complaint(line: Record, root: str = "AgentLine") -> str | None:
    """Why this is no line that Pigeon may send; None if it is one."""
    is_closed = line.get("command") not in FROM_FILES
    if is_valid(line, root, is_closed):
        return None
    kinds = [name for name, shape in published_schema()["$defs"].items() if _is_kind(line, shape.get("properties", {}))]
    reasons = [str(error)[:500] for name in kinds for error in validator(name, is_closed).iter_errors(line)]
    return f"{'; '.join(reasons) or 'there is no such record'}: {json.dumps(line)[:1000]}"


def _is_kind(line: Record, members: Schema) -> bool:
    """True if the line has all members that are always the same."""
    fixed = {name: shape["const"] for name, shape in members.items() if "const" in shape}
    return "type" in fixed and all(line.get(name) == value for name, value in fixed.items())


def traffic_problems(sent: list[Any], came: list[Record], root: str) -> list[str]:
    """What is wrong with the lines of one conversation, or with the schema."""
    commands = [line for line in sent if isinstance(line, dict) and isinstance(line.get("type"), str)]
    found = [f"not as the schema says: {problem}" for line in came if (problem := complaint(line, root))]
    found += [problem for line in commands if (problem := _misread(line))]
    carried_out = {_key(line["id"], line["command"]) for line in came if line.get("success") is True and "id" in line}
    asked: dict[str, list[Record]] = {}
    for line in commands:
        asked.setdefault(_key(line.get("id"), line["type"]), []).append(line)
    for key in carried_out & set(asked):
        if not any(is_valid(line, "HostLine") for line in asked[key]):
            found.append(f"the schema refuses what was carried out: {json.dumps(asked[key])[:1000]}")
    return found


def _key(id: Any, command: str) -> str:
    return json.dumps([id, command])


def _misread(line: Record) -> str | None:
    """Why the schema should not accept a line of the host; None if it does not, or rightly so."""
    if not is_valid(line, "HostLine"):
        return None
    try:
        command_of(line)
    except BadRecord as error:
        return f"the schema accepts what is refused ({error}): {json.dumps(line)[:1000]}"
    return None
