"""Exports contain the conversations of agents, and those of agents that they have started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pigeon.app.pages import export_session_page, export_trajectory
from support.agent_trees import AgentTree, calls, task
from support.sdk_agents import call
from support.sessions import environment_in


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    made = AgentTree(tmp_path)
    made.made.settings(agents={"maxDepth": 2})
    made.says("ROOT", calls(task("CHILD", title="look at <tests>")), "Done.")
    made.says("CHILD", call("bash", command="echo plum"), calls(task("GRANDSON")), "It says plum.")
    made.says("GRANDSON", {"thinking": "deep down", "text": "I think so."})
    return made


async def run_root(tree: AgentTree) -> str:
    async with tree.start() as agent:
        await agent.run("ROOT")
        return str((await agent.get_state()).session_file)


async def test_a_page_has_the_conversations_of_all_agents(tree: AgentTree) -> None:
    async with tree.start() as agent:
        await agent.run("ROOT")
        await agent.export_html(output_path=str(tree.work / "page.html"))
    page = (tree.work / "page.html").read_text()
    talk, _, agents = page.partition("<h2>Agents</h2>\n<details")
    assert "echo plum" not in talk
    assert "echo plum" in agents
    assert "general: look at &lt;tests&gt;" in agents
    assert agents.index("It says plum.") < agents.index("deep down")
    anchors = [part.partition('"')[0] for part in page.split(' id="m')[1:]]
    assert len(anchors) == len(set(anchors))


async def test_a_page_of_a_file_has_them_too(tree: AgentTree, tmp_path: Path) -> None:
    file = await run_root(tree)
    page = tmp_path / "of-file.html"
    export_session_page(environment_in(tmp_path), file, str(page))
    assert "deep down" in page.read_text()


def references_in(document: dict[str, Any]) -> list[str]:
    results = [one for step in document["steps"] for one in step.get("observation", {}).get("results", [])]
    return [ref["trajectory_id"] for one in results for ref in one.get("subagent_trajectory_ref", [])]


async def test_a_trajectory_has_those_of_its_agents_within_it(tree: AgentTree, tmp_path: Path) -> None:
    file = await run_root(tree)
    export_trajectory(environment_in(tmp_path), file, str(tmp_path / "out.json"))
    document = json.loads((tmp_path / "out.json").read_text())
    [child] = document["subagent_trajectories"]
    [grandson] = child["subagent_trajectories"]
    assert references_in(document) == [child["trajectory_id"]]
    assert references_in(child) == [grandson["trajectory_id"]]
    assert child["extra"]["agent"] == "general"
    assert grandson["steps"][-1]["reasoning_content"] == "deep down"
    of_all = document["final_metrics"]["total_prompt_tokens"]
    own = sum(step.get("metrics", {}).get("prompt_tokens", 0) for step in document["steps"])
    assert of_all == own + child["final_metrics"]["total_prompt_tokens"]
    assert child["final_metrics"]["total_prompt_tokens"] > grandson["final_metrics"]["total_prompt_tokens"]


async def test_an_agent_whose_session_is_gone_is_left_out(tree: AgentTree, tmp_path: Path) -> None:
    file = await run_root(tree)
    for session in Path(file).parent.rglob("*-agents/*.jsonl"):
        session.unlink()
    export_trajectory(environment_in(tmp_path), file, str(tmp_path / "out.json"))
    document = json.loads((tmp_path / "out.json").read_text())
    assert "subagent_trajectories" not in document
    assert references_in(document) == []
