"""What is generated from the records and committed must be what the records say now."""

from __future__ import annotations

import json

from pigeon.wire.schema import protocol_schema
from support.source_tree import ROOT

SCHEMA = ROOT / "schema" / "protocol.schema.json"


def test_the_committed_schema_is_what_the_records_say() -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == json.loads(json.dumps(protocol_schema())), (
        "run: pigeon schema > schema/protocol.schema.json"
    )
