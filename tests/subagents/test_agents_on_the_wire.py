"""What clients see of agents: nothing new unless they ask, everything with ids if they do, oh-my-pi's frames."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess

SCRIPT = {
    "rules": [
        {
            "when": {"user": "ROOT"},
            "reply": {"toolCalls": [{"name": "task", "arguments": {"prompt": "CHILD", "title": "look"}}]},
            "times": 1,
        },
        {"when": {"user": "ROOT"}, "reply": "Done."},
        {
            "when": {"user": "CHILD"},
            "reply": {"toolCalls": [{"name": "bash", "arguments": {"command": "echo hi"}}]},
            "times": 1,
        },
        {"when": {"user": "CHILD"}, "reply": "It says hi."},
    ]
}


Start = Callable[..., RpcProcess]


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure({"providers": {}})
    return made


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return f"scripted/{path}"


@pytest.fixture
def start(folders: AgentFolders) -> Iterator[Start]:
    """Start an agent that speaks a dialect; it is closed at the end."""
    started: list[RpcProcess] = []

    def start_agent(*flags: str, dialect: str = "pi-latest") -> RpcProcess:
        started.append(RpcProcess(folders, *flags, "--dialect", dialect))
        return started[-1]

    yield start_agent
    for agent in started:
        agent.close()


def run_prompt(
    start: Start, model: str, dialect: str, *first: dict[str, Any], until: str = "agent_settled"
) -> list[Any]:
    agent = start("--model", model, "--tools", "+task,+jobs", dialect=dialect)
    for index, command in enumerate(first):
        agent.send({"id": f"first-{index}", **command})
        agent.response(f"first-{index}")
    agent.send({"id": "p", "type": "prompt", "message": "ROOT"})
    agent.wait(lambda record: record.get("type") == until and "agentId" not in record)
    agent.send({"id": "agents", "type": "get_agents"})
    agent.response("agents")
    return agent.since(0)


@pytest.mark.parametrize("dialect", ["pi", "pi-latest", "pi-0.73"])
def test_a_client_that_never_asks_sees_the_call_and_its_progress(start: Start, model: str, dialect: str) -> None:
    until = "agent_end" if dialect == "pi-0.73" else "agent_settled"
    records = run_prompt(start, model, dialect, until=until)
    kinds = {record["type"] for record in records}
    assert not kinds & {"agent_changed", "job_changed", "subagent_progress", "subagent_lifecycle", "subagent_event"}
    assert not [record for record in records if "agentId" in record or "parentAgentId" in record]
    assert sum(record["type"] == "agent_start" for record in records) == 1
    updates = [record for record in records if record["type"] == "tool_execution_update"]
    assert any("echo hi" in json.dumps(update["partialResult"]) for update in updates)


def test_with_the_feature_every_event_of_an_agent_has_both_ids(start: Start, model: str) -> None:
    records = run_prompt(start, model, "pi-latest", {"type": "hello", "features": ["agents"]})
    [agent] = next(record["data"]["agents"] for record in records if record.get("command") == "get_agents")
    theirs = [record for record in records if record.get("agentId") == agent["agentId"]]
    assert {record["parentAgentId"] for record in theirs} == {agent["parentAgentId"]}
    kinds = [record["type"] for record in theirs]
    assert kinds[0] == "agent_start"
    assert kinds[-1] == "agent_settled"
    assert {"message_update", "tool_execution_start", "tool_execution_end", "turn_end"} <= set(kinds)
    changed = [record["agent"]["status"] for record in records if record["type"] == "agent_changed"]
    assert changed[0] == "waiting"
    assert changed[-1] == "done"
    own = [record["type"] for record in records if "agentId" not in record]
    assert own.count("agent_start") == own.count("agent_settled") == 1
    assert set(agent) >= {"agentId", "parentAgentId", "agent", "status", "depth", "toolCallId", "sessionId", "usage"}


def test_clients_of_oh_my_pi_subscribe_to_frames(start: Start, model: str) -> None:
    subscription = {"type": "set_subagent_subscription", "level": "events"}
    records = run_prompt(start, model, "omp", subscription, until="session_settled")
    lifecycle = [record["payload"] for record in records if record["type"] == "subagent_lifecycle"]
    assert [payload["status"] for payload in lifecycle] == ["started", "completed"]
    assert {payload["agent"] for payload in lifecycle} == {"general"}
    assert {payload["agentSource"] for payload in lifecycle} == {"bundled"}
    progress = [record["payload"]["progress"] for record in records if record["type"] == "subagent_progress"]
    assert progress[-1]["status"] == "completed"
    assert progress[-1]["toolCount"] == 1
    assert progress[-1]["recentTools"][0]["tool"] == "bash"
    events = [record["payload"]["event"]["type"] for record in records if record["type"] == "subagent_event"]
    assert events[0] == "agent_start"
    assert events[-1] == "agent_end"
    assert "message_update" in events
    assert {record["payload"]["id"] for record in records if record["type"] == "subagent_event"} == {lifecycle[0]["id"]}


@pytest.mark.parametrize(
    ("level", "expected"), [("off", set()), ("progress", {"subagent_lifecycle", "subagent_progress"})]
)
def test_a_lower_subscription_gets_less(start: Start, model: str, level: str, expected: set[str]) -> None:
    subscription = {"type": "set_subagent_subscription", "level": level}
    records = run_prompt(start, model, "omp", subscription, until="session_settled")
    assert {record["type"] for record in records if record["type"].startswith("subagent_")} == expected


def test_the_session_of_an_agent_is_read_by_bytes(start: Start, model: str) -> None:
    agent = start("--model", model, "--tools", "+task", dialect="omp")
    agent.send({"id": "p", "type": "prompt", "message": "ROOT"})
    agent.wait(lambda record: record.get("type") == "session_settled")
    agent.send({"id": "a", "type": "get_agents"})
    [known] = agent.response("a")["data"]["agents"]
    agent.send({"id": "m", "type": "get_subagent_messages", "subagentId": known["agentId"]})
    page = agent.response("m")["data"]
    assert page["sessionFile"] == known["sessionFile"]
    assert (page["fromByte"], page["reset"]) == (0, False)
    assert [message["role"] for message in page["messages"] if message["role"] != "system"][:2] == ["user", "assistant"]
    agent.send(
        {"id": "n", "type": "get_subagent_messages", "sessionFile": page["sessionFile"], "fromByte": page["nextByte"]}
    )
    rest = agent.response("n")["data"]
    assert (rest["entries"], rest["nextByte"]) == ([], page["nextByte"])
    agent.send({"id": "r", "type": "get_subagent_messages", "subagentId": known["agentId"], "fromByte": 1 << 40})
    assert agent.response("r")["data"]["reset"] is True


def test_sessions_of_agents_are_listed_on_request(start: Start, model: str, folders: AgentFolders) -> None:
    agent = start("--model", model, "--tools", "+task")
    agent.send({"id": "p", "type": "prompt", "message": "ROOT"})
    agent.wait(lambda record: record.get("type") == "agent_settled")
    agent.send({"id": "s", "type": "list_sessions"})
    rows = agent.response("s")["data"]["sessions"]
    agent.send({"id": "all", "type": "list_sessions", "agents": True})
    more = agent.response("all")["data"]["sessions"]
    assert len(rows) == 1
    assert len(more) == 2
    [child] = [row for row in more if row["id"] != rows[0]["id"]]
    assert child["parentSession"] == rows[0]["path"]
