"""A host whose agent is elsewhere: it is shown what it has asked for, and nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pigeon.dialects.choice import make_dialect
from pigeon.rpc.relay import Relay, RemoteCommands
from pigeon.sdk.records import event_of
from pigeon.wire.commands.conversation import GetState
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


def test_prompt_templates_of_an_agent_elsewhere_are_files_for_clients_of_oh_my_pi() -> None:
    sink, asked = ListSink(), []
    relay = Relay(sink, make_dialect("omp", "1", {}), asked.append, event_of)
    relay.send_greeting()
    (command,) = map(json.loads, asked)
    listed = [{"name": "review", "source": "prompt", "location": "user", "path": "/review.md"}]
    answer = {"type": "response", "command": command["type"], "success": True, "data": {"commands": listed}}
    relay.on_agent_data(json.dumps({**answer, "id": command["id"]}).encode())
    assert command["type"] == "get_available_commands"
    assert json.loads(sink.lines[-1])["commands"] == [{"name": "review", "source": "file"}]


@pytest.mark.parametrize("name", ["pi", "pi-latest", "xcsh", "companion"])
def test_nothing_is_asked_for_a_host_whose_dialect_shows_no_commands(name: str) -> None:
    asked: list[bytes] = []
    Relay(ListSink(), make_dialect(name, "1", {}), asked.append, event_of).send_greeting()
    assert asked == []


@pytest.mark.parametrize(("name", "count"), [("pi-latest", 1), ("pi", 0), ("omp", 0)])
def test_an_event_of_a_later_version_is_for_hosts_of_the_newest_dialect(name: str, count: int) -> None:
    later = {"type": "something_new", "x": 1, "seq": 4}
    assert records_sent(name, None, later) == [later] * count


@pytest.mark.parametrize(("features", "count"), [(["mcp"], 1), (["permissions", "selection"], 0), (None, 0)])
def test_changes_of_tool_servers_are_for_hosts_that_ask_for_them(features: list[str] | None, count: int) -> None:
    assert [line["type"] for line in records_sent("pi", features, CHANGED)] == ["mcp_server_changed"] * count


@pytest.mark.parametrize(("name", "count"), [("pi-latest", 1), ("pi", 0), ("omp", 0)])
def test_a_gap_is_for_hosts_of_the_newest_dialect(name: str, count: int) -> None:
    lines = records_sent(name, None, GAP)
    assert [(line["type"], line["snapshot"]["seq"]) for line in lines] == [("gap", 9)] * count


async def test_all_commands_are_answered_when_there_are_none_and_again_when_the_last_one_is() -> None:
    sent: list[bytes] = []
    commands = RemoteCommands(sent.append, lambda command: None, lambda command, data: data)
    await asyncio.wait_for(commands.wait_until_drained(), 30)
    commands.submit(GetState(), lambda answer, failure: None)
    waiting = asyncio.ensure_future(commands.wait_until_drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    (line,) = map(json.loads, sent)
    failed = {"type": "response", "command": "get_state", "id": line["id"], "success": False, "error": "no"}
    commands.on_answer(json.dumps(failed).encode())
    await asyncio.wait_for(waiting, 30)
