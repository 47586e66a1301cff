"""What the page about agents shows is so: its definitions, its program, the example of the account, and the recipe."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.subagents.definitions import read_agent_types
from support.agent_trees import AgentTree, calls, events_of, results_of, task, text_of_result
from support.doc_programs import ProgramFolder, programs_of
from support.sdk_agents import call
from support.source_tree import ROOT

PAGE = ROOT / "docs" / "agents.md"
TEXT = PAGE.read_text("utf-8")
BLOCKS = [re.sub(r"^ {4}", "", found, flags=re.MULTILINE) for found in re.findall(r"(?: {4}.*\n)+", TEXT)]
DEFINITIONS = [block for block in BLOCKS if block.startswith("---")]
CALLS = re.findall(r"^\| `(bash|jobs)` \| `(\{.+\})` \|", TEXT, re.MULTILINE)
END_TO_END = (
    "until python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:{}\")'; do :; done; echo tested"
)


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    return AgentTree(tmp_path)


def test_the_definitions_of_the_page_are_understood(tmp_path: Path) -> None:
    reports: list[str] = []
    for number, text in enumerate(DEFINITIONS):
        (tmp_path / f"{number}.md").write_text(text)
    reviewer, runner = read_agent_types([(str(tmp_path), "user")], reports.append)
    assert reports == []
    assert (reviewer.name, reviewer.tools) == ("reviewer", ["read", "grep", "find", "bash"])
    assert (reviewer.limits.turns, reviewer.limits.cost, reviewer.spawns) == (20, 0.5, ["explore"])
    assert reviewer.permissions == {"deny": ["bash(git push *)"]}
    assert (runner.name, runner.tools, runner.model) == ("test-runner", ["read", "grep", "bash"], None)


def test_the_program_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = programs_of(PAGE)
    ProgramFolder(tmp_path, monkeypatch).run(program)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "AgentStart"
    assert printed[-1].split()[1] == "done"


async def test_the_account_is_as_in_the_example(tree: AgentTree) -> None:
    asked: list[str] = []

    def on_permission(request: pigeon.PermissionRequest) -> str:
        asked.append(request.text)
        return "always"

    (tree.work / "Makefile").write_text("test:\n\t@echo tested\n")
    work = [call("ls") for _ in range(3)]
    tree.says("ROOT", calls(*(task(f"PART{number}") for number in range(3))), "Done.")
    for number in range(3):
        tree.says(f"PART{number}", *work, call("bash", command="make test"), "It passes.")
    limits = pigeon.Limits(turns=20)
    async with tree.start(limits=limits, approval_mode="write", on_permission=on_permission) as agent:
        used = []
        async for event in agent.prompt("ROOT"):
            if isinstance(event, pigeon.ToolExecutionEnd) and event.tool_name == "task":
                used.append((await agent.get_limits()).used.turns)
        stats, total = await agent.get_session_stats(), (await agent.get_limits()).used
    assert used[-1] == 16
    assert stats.tokens.total == total.tokens
    assert asked[0].startswith("Allow bash (general): make test")
    assert "Allow bash (general): make test" in TEXT


async def test_the_server_of_the_recipe_is_there_while_the_tests_run(tree: AgentTree) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tree.work / "end-to-end.sh").write_text(END_TO_END.format(port))
    given: list[Any] = [call(name, **json.loads(arguments.replace("8123", str(port)))) for name, arguments in CALLS]
    tree.says("ROOT", *given, "Done.")
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
        [job] = (await agent.get_jobs()).jobs
    started, tested = results_of(events, "bash")
    assert started.result.details["jobId"] == "job-1"
    assert "tested" in text_of_result(tested)
    assert [end.is_error for end in results_of(events, "jobs")] == [False, False]
    assert (job.job_id, job.status) == ("job-1", "stopped")
