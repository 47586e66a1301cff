"""On Windows: a sentence that says what to do. There is no Windows here, so its name is put in front of a process in
which what only Linux and macOS have cannot be imported."""

from __future__ import annotations

import subprocess
import sys

POSIX_ONLY = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty")
WINDOWS = f"""
import asyncio, os, signal, sys
for name in {POSIX_ONLY!r}:
    sys.modules[name] = None
for name in ("SIGHUP", "SIGCHLD", "SIGKILL"):
    delattr(signal, name)
sys.platform = "win32"
"""


def ran(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WINDOWS + program], capture_output=True, text=True, timeout=30, check=False
    )


def test_the_program_says_where_it_runs() -> None:
    ended = ran("sys.argv = ['pigeon', 'hello']\nfrom pigeon.cli.main import main\nmain()")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(
        "Error: Pigeon runs on Linux and macOS, and not on Windows itself. Install it in WSL"
    )
    assert "Traceback" not in ended.stderr


def test_the_library_can_be_imported_and_says_it_when_an_agent_is_made() -> None:
    ended = ran(
        "import pigeon\n"
        "for make in (lambda: pigeon.Agent(model='demo'), lambda: pigeon.Client(command=['pigeon'])):\n"
        "    try:\n        make()\n    except pigeon.StartupError as error:\n        print(error)\n"
        "print(pigeon.Limits(turns=3).turns)\n"
    )
    assert ended.stderr == ""
    first, second, last = ended.stdout.splitlines()
    assert first == second
    assert "Windows" in first
    assert last == "3"
