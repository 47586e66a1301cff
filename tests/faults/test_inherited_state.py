"""What the program that starts Pigeon leaves it: ignored and blocked signals, closed or full streams, limits, a locale.

Each case starts the real program from a small one that first makes the state.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, command_line

SIGNALS = "[n for n in signal.valid_signals() if n not in (signal.SIGKILL, signal.SIGSTOP)]"
STATES = {
    "SIGCHLD ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "everything ignored": f"[signal.signal(n, signal.SIG_IGN) for n in {SIGNALS}]",
    "SIGTERM blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
    "SIGCHLD blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])",
    "everything blocked": f"signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNALS})",
    "few descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))",
    "no large files": "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))",
    "nothing may be read by others or by us": "os.umask(0o777)",
    "stderr closed": "os.close(2)",
    "stderr full": "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
}
LOCALES = {
    "C": {"LC_ALL": "C"},
    "C, and no UTF-8 mode": {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
    "ASCII streams": {"PYTHONIOENCODING": "ascii"},
    "UTF-16 streams": {"PYTHONIOENCODING": "utf-16"},
    "an unknown locale": {"LC_ALL": "xx_YY"},
}


def started_with(state: str) -> list[str]:
    """The program, begun in this state."""
    start = f"{state}; os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", f"import os, resource, signal, sys; {start}", *command_line()]


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


@pytest.mark.parametrize("state", STATES)
def test_commands_run_and_signals_arrive_whatever_was_inherited(folders: AgentFolders, state: str) -> None:
    agent = RpcProcess(folders, "--model", "demo", "--nonsense", program=started_with(STATES[state]))
    try:
        # A shell that dies of its own SIGINT shows that commands have the default actions of signals again.
        command = "echo begun; (exit 3); echo $?; sh -c 'kill -INT $$'; echo $?"
        done = agent.ask("bash", command=command)
        assert (done["output"], done["exitCode"]) == ("begun\n3\n130\n", 0)
        assert agent.run("Say hello.")[-1]["type"] == "agent_settled"
        agent.signal(signal.SIGTERM)
        assert agent.wait_exit() == 143
    finally:
        if not agent.is_over:
            agent.kill()


@pytest.mark.parametrize("locale", LOCALES)
def test_text_and_names_are_utf8_whatever_the_locale(folders: AgentFolders, locale: str) -> None:
    inner = folders.work / "wörk"
    inner.mkdir()
    (inner / "ü.txt").write_text("öäü €", "utf-8")
    Path(os.fsdecode(os.fsencode(inner) + b"/\xff.txt")).touch()
    with RpcProcess(folders, "--model", "demo", "--cwd", str(inner), env=LOCALES[locale], by_exec=True) as agent:
        listed = agent.ask("bash", command="ls; cat ü.txt; echo $PYTHONUTF8 $LC_ALL")["output"]
        agent.ask("set_session_name", name="größe")
        agent.run("Wie geht's, ü?")
        page = agent.ask("export_html", outputPath="seite-ü.html")["path"]
        assert agent.ask("get_state")["sessionName"] == "größe"
    assert "ü.txt" in listed
    assert "öäü €" in listed
    assert " ".join(value for key, value in LOCALES[locale].items() if key in ("PYTHONUTF8", "LC_ALL")) in listed
    assert page == "seite-ü.html"
    assert (folders.work / page).is_file()


def test_a_piped_prompt_is_utf8_whatever_the_locale(folders: AgentFolders) -> None:
    for variables in LOCALES.values():
        done = subprocess.run(
            [*command_line(), "--mode", "json", "--model", "demo", "--no-session", " und ä"],
            input="von Rohr: ü\xff".encode() + b"\xff",
            env=folders.environment(variables),
            cwd=folders.work,
            capture_output=True,
            timeout=30,
            check=True,
        )
        assert "von Rohr: üÿ\N{REPLACEMENT CHARACTER}\\n\\n und ä" in done.stdout.decode()


@pytest.mark.parametrize("arguments", [["--mode", "rpc"], ["--mode", "json", "hello"], ["--version"], ["--help"]])
@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("os.close(1)", "stdout: it is closed"),
        ("os.dup2(os.open('/dev/full', os.O_WRONLY), 1)", "No space left on device"),
        ("os.dup2(os.open('/dev/null', os.O_RDONLY), 1)", "Bad file descriptor"),
    ],
)
def test_output_that_cannot_be_written_is_a_failure_that_says_so(
    folders: AgentFolders, arguments: list[str], state: str, reason: str
) -> None:
    done = subprocess.run(
        [*started_with(state), "--model", "demo", *arguments]
        if len(arguments) > 1
        else started_with(state) + arguments,
        input=b'{"type":"get_state"}\n' if "rpc" in arguments else b"",
        env=folders.environment(),
        cwd=folders.work,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert reason in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", ["0", "0 2", "2"])
def test_other_closed_streams_are_no_failure(folders: AgentFolders, closed: str) -> None:
    state = "; ".join(f"os.close({number})" for number in closed.split())
    done = subprocess.run(
        [*started_with(state), "--mode", "rpc", "--model", "demo"],
        input=b'{"type":"get_state"}\n',
        env=folders.environment(),
        cwd=folders.work,
        stdout=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert (b'"get_state"' in done.stdout) == ("0" not in closed)


def test_too_few_descriptors_to_start_are_one_line_on_stderr(folders: AgentFolders) -> None:
    # The shell that runs the command's script needs more than Python, and says so in one line of its own.
    few = started_with("resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))")[:3]
    done = subprocess.run(
        [*few, sys.executable, "-I", "-m", "pigeon", "--mode", "rpc", "--model", "demo"],
        env=folders.environment(),
        cwd=folders.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert b"Too many open files" in done.stderr
    assert b"Traceback" not in done.stderr
