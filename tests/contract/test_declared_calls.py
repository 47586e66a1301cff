"""Commands that the model declares as independent run side by side, where the settings offer that."""

from __future__ import annotations

import os

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders
from support.agent_process import Start
from support.contract import proves

DECLARED = {"toolExecution": "declared"}


def bash(command: str, **more: object) -> Call:
    return Call("bash", {"command": command, **more})


@proves("tool.declared")
def test_two_commands_that_wait_for_each_other_meet_and_results_stay_in_order(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    os.mkfifo(folders.work / "pipe")
    agent = start(settings=DECLARED)
    server.answers(bash("cat pipe", parallel=True), bash("echo met > pipe", parallel=True))
    asked = server.answers("fine")
    agent.run("go")
    results = [block["content"] for block in asked.request["messages"][-1]["content"]]
    assert results == ["met\n", "(no output)"]


@proves("tool.undeclared")
def test_a_command_that_is_not_declared_runs_alone(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    agent = start(settings=DECLARED)
    server.answers(bash("echo 1 > a", parallel=True), bash("cat a", parallel=False), bash("rm a"), bash("ls a"))
    asked = server.answers("fine")
    agent.run("go")
    first, second, third, last = asked.request["messages"][-1]["content"]
    assert (second["content"], third["content"]) == ("1\n", "(no output)")
    assert (first["is_error"], last["is_error"]) == (False, True)


@proves("tool.declared_abort")
def test_an_abort_ends_all_of_them(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    os.mkfifo(folders.work / "pipe")
    agent = start(settings=DECLARED)
    server.answers(bash("echo up; cat pipe", parallel=True), bash("echo up; cat pipe", parallel=True))
    agent.ask("prompt", message="go")
    agent.wait_count("tool_execution_start", 2)
    agent.ask("abort")
    ended = agent.wait_count("tool_execution_end", 2)
    assert ["aborted" in str(record["result"]) for record in ended] == [True, True]
    # The pipe has no reader any more: both commands are gone.
    with pytest.raises(OSError, match="No such device"):
        os.close(os.open(folders.work / "pipe", os.O_WRONLY | os.O_NONBLOCK))


@proves("tool.declared_unasked")
def test_nothing_is_offered_unasked(start: Start, server: ModelServer) -> None:
    agent = start()
    asked = server.answers("fine")
    agent.run("go")
    (tool,) = [tool for tool in asked.request["tools"] if tool["name"] == "bash"]
    assert sorted(tool["input_schema"]["properties"]) == ["command", "timeout"]
