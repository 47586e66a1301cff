"""`pigeon schema`: the protocol as a JSON Schema, made from the records."""

from __future__ import annotations

import json

from pigeon.cli.commands.call import CommandCall
from pigeon.cli.printing import say
from pigeon.transport import exit_codes
from pigeon.wire.schema import protocol_schema


def run_schema(call: CommandCall) -> int:
    """Print the schema."""
    say(json.dumps(protocol_schema(), indent=2))
    return exit_codes.OK
