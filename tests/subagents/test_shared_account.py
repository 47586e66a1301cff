"""One account: limits, rules, questions and usage belong to the whole tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pigeon
from support.agent_trees import AgentTree, calls, events_of, results_of, task, text_of_result
from support.sdk_agents import call

PRICES = {"cost": {"input": 3, "output": 15}}


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    return AgentTree(tmp_path)


async def test_turns_of_agents_are_turns_of_the_tree(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD one"), task("CHILD two")), "Done.")
    tree.says("CHILD", call("bash", command="true"))
    async with tree.start(limits=pigeon.Limits(turns=7)) as agent:
        events = await events_of(agent, "ROOT")
        used = (await agent.get_limits()).used
    assert used.turns == 7
    assert {end.result.details["ended"] for end in results_of(events)} == {"limit"}
    assert all("turns" in text_of_result(end) for end in results_of(events))
    assert events[-1].reason == "limit"


async def test_calls_of_agents_are_calls_of_the_tree(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", call("bash", command="true"))
    async with tree.start(limits=pigeon.Limits(tool_calls=4)) as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        used = (await agent.get_limits()).used
    assert used.tool_calls == 4
    assert end.result.details["ended"] == "limit"


async def test_what_agents_cost_is_part_of_the_result_and_the_statistics(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", {"text": "x", "usage": {"input": 1_000_000, "output": 100_000}})
    async with tree.start(script=PRICES, limits=pigeon.Limits(cost=100)) as agent:
        result = await agent.run("ROOT")
        stats = await agent.get_session_stats()
        used = (await agent.get_limits()).used
        [known] = (await agent.get_agents()).agents
    assert known.usage.cost.total == pytest.approx(4.5)
    assert result.usage.cost.total == pytest.approx(stats.cost)
    assert stats.cost == pytest.approx(used.cost)
    assert 4.5 < stats.cost < 4.6


async def test_a_type_may_lower_a_limit_and_not_raise_it(tree: AgentTree) -> None:
    low = pigeon.AgentType(name="low", description="d", limits=pigeon.Limits(turns=2))
    high = pigeon.AgentType(name="high", description="d", limits=pigeon.Limits(turns=100))
    tree.says("ROOT", calls(task("CHILD", agent="low")), calls(task("CHILD", agent="high")), "Done.")
    tree.says("CHILD", call("bash", command="true"))
    # The notice that little is left is the last thing that the agent was told.
    more = {"default": call("bash", command="true")}
    async with tree.start(script=more, agents=[low, high], limits=pigeon.Limits(turns=9)) as agent:
        events = await events_of(agent, "ROOT")
        agents = (await agent.get_agents()).agents
        used = (await agent.get_limits()).used
        turns = [len((await agent.get_agent_messages(one.agent_id)).messages) for one in agents]
    assert used.turns == 9
    assert [one.status for one in agents] == ["limit", "limit"]
    assert turns[0] < turns[1]
    assert events[-1].reason == "limit"


async def test_time_of_the_conversation_ends_its_agents(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", {"text": "On and on", "hang": True})
    async with tree.start(limits=pigeon.Limits(seconds=0.5)) as agent:
        events = await events_of(agent, "ROOT")
    assert events[-1].reason == "limit"
    [end] = results_of(events)
    assert end.is_error


async def test_rules_of_the_conversation_hold_for_its_agents(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", call("write", path="a.txt", content="x"), "I was not allowed.")
    async with tree.start(permissions={"deny": ["write"]}) as agent:
        await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
        messages = (await agent.get_agent_messages(known.agent_id)).messages
    assert "denied" in pigeon.text_of(messages[2].content)
    assert not (tree.work / "a.txt").exists()


async def test_the_rules_of_a_type_are_added(tree: AgentTree) -> None:
    careful = pigeon.AgentType(name="careful", description="d", permissions={"deny": ["bash(rm *)"]})
    tree.says("ROOT", calls(task("CHILD", agent="careful")), "Done.")
    tree.says("CHILD", call("bash", command="rm keep"), "I may not.")
    (tree.work / "keep").touch()
    async with tree.start(agents=[careful]) as agent:
        await events_of(agent, "ROOT")
    assert (tree.work / "keep").exists()


async def test_questions_name_the_agent_and_an_answer_for_the_session_holds_for_the_tree(tree: AgentTree) -> None:
    asked: list[Any] = []

    def on_permission(request: pigeon.PermissionRequest) -> str:
        asked.append(request)
        return "always"

    tree.says("ROOT", calls(task("CHILD one", agent="helper")), calls(task("CHILD two", agent="helper")), "Done.")
    tree.says("CHILD", call("bash", command="echo hi > out"), "one", call("bash", command="echo hi > out"), "two")
    helper = pigeon.AgentType(name="helper", description="d")
    async with tree.start(
        agents=[helper], approval_mode="write", on_permission=on_permission, permissions={"allow": ["task"]}
    ) as agent:
        await events_of(agent, "ROOT")
        agents = (await agent.get_agents()).agents
    assert len(asked) == 1
    assert "helper" in asked[0].text
    assert [one.status for one in agents] == ["done", "done"]


async def test_without_anybody_to_ask_the_call_is_denied(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", call("bash", command="touch x"), "I could not.")
    async with tree.start(permissions={"ask": ["bash"]}) as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    assert end.result.details["ended"] == "denied"
    assert end.is_error
    assert not (tree.work / "x").exists()


async def test_an_agent_gets_no_tool_that_the_options_leave_out(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD", agent="explore")), "Done.")
    tree.says("CHILD", call("bash", command="touch x"), call("grep", pattern="x"), "no tools")
    async with tree.start(tools=("read", "task")) as agent:
        await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
        messages = (await agent.get_agent_messages(known.agent_id)).messages
    assert [
        pigeon.text_of(message.content) for message in messages if message.__struct_config__.tag == "toolResult"
    ] == [
        "Tool bash not found",
        "Tool grep not found",
    ]


async def test_two_agents_that_edit_one_file_see_each_other(tree: AgentTree) -> None:
    (tree.work / "a.txt").write_text("one\ntwo\n")
    tree.says("ROOT", calls(task("FIRST"), task("SECOND")), "Done.")
    tree.says("FIRST", call("edit", path="a.txt", oldText="one", newText="1"), "done")
    tree.says("SECOND", call("edit", path="a.txt", oldText="two", newText="2"), "done")
    async with tree.start() as agent:
        await events_of(agent, "ROOT")
    assert (tree.work / "a.txt").read_text() == "1\n2\n"
