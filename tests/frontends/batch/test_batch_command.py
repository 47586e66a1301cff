"""`pigeon batch` as it is called: one batch with tasks of all kinds, then ways in which a call is wrong."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from pigeon.frontends.batch.records import TaskSpec, hash_of
from support.agent_folders import AgentFolders, providers
from support.agent_process import ProgramResult, run_pigeon
from support.batch import commit, make_repository, results_in, shell, write_script, write_tasks

SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
USAGE = {"input": 1_000_000, "output": 0}


class Ran:
    """A batch that has run: how the call ended, its folder, and its results."""

    def __init__(self, root: Path) -> None:
        self.folders = AgentFolders(root)
        self.folders.configure()
        work = self.folders.work
        self.source = work / "source"
        self.source.mkdir()
        (self.source / "a.txt").write_text("one\n")
        self.commit = make_repository(work / "repo", {"code.py": "x = 1\n"})
        self.marker = root / "left-behind"
        write_tasks(work / "tasks.jsonl", self._tasks(work))
        self.out = work / "out"
        self.ended = run_pigeon(
            self.folders, "batch", "tasks.jsonl", "--out", "out", "--concurrency", "3", "--title", "All kinds"
        )
        self.results = results_in(self.out)

    def _tasks(self, work: Path) -> list[dict[str, Any]]:
        folder, repo = {"folder": "source"}, {"git": "repo", "revision": "main"}
        edit = write_script(
            work / "edit.json", shell("echo two >> a.txt", usage=USAGE), {"text": "Done. ☃", "usage": USAGE}
        )
        patch = write_script(work / "patch.json", shell("echo 'y = 2' >> code.py; echo n > new.py"), "Patched.")
        loop = write_script(work / "loop.json", default=shell("true"))
        answer = write_script(
            work / "answer.json", {"toolCalls": [{"name": "final_answer", "arguments": {"title": "Up"}}]}
        )
        down = write_script(work / "down.json", {"error": {"message": "the server is on fire"}})
        say = write_script(work / "say.json", default="Said.")
        break_git = write_script(work / "break.json", shell("rm -rf .git; echo '[core' > .git"), "Broken.")
        stay = f"setsid sh -c 'sleep 300; touch {self.marker}' & echo started; exit 3"
        return [
            {
                "id": "edit",
                "prompt": "edit",
                "model": edit,
                "workspace": folder,
                "check": "grep two a.txt",
                "group": "g",
            },
            {"id": "patch", "prompt": "patch", "model": patch, "workspace": repo},
            {"id": "value", "prompt": "value", "model": answer, "output": SCHEMA},
            {"id": "unchecked", "prompt": "x" * 300_000, "model": say},
            {"id": "fails", "prompt": "ünï 😀", "model": say, "check": "echo no; exit 7"},
            {"id": "hangs", "prompt": "h", "model": say, "check": {"command": "sleep 300", "seconds": 0.3}},
            {"id": "leaves", "prompt": "l", "model": say, "check": stay},
            {"id": "limit", "prompt": "loop", "model": loop, "limits": {"turns": 2}},
            {"id": "fire", "prompt": "f", "model": down},
            {"id": "breaks", "prompt": "b", "model": break_git, "workspace": repo},
            {"prompt": "twice", "model": say},
            {"prompt": "twice", "model": say},
        ]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("batch"))


def test_every_task_has_the_status_that_it_earned(ran: Ran) -> None:
    statuses = {id: (one["status"], one["ended"]) for id, one in ran.results.items()}
    twice = [id for id in statuses if "-" in id or len(id) == 12]
    assert len(twice) == 2, "the same task twice is run twice"
    assert {id: status for id, status in statuses.items() if id not in twice} == {
        "edit": ("done", "done"),
        "patch": ("done", "done"),
        "value": ("done", "done"),
        "unchecked": ("done", "done"),
        "fails": ("failed", "done"),
        "hangs": ("failed", "done"),
        "leaves": ("failed", "done"),
        "limit": ("limit", "limit"),
        "breaks": ("done", "done"),
        "fire": ("error", "error"),
    }
    assert ran.ended.code == 1


def test_a_line_of_results_has_every_member(ran: Ran) -> None:
    for one in ran.results.values():
        assert {"id", "status", "ended", "check", "usage", "output", "session"} <= one.keys()
    assert ran.results["value"]["output"] == {"title": "Up"}
    assert ran.results["edit"]["text"] == "Done. ☃"
    assert ran.results["edit"]["usage"]["cost"]["total"] == pytest.approx(2.0)
    assert ran.results["edit"]["tools"] == {"bash": 1}
    assert ran.results["edit"]["group"] == "g"
    assert ran.results["fails"]["check"] | {"seconds": 0} == {
        "passed": False, "exitCode": 7, "timedOut": False, "output": "no\n", "seconds": 0,
    }  # fmt: skip
    assert ran.results["hangs"]["check"]["timedOut"] is True
    assert "on fire" in ran.results["fire"]["error"]


def test_a_task_has_a_folder_by_the_hash_of_its_spec_with_all_that_came_of_it(ran: Ran) -> None:
    folders = {one.name for one in ran.out.iterdir() if one.is_dir()}
    assert folders == {one["folder"] for one in ran.results.values()}
    edit = ran.out / ran.results["edit"]["folder"]
    spec = json.loads((edit / "task.json").read_text())
    assert edit.name == hash_of(TaskSpec(**{**spec, **_records(spec)}))
    assert (edit / "workspace" / "a.txt").read_text() == "one\ntwo\n"
    assert (ran.source / "a.txt").read_text() == "one\n"
    assert "Done. ☃" in (edit / "session.html").read_text()
    assert (ran.out / ran.results["edit"]["session"]).is_file()


def _records(spec: dict[str, Any]) -> dict[str, Any]:
    from pigeon.frontends.batch.records import Check, Workspace

    return {"workspace": Workspace(**spec["workspace"]), "check": Check(**spec["check"])}


def test_changes_of_a_repository_are_kept_as_a_patch(ran: Ran) -> None:
    result = ran.results["patch"]
    patch = (ran.out / result["folder"] / "changes.patch").read_text()
    assert result["commit"] == ran.commit
    assert "+y = 2" in patch
    assert "new.py" in patch


def test_nothing_that_a_check_starts_outlives_its_task(ran: Ran) -> None:
    running = [Path("/proc", pid, "cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    commands = []
    for one in running:
        try:
            commands.append(one.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    assert not [command for command in commands if str(ran.marker) in command]


def test_what_went_wrong_is_grouped_by_its_reason_and_the_way_on_is_said(ran: Ran) -> None:
    assert "12 tasks: 7 done, 3 failed, 1 limit, 1 error." in ran.ended.out
    assert "1 task: failed: The check exited with code 7" in ran.ended.out
    assert "pigeon batch --retry-failed out" in ran.ended.out
    assert "fails: The check exited with code 7" in ran.ended.err


def test_the_report_and_its_tables_are_written(ran: Ran) -> None:
    with (ran.out / "results.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert rows.keys() == ran.results.keys()
    assert (rows["fails"]["status"], rows["fails"]["check_passed"]) == ("failed", "false")
    assert "All kinds" in (ran.out / "report.html").read_text()


def test_a_second_call_must_say_that_it_goes_on(ran: Ran) -> None:
    ended = run_pigeon(ran.folders, "batch", "tasks.jsonl", "--out", "out")
    assert ended.code == 2
    assert "pigeon batch --resume" in ended.err


def test_a_resumed_batch_runs_what_is_new_and_reports_what_is_gone(ran: Ran) -> None:
    before = (ran.out / "results.jsonl").read_text()
    commit(ran.folders.work / "repo", {"code.py": "x = 'the branch has moved'\n"})
    say = f"scripted/{ran.folders.work}/say.json"
    lines = (ran.folders.work / "tasks.jsonl").read_text().splitlines()
    lines = [line for line in lines if '"fire"' not in line]
    changed = ran.folders.work / "changed.jsonl"
    changed.write_text("\n".join([*lines, json.dumps({"id": "new", "prompt": "n", "model": say})]) + "\n")
    ended = run_pigeon(ran.folders, "batch", "changed.jsonl", "--out", "out", "--resume", "--no-report")
    assert "Unchanged: 11 tasks. New: 1. Removed from the file: 1." in ended.err
    specs = [json.loads(line) for line in (ran.out / "tasks.jsonl").read_text().splitlines()]
    assert [one["commit"] for one in specs if one["id"] == "patch"] == [ran.commit]
    found = results_in(ran.out)
    assert "fire" not in found
    assert found["new"]["status"] == "done"
    kept = [line for line in before.splitlines() if '"id":"fire"' not in line]
    assert (ran.out / "results.jsonl").read_text().splitlines()[:11] == kept, "nothing was run again"


def test_a_folder_of_another_batch_is_refused(ran: Ran) -> None:
    other = write_tasks(ran.folders.work / "other.jsonl", [{"prompt": "other", "model": "demo"}])
    ended = run_pigeon(ran.folders, "batch", other, "--out", "out", "--resume")
    assert ended.code == 2
    assert "has another batch" in ended.err


BAD = [
    {"prompt": "x", "workspace": {"folder": "missing"}},
    {"prompt": "x", "workspace": {"folder": "tasks.jsonl"}},
    {"prompt": "x", "workspace": {"git": "missing"}},
    {"prompt": "x", "workspace": {"git": "repo", "revision": "v9"}},
    {"prompt": "x", "workspace": {"git": "http://127.0.0.1:1/offline.git"}},
    {"prompt": "x", "output": {"type": "nonsense"}},
    {"prompt": "x", "model": "no-such-model"},
    {"prompt": "x", "model": "scripted/missing.json"},
    {"prompt": "x", "model": "anthropic/claude-sonnet-4-5"},
    {"prompt": "x", "unknown": 1},
]


def test_all_bad_tasks_are_reported_before_anything_starts(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    make_repository(folders.work / "repo", {"a": "1"})
    commit(folders.work / "repo", {"a": "2"})
    write_tasks(
        folders.work / "tasks.jsonl", [{"prompt": "fine", "model": "demo"}, *({"model": "demo"} | one for one in BAD)]
    )
    ended = run_pigeon(folders, "batch", "tasks.jsonl", "--out", "out")
    assert ended.code == 2
    assert [line.partition(":")[0] for line in ended.err.splitlines()[1:]] == [f"line {n}" for n in range(2, 12)]
    for word in (
        "missing",
        "not a folder",
        'no revision "v9"',
        "offline.git cannot be read",
        "output",
        "no-such-model",
        "missing.json",
        "API key",
        "unknown",
    ):
        assert word in ended.err
    assert not (folders.work / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tasks.jsonl"], "needs --out"),
        (["--out", "o"], "needs TASKS"),
        (["missing.jsonl", "--out", "o"], "No such file"),
        (["empty.jsonl", "--out", "o"], "no task"),
        (["--resume", "o"], "no batch"),
        (["--resume", "o", "--check", "true"], "--check cannot be changed"),
        (["--retry-failed", "o", "--", "--max-turns", "3"], "An option of agents cannot be changed"),
        (["tasks.jsonl", "--out", "full"], "is not empty"),
        (["tasks.jsonl", "--out", "o", "--engine", "slurm"], "must be one of local, ray"),
        (["tasks.jsonl", "--out", "o", "--concurrency", "0"], "at least 1"),
        (["tasks.jsonl", "--out", "o", "--max-cost", "much"], "greater than 0"),
        (["tasks.jsonl", "--out", "o", "--", "--session", "x"], "to a single conversation"),
        (["tasks.jsonl", "--out", "o", "--revision", "x"], "needs --git"),
        (["--compare", "full"], "--compare DIR1 DIR2"),
        (["--report", "full"], "no batch"),
        (["tasks.jsonl", "--out", "/proc/nothing"], "/proc/nothing"),
    ],
)
def test_a_call_that_cannot_be_followed_says_why(wrong_calls: AgentFolders, arguments: list[str], reason: str) -> None:
    ended = run_pigeon(wrong_calls, "batch", *arguments)
    assert ended.code in (1, 2)
    assert reason in ended.err
    assert not (wrong_calls.work / "o").exists()


@pytest.fixture(scope="module")
def wrong_calls(tmp_path_factory: pytest.TempPathFactory) -> AgentFolders:
    folders = AgentFolders(tmp_path_factory.mktemp("wrong"))
    folders.configure()
    write_tasks(folders.work / "tasks.jsonl", [{"prompt": "x", "model": "demo"}])
    (folders.work / "empty.jsonl").write_text("\n\n")
    (folders.work / "full").mkdir()
    (folders.work / "full" / "mine.txt").write_text("mine")
    return folders


def test_rows_of_a_table_from_stdin_with_a_template_and_options_of_agents(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    model = write_script(folders.work / "say.json", default="${user}")
    arguments = ("-", "--format", "csv", "--out", "o", "--prompt", "Upgrade {package}!", "--model", model)
    ended = run_pigeon(
        folders, "batch", *arguments, "--keep", "none", "--no-report", "--", "--no-tools", given="package\na\nb\n"
    )
    assert ended.code == 0, ended
    assert sorted(one["text"] for one in results_in(folders.work / "o").values()) == ["Upgrade a!", "Upgrade b!"]
    assert not list((folders.work / "o").glob("*/workspace"))
    assert isinstance(ended, ProgramResult)


@pytest.mark.skipif(sys.platform != "linux", reason="the walls of Linux")
def test_tasks_have_a_sandbox_even_if_the_batch_is_started_where_none_could_be(tmp_path: Path) -> None:
    """In the home folder commands may not write, but no task works there."""
    folders = AgentFolders(tmp_path)
    folders.configure()
    model = write_script(folders.work / "try.json", shell("touch inside $HOME/outside"), "Tried.")
    write_tasks(folders.work / "tasks.jsonl", [{"prompt": "x", "model": model, "check": "test -e inside"}])
    arguments = ("batch", "tasks.jsonl", "--out", "o", "--no-report", "--", "--sandbox", "workspace")
    ended = run_pigeon(folders, *arguments, env={"HOME": str(folders.work)})
    assert ended.code == 0, ended
    assert not (folders.work / "outside").exists()


def test_refusals_for_want_of_capacity_are_waited_out_by_all_tasks_and_cost_none_of_them_an_attempt(
    tmp_path: Path,
) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(models=providers(server.url), settings={"retry": {"enabled": False}})
        for _ in range(3):
            server.fails(429, "slow down", "rate_limit_error", {"retry-after-ms": "150"})
        for _ in range(3):
            server.answers("Hello.")
        write_tasks(folders.work / "tasks.jsonl", [{"id": f"t{number}", "prompt": "Hi"} for number in range(3)])
        rates = ("--requests-per-minute", "6000", "--requests-per-minute", "other=1", "--tokens-per-minute", "fake=1e9")
        words = ("batch", "tasks.jsonl", "--out", "out", "--no-report", "--model", "fake/fake-1")
        ended = run_pigeon(folders, *words, *rates)
        assert ended.code == 0, ended.stderr
        assert server.count_unused_answers() == 0
    record = json.loads((folders.work / "out" / "batch.json").read_text())
    assert record["rates"] == {
        "*": {"requests": 6000.0, "tokens": None},
        "other": {"requests": 1.0, "tokens": None},
        "fake": {"requests": None, "tokens": 1e9},
    }
