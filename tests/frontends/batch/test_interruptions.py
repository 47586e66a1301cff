"""Kills and signals of the real program: what was finished stays, nothing is left running, and the way on is said."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from pigeon.frontends.batch.engine import LocalLimits
from pigeon.frontends.batch.progress import LookupLines
from pigeon.frontends.batch.records import TaskSpec
from pigeon.frontends.batch.shared_limits import SharedLimits
from pigeon.frontends.batch.task_process import TaskProcesses
from pigeon.frontends.batch.task_run import TaskPlace
from support.agent_folders import AgentFolders
from support.agent_process import RunningProgram, run_pigeon
from support.batch import (
    filled_folder,
    put_finished,
    result_of,
    results_in,
    shell,
    write_script,
    write_tasks,
)
from support.processes import eventually, processes_with

SECONDS = 20.0


class Halfway:
    """A batch of which one task is done, and another hangs in a command with a mark."""

    def __init__(self, root: Path, mark: str) -> None:
        self.folders = AgentFolders(root)
        self.folders.configure()
        work = self.folders.work
        self.mark = mark
        self._gate = work / "gate"
        say = write_script(work / "say.json", default={"text": "Said.", "usage": {"input": 1_000_000, "output": 0}})
        wait = f"test -e {self._gate} || exec -a {mark} sleep 300"
        hang = write_script(work / "hang.json", shell(wait, usage={"input": 2_000_000, "output": 0}), "Came through.")
        models = {"quick": say, "hangs": hang, "later": say}
        write_tasks(work / "tasks.jsonl", [{"id": id, "prompt": id, "model": model} for id, model in models.items()])
        self.out = work / "out"
        self.calling = RunningProgram(
            self.folders, ("batch", "tasks.jsonl", "--out", "out", "--concurrency", "1", "--no-report")
        )
        assert eventually(lambda: bool(processes_with(mark)), SECONDS)

    @property
    def pid(self) -> int:
        """The driver."""
        return int(self.calling.process.pid)

    def go_on(self, *more: str) -> dict[str, str]:
        """Let the task through, resume, and give the statuses of all tasks."""
        self._gate.touch()
        before = (self.out / "results.jsonl").read_text().splitlines()[0]
        ended = run_pigeon(self.folders, "batch", "--resume", "out", "--no-report", *more)
        assert ended.code == 0, ended
        assert (self.out / "results.jsonl").read_text().splitlines()[0] == before, "the first task was not run again"
        return {id: one["status"] for id, one in results_in(self.out).items()}


DONE = {"quick": "done", "hangs": "done", "later": "done"}


def test_an_interrupt_ends_in_order_and_says_how_to_go_on(tmp_path: Path) -> None:
    batch = Halfway(tmp_path, f"batch-mark-signal-{os.getpid()}")
    os.kill(batch.pid, signal.SIGINT)
    ended = batch.calling.wait_for_end()
    assert ended.code == 130
    assert "Continue with: pigeon batch --resume out" in ended.out
    assert "2 not run" in ended.out
    assert eventually(lambda: not processes_with(batch.mark), SECONDS)
    assert not list(batch.out.glob(".part-*"))
    assert "2" in (batch.out / "unfinished.jsonl").read_text(), "what the second task has cost is on record"
    assert batch.go_on() == DONE


def _has_driver(pid: int, driver: int) -> bool:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        if pid == driver:
            return True
    return False


def test_a_driver_that_is_killed_leaves_nothing_running_and_loses_nothing(tmp_path: Path) -> None:
    batch = Halfway(tmp_path, f"batch-mark-driver-{os.getpid()}")
    os.kill(batch.pid, signal.SIGKILL)
    batch.calling.wait_for_end()
    assert eventually(lambda: not processes_with(batch.mark), SECONDS)
    assert list(batch.out.glob(".part-*"))
    assert batch.go_on("--max-cost", "100") == DONE
    assert not list(batch.out.glob(".part-*"))


def test_processes_that_are_killed_are_started_again(tmp_path: Path) -> None:
    batch = Halfway(tmp_path, f"batch-mark-again-{os.getpid()}")
    for which in (max, min):
        # The process of the task, and then the parent that all are forked from.
        before = frozenset(processes_with(batch.mark))
        running = [pid for pid in processes_with("pigeon.frontends.batch.batch_parent") if _has_driver(pid, batch.pid)]
        os.kill(which(running), signal.SIGKILL)
        assert eventually(lambda old=before: bool(set(processes_with(batch.mark)) - old), SECONDS), "begun anew"
    os.kill(batch.pid, signal.SIGTERM)
    assert batch.calling.wait_for_end().code == 143
    assert batch.go_on() == DONE


def test_money_that_is_spent_ends_the_batch_and_more_of_it_goes_on(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    model = write_script(folders.work / "m.json", default={"text": "x", "usage": {"input": 1_000_000, "output": 0}})
    write_tasks(folders.work / "tasks.jsonl", [{"id": f"t{n}", "prompt": str(n), "model": model} for n in range(5)])
    ended = run_pigeon(
        folders, "batch", "tasks.jsonl", "--out", "o", "--max-cost", "2.5", "--concurrency", "1", "--no-report"
    )
    assert ended.code == 3
    assert "--resume o --max-cost MORE" in ended.out
    assert len(results_in(folders.work / "o")) == 2
    assert run_pigeon(folders, "batch", "--resume", "o", "--max-cost", "9", "--no-report").code == 0
    assert len(results_in(folders.work / "o")) == 5


def test_an_attempt_whose_folder_was_taken_away_makes_no_result(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    away = 'part=$(dirname "$PWD"); test -e ../../went || { touch ../../went; mv "$part" "$part.gone"; mkdir "$part"; }'
    model = write_script(folders.work / "m.json", shell(away), "Done.")
    write_tasks(folders.work / "tasks.jsonl", [{"id": "t", "prompt": "x", "model": model, "check": "true"}])
    ended = run_pigeon(folders, "batch", "tasks.jsonl", "--out", "o", "--no-report")
    assert (folders.work / "o" / "went").exists()
    assert ended.code == 0, "the second attempt is whole"
    assert results_in(folders.work / "o")["t"]["turns"] == 2


def place_in(folders: AgentFolders) -> TaskPlace:
    """Where tasks of these folders are done."""
    return TaskPlace(
        batch="b",
        out=str(folders.work),
        part="",
        cache=str(folders.temp / "cache"),
        agent_dir=str(folders.agent),
        cwd=str(folders.work),
        variables=folders.environment(),
    )


async def never() -> None:
    raise AssertionError("there is no limit to what may be spent")


async def test_a_task_that_has_its_result_is_not_begun_again_when_the_word_about_it_was_lost(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    spec = TaskSpec(id="t", prompt="x", model="scripted/missing")
    result = result_of(spec, text="Done before.")
    put_finished(filled_folder(folders.work, [spec]), spec, result)
    processes = TaskProcesses({}, LocalLimits(SharedLimits({})))
    assert await processes.run(spec, place_in(folders), never) == result
    processes.kill()


async def test_a_task_that_was_being_forked_when_all_were_told_to_stop_stops_too(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    model = write_script(folders.work / "m.json", shell("sleep 300"), "Done.")
    place = place_in(folders)
    processes = TaskProcesses(place.variables, LocalLimits(SharedLimits({})))
    running = asyncio.ensure_future(processes.run(TaskSpec(id="t", prompt="x", model=model), place, never))
    await asyncio.sleep(0)
    await processes.stop("Interrupted")
    try:
        assert await asyncio.wait_for(running, SECONDS) is None
    finally:
        processes.kill()


async def test_tasks_that_are_over_leave_no_descriptor_behind(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    model = write_script(folders.work / "m.json", default="Said.")
    place = place_in(folders)
    processes = TaskProcesses(place.variables, LocalLimits(SharedLimits({})))
    counts = []
    try:
        for number in range(3):
            result = await processes.run(TaskSpec(id=f"t{number}", prompt="x", model=model), place, never)
            assert result is not None
            counts.append(len(os.listdir("/proc/self/fd")))
    finally:
        processes.kill()
    assert counts[2] <= counts[0], counts


def test_a_batch_without_a_place_for_complaints_runs_all_the_same(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    model = write_script(folders.work / "m.json", default="Said.")
    write_tasks(folders.work / "tasks.jsonl", [{"id": f"t{n}", "prompt": "x", "model": model} for n in range(2)])
    for place in ("2>&-", "2>/dev/full"):
        command = f"{sys.executable} -m pigeon batch tasks.jsonl --out o{place[-1:]} --no-report {place}"
        code = subprocess.run(
            ["sh", "-c", f"exec {command}"],
            check=False,
            cwd=folders.work,
            env=folders.environment(),
            stdout=subprocess.DEVNULL,
        ).returncode
        assert code == 0, place


def test_an_interrupt_while_repositories_are_looked_up_leaves_nothing(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
        tasks = [{"id": "1", "prompt": "x", "model": "demo", "workspace": {"git": address}}]
        write_tasks(folders.work / "tasks.jsonl", tasks)
        calling = RunningProgram(folders, ("batch", "tasks.jsonl", "--out", "out"))
        silent.settimeout(SECONDS)
        with silent.accept()[0]:
            os.kill(calling.process.pid, signal.SIGINT)
            ended = calling.wait_for_end()
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "Interrupted: nothing was started")
    assert not (folders.work / "out").exists()


def test_a_long_look_up_is_told_after_a_while_and_then_now_and_again() -> None:
    said: list[str] = []
    time = iter([0.0, 1.0, 3.0, 3.0, 4.0, 13.0, 13.0])
    lines = LookupLines(said.append, lambda: next(time))
    for ended in (0, 5, 6, 1000):
        lines(ended, 1200)
    assert said == [f"Looking up the revisions of repositories: {ended} of 1,200" for ended in ("5", "1,000")]
