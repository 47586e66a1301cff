"""A host whose agent is elsewhere: it is shown what it has asked for, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pigeon.dialects.choice import make_dialect
from pigeon.rpc.relay import Relay
from pigeon.sdk.records import event_of
from support.in_process_agent import ListSink

CHANGED = {"type": "mcp_server_changed", "server": {"name": "files", "source": "host", "status": "connected"}, "seq": 4}
GAP = {"type": "gap", "after": 2, "snapshot": {"seq": 9, "runId": None, "state": {}, "messages": [], "questions": []}}


def records_sent(dialect: str, features: list[str] | None, event: dict[str, Any]) -> list[dict[str, Any]]:
    """What a host is sent of an event, behind the answer to its `hello`."""
    sink = ListSink()
    relay = Relay(sink, make_dialect(dialect, "1", {}), lambda line: None, event_of)
    if features is not None:
        relay.handle_frames([json.dumps({"type": "hello", "features": features}).encode()])
        assert json.loads(sink.lines.pop())["data"]["features"] == features
    relay.on_agent_data(json.dumps(event).encode())
    return [json.loads(line) for line in sink.lines]


@pytest.mark.parametrize(("features", "count"), [(["mcp"], 1), (["permissions", "selection"], 0), (None, 0)])
def test_changes_of_tool_servers_are_for_hosts_that_ask_for_them(features: list[str] | None, count: int) -> None:
    assert [line["type"] for line in records_sent("pi", features, CHANGED)] == ["mcp_server_changed"] * count


@pytest.mark.parametrize(("name", "count"), [("pi-latest", 1), ("pi", 0), ("omp", 0)])
def test_a_gap_is_for_hosts_of_the_newest_dialect(name: str, count: int) -> None:
    lines = records_sent(name, None, GAP)
    assert [(line["type"], line["snapshot"]["seq"]) for line in lines] == [("gap", 9)] * count
