"""Conversations for code without an event loop."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.sdk.agent import AgentChoices
from pigeon.sdk.sync import AgentArguments
from support.agent_process import command_line
from support.processes import eventually
from support.sdk_agents import Conversations, call


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Conversations]:
    yield Conversations("agent", tmp_path)
    assert eventually(lambda: not [one for one in threading.enumerate() if one.name == "pigeon-loop"])


def options(own: Conversations) -> dict[str, Any]:
    folders = own.folders
    return {
        "model": f"scripted/{own.work.parent / 'script.json'}",
        "cwd": str(own.work),
        "agent_dir": str(folders.agent),
        "env": folders.environment(),
    }


def test_run_sync_starts_an_agent_runs_and_ends_it(own: Conversations) -> None:
    own.script("Hello.")
    result = pigeon.run_sync("hi", **options(own))
    assert (result.text, result.ended) == ("Hello.", "done")


async def test_run_sync_works_while_a_loop_runs(own: Conversations) -> None:
    own.script("Hello.")
    assert pigeon.run_sync("hi", **options(own)).text == "Hello."


def test_events_are_iterated_and_commands_answered(own: Conversations) -> None:
    @pigeon.tool
    def where() -> str:
        """Which thread."""
        return "in a thread"

    own.script(call("where"), "Done.", "Again.")
    with pigeon.SyncAgent(tools=[where], **options(own)) as agent:
        events = list(agent.prompt("go"))
        assert isinstance(events[-1], pigeon.AgentSettled)
        assert any(isinstance(event, pigeon.ToolExecutionEnd) and not event.is_error for event in events)
        assert agent.get_state().message_count == 4
        assert agent.run("again").text == "Again."
        with pytest.raises(pigeon.Refusal, match="not found"):
            agent.set_model("no", "such")
    with pytest.raises(pigeon.ConversationClosed):
        agent.get_state()


def test_every_delta_arrives_on_request(own: Conversations) -> None:
    text = "0123456789" * 200
    own.script({"text": text, "chunk": 1})
    with pigeon.SyncAgent(**options(own)) as agent:
        events = list(agent.prompt("go", every_delta=True))
    assert [event.delta for event in events if isinstance(event, pigeon.TextDelta)] == list(text)


def test_leaving_the_iteration_aborts_and_waits(own: Conversations) -> None:
    own.script({"text": "On and on", "hang": True}, "Fine.")
    with pigeon.SyncAgent(**options(own)) as agent:
        for event in agent.prompt("talk"):
            if isinstance(event, pigeon.TextDelta):
                break
        assert agent.get_state().is_streaming is False
        assert agent.run("and now?").text == "Fine."


def test_all_events_are_heard_by_a_second_reader(own: Conversations) -> None:
    own.script("Hello.")
    with pigeon.SyncAgent(**options(own)) as agent:
        events = agent.events()
        agent.run("hi")
        agent.close()
        assert isinstance(list(events)[-1], pigeon.AgentSettled)


def test_a_callback_that_waits_for_its_own_conversation_is_told(own: Conversations) -> None:
    failures: list[str] = []

    async def again() -> str:
        """Ask the agent itself."""
        try:
            agent.get_state()
        except RuntimeError as error:
            failures.append(str(error))
        return "asked"

    own.script(call("again"), "Done.")
    with pigeon.SyncAgent(tools=[again], **options(own)) as agent:
        agent.run("go")
    assert "cannot wait for its own conversation" in failures[0]


def test_a_callback_cannot_close_its_own_conversation_and_is_told(own: Conversations) -> None:
    async def end() -> str:
        """Close the agent itself."""
        agent.close()
        return "closed"

    own.script(call("end"), "${toolResult}")
    with pigeon.SyncAgent(tools=[end], **options(own)) as agent:
        assert "cannot wait for its own conversation" in agent.run("go").text


UNCLOSED = """
import os, sys, pigeon
agent = pigeon.SyncAgent(model=sys.argv[1], cwd=sys.argv[2], agent_dir=sys.argv[2])
agent.open()
events = agent.prompt("talk")
next(events)
if os.fork() == 0:
    try:
        agent.get_state()
    except pigeon.ConversationClosed as error:
        print("in the child:", error, flush=True)
    agent.close()
    sys.exit()
os.wait()
print("in the parent:", agent.get_state().is_streaming)
"""


def test_a_program_that_does_not_close_ends_and_so_does_a_fork_of_it(own: Conversations, tmp_path: Path) -> None:
    own.script({"text": "On and on", "hang": True})
    command = [sys.executable, "-c", UNCLOSED, options(own)["model"], str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    child, parent = ended.stdout.splitlines()
    assert "opened in another process" in child
    assert parent == "in the parent: True"
    assert (ended.returncode, ended.stderr) == (0, "")


FORKED = """
import os, sys, threading, pigeon
os.mkfifo("up")
os.mkfifo("go")
agent = pigeon.SyncAgent(model=sys.argv[1], cwd=".", agent_dir=".")
agent.open()
said = []
waits = threading.Thread(target=lambda: said.append(agent.bash("echo > up; read word < go; echo $word").output))
waits.start()
open("up").read()
if os.fork() == 0:
    sys.exit()
os.wait()
go = os.open("go", os.O_RDWR)
os.write(go, b"alive" + bytes([10]))
waits.join()
print(said[0].strip())
agent.close()
"""


def test_a_fork_that_exits_leaves_the_commands_of_the_agent_alone(own: Conversations, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, options(own)["model"]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("alive\n", "")


def test_what_only_one_kind_has_is_there_too(own: Conversations) -> None:
    with pigeon.SyncAgent(**options(own)) as agent:
        assert agent.warnings == []
    command = [*command_line(), "--mode", "rpc", "--model", options(own)["model"]]
    with pigeon.SyncClient(command=command, cwd=own.work, env=own.folders.environment()) as client:
        first = client.pid
        assert client.welcome is not None
        client.restart()
        assert client.pid not in (None, first)


def test_a_start_that_fails_leaves_nothing_behind(own: Conversations) -> None:
    with pytest.raises(pigeon.StartupError, match="Not a directory"):
        pigeon.run_sync("hi", **{**options(own), "cwd": "/no/such"})


INTERRUPTED = """
import os, pigeon, signal, sys, threading
options = eval(sys.argv[1])
with pigeon.SyncAgent(**options) as agent:
    events = agent.events()
    def interrupt():
        for event in events:
            if isinstance(event, pigeon.TextDelta):
                os.kill(os.getpid(), signal.SIGINT)
                return
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        agent.run("talk")
    except KeyboardInterrupt:
        print("interrupted", agent.get_state().is_streaming, agent.run("and now?").text)
"""


def test_an_interrupt_aborts_the_run_and_is_raised(own: Conversations) -> None:
    own.script({"text": "On and on", "hang": True}, "Fine.")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, repr(options(own))],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=own.folders.environment(),
    )
    assert (done.stdout, done.returncode) == ("interrupted False Fine.\n", 0), done.stderr


def test_the_classes_without_a_loop_show_the_arguments_of_those_with_one() -> None:
    assert signature(pigeon.SyncAgent) == signature(pigeon.Agent)
    assert signature(pigeon.SyncClient) == signature(pigeon.Client)
    taken = {*signature(pigeon.Agent).parameters, *AgentChoices.__annotations__} - {"choices", "limits"}
    assert set(AgentArguments.__annotations__) == taken
    with pytest.raises(TypeError, match="modle"):
        pigeon.SyncAgent(modle="demo").open()  # type: ignore[call-arg]
