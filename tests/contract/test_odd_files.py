"""Whatever stands where a file is expected: it is reported by its name, and neither waited for nor swallowed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import ODD, AgentFolders
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import finished_messages, tool_texts
from support.sessions import HEADER

OF_THE_USER = (
    "auth.json", "trust.json", "AGENTS.md", "SYSTEM.md", "APPEND_SYSTEM.md",
    "rules/odd.md", "skills/odd/SKILL.md", "prompts/odd.md", "extensions/odd.py",
)  # fmt: skip
MOST_MEMORY = 64 << 20


def place(folder: Path, kind: str, names: tuple[str, ...] = OF_THE_USER) -> list[str]:
    """Put such a thing at each of these names; the paths."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        ODD[kind](folder / name)
    return [str(folder / name) for name in names]


def use(host: RpcProcess, server: ModelServer) -> None:
    """Have everything read that is read at any time."""
    host.ask("get_commands")
    server.answers("fine")
    host.run("x")


@proves("files.odd")
@pytest.mark.parametrize("kind", ODD)
def test_no_file_of_the_user_holds_the_program_up(
    start: Start, folders: AgentFolders, server: ModelServer, kind: str
) -> None:
    plain = start()
    use(plain, server)
    usual = plain.resident()
    paths = place(folders.agent, kind)
    host = start()
    use(host, server)
    assert host.resident() < usual + MOST_MEMORY
    said = host.stderr + json.dumps(host.records)
    assert [path for path in paths if path not in said] == []


@proves("files.odd_project")
@pytest.mark.parametrize("kind", ODD)
def test_no_file_of_a_trusted_project_does(start: Start, folders: AgentFolders, server: ModelServer, kind: str) -> None:
    names = tuple(name for name in OF_THE_USER if not name.endswith("json") and name != "AGENTS.md")
    paths = place(folders.work / ".pigeon", kind, names)
    host = start("--approve")
    use(host, server)
    said = host.stderr + json.dumps(host.records)
    assert [path for path in paths if path not in said] == []


@proves("files.odd_session")
@pytest.mark.parametrize("kind", ODD)
def test_no_session_file_does(start: Start, folders: AgentFolders, server: ModelServer, kind: str) -> None:
    path = folders.temp / "odd.jsonl"
    ODD[kind](path)
    host = start(keeps=True)
    server.answers("kept")
    host.run("x")
    if kind != "nowhere":  # a file that is not there is a new conversation
        assert str(path) in host.expect_error("switch_session", sessionPath=str(path))
    own = Path(host.ask("get_state")["sessionFile"]).parent
    ODD[kind](own / "0000_odd.jsonl")
    assert len(host.ask("list_sessions")["sessions"]) == 1
    host.close()
    again = start("--continue", keeps=True)
    assert again.ask("get_state")["messageCount"] == 2


@proves("files.endless_session")
def test_a_session_of_endless_nothing_is_refused(start: Start, folders: AgentFolders) -> None:
    path = folders.temp / "huge.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps({**HEADER, "cwd": str(folders.work)}).encode() + b"\n")
        file.truncate(5 << 30)
    host = start(keeps=True)
    assert "larger than" in host.expect_error("switch_session", sessionPath=str(path))


@proves("context.links")
@pytest.mark.parametrize("target", ["/proc/self/environ", "HOME/secret", "/dev/zero"])
@pytest.mark.parametrize("options", [[], ["--approve"]])
def test_a_context_file_that_leads_out_of_the_repository_is_not_read(
    start: Start, folders: AgentFolders, server: ModelServer, target: str, options: list[str]
) -> None:
    (folders.home / "secret").write_text("SECRET")
    (folders.work / ".git").mkdir()
    (folders.work / "AGENTS.md").symlink_to(target.replace("HOME", str(folders.home)))
    (folders.work / "CLAUDE.md").symlink_to("README.md")
    (folders.work / "README.md").write_text("use tabs")
    host = start(*options, env={"MINE": "SECRET"})
    asked = server.answers("fine")
    host.run("x")
    server.answers("fine")
    host.run("x")
    assert "SECRET" not in json.dumps(asked.request)
    assert "use tabs" in json.dumps(asked.request)
    notices = [record["message"] for record in host.since(0, "extension_ui_request")]
    assert [str(folders.work / "AGENTS.md") in notice for notice in notices] == [True]


@proves("path.relative")
@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", "WORK/../work/bin/.."])
def test_no_program_of_the_project_runs_by_a_relative_entry_of_the_path(
    start: Start, folders: AgentFolders, server: ModelServer, entry: str
) -> None:
    mark = folders.temp / "ran"
    for folder in (folders.work, folders.work / "bin"):
        folder.mkdir(exist_ok=True)
        for name in ("rg", "bash", "sh", "print-key", "git", "python", "python3"):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {mark}\necho key\n")
            (folder / name).chmod(0o755)
    (folders.work / "x.txt").write_text("needle")
    path = f"{entry}:/usr/local/bin:/usr/bin:/bin"
    (folders.agent / "auth.json").write_text(json.dumps({"fake": {"type": "api_key", "key": "!print-key || echo k"}}))
    if entry.startswith("WORK"):
        path = "/usr/local/bin:/usr/bin:/bin:"
    host = start("--tools", "grep,find,bash", env={"PATH": path}, settings={"shellPath": "bash"})
    server.answers(Call("grep", {"pattern": "needle"}), Call("find", {"pattern": "*.txt"}))
    server.answers(Call("bash", {"command": "echo shell"}))
    server.answers("done")
    records = host.run("go")
    assert [message["isError"] for message in finished_messages(records, "toolResult")] == [False, False, False]
    assert [text.strip().splitlines()[0] for text in tool_texts(records)] == ["x.txt:1: needle", "x.txt", "shell"]
    assert not mark.exists(), mark.read_text()


@proves("path.no_modules")
@pytest.mark.parametrize("module", ["asyncio", "msgspec", "json", "argparse", "contextlib", "pigeon"])
def test_no_module_of_the_project_is_imported_by_the_program_as_a_module(folders: AgentFolders, module: str) -> None:
    mark = folders.temp / "ran"
    (folders.work / f"{module}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    # What Python imports by itself before the program begins only its own option can keep away from there.
    options = ["-P"] if module in ("contextlib", "pigeon") else []
    command = [sys.executable, *options, "-m", "pigeon", "--list-models"]
    surroundings = {"cwd": folders.work, "env": folders.environment()}
    done = subprocess.run(command, check=False, capture_output=True, timeout=30, **surroundings)
    assert (done.returncode, mark.exists()) == (0, False), done.stderr
