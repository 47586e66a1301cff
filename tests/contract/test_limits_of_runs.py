"""Limits of runs and conversations, and the loop guard, in the real program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves

Record = dict[str, Any]
SETTINGS = {"retry": {"baseDelayMs": 60000}}


def settled(agent: RpcProcess, **command: Any) -> Record:
    """The last record of a prompt."""
    place = agent.mark()
    agent.send({"id": "p", "type": "prompt", "message": "go", **command})
    return agent.wait(lambda record: record["type"] == "agent_settled", place)


def works_on(server: ModelServer, turns: int) -> None:
    for number in range(turns):
        server.answers("Looking.", Call("bash", {"command": f"echo {number}"}))


@proves("limits.prompt")
def test_limits_of_a_prompt_end_its_run(start: Start, server: ModelServer) -> None:
    agent = start()
    works_on(server, 2)
    end = settled(agent, limits={"turns": 2})
    assert (end["aborted"], end["reason"]) == (False, "limit")
    assert end["limit"] == {"name": "turns", "allowed": 2, "reached": 2}
    assert len(server.requests) == 2
    server.answers("free")
    assert settled(agent)["reason"] == "done"
    server.answers("also")
    place = agent.mark()
    agent.send({"id": "q", "type": "abort_and_prompt", "message": "go", "limits": {"toolCalls": 1}})
    assert agent.wait(lambda record: record["type"] == "agent_settled", place)["reason"] == "done"


@proves("limits.conversation")
def test_limits_of_the_conversation_count_from_where_they_were_set(start: Start, server: ModelServer) -> None:
    agent = start()
    server.answers("free")
    agent.run("go")
    none = {"turns": 0, "cost": 0, "tokens": 0, "seconds": 0, "toolCalls": 0}
    assert agent.ask("get_limits") == {"limits": {}, "used": none}
    assert agent.ask("set_limits", limits={"turns": 1}) == {"limits": {"turns": 1}, "used": none}
    server.answers("counted")
    assert settled(agent)["reason"] == "done"
    assert agent.ask("get_limits")["used"]["turns"] == 1
    agent.send({"id": "r", "type": "prompt", "message": "more"})
    refused = agent.response("r")
    assert refused["success"] is False
    assert refused["error"].startswith("Limit reached: 1 turns are allowed, 1 are used, in this conversation.")
    assert refused["code"] == "limit"
    agent.ask("new_session")
    assert agent.ask("get_limits")["used"] == none
    agent.ask("set_limits", limits={})
    server.answers("free again")
    assert settled(agent)["reason"] == "done"


@proves("limits.before")
@pytest.mark.parametrize("limits", [{"tokens": 300}, {"cost": 0.0000001}])
def test_a_request_that_cannot_fit_is_not_sent(start: Start, server: ModelServer, limits: Record) -> None:
    agent = start()
    end = settled(agent, message="x" * 20_000, limits=limits)
    assert end["reason"] == "limit"
    assert end["limit"]["reached"] == 0
    assert server.requests == []


@proves("limits.refused")
def test_limits_that_cannot_be_are_refused_by_name(start: Start, server: ModelServer) -> None:
    agent = start()
    for given, named in (({"turns": 0}, "limits.turns"), ({"maxTurns": 1}, "limits.maxTurns"), (5, "limits")):
        for command in ({"type": "set_limits"}, {"type": "prompt", "message": "go"}):
            agent.send({"id": f"{command['type']}{named}", **command, "limits": given})
            refused = agent.response(f"{command['type']}{named}")
            assert refused["success"] is False
            assert f'"{named}"' in refused["error"]
    agent.send({"id": "s", "type": "set_limits"})
    assert agent.response("s")["success"] is False
    assert agent.ask("get_limits")["limits"] == {}
    assert server.requests == []


@proves("limits.seconds")
@pytest.mark.parametrize("place", ["answer", "tool", "dialog", "retry"])
def test_seconds_end_a_run_wherever_it_is(start: Start, server: ModelServer, place: str) -> None:
    agent = start(settings=SETTINGS)
    if place == "answer":
        server.answers("half", Gate())
    elif place == "retry":
        server.fails(529, "overloaded", "overloaded_error")
    else:
        server.answers(Call("bash", {"command": "sleep 600" if place == "tool" else "echo hi"}))
    if place == "dialog":
        agent.ask("set_permissions", permissions={"ask": ["bash"]})
    end = settled(agent, limits={"seconds": 0.7})
    assert (end["aborted"], end["reason"], end["limit"]["name"]) == (False, "limit", "seconds")
    assert 0.7 <= end["limit"]["reached"] < 5
    server.answers("well")
    assert settled(agent)["reason"] == "done"


@proves("limits.options")
def test_limits_are_options_and_a_setting(start: Start, server: ModelServer) -> None:
    agent = start("--max-turns", "1", settings={"limits": {"turns": 9, "toolCalls": 3, "cost": -1, "x": 1}})
    assert agent.ask("get_limits")["limits"] == {"turns": 1, "toolCalls": 3}
    works_on(server, 1)
    assert settled(agent)["limit"] == {"name": "turns", "allowed": 1, "reached": 1}
    assert "limits.cost is ignored" in agent.stderr
    assert "limits.x is ignored" in agent.stderr


@proves("limits.bad_value")
def test_a_bad_value_names_its_option(start: Start) -> None:
    agent = start("--max-cost", "lots")
    assert agent.wait_exit() == 2
    assert agent.stderr.startswith('Error: Invalid --max-cost "lots": expected a number greater than 0')


@proves("limits.json_mode")
def test_a_limit_makes_the_exit_code_3_in_json_mode(folders: AgentFolders, server: ModelServer) -> None:
    folders.configure(providers(server.url))
    works_on(server, 1)
    args = ["--no-session", "--model", "fake/fake-1", "--max-turns", "1", "one", "two"]
    with RpcProcess(folders, *args, mode=("--mode", "json")) as once:
        once.close_stdin()
        assert once.wait_exit() == 3
    assert once.records[-1]["limit"] == {"name": "turns", "allowed": 1, "reached": 1}
    assert len(server.requests) == 1


@proves("limits.omp", dialects=("omp",))
def test_a_limit_is_an_error_of_the_prompt_in_omp(start: Start, server: ModelServer) -> None:
    agent = start(dialect="omp")
    works_on(server, 1)
    agent.send({"id": "p", "type": "prompt", "message": "go", "limits": {"turns": 1}})
    result = agent.wait(lambda record: record["type"] == "prompt_result")
    assert (result["status"], result["error"]["retryable"]) == ("error", False)
    assert "1 turns are allowed" in result["error"]["message"]


@proves("limits.loop_guard")
def test_calls_that_repeat_are_told_and_then_end_the_run(start: Start, server: ModelServer) -> None:
    agent = start(settings={"loopGuard": {"warn": 2, "stop": 3}})
    for _ in range(4):
        server.answers(Call("bash", {"command": "echo same"}))
    end = settled(agent)
    assert end["limit"] == {"name": "repeated_calls", "allowed": 3, "reached": 3}
    assert len(server.requests) == 3
    assert "same tool calls 2 times in a row" in str(server.requests[2])
    assert "same tool calls" not in str(server.requests[1])


@proves("limits.loop_guard_unasked")
@pytest.mark.parametrize(("given", "allowed"), [((), None), (("--max-turns", "40"), 10), (("--unattended",), 10)])
def test_a_host_that_asked_for_no_limits_is_not_stopped_soon(
    start: Start, server: ModelServer, given: tuple[str, ...], allowed: int | None
) -> None:
    agent = start(*given, settings={"finishGate": False})
    for _ in range(20):
        server.answers(Call("bash", {"command": "true"}))
    server.answers("end")
    end = settled(agent)
    assert end.get("limit", {}).get("allowed") == allowed
    assert end["reason"] == ("limit" if allowed else "done")


@proves("limits.survive")
def test_limits_stay_with_the_process_and_their_use_with_the_conversation(start: Start, server: ModelServer) -> None:
    def used() -> tuple[int, int]:
        state = agent.ask("get_limits")
        return state["limits"]["turns"], state["used"]["turns"]

    agent = start("--max-turns", "5", keeps=True)
    server.answers("one")
    settled(agent)
    file = agent.ask("get_state")["sessionFile"]
    entry = agent.ask("get_fork_messages")["messages"][0]["entryId"]
    assert used() == (5, 1)
    for command in ({"kind": "new_session"}, {"kind": "clone"}, {"kind": "fork", "entryId": entry}):
        agent.ask(**command)
        assert used() == (5, 0)
        agent.ask("switch_session", sessionPath=file)
        assert used() == (5, 1)
    agent.ask("navigate_tree", entryId=entry)
    assert used() == (5, 1)
    agent.close_stdin()
    agent.wait_exit()
    agent = start("--max-turns", "4", "--session", file, keeps=True)
    assert used() == (4, 0)


@proves("limits.project")
def test_a_project_can_lower_the_limits_of_the_user_only(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    project = folders.work / ".pigeon"
    project.mkdir()
    given = {"limits": {"turns": 90, "cost": 0.1, "seconds": None}, "loopGuard": {"warn": 0}}
    (project / "settings.json").write_text(json.dumps(given))
    own = {"limits": {"turns": 3, "cost": 1, "seconds": 50}, "loopGuard": {"warn": 2, "stop": 3}}
    agent = start("--approve", settings=own)
    assert agent.ask("get_limits")["limits"] == {"turns": 3, "cost": 0.1, "seconds": 50}
    for _ in range(3):
        server.answers(Call("bash", {"command": "true"}))
    assert settled(agent)["limit"]["name"] == "repeated_calls"
    assert start("--approve", "--max-cost", "7", settings=own).ask("get_limits")["limits"]["cost"] == 7
