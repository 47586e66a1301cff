"""The traffic of an agent held against the published schema, line by line, while any test talks to it.

What Pigeon sends must be valid although every record is closed here, so that a member which the schema does not know is
found, too. What a host sends is valid if the command was carried out, and whatever is valid can be read as a command.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema_rs

from fakes.source_tree import ROOT
from pigeon.wire.codec import command_of
from pigeon.wire.errors import BadRecord

Record = dict[str, Any]
Schema = dict[str, Any]
SURROGATE = re.compile(r"\\ud[89a-f][0-9a-f]{2}", re.IGNORECASE)
# Their answers have entries and messages as they stand in files, which other agents may have written.
FROM_FILES = ("get_entries", "get_tree", "get_messages", "get_messages_page")
FILE = ROOT / "schema" / "protocol.schema.json"


@cache
def published() -> Schema:
    """The schema as it is in the repository."""
    found: Schema = json.loads(FILE.read_text("utf-8"))
    return found


def closed(schema: Schema) -> Schema:
    """The same schema without room for members that it does not name."""
    definitions = {
        name: {**shape, "additionalProperties": False} if "properties" in shape else shape
        for name, shape in schema["$defs"].items()
    }
    return {**schema, "$defs": definitions}


@cache
def validator(definition: str, is_closed: bool = False) -> Any:
    """What checks values of one definition of the published schema, or lines of any kind for `ProtocolLine`."""
    schema = closed(published()) if is_closed else published()
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
    kinds = [name for name, shape in published()["$defs"].items() if _is_kind(line, shape.get("properties", {}))]
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
