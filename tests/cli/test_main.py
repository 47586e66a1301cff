"""The program as a whole: how it is started, and what it prints and returns when it cannot go on."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pigeon import __version__
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, run_pigeon

MODULE = [sys.executable, "-m", "pigeon"]


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


def test_the_package_can_be_run_as_a_program(folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo", "--no-session", program=MODULE) as agent:
        assert agent.ask("get_state")["model"]["provider"] == "demo"
    assert agent.stderr == ""


def test_modules_in_the_working_directory_are_not_run_as_libraries(folders: AgentFolders) -> None:
    for name in ("asyncio", "msgspec", "argparse", "json", "gc", "typing"):
        (folders.work / f"{name}.py").write_text("open('planted', 'w').close()\nraise SystemExit('planted')")
    ran = subprocess.run(
        [*MODULE, "--mode", "rpc", "--model", "demo", "--no-session"],
        env=folders.environment(),
        cwd=folders.work,
        input='{"type": "get_state"}\n',
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout.splitlines()[0])["success"] is True
    assert not (folders.work / "planted").exists()


@pytest.mark.parametrize(
    ("interrupt", "code"), [("raise KeyboardInterrupt", 130), ("os.kill(os.getpid(), 2)", -2)], ids=["taken", "start"]
)
def test_an_interrupt_while_it_starts_leaves_no_complaint(folders: AgentFolders, interrupt: str, code: int) -> None:
    """What was half made, as an event loop, complains when it is collected: the process ends before."""
    # Where this was started in the background of a shell, SIGINT is ignored, and a child inherits that.
    broken = "import os, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    broken += "import pigeon.cli.running as r, pigeon.cli.main as m\nasync def half(): pass\n"
    broken += f"def run(*_):\n    made = half()\n    {interrupt}\nr.run = run\nm.main()\n"
    ran = subprocess.run(
        [sys.executable, "-c", broken, "hello"], env=folders.environment(), capture_output=True, timeout=30, check=False
    )
    assert (ran.returncode, ran.stderr) == (code, b"")


@pytest.mark.parametrize("arguments", [["--version"], ["-v"], ["--version", "--mode", "rpc"]])
def test_the_version_is_printed(folders: AgentFolders, arguments: list[str]) -> None:
    ran = run_pigeon(folders, *arguments)
    assert (ran.code, ran.out, ran.err) == (0, f"{__version__}\n", "")


def test_the_schema_is_printed(folders: AgentFolders) -> None:
    ran = run_pigeon(folders, "schema")
    assert ran.code == 0
    assert json.loads(ran.out)["$schema"]


def test_help_names_the_options_that_have_an_effect(folders: AgentFolders) -> None:
    ran = run_pigeon(folders, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "pigeon --mode rpc [options]" in ran.out
    shown = re.findall(r"^  (--[a-z-]+)", ran.out, re.MULTILINE)
    assert {"--mode", "--no-context-files", "--no-rules", "--export"} <= set(shown)
    assert not {"--no-lsp", "--theme"} & set(shown)


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ([], 2, "There is no terminal to chat in, and no prompt. "),
        (["sesions"], 2, 'There is no command "sesions". Did you mean: pigeon sessions? '),
        (["--mode", "tui"], 2, 'Invalid mode "tui".'),
        (["--mode", "rpc", "--record-cap", "12"], 2, "--record-cap must be a whole number of bytes, at least 1024"),
        (["--mode", "rpc", "--record-cap", "²"], 2, "--record-cap must be a whole number of bytes, at least 1024"),
        (["--mode", "rpc", "--record-cap", "many"], 2, "--record-cap must be a whole number of bytes, at least 1024"),
        (["--mode", "rpc", "--cwd", "nowhere"], 1, "Not a directory: "),
        (["--export", "none.jsonl"], 1, "File not found: "),
    ],
)
def test_what_cannot_be_done_is_an_error_on_stderr(
    folders: AgentFolders, arguments: list[str], code: int, error: str
) -> None:
    ran = run_pigeon(folders, *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"Error: {error}")


def test_a_session_is_exported_where_it_was_asked_for(folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo", program=MODULE) as agent:
        agent.run("hi")
        session = Path(agent.ask("get_state")["sessionFile"])
    assert run_pigeon(folders, "--export", str(session)).out == f"Exported to: pigeon-session-{session.stem}.html\n"
    assert (
        run_pigeon(folders, "--export", str(session), "~/page.html").out == f"Exported to: {folders.home}/page.html\n"
    )
    for page in (folders.work / f"pigeon-session-{session.stem}.html", folders.home / "page.html"):
        assert "<!DOCTYPE html>" in page.read_text("utf-8")


def test_piped_text_goes_before_the_first_prompt_of_the_command_line(folders: AgentFolders) -> None:
    ran = run_pigeon(folders, "--mode", "json", "--no-session", "--model", "demo", "one", "two", given=" piped \n")
    said = [json.loads(line) for line in ran.out.splitlines()]
    prompts = [
        record["message"]["content"][0]["text"]
        for record in said
        if record["type"] == "message_end" and record["message"]["role"] == "user"
    ]
    assert ran.code == 0
    assert prompts == ["piped\n\none", "two"]


def test_a_terminal_on_stdin_is_not_read(folders: AgentFolders) -> None:
    ours, theirs = pty.openpty()
    try:
        ran = subprocess.run(
            [*MODULE, "--mode", "json", "--no-session", "--model", "demo", "one"],
            env=folders.environment(),
            cwd=folders.work,
            stdin=theirs,
            capture_output=True,
            timeout=30,
            check=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert b'"agent_end"' in ran.stdout


@pytest.mark.parametrize(("mode", "printed"), [("json", b'"agent_end"'), ("rpc", b"")])
def test_stdin_may_be_closed(folders: AgentFolders, mode: str, printed: bytes) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" 0<&-', "sh", *MODULE, "--mode", mode, "--no-session", "--model", "demo", "one"],
        env=folders.environment(),
        cwd=folders.work,
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert printed in ran.stdout
    assert ran.stderr == b""


def test_a_refused_prompt_is_an_error_of_the_process(folders: AgentFolders) -> None:
    ran = run_pigeon(folders, "--mode", "json", "--no-session", "hello")
    assert ran.code == 1
    assert "model" in ran.err.lower()
