"""acpx, a client of the Agent Client Protocol for programs, unmodified: single prompts, a session that goes on in other
processes of it, permissions, and the plan.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import command_line
from support.installed_programs import newer_node, npm_package, only_on_request

pytestmark = only_on_request
PACKAGE = ("acpx", "0.19.1")
PLAN = {"ops": [{"op": "replace", "phases": [{"name": "Work", "tasks": [{"content": "one"}, {"content": "two"}]}]}]}
RULES = [
    {"when": {"user": "plan it", "toolResult": "0 of 2"}, "reply": "It is planned."},
    {"when": {"user": "plan it"}, "reply": {"toolCalls": [{"name": "todo", "arguments": PLAN}]}},
    {"when": {"user": "run it", "toolResult": "Permission denied"}, "reply": "It was refused."},
    {"when": {"user": "run it", "toolResult": "found"}, "reply": "It was there."},
    {"when": {"user": "run it"}, "reply": {"toolCalls": [{"name": "bash", "arguments": {"command": "echo found"}}]}},
]  # fmt: skip
DENIED = 5
Record = dict[str, Any]


class Acpx:
    """Its command line, with us as the agent."""

    def __init__(self, folders: AgentFolders) -> None:
        script = folders.temp / "script.json"
        script.write_text(json.dumps({"rules": RULES, "default": "You said: ${user}"}))
        agent = [*command_line(), "acp", "--model", f"scripted/{script}", "--approval-mode", "write"]
        self._program = [newer_node(), str(npm_package(*PACKAGE) / "dist" / "cli.js")]
        self._options = ["--cwd", str(folders.work), "--agent", shlex.join(agent), "--ttl", "20"]
        folder = str(Path(self._program[0]).parent)
        self._environment = folders.environment({"PATH": f"{folder}:{os.environ['PATH']}"})

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*self._program, *self._options, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def run_for_records(self, *words: str, code: int = 0) -> list[Record]:
        """The messages of both sides."""
        return [json.loads(line) for line in self.run("--format", "json", *words, code=code).splitlines()]


@pytest.fixture
def acpx(tmp_path: Path) -> Iterator[Acpx]:
    folders = AgentFolders(tmp_path)
    folders.configure()
    return Acpx(folders)


def updates_of(records: list[Record], kind: str) -> list[Record]:
    found = [one["params"]["update"] for one in records if one.get("method") == "session/update"]
    return [update for update in found if update["sessionUpdate"] == kind]


def said_in(records: list[Record]) -> str:
    return "".join(update["content"]["text"] for update in updates_of(records, "agent_message_chunk"))


def test_one_prompt_runs_with_permission_and_not_without(acpx: Acpx) -> None:
    allowed = acpx.run_for_records("--approve-all", "exec", "run it")
    assert said_in(allowed) == "It was there."
    assert any(one.get("method") == "session/request_permission" for one in allowed)
    assert allowed[-1]["result"]["stopReason"] == "end_turn"
    assert said_in(acpx.run_for_records("--deny-all", "exec", "run it", code=DENIED)) == "It was refused."


def test_the_plan_is_shown(acpx: Acpx) -> None:
    records = acpx.run_for_records("exec", "plan it")
    assert said_in(records) == "It is planned."
    plan = updates_of(records, "plan")[-1]["entries"]
    assert [(one["content"], one["status"]) for one in plan] == [("one", "in_progress"), ("two", "pending")]


def test_a_session_goes_on_from_process_to_process_and_is_loaded_again(acpx: Acpx) -> None:
    acpx.run("sessions", "new")
    try:
        assert "You said: first" in acpx.run("first")
        assert "You said: second" in acpx.run("second")
        shown = acpx.run("--format", "json", "status")
        assert json.loads(shown)["status"] in ("running", "alive")
    finally:
        acpx.run("sessions", "close")
