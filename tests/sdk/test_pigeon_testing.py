"""`pigeon.testing`: scripted models as the tests of a program use them, in all ways to have a conversation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pigeon
from pigeon.testing import call, failure, scripted, value
from support.agent_folders import AgentFolders


@pigeon.tool
def population(city: str) -> int:
    """How many people live in a city."""
    return {"Bonn": 340_000}[city]


def agent(folders: AgentFolders, model: str) -> pigeon.Agent:
    return pigeon.Agent(
        model=model, tools=[population], cwd=folders.work, agent_dir=folders.agent, env=folders.environment()
    )


async def test_replies_come_in_order_with_calls_values_and_failures(tmp_path: Path) -> None:
    replies = (call("population", city="Bonn"), "${toolResult} people", value(["a"]), failure("out of credit"))
    with scripted(*replies) as model:
        async with agent(AgentFolders(tmp_path), model) as one:
            assert (await one.run("How many?")).text == "340000 people"
            assert (await one.run("Which?", output=list[str])).output == ["a"]
            failed = await one.run("And?")
    assert (failed.ended, failed.error) == ("error", "out of credit")


async def test_a_failure_that_is_retryable_is_asked_for_again(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure(settings={"retry": {"baseDelayMs": 1}})
    with scripted(failure("overloaded", retryable=True, status=529), "better now") as model:
        async with agent(folders, model) as one:
            assert (await one.run("Hello?")).text == "better now"


async def test_rules_a_default_and_options_are_those_of_the_file(tmp_path: Path) -> None:
    rules = [{"when": {"user": "weather"}, "reply": "Sunny."}]
    with scripted("first", rules=rules, default="nothing more", context_window=5_000) as model:
        async with agent(AgentFolders(tmp_path), model) as one:
            said = [(await one.run(text)).text for text in ("a", "the weather?", "b")]
            state = await one.get_state()
    assert said == ["first", "Sunny.", "nothing more"]
    assert state.model is not None
    assert state.model.context_window == 5_000


async def test_a_client_is_given_the_same_name(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with scripted("from afar") as model:
        command = [sys.executable, "-m", "pigeon", "--mode", "rpc", "--model", model]
        async with pigeon.Client(command=command, cwd=str(folders.work), env=folders.environment()) as client:
            assert (await client.run("Hello?")).text == "from afar"


def test_a_reply_that_cannot_be_used_is_refused_at_once_by_its_field() -> None:
    with pytest.raises(pigeon.PigeonError, match="txt"), scripted({"txt": "a typing error"}):
        pass


def test_the_script_is_gone_with_its_block() -> None:
    with scripted("Hello.") as model:
        file = Path(model.removeprefix("scripted/"))
        assert file.exists()
    assert not file.parent.exists()
