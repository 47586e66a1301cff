"""What tests of batches share: files of tasks, scripted models, small repositories, and an engine that runs nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pigeon.frontends.batch.batch_folder import BatchFolder, BatchRecord, Tally
from pigeon.frontends.batch.records import TaskResult, TaskSpec, hash_of
from pigeon.frontends.batch.task_run import commit_folder, put_result
from pigeon.wire import codec
from pigeon.wire.model import Cost, Usage

PRICES = {"input": 1, "output": 2}


def write_tasks(path: Path, tasks: Iterable[dict[str, Any]]) -> str:
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    return str(path)


def write_script(path: Path, *replies: Any, **more: Any) -> str:
    """The name of a model that says this; an answer costs what its tokens do."""
    path.write_text(json.dumps({"replies": list(replies), "cost": PRICES, **more}))
    return f"scripted/{path}"


def shell(command: str, **more: Any) -> dict[str, Any]:
    """A reply that runs a command."""
    return {"toolCalls": [{"name": "bash", "arguments": {"command": command}}], **more}


def git(folder: Path, *arguments: str) -> str:
    """Run git as a person whom nobody knows."""
    person = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, str]) -> str:
    """A repository with one commit, whose name is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    return commit(folder, files)


def commit(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--allow-empty", "-m", "A change")
    return git(folder, "rev-parse", "HEAD")


def results_in(out: Path) -> dict[str, dict[str, Any]]:
    """The lines of `results.jsonl` by id."""
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    found = {line["id"]: line for line in lines}
    assert len(found) == len(lines), "a task is counted twice"
    return found


def result_of(spec: TaskSpec, **more: Any) -> TaskResult:
    cost = more.pop("cost", 0.0)
    usage = Usage(total_tokens=more.pop("tokens", 10), cost=Cost(total=cost))
    given = {"status": "done", "ended": "done", "usage": usage, **more}
    return TaskResult(id=spec.id, folder=hash_of(spec), group=spec.group, **given)


def filled_folder(path: Path, specs: Iterable[TaskSpec], **more: Any) -> BatchFolder:
    """A folder with tasks of which none is done."""
    path.mkdir(parents=True, exist_ok=True)
    folder = BatchFolder(str(path))
    folder.stage_tasks(specs).replace_batch_tasks()
    folder.put_record(BatchRecord(id="a-batch", began=1_793_527_200_000, **more))
    return folder


def put_finished(folder: BatchFolder, spec: TaskSpec, result: TaskResult) -> None:
    """Put a result where its task has it."""
    part = Path(folder.path, f".part-{hash_of(spec)}-test")
    part.mkdir()
    put_result(str(part), spec, codec.encode(result))
    commit_folder(str(part), str(Path(folder.path, hash_of(spec))), result)


class Watching:
    """Keeps what a watcher is told."""

    def __init__(self) -> None:
        self.started_tasks: list[str] = []
        self.ended_tasks: list[tuple[str, str | None]] = []
        self.most_running = 0
        self._running = 0

    def on_batch_began(self, tally: Tally, slots: int) -> None:
        pass

    def on_task_started(self, spec: TaskSpec) -> None:
        self.started_tasks.append(spec.id)
        self._running += 1
        self.most_running = max(self.most_running, self._running)

    def on_task_ended(self, spec: TaskSpec, result: TaskResult | None, tally: Tally, spent: float) -> None:
        self.ended_tasks.append((spec.id, None if result is None else result.status))
        self._running -= 1

    def on_providers_paused(self, pauses: dict[str, float]) -> None:
        pass


class InstantEngine:
    """An engine whose tasks are over at once; `work` says what comes of one, or raises."""

    def __init__(self, folder: BatchFolder, work: Callable[[TaskSpec], TaskResult | None], slots: int = 2) -> None:
        self._folder = folder
        self._work = work
        self.max_handed_over = slots
        self.submitted: list[str] = []
        self.budget: float | None = None
        self.used = 0.0
        self._costs: dict[str, float] = {}
        self.stopped = False

    async def open(self) -> None:
        pass

    def submit(self, spec: TaskSpec) -> Future[TaskResult | None]:
        self.submitted.append(spec.id)
        future: Future[TaskResult | None] = Future()
        try:
            result = self._work(spec)
            if result is not None:
                put_finished(self._folder, spec, result)
                self.used += result.cost
                self._costs[spec.id] = result.cost
            future.set_result(result)
        except Exception as error:
            future.set_exception(error)
        return future

    async def reserve_money(self, task: str, share: float) -> bool:
        return self.budget is None or (self.used < self.budget and self.used + share <= self.budget)

    async def release_money(self, task: str) -> float:
        return self._costs.pop(task, 0.0)

    async def get_total_cost(self) -> float:
        return self.used

    async def find_provider_pauses(self) -> dict[str, float]:
        return {}

    async def stop(self, reason: str) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.stopped = True
