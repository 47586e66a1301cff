"""`pi-0.73` sends no record and no member that pi 0.73.1 did not have.

`recorded/pi_0_73_members.txt` has what that version was recorded to send, or declares in its types: the place of an
object and the name of a member, one per line. Every record that Pigeon can send is made here with all of its members.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from pigeon.dialects.base import Dialect
from pigeon.rpc.connection import Connection, EncodedData
from pigeon.wire import codec
from pigeon.wire.answers import Accepted, Response, failure_response, success_response
from pigeon.wire.commands import BY_NAME
from pigeon.wire.dialogs import DialogRequest
from pigeon.wire.events import Event, MessageEnd, MessageStart, MessageUpdate, QueueUpdate, StreamEvent
from pigeon.wire.messages import Message
from support.records import answer_start, dialect_for, parse_lines

FOLDER = Path(__file__).parent
KNOWN = frozenset((FOLDER / "recorded" / "pi_0_73_members.txt").read_text("utf-8").splitlines())
CONVERSATION = FOLDER.parent / "golden" / "pi-0.73.jsonl"
COMMANDS = frozenset(line.split(".")[0].removeprefix("answer ") for line in KNOWN if line.startswith("answer "))
ANY = ("args", "arguments", "details", "headers", "compat", "thinkingLevelMap", "diagnostics", "parameters")
BLOCKS = ("text", "thinking", "image", "toolCall")
Record = dict[str, Any]


def dialect() -> Dialect:
    return dialect_for("pi-0.73")


def all_kinds(base: type[Any]) -> Iterator[type[Any]]:
    for kind in base.__subclasses__():
        if kind.__struct_config__.tag is not None:
            yield kind
        yield from all_kinds(kind)


def members(record: Record) -> set[str]:
    """The members of a record, each with its place; what stands for any value is not looked into."""
    kind = record["type"]
    if kind == "response":
        place = f"answer {record['command']}" if record["success"] else "failure"
    elif kind == "extension_ui_request":
        place = f"dialog {record['method']}"
    else:
        place = f"update {record['assistantMessageEvent']['type']}" if kind == "message_update" else kind
    return set(_members_within(record, place))


def _members_within(value: Any, place: str) -> Iterator[str]:
    for item in value if isinstance(value, list) else []:
        yield from _members_within(item, place)
    if not isinstance(value, dict):
        return
    if "role" in value:
        place = value["role"]
    elif value.get("type") in BLOCKS:
        place = f"block {value['type']}"
    elif "totalTokens" in value:
        place = "usage"
    elif "contextWindow" in value and "api" in value:
        place = "model"
    for name, item in value.items():
        yield f"{place}.{name}"
        if name not in ANY:
            yield from _members_within(item, f"{place}.{name}")


def fill(kind: Any, depth: int = 0) -> Any:
    """A value of a type with every member there is, and each of its alternatives where there is a list of them."""
    found = inspect.type_info(kind) if not isinstance(kind, inspect.Type) else kind
    if isinstance(found, inspect.StructType):
        tag = {} if found.tag_field is None else {found.tag_field: found.tag}
        return {**tag, **{field.encode_name: fill(field.type, depth + 1) for field in found.fields}}
    if isinstance(found, inspect.UnionType):
        kinds = [one for one in found.types if not isinstance(one, inspect.NoneType)]
        structs = [one for one in kinds if isinstance(one, inspect.StructType)]
        return fill((structs or kinds)[0], depth)
    if isinstance(found, inspect.ListType):
        items = found.item_type.types if isinstance(found.item_type, inspect.UnionType) else (found.item_type,)
        # System messages are left out before an event is made.
        return [fill(item, depth + 1) for item in items if getattr(item, "tag", "") != "system"] if depth < 8 else []
    if isinstance(found, inspect.DictType):
        return {"a": fill(found.value_type, depth + 1)}
    if isinstance(found, inspect.LiteralType):
        return found.values[0]
    plain = {inspect.IntType: 1, inspect.FloatType: 0.5, inspect.StrType: "x", inspect.BoolType: True}
    return plain.get(type(found), {"any": 1})


def full(kind: type[Any]) -> Any:
    return msgspec.convert(fill(kind), kind)


def sent(event: Any, name: str = "pi-0.73") -> list[Record]:
    """What a client is sent of an event."""
    return [record for record in parse_lines(Connection(dialect_for(name)).to_lines(event)) if record]


@pytest.mark.parametrize("kind", [*all_kinds(Event), *get_args(DialogRequest)], ids=lambda kind: kind.__name__)
def test_every_event_and_dialog_has_only_the_members_of_that_version(kind: type[Any]) -> None:
    if kind is MessageUpdate:
        return
    for record in sent(full(kind)):
        assert members(record) <= KNOWN


@pytest.mark.parametrize("kind", get_args(Message), ids=lambda kind: kind.__name__)
def test_every_message_has_only_the_members_of_that_version(kind: type[Any]) -> None:
    message = full(kind)
    for record in (*sent(MessageStart(message=message)), *sent(MessageEnd(message=message))):
        if message.__struct_config__.tag != "system":
            assert members(record) <= KNOWN


@pytest.mark.parametrize("kind", get_args(StreamEvent), ids=lambda kind: kind.__name__)
def test_every_update_has_only_the_members_of_that_version(kind: type[Any]) -> None:
    connection = Connection(dialect())
    connection.to_lines(answer_start())
    usage = full(MessageUpdate).usage
    for begun in get_args(StreamEvent):
        if begun.__name__.startswith(kind.__name__.removesuffix("Delta").removesuffix("End")):
            streamed = msgspec.structs.replace(full(begun), content_index=0, partial=msgspec.UNSET)
            (record,) = parse_lines(connection.to_lines(MessageUpdate(usage=usage, assistant_message_event=streamed)))
            assert members(record) <= KNOWN
            assert record["message"] == record["assistantMessageEvent"]["partial"]
            assert record["message"]["usage"]["output"] == 1


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_answer_has_only_the_members_of_that_version(command: str) -> None:
    kind = BY_NAME[command]
    data = [
        full(one) for one in (*get_args(kind.answer), kind.answer) if isinstance(one, type) and one is not type(None)
    ]
    for value in [one for one in data if isinstance(one, msgspec.Struct)]:
        encoded = EncodedData([codec.encode(value)])
        for given in (value, encoded) if command == "get_messages" else (value,):
            (record,) = parse_lines(Connection(dialect()).to_answer_lines(success_response(command, given, "1")))
            assert members(record) <= KNOWN


def test_an_answer_whose_members_all_came_later_has_no_data() -> None:
    accepted = Accepted(disposition="started")
    assert "data" not in parse_lines(dialect().to_answer_lines(success_response("prompt", accepted, "1")))[0]


def test_a_failure_has_no_code() -> None:
    refused: Response = failure_response("prompt", "no", "1", code="busy")
    assert members(parse_lines(dialect().to_answer_lines(refused))[0]) <= KNOWN


def test_what_a_host_has_asked_for_is_sent_all_the_same() -> None:
    connection = Connection(dialect(), ["attribution"])
    (record,) = parse_lines(connection.to_lines(full(QueueUpdate)))
    assert record["items"]
    answer = success_response("prompt", Accepted(disposition="started", run_id="r"), "1")
    assert parse_lines(connection.to_answer_lines(answer))[0]["data"] == {"runId": "r"}


def test_the_answer_to_a_later_command_is_whole() -> None:
    answer = success_response("get_entries", {"entries": [{"later": 1}]}, "1")
    assert parse_lines(dialect().to_answer_lines(answer))[0]["data"] == {"entries": [{"later": 1}]}


def test_a_whole_conversation_has_only_the_members_of_that_version() -> None:
    for line in CONVERSATION.read_text("utf-8").split("\n")[:-1]:
        assert members(json.loads(line)) <= KNOWN
