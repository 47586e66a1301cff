"""The protocol as JSON Schema, made from the records; `pigeon schema` prints it."""

from __future__ import annotations

from typing import Any, Union

import msgspec

from pigeon.wire import commands, dialogs, entries, events
from pigeon.wire.answers import Response

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def protocol_schema() -> dict[str, Any]:
    """One document: what may be sent, what may come back, and what each command answers."""
    answers = {name: command.answer for name, command in commands.BY_NAME.items() if command.answer is not None}
    inbound: Any = Union.__getitem__(tuple(commands.ALL))
    outbound: Any = Union.__getitem__(tuple(events.ALL))
    roots: list[Any] = [inbound, outbound, dialogs.DialogRequest, Response, entries.Entry, entries.SessionHeader]
    shapes, definitions = msgspec.json.schema_components([*roots, *answers.values()], ref_template="#/$defs/{name}")
    names = ("command", "event", "dialog", "response", "entry", "sessionHeader")
    head = dict(zip(names, shapes, strict=False))
    return {
        "$schema": DIALECT,
        "title": "Pigeon RPC protocol",
        "description": "One JSON object per line: commands on stdin; responses, events and dialogs on stdout.",
        "properties": head,
        "answers": dict(zip(answers, shapes[len(roots) :], strict=True)),
        "lanes": {name: command.lane for name, command in commands.BY_NAME.items()},
        "$defs": definitions,
    }
