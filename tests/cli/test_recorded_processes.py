"""A recorded process and its replay, as hosts see them: the same bytes in each dialect, in every mode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.model_server import Call, Hang, ModelServer, Text, Thinking
from support.agent_folders import AgentFolders, providers
from support.agent_process import LAST_EVENTS, RpcProcess, run_pigeon

DIALECTS = ("pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion")


def converse(agent: RpcProcess, dialect: str) -> None:
    """Some commands, a prompt with a tool, an abort, and what was kept of it."""
    for name in ("get_state", "get_available_models"):
        agent.send({"id": name, "type": name})
        if dialect != "companion":
            agent.response(name)
    last = LAST_EVENTS.get(dialect, "agent_end")
    agent.send({"id": "p", "type": "prompt", "message": "What is there?"})
    agent.wait_event(last)
    start = agent.mark()
    agent.send({"id": "q", "type": "prompt", "message": "More"})
    agent.wait_delta("lf", start)
    agent.send({"id": "a", "type": "abort"})
    agent.wait_event(last, start)
    if dialect != "companion":
        agent.send({"id": "e", "type": "get_entries"})
        agent.response("e")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_host_hears_the_same_bytes_again(dialect: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(providers(server.url))
        server.answers(Thinking("Let me see."), Text("Looking. ", piece=3), Call("bash", {"command": "echo one"}))
        server.answers("It says one.")
        server.answers(Text("half", closes=False), Hang())
        options = ("--no-session", "--model", "fake/fake-1", "--record", "run.recording", "--dialect", dialect)
        with RpcProcess(folders, *options) as agent:
            converse(agent, dialect)
    (folders.agent / "models.json").unlink()
    with RpcProcess(folders, "--model", "recorded/run.recording", "--dialect", dialect) as again:
        converse(again, dialect)
    assert again.raw == agent.raw


@pytest.mark.parametrize("mode", [("--mode", "json"), ("-p", "--output", "json")])
def test_one_answer_is_recorded_and_played_too(mode: tuple[str, ...], tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(providers(server.url))
        server.answers("Hello.")
        given = ("--no-session", "--model", "fake/fake-1", "--record", "run.recording")
        live = run_pigeon(folders, *mode, *given, "hi")
    played = run_pigeon(folders, *mode, "--model", "recorded/run.recording", "hi")
    assert live.code == played.code == 0
    assert played.out == live.out
    assert "Hello." in live.out
    differs = run_pigeon(folders, *mode, "--model", "recorded/run.recording", "ho")
    assert differs.code == 1
    assert 'recorded "hi", sent "ho"' in differs.err


def test_a_recording_that_cannot_be_played_is_an_error_at_the_start(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    missing = run_pigeon(folders, "-p", "--model", "recorded/nothing.recording", "hi")
    assert missing.code == 1
    assert f"The recording {folders.work}/nothing.recording cannot be read: No such file or directory" in missing.err
    (folders.work / "bad").write_text(json.dumps({"kind": "recording", "version": 1, "seed": "0"}) + "\n{\n")
    bad = run_pigeon(folders, "-p", "--model", "recorded/bad", "hi")
    assert bad.code == 1
    assert f"{folders.work}/bad, line 2 cannot be read" in bad.err
