"""Tasks whose model starts agents: they are counted, what they cost is the task's, and their conversations are kept."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import run_pigeon
from support.agent_trees import calls, task
from support.batch import results_in, write_script, write_tasks

COSTLY = {"text": "It is found: plum.", "usage": {"input": 1_000_000, "output": 0}}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folders = AgentFolders(tmp_path_factory.mktemp("agents-of-tasks"))
    folders.configure()
    started = calls(task("CHILD one"), task("CHILD two"))
    rules = [
        {"when": {"user": "CHILD"}, "reply": COSTLY},
        {"when": {"toolResult": "plum"}, "reply": "Done."},
        {"when": {"user": "start"}, "reply": started},
    ]
    model = write_script(folders.work / "script.json", rules=rules, default="Alone.")
    tasks = [{"id": "tree", "prompt": "start", "model": model}, {"id": "alone", "prompt": "no", "model": model}]
    write_tasks(folders.work / "tasks.jsonl", tasks)
    ended = run_pigeon(folders, "batch", "tasks.jsonl", "--out", "out", "--", "--tools", "+task")
    assert ended.code == 0, ended.err
    return folders.work / "out"


def test_results_count_the_agents_and_what_they_used(out: Path) -> None:
    results = results_in(out)
    assert {id: one.get("agents", 0) for id, one in results.items()} == {"tree": 2, "alone": 0}
    assert results["tree"]["usage"]["cost"]["total"] == pytest.approx(2, abs=0.05)
    assert results["tree"]["tools"] == {"task": 2}


def test_the_report_has_them(out: Path) -> None:
    with (out / "results.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert (rows["tree"]["agents"], rows["alone"]["agents"]) == ("2", "0")
    assert "agents started" in (out / "report.html").read_text()


def test_the_conversations_of_agents_are_kept_with_that_of_the_task(out: Path) -> None:
    folder = out / results_in(out)["tree"]["folder"]
    assert len(list(folder.glob("session-agents/*.jsonl"))) == 2
    assert (folder / "session.html").read_text().count("It is found: plum.") >= 4
