"""Types of agents: files in the format that others use, types of the program, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.subagents.definitions import (
    agent_folders,
    check_programs_types,
    check_types,
    combine_types,
    read_agent_types,
)
from pigeon.tools.catalog import built_in_names
from pigeon.wire.agents import AgentType
from support.agent_trees import AgentTree, calls, events_of, results_of, task, text_of_result

REVIEWER = """---
name: reviewer
description: Reviews a change
tools: Read, Grep, Bash
model: {model}
thinking: high
limits: {{turns: 5, cost: 0.5}}
permissions:
  deny: [bash(rm *)]
color: blue
---
You review code.
"""


class Reports(list[str]):
    """What was reported."""


def read(folder: Path, reports: list[str]) -> list[AgentType]:
    return read_agent_types([(str(folder), "user")], reports.append)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.md"
    path.write_text(text)
    return path


def test_a_file_of_another_program_is_understood(tmp_path: Path) -> None:
    reports: list[str] = []
    path = write(tmp_path, "any", REVIEWER.format(model="inherit"))
    [known] = read(tmp_path, reports)
    assert reports == []
    assert (known.name, known.description, known.prompt) == ("reviewer", "Reviews a change", "You review code.")
    assert known.tools == ["read", "grep", "bash"]
    assert known.model is None
    assert known.thinking == "high"
    assert (known.limits.turns, known.limits.cost) == (5, 0.5)
    assert known.permissions == {"deny": ["bash(rm *)"]}
    assert (known.source, known.path) == ("user", str(path))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("name: x", "description is missing"),
        ("description: d\nthinking: much", 'thinking is "much"'),
        ("description: d\nlimits: {turns: many}", "limits.turns"),
        ("description: d\nlimits: {turnz: 5}", "limits.turnz"),
        ("description: d\nlimits: 5", "limits"),
        ("description: d\ntools: {a: b}", "tools must be a list"),
        ("description: d\npermissions: {deny: ['((']}", "(("),
        ("description: d\npermissions: deny", "permissions"),
        ("description: [", "YAML"),
    ],
)
def test_a_mistake_is_reported_with_its_file_and_the_rest_counts(tmp_path: Path, head: str, expected: str) -> None:
    reports: list[str] = []
    wrong = write(tmp_path, "wrong", f"---\n{head}\n---\nText")
    write(tmp_path, "right", "---\ndescription: fine\n---\nText")
    assert [known.name for known in read(tmp_path, reports)] == ["right"]
    assert len(reports) == 1
    assert str(wrong) in reports[0]
    assert expected in reports[0]


def test_rules_that_allow_are_ignored_and_reported(tmp_path: Path) -> None:
    reports: list[str] = []
    write(tmp_path, "a", "---\ndescription: d\npermissions: {allow: [bash], ask: write}\n---\n")
    [known] = read(tmp_path, reports)
    assert known.permissions == {"ask": ["write"]}
    assert "permissions.allow is ignored" in reports[0]


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("---\ndescription: d\n---\nA secret")
    project = tmp_path / "project"
    folder = project / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "leak.md").symlink_to(secret)
    reports: list[str] = []
    assert read_agent_types(agent_folders("/none", str(project), trusted=True), reports.append) == []
    assert "leads out of" in reports[0]


def test_an_untrusted_project_has_no_agents(tmp_path: Path) -> None:
    assert [source for _, source in agent_folders("/agent", str(tmp_path), trusted=False)] == ["user"]
    trusted = [folder for folder, source in agent_folders("/agent", "/p", trusted=True) if source == "project"]
    assert trusted == ["/p/.pigeon/agents", "/p/.claude/agents", "/p/.omp/agents", "/p/.pi/agents"]


def check(*types: AgentType) -> tuple[list[str], list[str]]:
    reports: list[str] = []
    usable = check_types(types, built_in_names(), lambda tool: tool.startswith("mcp__"), _find_model, reports.append)
    return [known.name for known in usable], reports


def _find_model(name: str) -> Any:
    return None if name == "gone/model" else object()


def kind(name: str, **more: Any) -> AgentType:
    return AgentType(name=name, description="d", path=f"/agents/{name}.md", **more)


def test_agents_that_start_each_other_in_a_circle_are_left_out() -> None:
    usable, reports = check(kind("a", spawns=["b"]), kind("b", spawns=["c"]), kind("c", spawns=["a"]), kind("d"))
    assert usable == ["d"]
    assert len(reports) == 3
    assert all("spawns" in report and "/agents/" in report for report in reports)


def test_missing_tools_models_and_agents_are_reported_by_field_and_value() -> None:
    usable, reports = check(
        kind("some", tools=["read", "paint"]),
        kind("none", tools=["paint"]),
        kind("model", model="gone/model"),
        kind("spawning", spawns=["nobody", "some"]),
        kind("server", tools=["mcp__x__y"]),
    )
    assert usable == ["some", "spawning", "server"]
    assert ['"paint"' in reports[0], "/agents/some.md" in reports[0]] == [True, True]
    assert any("none of its tools exists" in report for report in reports)
    assert any('model names "gone/model"' in report for report in reports)
    assert any('spawns names "nobody"' in report for report in reports)


def test_types_of_the_program_come_before_those_of_files_and_these_before_the_bundled_ones() -> None:
    mine = AgentType(name="explore", description="mine")
    found = {known.name: known.description for known in combine_types([mine], [kind("general"), kind("explore")])}
    assert (found["explore"], found["general"]) == ("mine", "d")


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    return AgentTree(tmp_path)


async def test_a_defined_agent_has_its_prompt_and_tools(tree: AgentTree) -> None:
    tree.define("poet", "---\ndescription: Writes verses\ntools: Read\n---\nYou rhyme in every line.")
    tree.says("ROOT", calls(task("CHILD", agent="poet")), "Done.")
    tree.made.script()
    script = {"default": "no verses"}
    tree._rules.append({"when": {"user": "CHILD", "system": "You rhyme in every line."}, "reply": "A verse."})
    async with tree.start(script=script) as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    assert text_of_result(end).startswith("A verse.")


async def test_mistakes_are_shown_at_the_start(tree: AgentTree) -> None:
    path = tree.define("wrong", "---\nthinking: much\ndescription: d\n---\n")
    async with tree.start() as agent:
        assert any(str(path) in warning and "thinking" in warning for warning in agent.warnings)


async def test_a_conversation_that_starts_no_agents_reads_no_definitions(tree: AgentTree) -> None:
    tree.define("wrong", "---\nthinking: much\n---\n")
    async with tree.start(tools=("read",)) as agent:
        assert agent.warnings == []


async def test_the_model_is_shown_all_types(tree: AgentTree) -> None:
    tree.define("poet", "---\ndescription: Writes verses\n---\nRhyme.")
    async with tree.start(agents=[pigeon.AgentType(name="own", description="Of the program")]) as agent:
        events = await events_of(agent, "hello")
    messages = [event.message for event in events if isinstance(event, pigeon.MessageEnd)]
    added = [tool for message in messages if isinstance(message, pigeon.SystemMessage) for tool in message.tools_added]
    [declared] = [tool for tool in added if tool.name == "task"]
    for line in ("own: Of the program", "poet: Writes verses", "general: ", "explore: "):
        assert f"- {line}" in declared.description


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": ""}, 'name must be a text, and is ""'),
        ({"name": 3}, "name must be a text, and is 3"),
        ({"description": ""}, "description is missing"),
        ({"thinking": "huge"}, 'thinking is "huge"'),
        ({"permissions": {"deny": ["bash(("]}}, 'permissions is {"deny":["bash(("]}'),
        ({"limits": {"turns": 0}}, 'limits is {"turns":0}'),
        ({"tools": {"a": 1}}, 'tools must be a list of names, or names with commas, and is {"a":1}'),
        ({"model": ["a"]}, 'model must be a text, and is ["a"]'),
    ],
)
def test_a_mistake_in_a_type_of_the_program_is_reported(fields: dict[str, Any], expected: str) -> None:
    reports: list[str] = []
    fine = pigeon.AgentType(name="fine", description="d", tools=["Read", "Grep"])
    known = check_programs_types(
        [pigeon.AgentType(**{"name": "x", "description": "d", **fields}), fine], reports.append
    )
    assert [one.name for one in known] == ["fine"]
    assert known[0].tools == ["read", "grep"]
    assert len(reports) == 1
    assert expected in reports[0]
