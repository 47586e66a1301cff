"""Records in a form that tests compare: in outline, without what changes from run to run, as a dialect writes them.

In a `PlainTranscript` ids are numbered in the order in which they first appear, so it still shows which of them are the
same. Progress of tools and shell commands comes as often as the clock lets it, so it is left out there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pigeon.dialects.base import Dialect, OutputLine
from pigeon.dialects.choice import make_dialect
from pigeon.rpc.connection import Connection
from pigeon.wire import codec
from pigeon.wire.content import TextContent
from pigeon.wire.events import MessageStart, MessageUpdate, Outbound, StreamEvent
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Cost, Usage

Record = dict[str, Any]
STREAM = "message_update"
PACED = ("tool_execution_update", "bash_execution_update")
TIMES = ("timestamp", "created", "modified", "durationMs")
# Long, and not what a transcript is about; the prompt also holds the date.
LONG = ("systemPrompt", "dumpTools", "toolsAdded")
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{8}(?:[0-9a-f]{8})?\b")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
CHANGING = (
    "timestamp",
    "durationMs",
    "id",
    "sessionId",
    "sessionFile",
    "entryId",
    "parentId",
    "leafId",
    "path",
    "session_id",
    "session_file",
    "runId",
    "run_id",
    "seq",
)
VERSION = "1.2.3"


def outline(records: list[Record], updates: bool = False) -> list[str]:
    """One word per record; updates only if asked for, with the kind of the delta."""
    return [_word(record) for record in records if updates or record["type"] != STREAM]


def _word(record: Record) -> str:
    kind = record["type"]
    if kind in ("message_start", "message_end"):
        return f"{kind}:{record['message']['role']}"
    if kind == STREAM:
        return str(record["assistantMessageEvent"]["type"])
    if kind == "response":
        return f"response:{record['command']}"
    return str(kind)


def text_of(message: Record) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def answers(records: list[Record]) -> list[Record]:
    """The finished assistant messages."""
    return finished_messages(records, "assistant")


def finished_messages(records: list[Record], role: str) -> list[Record]:
    """The finished messages of one role."""
    found = [record["message"] for record in records if record["type"] == "message_end"]
    return [message for message in found if message["role"] == role]


def deltas(records: list[Record], kind: str) -> list[Record]:
    """The stream events of one kind."""
    found = [record["assistantMessageEvent"] for record in records if record["type"] == STREAM]
    return [event for event in found if event["type"] == kind]


def tool_texts(records: list[Record]) -> list[str]:
    """The texts of the tool results, in the order in which they were announced."""
    return [text_of(message) for message in finished_messages(records, "toolResult")]


class PlainTranscript:
    """Takes records and gives lines that are the same in every run."""

    def __init__(self, places: dict[str, str], version: str) -> None:
        self._places = places
        self._version = version
        self._numbers: dict[str, int] = {}

    def lines(self, records: list[Record]) -> list[str]:
        """One line of JSON per record that is kept."""
        kept = [record for record in records if record["type"] not in PACED]
        return [json.dumps(self._plain(record), ensure_ascii=False) for record in kept]

    def _plain(self, value: Any, key: str = "") -> Any:
        if key in LONG:
            return f"<{key}>"
        if isinstance(value, dict):
            return {name: self._plain(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._plain(item, key) for item in value]
        if key in TIMES:
            return "<time>"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for place, name in self._places.items():
            text = text.replace(place, name)
        text = _ADDRESS.sub("<address>", text).replace(self._version, "<version>")
        return _IDS.sub(self._number, text)

    def _number(self, found: re.Match[str]) -> str:
        number = self._numbers.setdefault(found[0], len(self._numbers) + 1)
        return f"<id {number}>"


def plain_record(record: Any, root: Path) -> Any:
    """The type of a record, and its members without what changes from one conversation to another."""
    return type(record).__name__, without_changes(codec.to_plain(record), root)


def without_changes(value: Any, root: Path) -> Any:
    """Parsed JSON without what changes from one conversation to another."""
    if isinstance(value, dict):
        return {key: without_changes(one, root) for key, one in value.items() if key not in CHANGING}
    if isinstance(value, list):
        return [without_changes(one, root) for one in value]
    return re.sub(rf"{root}|[0-9a-f]{{8}}-[0-9a-f-]{{27}}", "", value) if isinstance(value, str) else value


def dialect_for(name: str, **environment: str) -> Dialect:
    return make_dialect(name, VERSION, environment)


def parse_lines(lines: list[OutputLine]) -> list[Record]:
    """The lines as a host parses them."""
    return [json.loads(b"".join(line.pieces)) for line in lines]


def records_for(dialect: Dialect, *events: Outbound) -> list[Record]:
    """The records that a host gets for these events."""
    connection = Connection(dialect)
    return [record for event in events for record in parse_lines(connection.to_lines(event))]


def an_answer(*texts: str, stop: Any = "pending") -> AssistantMessage:
    """A message of the model, in progress unless a stop reason is given."""
    return AssistantMessage(
        content=[TextContent(text=text) for text in texts],
        api="anthropic-messages",
        provider="fake",
        model="fake-1",
        usage=Usage(cost=Cost()),
        stop_reason=stop,
        timestamp=1,
    )


def answer_start() -> MessageStart:
    return MessageStart(message=an_answer())


def update(event: StreamEvent, **tokens: int) -> MessageUpdate:
    return MessageUpdate(usage=Usage(cost=Cost(), **tokens), assistant_message_event=event)
