"""What a dialect writes for native events and answers, parsed again as a host does it."""

from __future__ import annotations

import json
from typing import Any

from pigeon.dialects.base import Dialect, OutputLine
from pigeon.dialects.choice import dialect_named
from pigeon.wire.content import TextContent
from pigeon.wire.events import MessageStart, MessageUpdate, Outbound, StreamEvent
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Cost, Usage

NAMES = ("pi", "pi-latest", "omp", "xcsh", "companion")
VERSION = "1.2.3"
Record = dict[str, Any]


def dialect_for(name: str, **environment: str) -> Dialect:
    """The dialect of this name."""
    return dialect_named(name, VERSION, environment)


def parsed(lines: list[OutputLine]) -> list[Record]:
    """The lines as a host parses them."""
    return [json.loads(b"".join(line.pieces)) for line in lines]


def records_for(dialect: Dialect, *events: Outbound) -> list[Record]:
    """The records that a host gets for these events."""
    return [record for event in events for record in parsed(dialect.lines(event))]


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


def begun() -> MessageStart:
    """An answer begins."""
    return MessageStart(message=an_answer())


def update(event: StreamEvent, **tokens: int) -> MessageUpdate:
    """An answer grows."""
    return MessageUpdate(usage=Usage(cost=Cost(), **tokens), assistant_message_event=event)
