"""`pigeon replay`: a host sees the events of a kept session as it would have seen them live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer, Text, Thinking
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, run_pigeon
from support.sessions import SESSIONS, rich_session

DIALECTS = ("pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion")
Record = dict[str, Any]


def events(records: list[Record]) -> list[Record]:
    """What both tell alike: not in which pieces an answer came, nor the answers to commands."""
    pieces = ("message_update", "tool_execution_update", "response", "ready", "available_commands_update")
    told = [record for record in records if record["type"] not in pieces]
    # How many tokens an answer will have is told by each API in its own way.
    for message in (record["message"] for record in told if record["type"] == "message_start"):
        message.pop("usage", None)
    return told


def held_session(folders: AgentFolders) -> tuple[list[Record], Any, str]:
    """A live conversation: its events, its messages and the file of its session."""
    with ModelServer() as server:
        folders.configure(providers(server.url), {"retry": {"baseDelayMs": 1}})
        server.answers(Thinking("Let me see."), Text("Looking. ", piece=3), Call("bash", {"command": "echo one"}))
        server.answers("It says one.")
        server.answers("And more.")
        with RpcProcess(folders, "--model", "fake/fake-1", "--dialect", "pi-latest") as agent:
            agent.run("What is there?")
            agent.run("More")
            agent.send({"id": "m", "type": "get_messages"}, {"id": "s", "type": "get_state"})
            messages = agent.response("m")["data"]
            file = agent.response("s")["data"]["sessionFile"]
    return agent.records, messages, file


def test_the_events_and_the_messages_are_those_of_the_live_run(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    live, messages, file = held_session(folders)
    options = ("--speed", "max", "--dialect", "pi-latest")
    with RpcProcess(folders, *options, mode=("replay", file)) as host:
        host.wait_count("agent_settled", 2)
        host.send({"id": "m", "type": "get_messages"}, {"id": "p", "type": "prompt", "message": "More?"})
        assert host.response("m")["data"] == messages
        refused = host.response("p")
        assert refused["success"] is False
        assert "This is a replay" in refused["error"]
        host.send({"id": "b", "type": "bash", "command": "touch made"})
        assert host.response("b")["success"] is False
        host.send({"id": "s", "type": "get_state"})
        state = host.response("s")["data"]
        assert (state["isStreaming"], state["model"]["id"]) == (False, "fake-1")
    assert not (folders.work / "made").exists()
    assert events(host.records) == events(live)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_session_is_played_in_each_dialect_as_a_file(dialect: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    for number, text in enumerate((rich_session(), *SESSIONS.values())):
        (folders.work / f"{number}.jsonl").write_text(text)
    # The schema is held against every line.
    options = ("--speed", "max", "--drain", "--dialect", dialect)
    with RpcProcess(folders, *options, mode=("replay", "./0.jsonl")) as host:
        host.wait_event("agent_end")
    for number in range(1, len(SESSIONS) + 1):
        with RpcProcess(folders, *options, mode=("replay", f"./{number}.jsonl")) as host:
            host.wait_event("agent_end")


def test_an_abort_ends_the_replay_and_the_run_settles(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    _, _, file = held_session(folders)
    with RpcProcess(folders, "--speed", "0.01", "--max-gap", "1", mode=("replay", file)) as host:
        host.wait_event("agent_start")
        host.send({"id": "a", "type": "abort"})
        assert host.response("a")["success"] is True
        settled = host.wait_event("agent_settled")
        assert settled["aborted"] is True


def test_what_cannot_be_played_is_an_error(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    (folders.work / "s.jsonl").write_text(SESSIONS["branches"])
    (folders.work / "empty.jsonl").write_text(SESSIONS["branches"].splitlines()[0] + "\n")
    cases = {
        ("./s.jsonl", "--speed", "fast"): (2, "--speed must be a number above 0, or max"),
        ("./s.jsonl", "--max-gap", "-1"): (2, "--max-gap must be a number of seconds"),
        ("nothing",): (1, "There is no session nothing"),
        ("./empty.jsonl",): (1, "there is nothing to play"),
    }
    for words, (code, problem) in cases.items():
        ended = run_pigeon(folders, "replay", *words)
        assert ended.code == code
        assert problem in ended.err
