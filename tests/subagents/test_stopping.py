"""Stopping: the whole tree at once, one agent alone, and what a message to one of them does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import pigeon
from support.agent_trees import AgentTree, calls, results_of, task, text_of_result
from support.processes import processes_in
from support.sdk_agents import call

HANGING = {"text": "On and on", "hang": True}


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    return AgentTree(tmp_path)


async def _until_running(agent: pigeon.Conversation, count: int) -> None:
    """Wait for the announcement that so many agents run."""
    running: set[str] = set()
    async with asyncio.timeout(20):
        async for event in agent.events():
            if isinstance(event, pigeon.AgentChanged) and event.agent.status == "running":
                running.add(event.agent.agent_id)
            if len(running) >= count:
                return


async def test_an_abort_ends_every_agent_and_command(tree: AgentTree) -> None:
    tree.made.settings(agents={"maxDepth": 2})
    tree.says("ROOT", calls(task("CHILD"), task("TALKER")), "Done.")
    tree.says("CHILD", calls(task("WORKER"), task("TALKER")), "Done.")
    tree.says("WORKER", call("bash", command="sleep 60 & sleep 60"), "Done.")
    tree.says("TALKER", HANGING)
    async with tree.start() as agent:
        watching = asyncio.ensure_future(_until_running(agent, 3))
        reading = asyncio.ensure_future(agent.run("ROOT"))
        await watching
        async with asyncio.timeout(10):
            await agent.abort()
            result = await reading
        agents = (await agent.get_agents()).agents
        assert not [line for line in processes_in(f"HOME={tree.folders.home}") if "sleep" in str(line)]
    assert result.ended == "aborted"
    assert {one.status for one in agents} == {"aborted"}


async def test_one_agent_is_stopped_and_the_others_go_on(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("TALKER"), task("QUICK")), "Done.")
    tree.says("TALKER", HANGING)
    tree.says("QUICK", "quick")
    async with tree.start() as agent:
        events: list[object] = []

        async def read() -> None:
            async for event in agent.prompt("ROOT"):
                events.append(event)

        watching = asyncio.ensure_future(_until_running(agent, 1))
        reading = asyncio.ensure_future(read())
        await watching
        [talker, _] = (await agent.get_agents()).agents
        await agent.abort_agent(talker.agent_id)
        async with asyncio.timeout(10):
            await reading
    ended = {end.result.details["ended"]: end for end in results_of(events)}
    assert set(ended) == {"aborted", "done"}
    assert ended["aborted"].is_error
    assert "The agent was stopped" in text_of_result(ended["aborted"])


async def test_agents_in_the_background_end_with_an_abort_too(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("TALKER", background=True)), HANGING)
    tree.says("TALKER", HANGING)
    async with tree.start() as agent:
        watching = asyncio.ensure_future(_until_running(agent, 1))
        reading = asyncio.ensure_future(agent.run("ROOT"))
        await watching
        await agent.abort()
        await reading
        [known] = (await agent.get_agents()).agents
        await agent.abort_agent(known.agent_id)  # waits for its end
        assert [one.status for one in (await agent.get_agents()).agents] == ["aborted"]


async def test_a_message_reaches_the_agent_it_is_for(tree: AgentTree) -> None:
    tree.says("STEERED", "I heard.")
    tree.says("CHILD", call("bash", command="while [ ! -e go ]; do :; done"), "Not steered.")
    async with tree.start() as agent:
        run = agent.spawn("CHILD")
        async for event in run:
            if isinstance(event, pigeon.ToolExecutionStart):
                break
        assert run.agent_id is not None
        await agent.steer_agent(run.agent_id, "STEERED now")
        (tree.work / "go").touch()
        result = await run.result()
    assert result.text == "I heard."


@pytest.mark.parametrize("command", ["steer_agent", "abort_agent", "get_agent_messages", "merge_agent"])
async def test_an_unknown_agent_is_refused_by_its_id(tree: AgentTree, command: str) -> None:
    more = ("hello",) if command == "steer_agent" else ()
    async with tree.start() as agent:
        with pytest.raises(pigeon.Refusal, match="0199-none"):
            await getattr(agent, command)("0199-none", *more)


async def test_closing_the_conversation_ends_its_agents(tree: AgentTree) -> None:
    tree.says("CHILD", HANGING)
    async with tree.start() as agent:
        run = agent.spawn("CHILD")
        async for event in run:
            if isinstance(event, pigeon.TextDelta):
                break
    with pytest.raises(pigeon.ConversationClosed):
        await run.result()
    assert not processes_in(f"HOME={tree.folders.home}")


async def test_an_agent_that_is_stopped_before_its_turn_begins_and_ends_all_the_same(tree: AgentTree) -> None:
    tree.made.settings(agents={"maxParallel": 1})
    tree.says("FIRST", HANGING)
    tree.says("SECOND", "never")
    async with tree.start() as agent:
        first, second = agent.spawn("FIRST"), agent.spawn("SECOND")
        async for event in first:
            if isinstance(event, pigeon.TextDelta):
                break
        async with asyncio.timeout(20):
            while second.agent_id is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await second.abort()
        seen = [type(event).__name__ async for event in second]
        result = await second.result()
        await first.abort()
    assert result.ended == "aborted"
    assert seen[0] == "AgentStart"
    assert seen[-2:] == ["AgentEnd", "AgentSettled"]
