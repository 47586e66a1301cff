"""A dialect at work: native events and answers in, parsed lines out."""

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


def speaker(name: str, **environment: str) -> Dialect:
    """One who speaks this dialect."""
    return dialect_named(name, VERSION, environment)


def heard(lines: list[OutputLine]) -> list[Record]:
    """The lines as a host parses them."""
    return [json.loads(b"".join(line.pieces)) for line in lines]


def told(dialect: Dialect, *events: Outbound) -> list[Record]:
    """What a host hears of these events."""
    return [record for event in events for record in heard(dialect.lines(event))]


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
