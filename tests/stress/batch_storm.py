"""A storm over `pigeon batch`: the same tasks on every engine, while drivers, workers and raylets are killed at random.

`make batch-storm KILLS=50 SEED=1` runs 200 tasks over 20 repositories without kills on `local`, then with kills on
`local`, on `ray` started for the batch, and on a `ray` of two nodes, each until its exit code is 0. Every result must
be equal to that of the first run, a result that was once there must never change, and no task may begin after its
result was there: each writes down when it begins. Needs Ray (`pip install ray`); without it the engines of Ray are left
out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.agent_folders import AgentFolders
from support.batch import make_repository, results_in, shell, write_script, write_tasks
from support.ray_cluster import RayNodes, kill_ray, processes, ray_environment, ray_processes

REPOSITORIES = 20
TASKS = 200
DEADLINE = 1500.0
POLL = 0.05
# From a result on the disk to the end of all that was under way for the same task, in nanoseconds.
GRACE = 1_000_000_000
# What is not the same from run to run.
VARYING = ("seconds", "began")
PIGEON = [sys.executable, "-m", "pigeon"]


def make_tasks(folders: AgentFolders) -> None:
    """Twenty repositories, and ten tasks for each: some fail, some have a value."""
    tasks: list[dict[str, Any]] = []
    usage = {"input": 1000, "output": 50}
    for number in range(REPOSITORIES):
        make_repository(folders.work / f"repo{number}", {"code.txt": f"{number}\n", "deep/er/file": "x\n"})
    for number in range(TASKS):
        script = folders.work / "scripts" / f"{number}.json"
        script.parent.mkdir(exist_ok=True)
        edit = shell(
            f"date +%s%N >> {begun_file(folders, number)}; sleep 0.{number % 5}; echo task {number} >> code.txt",
            usage=usage,
        )
        model = write_script(script, edit, {"text": f"Task {number} is done.", "usage": usage})
        check = f"grep 'task {number}' code.txt" if number % 9 else "exit 3"
        place = {"git": f"repo{number % REPOSITORIES}", "revision": "main"}
        tasks.append({"id": f"t{number}", "prompt": f"Do {number}", "workspace": place, "model": model, "check": check})
    write_tasks(folders.work / "tasks.jsonl", tasks)


def begun_file(folders: AgentFolders, number: int) -> Path:
    """Where a task writes down each time that it begins, in nanoseconds since 1970."""
    (folders.work / "begun").mkdir(exist_ok=True)
    return folders.work / "begun" / f"t{number}"


def run_again(folders: AgentFolders, out: Path) -> list[str]:
    """The tasks that began once more when their result was there already."""
    found = []
    results = results_in(out)
    for number in range(TASKS):
        result = results[f"t{number}"]
        finished = (out / result["folder"] / "result.json").stat().st_mtime_ns
        last = max(int(line) for line in begun_file(folders, number).read_text().split())
        if last > finished + GRACE:
            found.append(result["id"])
    return found


def comparable(out: Path) -> dict[str, Any]:
    """What must be the same on every engine."""
    found = {}
    for id, one in results_in(out).items():
        check = {name: value for name, value in (one["check"] or {}).items() if name != "seconds"}
        patch = (out / one["folder"] / "changes.patch").read_text()
        found[id] = {name: value for name, value in one.items() if name not in VARYING} | {
            "check": check,
            "patch": patch,
        }
    return found


def below(roots: set[int]) -> list[tuple[int, str]]:
    """What descends from these processes."""
    table = list(processes())
    found = set(roots)
    while more := {pid for pid, parent, _ in table if parent in found and pid not in found}:
        found |= more
    return [(pid, command) for pid, _, command in table if pid in found and pid not in roots]


class Keeper:
    """Looks at the results of a batch as they come: one that was there must stay as it is."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seen: dict[str, str] = {}
        self.changed: list[str] = []

    def check_results(self) -> int:
        """Look at all results; returns how many there are."""
        with suppress(FileNotFoundError):
            for one in self._out.iterdir():
                if not one.name.startswith(".") and one.is_dir():
                    digest = hashlib.sha256((one / "result.json").read_bytes()).hexdigest()
                    if self._seen.setdefault(one.name, digest) != digest:
                        self.changed.append(one.name)
        return len(self._seen)


class Storm:
    """One engine, and what may be killed of it."""

    def __init__(self, name: str, folders: AgentFolders, arguments: list[str], chance: random.Random) -> None:
        self.name = name
        self._folders = folders
        self._arguments = arguments
        self._chance = chance
        self.out = folders.work / f"out-{name}"
        self.keeper = Keeper(self.out)
        self.kills: dict[str, int] = {}
        self.again: list[str] = []
        self.starts = 0
        self._driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the driver, for the first time or again."""
        self.starts += 1
        words = ["tasks.jsonl", "--out", self.out.name]
        if (self.out / "batch.json").exists():
            words = ["--resume", self.out.name]
        with (self._folders.work / f"{self.name}.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [*PIGEON, "batch", *words, *self._arguments, "--no-report"],
                cwd=self._folders.work,
                env=ray_environment(self._folders),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, kills: int, more: Callable[[Storm], list[tuple[str, int]]] | None = None) -> float:
        """Run to the end, with so many kills spread over the tasks; returns how long it took."""
        began = time.monotonic()
        self.start()
        while time.monotonic() - began < DEADLINE:
            assert self._driver is not None
            code = self._driver.poll()
            done = self.keeper.check_results()
            if code is not None:
                if code in (0, 1) and done == TASKS:
                    self.again = run_again(self._folders, self.out)
                    return time.monotonic() - began
                self.start()
            elif sum(self.kills.values()) < kills and done > TASKS * sum(self.kills.values()) / (kills + 1):
                self.kill(more(self) if more else [])
            threading.Event().wait(POLL)
        raise AssertionError(f"{self.name} has not ended; see {self._folders.work}/{self.name}.log")

    def kill(self, others: list[tuple[str, int]]) -> None:
        """Kill something that there is now."""
        assert self._driver is not None
        there = below({self._driver.pid})
        parents = [pid for pid, command in there if "from pigeon.frontends." in command]
        tasks = [pid for pid, command in there if pid in parents and self._parent(pid) in parents]
        choices = [("driver", self._driver.pid)] if self._chance.random() < 0.25 else []
        choices += [("task", pid) for pid in tasks]
        choices += [("parent", pid) for pid in parents if pid not in tasks][:1] if self._chance.random() < 0.3 else []
        choices += others
        if choices:
            kinds = sorted({kind for kind, _ in choices})
            kind = self._chance.choice(kinds)
            pid = self._chance.choice([pid for one, pid in choices if one == kind])
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills[kind] = self.kills.get(kind, 0) + 1

    def _parent(self, pid: int) -> int:
        return next((parent for one, parent, _ in processes() if one == pid), 0)


def storm_on_two_nodes(folders: AgentFolders, kills: int, chance: random.Random) -> tuple[Storm, float]:
    """Run on a cluster whose nodes die and come back."""
    nodes = RayNodes(folders, port=6399)
    nodes.restore_two_nodes()
    storm = Storm("ray-two-nodes", folders, ["--engine", "ray", "--address", nodes.address], chance)
    over = threading.Event()

    def keep_two_nodes() -> None:
        while not over.wait(3.0):
            nodes.restore_two_nodes()

    mending = threading.Thread(target=keep_two_nodes)
    mending.start()
    try:
        return storm, storm.run(kills, lambda _: ray_processes(folders))
    finally:
        over.set()
        mending.join()
        kill_ray(folders)


def main(kills: int, seed: int, keep: bool = False) -> None:
    """Run all of it, and say what came of it."""
    root = Path(tempfile.mkdtemp(prefix="batch-storm-", dir="/tmp"))
    folders = AgentFolders(root)
    folders.configure()
    make_tasks(folders)
    chance = random.Random(seed)
    storms: list[tuple[Storm, float]] = []
    quiet = Storm("quiet", folders, [], chance)
    storms.append((quiet, quiet.run(0)))
    expected = comparable(quiet.out)
    has_ray = importlib.util.find_spec("ray") is not None
    share = kills // 3 if has_ray else kills
    local = Storm("local", folders, [], chance)
    storms.append((local, local.run(kills - 2 * share if has_ray else share)))
    if has_ray:
        embedded = Storm("ray", folders, ["--engine", "ray"], chance)
        try:
            storms.append((embedded, embedded.run(share, lambda _: ray_processes(folders))))
        finally:
            kill_ray(folders)
        storms.append(storm_on_two_nodes(folders, share, chance))
    for storm, seconds in storms:
        same = comparable(storm.out) == expected
        left = list(storm.out.glob(".part-*"))
        kinds = json.dumps(storm.kills)
        said = f"{storm.name}: {TASKS} tasks in {seconds:.0f} s, {storm.starts} drivers, kills {kinds}"
        again = f"{len(storm.keeper.changed)} changed, {len(storm.again)} run again, {len(left)} left over"
        print(f"{said}; results {'equal' if same else 'DIFFER'}, {again}")  # noqa: T201
        assert same, f"compare {storm.out} with {quiet.out}"
        assert not storm.keeper.changed
        assert not storm.again, storm.again
    total = sum(sum(storm.kills.values()) for storm, _ in storms)
    print(f"{total} kills; seed {seed}")  # noqa: T201
    if not keep:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
