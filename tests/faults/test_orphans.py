"""Whatever ends Pigeon, nothing that it started lives on: commands, key commands, and what they detached."""

from __future__ import annotations

import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess
from support.processes import eventually, processes_with

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has subreapers")
DEATHS = ("SIGKILL", "SIGTERM", "SIGABRT", "end of input")


@pytest.fixture
def marker() -> Iterator[str]:
    marker = f"nap-{uuid.uuid4().hex}"
    yield marker
    assert processes_with(marker) == []


def napping(marker: str) -> str:
    """A shell line that leaves a process in its group, one in a session of its own and one that forked twice."""
    nap = f"exec -a {marker} sleep 300"
    return f"({nap}) & setsid bash -c '{nap}' & (setsid bash -c '({nap}) & exit' &)"


def end(agent: RpcProcess, death: str) -> None:
    if death == "end of input":
        agent.close_stdin()
    else:
        agent.signal(signal.Signals[death])
    agent.wait_exit()


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("ending", ["sleep 300", "echo key"], ids=["runs", "has ended"])
def test_a_key_command_and_what_it_started_do_not_outlive_the_agent(
    death: str, ending: str, marker: str, tmp_path: Path
) -> None:
    with ModelServer() as server:
        asked = server.answers("hello")
        folders = AgentFolders(tmp_path)
        models = providers(server.url)
        models["providers"]["fake"]["apiKey"] = f'!bash -c "{{ {napping(marker)}; }} >/dev/null 2>&1; {ending}"'
        folders.configure(models)
        agent = RpcProcess(folders, "--no-session", "--provider", "fake", "--model", "fake-1")
        try:
            agent.send({"type": "prompt", "message": "x"})
            assert eventually(lambda: len(processes_with(f"{marker}\x00")) == 3)
            if "key" in ending:
                asked.wait_arrived()
            end(agent, death)
            assert eventually(lambda: processes_with(marker) == [])
        finally:
            agent.kill()
