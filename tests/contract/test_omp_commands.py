"""Commands that only oh-my-pi's clients send: pages of messages, event filters, and what is refused with its id."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest

from fakes.model_server import Gate, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves

OMP = ("omp",)
NO_FILTER = "events must be null or an array of non-empty event type strings"
NO_LIMIT = "RPC message page limit must be between 1 and 256"
NO_CURSOR = "Invalid RPC message cursor"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("set_event_filter", {}, NO_FILTER),
    ("set_event_filter", {"events": "all"}, NO_FILTER),
    ("set_event_filter", {"events": ["turn_end", ""]}, NO_FILTER),
    ("set_event_filter", {"events": [5]}, NO_FILTER),
    ("login", {"providerId": "x"}, "Unknown OAuth provider: x"),
    ("login", {}, "Unknown OAuth provider: undefined"),
    ("set_subagent_subscription", {"level": "all"}, "Invalid subagent subscription level: all"),
    ("set_subagent_subscription", {"level": True}, "Invalid subagent subscription level: true"),
    ("set_subagent_subscription", {}, "Invalid subagent subscription level: undefined"),
    ("get_subagent_messages", {}, "get_subagent_messages requires subagentId or sessionFile"),
    ("get_subagent_messages", {"subagentId": "a"}, "Unknown subagent or session file unavailable: a"),
    ("get_subagent_messages", {"sessionFile": "a"}, "Unknown subagent session file"),
    ("set_fast_mode", {"enabled": True}, "Fast mode is unavailable for the current model."),
    ("negotiate_protocol", {"protocolVersion": 2}, "Unsupported RPC protocol version: 2"),
    ("negotiate_protocol", {}, "Unsupported RPC protocol version: undefined"),
    ("remove_queued_message", {}, "Unknown command: remove_queued_message"),
]
CURSORS: list[Any] = ["", "x", "W10", "bnVsbA", "IiI", "NQ", "é", 5, True, {}, [], "e30", "=", "x" * 10_000]


def encoded(place: Any) -> str:
    return urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


@pytest.fixture
def omp(start: Start) -> RpcProcess:
    return start(dialect="omp")


def say(agent: RpcProcess, server: ModelServer, *messages: str) -> None:
    for message in messages:
        server.answers(f"answer {message}")
        agent.run(message)


@proves("omp.refusals", dialects=OMP)
@pytest.mark.parametrize(("command", "fields", "error"), REFUSED)
def test_what_has_no_meaning_here_is_refused_with_its_id(
    omp: RpcProcess, command: str, fields: dict[str, Any], error: str
) -> None:
    assert omp.expect_error(command, **fields) == error
    assert omp.stderr == ""


@proves("omp.nothing_to_list", dialects=OMP)
def test_where_there_is_nothing_the_answer_is_empty(omp: RpcProcess) -> None:
    assert omp.ask("get_subagents") == {"subagents": []}
    assert omp.ask("get_login_providers") == {"providers": []}
    assert omp.ask("set_host_uri_schemes", schemes=[]) == {"schemes": []}
    assert omp.ask("set_fast_mode", enabled=False) == {"enabled": False, "active": False}
    assert omp.ask("set_subagent_subscription", level="events") == {"level": "events"}


@proves("omp.messages_page", dialects=OMP)
def test_pages_lead_through_all_messages_as_long_as_nothing_changes(omp: RpcProcess, server: ModelServer) -> None:
    assert omp.ask("get_messages_page") == {"messages": [], "totalMessages": 0}
    say(omp, server, "one", "two", "three")
    everything = omp.ask("get_messages")["messages"]
    found, cursor = [], None
    while True:
        page = omp.ask("get_messages_page", limit=4, **({} if cursor is None else {"cursor": cursor}))
        assert page["totalMessages"] == len(everything)
        found += page["messages"]
        if "nextCursor" not in page:
            break
        cursor = page["nextCursor"]
    assert found == everything
    for limit in (0, -1, 257, 1.5, "4", True):
        assert omp.expect_error("get_messages_page", limit=limit) == NO_LIMIT
    say(omp, server, "four")
    stale = omp.request("get_messages_page", cursor=cursor)
    assert (stale["error"], stale["code"]) == ("RPC message cursor is stale", "stale_cursor")
    gate = Gate()
    server.answers("wait", gate)
    omp.ask("prompt", message="five")
    gate.wait_reached()
    busy = omp.request("get_messages_page")
    assert (busy["error"], busy["code"]) == ("Cannot page messages while the session is changing", "session_busy")
    start = omp.mark()
    gate.open()
    omp.wait_end(start)


@proves("omp.bad_cursor", dialects=OMP)
def test_a_cursor_that_was_not_given_is_refused(omp: RpcProcess, server: ModelServer) -> None:
    say(omp, server, "one", "two")
    for cursor in CURSORS:
        assert omp.expect_error("get_messages_page", cursor=cursor) == NO_CURSOR
    given = omp.ask("get_messages_page", limit=1)["nextCursor"]
    place = json.loads(urlsafe_b64decode(given + "=" * (-len(given) % 4)))
    for offset in (-1, 5, 10**30, 1.5, True, None, "1", [1]):
        assert omp.expect_error("get_messages_page", cursor=encoded({**place, "offset": offset})) == NO_CURSOR
    assert omp.stderr == ""


@proves("omp.steer_idle", dialects=OMP)
def test_what_is_queued_while_nothing_runs_waits_and_the_session_stays_settled(
    omp: RpcProcess, server: ModelServer
) -> None:
    assert omp.ask("steer", message="aside") is None
    state = omp.ask("get_state")
    assert (state["queuedMessageCount"], state["isSettled"], state["isStreaming"]) == (1, True, False)
    say(omp, server, "go")
    assert [record["message"]["content"][0]["text"] for record in omp.since(0, "message_end")][:2] == ["go", "aside"]


@proves("omp.whole_state", dialects=OMP)
def test_the_state_has_every_member_that_the_newest_clients_read(omp: RpcProcess) -> None:
    state = omp.ask("get_state")
    members = """model thinkingLevel isStreaming isCompacting steeringMode followUpMode interruptMode sessionId
        autoCompactionEnabled queuedMessageCount hasPendingAsyncWork isSettled todoPhases fastModeEnabled
        tokensPerSecond fastModeActive messageCount systemPrompt dumpTools contextUsage"""
    assert set(members.split()) <= set(state)
    assert state["tokensPerSecond"] is None
