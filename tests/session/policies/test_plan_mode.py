"""Plan mode: only reading, and a plan that a person accepts, wants changed, or refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pigeon
from support.agent_trees import AgentTree, calls, events_of, results_of, task, text_of_result
from support.sdk_agents import call

PLAN = call("submit_plan", plan="1. Write a file")


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    made = AgentTree(tmp_path)
    (made.work / "a.txt").write_text("hello\n")
    return made


def answering(answer: str | None, asked: list[Any]) -> Any:
    def on_dialog(request: Any) -> str | None:
        asked.append(request)
        return answer

    return on_dialog


@pytest.mark.parametrize(
    "arguments",
    [
        ("write", {"path": "x", "content": "x"}),
        ("edit", {"path": "a.txt", "oldText": "hello", "newText": "x"}),
        ("bash", {"command": "touch x"}),
        ("bash", {"command": "ls"}),
        ("task", {"prompt": "x", "agent": "general"}),
        ("task", {"prompt": "x"}),
        ("jobs", {"action": "list"}),
    ],
)
async def test_what_is_not_reading_is_refused_without_a_question(tree: AgentTree, arguments: Any) -> None:
    asked: list[Any] = []
    tree.says("ROOT", calls(arguments), "I see.")
    async with tree.start(
        approval_mode="plan", permissions={"allow": ["*"]}, on_permission=lambda request: asked.append(request) or True
    ) as agent:
        [end] = results_of(await events_of(agent, "ROOT"), arguments[0])
    assert end.is_error
    assert "plan mode" in text_of_result(end)
    assert asked == []
    assert not (tree.work / "x").exists()
    assert (tree.work / "a.txt").read_text() == "hello\n"


async def test_reading_and_explorers_are_allowed(tree: AgentTree) -> None:
    tree.says("ROOT", calls(("read", {"path": "a.txt"}), task("CHILD", agent="explore")), "I see.")
    tree.says("CHILD", call("grep", pattern="hello"), call("write", path="x", content="x"), "It says hello.")
    async with tree.start(approval_mode="plan") as agent:
        events = await events_of(agent, "ROOT")
    assert text_of_result(results_of(events, "read")[0]) == "hello\n"
    assert not results_of(events)[0].is_error
    assert not (tree.work / "x").exists()


async def test_an_accepted_plan_ends_the_mode(tree: AgentTree) -> None:
    asked: list[Any] = []
    tree.says("ROOT", PLAN, call("write", path="x", content="x"), PLAN, "Done.")
    async with tree.start(approval_mode="plan", on_dialog=answering("Accept", asked)) as agent:
        events = await events_of(agent, "ROOT")
        mode = (await agent.get_permissions()).approval_mode
    [question] = asked
    assert "1. Write a file" in question.title
    assert question.options == ["Accept", "Change", "Refuse"]
    assert (tree.work / "x").read_text() == "x"
    assert mode == "yolo"
    accepted, unknown = results_of(events, "submit_plan")
    assert (accepted.is_error, unknown.is_error) == (False, True)
    assert text_of_result(unknown) == "Tool submit_plan not found"


@pytest.mark.parametrize(
    ("answer", "is_error", "expected"),
    [("Change", False, "changed"), ("Refuse", True, "refused"), (None, True, ""), ("Sure!", True, "refused")],
)
async def test_anything_else_leaves_the_mode_in_force(
    tree: AgentTree, answer: str | None, is_error: bool, expected: str
) -> None:
    tree.says("ROOT", PLAN, call("write", path="x", content="x"), "Done.")
    async with tree.start(approval_mode="plan", on_dialog=answering(answer, [])) as agent:
        [end] = results_of(await events_of(agent, "ROOT"), "submit_plan")
        assert (await agent.get_permissions()).approval_mode == "plan"
    assert end.is_error == is_error
    assert expected in text_of_result(end)
    assert not (tree.work / "x").exists()


async def test_the_mode_before_returns(tree: AgentTree) -> None:
    tree.says("ROOT", PLAN, "Done.")
    async with tree.start(approval_mode="write", on_dialog=answering("Accept", [])) as agent:
        await agent.set_approval_mode("plan")
        await agent.run("ROOT")
        assert (await agent.get_permissions()).approval_mode == "write"


async def test_an_unattended_agent_cannot_have_a_plan_accepted(tree: AgentTree) -> None:
    tree.says("ROOT", PLAN, "Done.")
    async with tree.start(approval_mode="plan", unattended=True) as agent:
        [end] = results_of(await events_of(agent, "ROOT"), "submit_plan")
    assert end.is_error
    assert "not accepted" in text_of_result(end)


async def test_the_mode_may_begin_during_a_run(tree: AgentTree) -> None:
    tree.says("ROOT", call("read", path="a.txt"), PLAN, "Done.")
    async with tree.start(permissions={"ask": ["bash"]}, on_dialog=answering("Accept", [])) as agent:
        ends: list[Any] = []
        async for event in agent.prompt("ROOT"):
            if isinstance(event, pigeon.ToolExecutionStart) and event.tool_name == "read":
                await agent.set_approval_mode("plan")
            if isinstance(event, pigeon.ToolExecutionEnd):
                ends.append(event)
    assert [(end.tool_name, end.is_error) for end in ends] == [("read", False), ("submit_plan", False)]
