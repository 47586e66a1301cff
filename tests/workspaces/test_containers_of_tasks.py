"""`pigeon batch --container` and `Agent(container=...)`, with podman."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import pigeon
from fakes.machines import PodmanMachine
from pigeon.testing import call, scripted
from support.agent_process import command_line
from support.batch import results_in, shell, write_script, write_tasks
from support.processes import eventually, processes_with

pytestmark = pytest.mark.timeout(180)
BATCH_WITHIN = 120


def run_batch(podman: PodmanMachine, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        batch_command(tmp_path, *arguments), env=batch_variables(podman, tmp_path), cwd=tmp_path,
        capture_output=True, text=True, timeout=BATCH_WITHIN, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def batch_command(tmp_path: Path, *arguments: str) -> list[str]:
    return [*command_line(), "batch", *arguments, "--out", str(tmp_path / "out"), "--no-report"]


def batch_variables(podman: PodmanMachine, tmp_path: Path) -> dict[str, str]:
    return podman.variables(PI_CODING_AGENT_DIR=str(tmp_path / "agent"), HOME=str(tmp_path))


def list_containers(podman: PodmanMachine) -> str:
    """Those of this worker's image: others run their own meanwhile."""
    listed = podman.run("ps", "--all", "--filter", "label=pigeon=workspace", "--format", "{{.Names}} {{.Image}}").stdout
    return "\n".join(line for line in listed.splitlines() if f"/pigeon-tests-{os.getpid()}:" in line)


def test_a_batch_works_in_a_container_for_each_task(podman: PodmanMachine, image: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given/old.txt").write_text("old\n")
    model = write_script(tmp_path / "model.json", shell("pwd; echo new > old.txt; echo made > made.txt"), "Done.")
    tasks = write_tasks(tmp_path / "tasks.jsonl", [{"id": "one", "prompt": "Work"}])
    done = run_batch(
        podman, tmp_path, tasks, "--container", image, "--folder", "given", "--model", model,
        "--check", "test $PWD = /workspace && ls / | grep -q '^workspace$'",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = results_in(tmp_path / "out")["one"]
    assert (result["status"], result["check"]["passed"]) == ("done", True)
    folder = tmp_path / "out" / result["folder"]
    patch = (folder / "changes.patch").read_text()
    assert "-old\n+new" in patch
    assert "+++ b/made.txt\n" in patch
    assert (folder / "workspace/made.txt").read_text() == "made\n"
    assert not (folder / "before.git").exists()
    assert (tmp_path / "given/old.txt").read_text() == "old\n"
    assert list_containers(podman) == ""


def test_an_image_that_there_is_not_is_reported_before_anything_runs(podman: PodmanMachine, tmp_path: Path) -> None:
    model = write_script(tmp_path / "model.json", "Done.")
    tasks = write_tasks(tmp_path / "tasks.jsonl", [{"id": "one", "prompt": "Work"}])
    done = run_batch(podman, tmp_path, tasks, "--container", "localhost/none", "--model", model)
    assert done.returncode != 0
    assert "Cannot start a container of localhost/none with podman: " in done.stderr
    assert not (tmp_path / "out/results.jsonl").exists()


def test_nothing_is_left_of_a_batch_that_was_killed(podman: PodmanMachine, image: str, tmp_path: Path) -> None:
    model = write_script(tmp_path / "model.json", shell("echo begun > begun.txt; sleep 1000"), "Done.")
    tasks = write_tasks(tmp_path / "tasks.jsonl", [{"id": "one", "prompt": "Work"}])
    command = batch_command(tmp_path, tasks, "--container", image, "--model", model)
    batch = subprocess.Popen(
        command, env=batch_variables(podman, tmp_path), cwd=tmp_path, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert eventually(lambda: bool(list(tmp_path.glob("out/.part-*/workspace/begun.txt"))), 60)
    assert list_containers(podman) != ""
    for pid in {batch.pid, *processes_with(str(tmp_path / "out"))}:
        os.kill(pid, signal.SIGKILL)
    batch.wait()
    assert eventually(lambda: list_containers(podman) == "", 15)


async def test_an_agent_works_in_a_container_of_its_own(podman: PodmanMachine, image: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with scripted(call("bash", command="echo made > made.txt; ls -d /workspace"), "Done.") as model:
        agent = pigeon.Agent(
            model=model, cwd=tmp_path / "work", agent_dir=tmp_path / "agent", env=podman.variables(), container=image
        )
        async with agent:
            state = await agent.get_state()
            assert (state.workspace.kind, state.workspace.path) == ("podman", "/workspace")
            result = await agent.run("Work")
            assert result.text == "Done."
            assert state.workspace.name in list_containers(podman)
    assert (tmp_path / "work/made.txt").read_text() == "made\n"
    assert list_containers(podman) == ""
