from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tool_run import tool_parts, workplace
from pigeon.agent.interfaces import Tool
from pigeon.system.process.start import ProcessOwner
from pigeon.tools.catalog import (
    DEFAULT_TOOLS,
    all_facts,
    built_in_tools,
    facts_of,
    facts_of_recorded,
    list_plan_tool_names,
)


def test_the_built_in_tools_are_these(tmp_path: Path) -> None:
    tools = built_in_tools(tool_parts(workplace(tmp_path, ProcessOwner())))
    assert list(tools) == ["read", "bash", "edit", "write", "grep", "find", "ls", "jobs"]
    assert DEFAULT_TOOLS == ("read", "bash", "edit", "write")
    assert [name for name, tool in tools.items() if tool.reads_only] == ["read", "grep", "find", "ls"]


def test_each_describes_itself(tmp_path: Path) -> None:
    for name, tool in built_in_tools(tool_parts(workplace(tmp_path, ProcessOwner()))).items():
        checked: Tool = tool
        assert checked.spec.name == name == tool.name
        assert tool.description
        assert tool.snippet
        assert set(tool.parameters.get("required", [])) <= set(tool.parameters["properties"])


def test_each_declares_what_its_calls_are() -> None:
    assert {name: facts.kind for name, facts in all_facts().items()} == {
        "read": "read", "bash": "execute", "edit": "edit", "write": "edit", "grep": "search", "find": "search",
        "ls": "search", "todo": "plan", "task": "agent", "jobs": "other", "tool_search": "search",
    }  # fmt: skip
    assert {name: facts.subject for name, facts in all_facts().items() if facts.subject} == {
        "bash": "command", **dict.fromkeys(("read", "edit", "write", "grep", "find", "ls"), "path"),
    }  # fmt: skip
    assert list_plan_tool_names() == ("todo", "todo_write", "todowrite")


@pytest.mark.parametrize(
    ("name", "arguments", "title"),
    [
        ("bash", {"command": "make test"}, "make test"),
        ("bash", {}, "bash"),
        ("read", {"path": "a"}, "Read a"),
        ("read", {"path": "a", "offset": 5}, "Read a (from 5)"),
        ("read", {"path": "a", "limit": 10}, "Read a (1-10)"),
        ("read", {"path": "a", "offset": 5, "limit": 10}, "Read a (5-14)"),
        ("read", {"path": "a", "offset": float("inf"), "limit": "x"}, "Read a"),
        ("write", {"path": "a", "content": ""}, "Write a"),
        ("edit", {"path": "a"}, "Edit a"),
        ("ls", {}, "List ."),
        ("grep", {"pattern": "x", "path": "src"}, "Search for x in src"),
        ("find", {"pattern": "*.py"}, "Find *.py"),
        ("todo", {"ops": []}, "Update the plan"),
        ("task", {"prompt": "Look at\nthe tests", "title": ""}, "Look at the tests"),
        ("task", {"prompt": "p", "title": "look"}, "look"),
        ("task", {"prompt": 5}, "5"),
        ("jobs", {"action": "read", "id": "job-1"}, "read job-1"),
        ("tool_search", {"query": "mail"}, "Search for tools: mail"),
        ("mcp__github__get_issue", {}, "get_issue (github)"),
        ("mcp__odd", {}, "mcp__odd"),
        ("deploy", {"path": "a"}, "deploy"),
    ],
)
def test_a_call_has_a_title(name: str, arguments: dict[str, Any], title: str) -> None:
    assert facts_of(name).title(arguments) == title


@given(
    st.dictionaries(
        st.sampled_from(["path", "command", "offset", "limit", "pattern", "query", "ops"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    )
)
def test_facts_of_a_call_never_fail_whatever_its_arguments_are(arguments: dict[str, Any]) -> None:
    for facts in all_facts().values():
        assert isinstance(facts.title(arguments), str)
        facts.find_path(arguments)
        facts.find_line(arguments)
        facts.find_changed_file(arguments)


def test_a_recorded_call_is_known_under_the_names_of_other_agents() -> None:
    assert [facts_of_recorded(name).kind for name in ("Bash", "shell", "MultiEdit", "Glob", "TodoWrite")] == [
        "execute", "execute", "edit", "search", "plan",
    ]  # fmt: skip
    assert [facts_of(name).kind for name in ("Bash", "shell", "multiedit", "deploy")] == ["other"] * 4
    assert facts_of_recorded("deploy").kind == "other"
