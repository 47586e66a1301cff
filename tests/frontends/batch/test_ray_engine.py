"""The engine `ray` with Ray itself: `make ray-tests` runs these in an environment that has it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders
from support.batch import make_repository, results_in, shell, write_script, write_tasks
from support.processes import eventually, processes_with
from support.ray_cluster import RayNodes, kill_ray, ray_environment, ray_processes

pytest.importorskip("ray", reason="needs Ray: make ray-tests", exc_type=ImportError)
pytestmark = pytest.mark.timeout(180)

SECONDS = 60.0
USAGE = {"input": 1_000_000, "output": 0}
ON_RAY = ("--engine", "ray")


@pytest.fixture
def folders() -> Iterator[AgentFolders]:
    """The sockets of Ray are below its folder, and their paths must be short."""
    root = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    made = AgentFolders(root)
    made.configure()
    yield made
    kill_ray(made)
    shutil.rmtree(root, ignore_errors=True)


def start_batch(folders: AgentFolders, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pigeon", "batch", *arguments, "--no-report"],
        cwd=folders.work,
        env=ray_environment(folders),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run_batch(folders: AgentFolders, *arguments: str) -> tuple[int, str]:
    with start_batch(folders, *arguments) as batch:
        try:
            said, _ = batch.communicate(timeout=150)
        finally:
            batch.kill()
        return batch.returncode, said


def tasks_of_all_kinds(work: Path) -> list[dict[str, Any]]:
    (work / "source").mkdir()
    (work / "source" / "a.txt").write_text("one\n")
    make_repository(work / "repo", {"code.py": "x = 1\n"})
    edit = write_script(work / "edit.json", shell("echo two >> a.txt", usage=USAGE), {"text": "Done.", "usage": USAGE})
    patch = write_script(work / "patch.json", shell("echo 'y = 2' >> code.py; echo n > new.py"), "Patched.")
    answer = write_script(work / "v.json", {"toolCalls": [{"name": "final_answer", "arguments": {"title": "Up"}}]})
    say = write_script(work / "say.json", default="Said.")
    loop = write_script(work / "loop.json", default=shell("true"))
    down = write_script(work / "down.json", {"error": {"message": "the server is on fire"}})
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    return [
        {"id": "edit", "prompt": "e", "model": edit, "workspace": {"folder": "source"}, "check": "grep two a.txt"},
        {"id": "patch", "prompt": "p", "model": patch, "workspace": {"git": "repo", "revision": "main"}},
        {"id": "value", "prompt": "v", "model": answer, "output": schema},
        {"id": "fails", "prompt": "ünï 😀", "model": say, "check": "echo no; exit 7"},
        {"id": "limit", "prompt": "l", "model": loop, "limits": {"turns": 2}},
        {"id": "fire", "prompt": "f", "model": down},
    ]


def comparable(out: Path) -> dict[str, Any]:
    """What must be the same on every engine."""
    found = {}
    for id, one in results_in(out).items():
        patch = out / one["folder"] / "changes.patch"
        check = {name: value for name, value in (one["check"] or {}).items() if name != "seconds"}
        own = {name: value for name, value in one.items() if name not in ("seconds", "began")}
        found[id] = {**own, "check": check, "patch": patch.read_text() if patch.exists() else None}
    return found


def waiting_task(folders: AgentFolders, mark: str) -> tuple[Path, Path]:
    """One task that waits in a command with a mark; returns the gate that lets it through, and where it says that it
    has begun."""
    gate, begun = folders.work / "gate", folders.work / "begun"
    command = f"echo x >> {begun}; test -e {gate} || exec -a {mark} sleep 300"
    model = write_script(folders.work / "hang.json", shell(command, usage=USAGE), default="Came through.")
    write_tasks(folders.work / "tasks.jsonl", [{"id": "hangs", "prompt": "h", "model": model}])
    return gate, begun


def test_the_same_tasks_give_the_same_results_as_on_the_engine_local(folders: AgentFolders) -> None:
    # The names of the folders are equally long, because the model is told of them and paid by what it reads.
    write_tasks(folders.work / "tasks.jsonl", tasks_of_all_kinds(folders.work))
    assert run_batch(folders, "tasks.jsonl", "--out", "locals")[0] == 1
    code, said = run_batch(folders, "tasks.jsonl", "--out", "on-ray", *ON_RAY)
    assert code == 1, said
    assert comparable(folders.work / "on-ray") == comparable(folders.work / "locals")
    assert {id: one["status"] for id, one in results_in(folders.work / "on-ray").items()} == {
        "edit": "done", "patch": "done", "value": "done", "fails": "failed", "limit": "limit", "fire": "error",
    }  # fmt: skip
    assert eventually(lambda: not ray_processes(folders), SECONDS), "what was started for the batch ends with it"


def test_an_interrupt_ends_what_runs_and_resuming_finishes_it(folders: AgentFolders) -> None:
    mark = f"ray-mark-signal-{os.getpid()}"
    gate, _ = waiting_task(folders, mark)
    with start_batch(folders, "tasks.jsonl", "--out", "out", *ON_RAY) as batch:
        assert eventually(lambda: bool(processes_with(mark)), SECONDS)
        os.kill(batch.pid, signal.SIGINT)
        said, _ = batch.communicate(timeout=60)
    assert batch.returncode == 130, said
    assert "Continue with: pigeon batch --resume out" in said
    assert eventually(lambda: not processes_with(mark), SECONDS)
    assert eventually(lambda: not ray_processes(folders), SECONDS)
    gate.touch()
    code, said = run_batch(folders, "--resume", "out", *ON_RAY)
    assert code == 0, said
    assert results_in(folders.work / "out")["hangs"]["status"] == "done"


def test_a_task_is_run_again_when_its_worker_is_killed(folders: AgentFolders) -> None:
    mark = f"ray-mark-worker-{os.getpid()}"
    gate, begun = waiting_task(folders, mark)
    with start_batch(folders, "tasks.jsonl", "--out", "out", *ON_RAY) as batch:
        assert eventually(lambda: bool(processes_with(mark)), SECONDS)
        gate.touch()
        for kind, pid in ray_processes(folders):
            if kind == "ray worker":
                os.kill(pid, signal.SIGKILL)
        said, _ = batch.communicate(timeout=120)
    assert batch.returncode == 0, said
    assert results_in(folders.work / "out")["hangs"]["status"] == "done"
    assert begun.read_text().split() == ["x", "x"]
    assert not processes_with(mark), "the command of the killed worker has ended"


def test_when_ray_dies_the_batch_says_how_to_go_on(folders: AgentFolders) -> None:
    mark = f"ray-mark-raylet-{os.getpid()}"
    gate, _ = waiting_task(folders, mark)
    with start_batch(folders, "tasks.jsonl", "--out", "out", *ON_RAY) as batch:
        assert eventually(lambda: bool(processes_with(mark)), SECONDS)
        for kind, pid in ray_processes(folders):
            if kind == "raylet":
                os.kill(pid, signal.SIGKILL)
        said, _ = batch.communicate(timeout=120)
    assert batch.returncode == 1, said
    assert "Ray has not answered for 60 s" in said or "Ray has died on the driver's machine" in said
    assert "--resume out" in said
    assert "Traceback" not in said
    gate.touch()
    assert run_batch(folders, "--resume", "out", "--engine", "local")[0] == 0
    assert results_in(folders.work / "out")["hangs"]["status"] == "done"


def test_no_more_tasks_are_started_once_the_money_is_spent(folders: AgentFolders) -> None:
    model = write_script(folders.work / "say.json", default={"text": "Said.", "usage": USAGE})
    write_tasks(
        folders.work / "tasks.jsonl", [{"id": f"t{number}", "prompt": "x", "model": model} for number in range(6)]
    )
    spending = ("--max-cost", "2.5", "--concurrency", "1", *ON_RAY)
    code, said = run_batch(folders, "tasks.jsonl", "--out", "out", *spending)
    assert code == 3, said
    done = results_in(folders.work / "out")
    assert 2 <= len(done) <= 4
    assert all(one["usage"]["cost"]["total"] == 1.0 for one in done.values())
    code, said = run_batch(folders, "--resume", "out", *ON_RAY, "--max-cost", "100")
    assert code == 0, said
    assert len(results_in(folders.work / "out")) == 6


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can hide a folder")
def test_a_node_that_does_not_see_the_folder_sends_its_results_back(folders: AgentFolders) -> None:
    hidden = folders.work / "out"
    hidden.mkdir()
    hide = f'mount -t tmpfs none {shlex.quote(str(hidden))} && exec "$@"'
    nodes = RayNodes(folders, 6498, ("unshare", "--mount", "sh", "-c", hide, "sh"))
    nodes.start_head()
    model = write_script(folders.work / "edit.json", shell("echo two >> a.txt"), "Done.")
    (folders.work / "source").mkdir()
    (folders.work / "source" / "a.txt").write_text("one\n")
    task = {"id": "edit", "prompt": "e", "model": model, "workspace": {"folder": "source"}}
    write_tasks(folders.work / "tasks.jsonl", [task])
    code, said = run_batch(folders, "tasks.jsonl", "--out", "out", "--keep", "all", *ON_RAY, "--address", nodes.address)
    assert code == 0, said
    folder = hidden / results_in(hidden)["edit"]["folder"]
    assert (folder / "workspace" / "a.txt").read_text() == "one\ntwo\n"
    assert json.loads((folder / "result.json").read_text())["status"] == "done"
    assert nodes.raylets(), "a cluster that was joined goes on"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_named_at_once(folders: AgentFolders, address: str) -> None:
    model = write_script(folders.work / "say.json", default="Said.")
    write_tasks(folders.work / "tasks.jsonl", [{"id": "one", "prompt": "x", "model": model}])
    code, said = run_batch(folders, "tasks.jsonl", "--out", "out", *ON_RAY, "--address", address)
    assert code == 1, said
    assert f"Ray cannot be used: no cluster answers at {address}: Connection refused" in said
    assert "Traceback" not in said
