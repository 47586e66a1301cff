"""A process that was stopped for longer than its time-outs goes on as if no time had passed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.model_server import Call, Gate, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess
from support.processes import eventually
from support.records import text_of

STOPPED = 3.2


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def stopped_for_a_while(agent: RpcProcess, meanwhile: Gate | None = None) -> None:
    """Longer than any time-out of these tests."""
    agent.signal(signal.SIGSTOP)
    assert eventually(lambda: Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    if meanwhile is not None:
        meanwhile.open()
    threading.Event().wait(STOPPED)
    agent.signal(signal.SIGCONT)


def test_an_answer_that_came_while_the_process_stood_still_is_not_thrown_away(
    tmp_path: Path, server: ModelServer
) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure(providers(server.url), {"httpIdleTimeoutMs": 2000, "retry": {"enabled": False}})
    gate = Gate()
    server.answers("first ", gate, "second")
    with RpcProcess(folders, "--provider", "fake", "--model", "fake-1", "--no-session") as agent:
        agent.ask("prompt", message="go")
        gate.wait_reached()
        stopped_for_a_while(agent, gate)
        last = agent.wait_end()["messages"][-1]
    assert (text_of(last), last["stopReason"]) == ("first second", "stop")


def test_the_time_of_a_tool_does_not_run_out_while_the_process_stands_still(
    tmp_path: Path, server: ModelServer
) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure(providers(server.url))
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    server.answers(Call("bash", {"command": f"echo begun; read x < {go_on}; echo done", "timeout": 2}))
    server.answers("fine")
    with RpcProcess(folders, "--provider", "fake", "--model", "fake-1", "--no-session") as agent:
        agent.ask("prompt", message="go")
        agent.wait(lambda record: "begun" in str(record) and record["type"] == "tool_execution_update")
        stopped_for_a_while(agent)
        go_on.write_text("x\n")
        agent.wait_end()
        (ended,) = agent.since(0, "tool_execution_end")
    assert (ended["isError"], ended["result"]["content"][0]["text"]) == (False, "begun\ndone\n")
