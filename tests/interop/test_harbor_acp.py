"""Harbor's generic `acp` agent runs a task with Pigeon against a scripted model, by the command of Harbor itself.

No container engine is needed: the environment of the task is folders of this machine (`clients/harbor_local.py`). All
else is Harbor's own: the trial, the agent, its runner with the official Python SDK, the verifier. Harbor needs Python
3.12; `PIGEON_INTEROP_PYTHON` may name one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import command_line
from support.installed_programs import only_on_request, python_with

pytestmark = only_on_request
HARBOR = "harbor==0.24.0"
SDK = "agent-client-protocol==0.12.1"
CLIENTS = Path(__file__).parent / "clients"
REPLIES = [
    {"text": "I will.", "toolCalls": [{"name": "write", "arguments": {"path": "hello.txt", "content": "Hello!\n"}}]},
    {"toolCalls": [{"name": "bash", "arguments": {"command": "cat hello.txt"}}]},
    "It is done.",
]
TEST = """#!/bin/bash
reward="$(dirname "$0")/../logs/verifier/reward.txt"
if [ "$(cat hello.txt)" = "Hello!" ]; then echo 1 > "$reward"; else echo 0 > "$reward"; fi
"""


def newer_python() -> str:
    """A Python that Harbor can be installed into."""
    named = os.environ.get("PIGEON_INTEROP_PYTHON")
    for candidate in (named, "python3.13", "python3.12", "python3.14"):
        found = shutil.which(candidate) if candidate else None
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    pytest.skip("Harbor needs Python 3.12 or newer; PIGEON_INTEROP_PYTHON may name one")


def test_a_task_of_harbor_is_done_with_its_acp_agent(tmp_path: Path) -> None:
    newer = newer_python()
    harbor = python_with(HARBOR, newer).with_name("harbor")
    folders = AgentFolders(tmp_path)
    folders.configure()
    task, root = tmp_path / "task" / "hello", tmp_path / "root"
    for folder in (task / "environment", task / "tests", root / "opt", root / "app"):
        folder.mkdir(parents=True)
    (task / "task.toml").write_text('schema_version = "1.4"\n')
    (task / "instruction.md").write_text("Create hello.txt.\n")
    (task / "environment" / "Dockerfile").write_text("FROM debian:12\n")
    (task / "tests" / "test.sh").write_text(TEST)
    (root / "opt" / "harbor-acp-venv").symlink_to(python_with(SDK, newer).parents[1])
    (folders.temp / "script.json").write_text(json.dumps(REPLIES))
    [program, *words] = command_line()
    arguments = [*words, "acp", "--model", f"scripted/{folders.temp / 'script.json'}"]
    entry = {"local": {"cmd": program, "args": arguments, "env": {}}}
    about = {"id": "pigeon", "name": "Pigeon", "version": "0", "description": "Pigeon", "distribution": entry}
    (tmp_path / "entry.json").write_text(json.dumps(about))
    ended = subprocess.run(
        [
            str(harbor), "run", "-p", str(task), "-a", "acp", "-n", "1", "-o", str(tmp_path / "jobs"),
            "--ak", f"registry_entry_path={tmp_path / 'entry.json'}",
            "--env", "harbor_local:LocalEnvironment",
        ],
        env=folders.environment({"HARBOR_LOCAL_ROOT": str(root), "PYTHONPATH": str(CLIENTS)}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [result] = (tmp_path / "jobs").glob("*/hello__*/result.json")
    said = json.loads(result.read_text())
    assert said["verifier_result"]["rewards"] == {"reward": 1.0}, ended.stdout
    assert (root / "app" / "hello.txt").read_text() == "Hello!\n"
