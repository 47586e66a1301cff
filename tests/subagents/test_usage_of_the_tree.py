"""Usage belongs to the tree: however an agent was started and has ended, what it used is counted once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import pigeon
from support.agent_trees import AgentTree, calls, events_of, results_of, task
from support.sdk_agents import call

PRICES = {"cost": {"input": 3, "output": 15}}
LIMITS = pigeon.Limits(cost=100)
COSTLY = {"text": "x", "usage": {"input": 1_000_000, "output": 100_000}}
COST = pytest.approx(4.5, abs=0.05)


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    return AgentTree(tmp_path)


def leave_out_lines(path: Path, mark: bytes) -> None:
    """Remove the lines of a file that have this."""
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(keepends=True) if mark not in line))


async def costs_of(agent: Any) -> tuple[float, float]:
    """What the statistics and the limits say."""
    return (await agent.get_session_stats()).cost, (await agent.get_limits()).used.cost


async def test_an_agent_of_the_host_is_counted(tree: AgentTree) -> None:
    tree.says("CHILD", COSTLY)
    async with tree.start(script=PRICES, limits=LIMITS) as agent:
        result = await agent.spawn("CHILD").result()
        stats, used = await costs_of(agent)
    assert result.usage.cost.total == stats == used == COST


async def test_an_agent_that_failed_is_counted(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", COSTLY | call("bash", command="true"), {"text": "", "error": {"message": "no", "status": 400}})
    async with tree.start(script=PRICES, limits=LIMITS) as agent:
        result = await agent.run("ROOT")
        stats, used = await costs_of(agent)
    assert result.usage.cost.total == pytest.approx(used)
    assert stats == pytest.approx(used)
    assert used == COST


async def test_an_agent_in_the_background_is_counted(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD", background=True, title="work")), call("jobs", action="wait"), "Done.")
    tree.says("CHILD", COSTLY)
    async with tree.start(script=PRICES, limits=LIMITS) as agent:
        result = await agent.run("ROOT")
        stats, used = await costs_of(agent)
        file = (await agent.get_state()).session_file
    assert result.usage.cost.total == stats == pytest.approx(used)
    assert used == COST
    async with tree.start(script=PRICES, session=file) as again:
        assert (await again.get_session_stats()).cost == pytest.approx(stats)


async def test_an_agent_that_continues_adds_to_what_it_has_used(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", COSTLY)
    async with tree.start(script=PRICES, limits=LIMITS) as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        result = await agent.spawn("CHILD", resume=end.result.details["agentId"]).result()
        [known] = (await agent.get_agents()).agents
        stats, used = await costs_of(agent)
    assert result.usage.cost.total == COST
    assert known.usage.cost.total == pytest.approx(9)
    assert stats == pytest.approx(used)
    assert stats == pytest.approx(9, abs=0.05)


async def test_agents_of_agents_are_counted_once(tree: AgentTree) -> None:
    tree.made.settings(agents={"maxDepth": 2})
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says(
        "CHILD",
        calls(task("GRANDSON", background=True, title="work"), task("GRANDSON")),
        call("jobs", action="wait"),
        "ok",
    )
    tree.says("GRANDSON", COSTLY)
    async with tree.start(script=PRICES, limits=LIMITS) as agent:
        result = await agent.run("ROOT")
        agents = (await agent.get_agents()).agents
        stats, used = await costs_of(agent)
    assert stats == pytest.approx(used)
    assert result.usage.cost.total == pytest.approx(used)
    assert used == pytest.approx(9, abs=0.1)
    assert sorted(one.usage.cost.total for one in agents) == [COST, COST, pytest.approx(9, abs=0.1)]


async def test_running_agents_are_part_of_the_statistics(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", COSTLY | call("bash", command="while [ ! -e go ]; do :; done"), "ok")
    async with tree.start(script=PRICES, limits=LIMITS) as agent:
        running = asyncio.ensure_future(agent.run("ROOT"))
        async for event in agent.events():
            if isinstance(event, pigeon.AgentChanged) and isinstance(event.agent.activity, str):
                break
        stats, used = await costs_of(agent)
        (tree.work / "go").touch()
        await running
    assert stats == pytest.approx(used)
    assert used == COST


async def test_an_agent_that_died_with_its_process_is_counted(tree: AgentTree) -> None:
    """Its end was never recorded; what it used is in its own session."""
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", COSTLY)
    async with tree.start(script=PRICES) as agent:
        await agent.run("ROOT")
        [known] = (await agent.get_agents()).agents
        file = (await agent.get_state()).session_file
        stats = (await agent.get_session_stats()).cost
    leave_out_lines(Path(str(file)), b'"status":"done"')
    async with tree.start(script=PRICES, session=str(file)) as again:
        [lost] = (await again.get_agents()).agents
        assert (lost.status, lost.usage) == ("aborted", known.usage)
        assert (await again.get_session_stats()).cost == pytest.approx(stats)
        await again.spawn("CHILD", resume=lost.agent_id).result()
        [more] = (await again.get_agents()).agents
        assert more.usage.cost.total == pytest.approx(9)
        assert (await again.get_session_stats()).cost == pytest.approx(stats + 4.5)
