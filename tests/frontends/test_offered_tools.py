"""Where the model can start agents without being asked: in every front end, and for hosts that show agents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pigeon
from fakes.model_server import ModelServer
from pigeon.frontends.batch.records import TaskSpec
from pigeon.frontends.batch.task_run import options_of
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, run_pigeon

MODEL = ("--no-session", "--model", "fake/fake-1")
AGENTS = {"task", "jobs"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path, server: ModelServer) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure(providers(server.url), {"retry": {"enabled": False}})
    return made


def offered(server: ModelServer) -> set[str]:
    """The tools of the first request."""
    return {tool["name"] for tool in server.requests[0]["tools"]}


@pytest.mark.parametrize("mode", ["text", "json"])
@pytest.mark.parametrize(("settings", "has"), [({}, AGENTS), ({"defaultTools": ["-task"]}, {"jobs"})])
def test_one_answer_may_be_the_work_of_several_agents(
    folders: AgentFolders, server: ModelServer, mode: str, settings: dict[str, object], has: set[str]
) -> None:
    folders.configure(settings=settings)
    server.answers("Done.")
    assert run_pigeon(folders, "-p", "--mode", mode, *MODEL, "do it").code == 0
    assert offered(server) & AGENTS == has


async def test_programs_have_agents(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("Done.")
    env, place = folders.environment({"PATH": os.environ["PATH"]}), str(folders.agent)
    async with pigeon.Agent(model="fake/fake-1", cwd=folders.work, agent_dir=place, env=env, no_session=True) as agent:
        await agent.run("do it")
    assert offered(server) >= AGENTS
    shell = next(tool for tool in server.requests[0]["tools"] if tool["name"] == "bash")
    assert "background" in shell["input_schema"]["properties"]


def test_tasks_of_batches_have_agents() -> None:
    assert options_of(TaskSpec(id="one", prompt="do it"), None).offers == ("agents",)


@pytest.mark.parametrize(
    ("words", "has"),
    [
        (("--dialect", "pi"), False),
        (("--dialect", "pi-latest"), False),
        (("--dialect", "companion"), False),
        (("--dialect", "omp"), True),
        (("--dialect", "xcsh"), True),
        (("--agents",), True),
        (("--tools", "+task,+jobs"), True),
        (("--dialect", "omp", "--tools", "-task,-jobs"), False),
    ],
)
def test_hosts_have_agents_where_the_original_does_or_they_ask(
    folders: AgentFolders, server: ModelServer, words: tuple[str, ...], has: bool
) -> None:
    server.answers("Done.")
    with RpcProcess(folders, *MODEL, *words) as agent:
        agent.send({"type": "prompt", "message": "do it"})
        agent.wait_event("agent_end")
    assert offered(server) & AGENTS == (AGENTS if has else set())
