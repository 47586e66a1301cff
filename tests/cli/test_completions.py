"""Completions of shells: made from the tables, taken by the shells that are installed, and completing what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pigeon.cli.args import list_option_rows, option_names
from pigeon.cli.commands.all import COMMANDS
from pigeon.cli.commands.completions import bash_script, fish_script, zsh_script
from support.terminal import TAB, PtyChat

SCRIPTS = {"bash": bash_script(), "zsh": zsh_script(), "fish": fish_script()}
COMPLETE = """
. "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_pigeon pigeon "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_command_action_and_option_is_in_the_script(shell: str) -> None:
    script = SCRIPTS[shell]
    words = set(re.findall(r"[\w-]+", script))
    assert set(COMMANDS) <= words
    assert {action.name for command in COMMANDS.values() for action in command.actions if action.name} <= words
    own = [name for command in COMMANDS.values() for name in option_names(command.rows)]
    for name in (*option_names(list_option_rows()), *own):
        if name.startswith("--"):
            assert (name if shell != "fish" else f"-l {name[2:]} ") in script


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_shell_can_read_the_script(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n"], input=SCRIPTS[shell], text=True, check=True, timeout=20)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_quote_is_closed(shell: str) -> None:
    assert [line for line in SCRIPTS[shell].splitlines() if line.replace("'\\''", "").count("'") % 2] == []


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["pigeon", "s"], ["sessions", "store", "serve", "schema"]),
        (["pigeon", "--mo"], ["--mode", "--model", "--models"]),
        (["pigeon", "--output", "s"], ["stream-json"]),
        (["pigeon", "sessions", "un"], ["undelete"]),
        (["pigeon", "sessions", "--a"], ["--all"]),
        (["pigeon", "sessions", "show", "--j"], ["--json"]),
        (["pigeon", "completions", ""], ["bash", "zsh", "fish"]),
        (["pigeon", "help", "d"], ["doctor", "demo"]),
        (["pigeon", "-p", "@no"], ["@notes.txt"]),
        (["pigeon", "-p", "@a\\ b"], ["@a\\ b.txt"]),
        (["pigeon", "--mode", "=", "r"], ["rpc"]),
        (["pigeon", "--mode", "="], ["text", "json", "rpc"]),
        # Names of files without a sign before them are completed by readline.
        (["pigeon", "--trace", "no"], []),
        (["pigeon", "sessions", "export", "1", "no"], []),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], completed: list[str]) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "a b.txt").touch()
    script = tmp_path / "completions.bash"
    script.write_text(SCRIPTS["bash"])
    ran = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", str(script), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert (list(filter(None, ran.stdout.split("\n"))), ran.stderr) == (completed, "")
    assert "complete -o default" in SCRIPTS["bash"]


CTRL_U = "\x15"  # an empty line
# What is typed, and what it becomes or may become, in shells that complete by themselves.
TYPED = [
    ("pigeon doc", ["doctor"]),
    ("pigeon sc", ["schema"]),
    ("pigeon --output s", ["stream-json"]),
    ("pigeon --verb", ["--verbose"]),
    ("pigeon sessions un", ["undelete"]),
    ("pigeon sessions --a", ["--all"]),
    ("pigeon completions fi", ["fish"]),
    ("pigeon help doc", ["doctor"]),
    ("pigeon -p @no", ["@notes.txt"]),
    ("pigeon -p hello @no", ["@notes.txt"]),
]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "completions.fish").write_text(SCRIPTS["fish"])
    asked = "; ".join(f"echo '== {typed}'; complete -C '{typed}'" for typed, _ in TYPED)
    ran = subprocess.run(
        ["fish", "--no-config", "-c", f"source completions.fish; {asked}"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    found = [part.splitlines() for part in ran.stdout.split("== ")[1:]]
    assert [(first, [line.partition("\t")[0] for line in lines]) for first, *lines in found] == TYPED
    assert ran.stderr == ""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "completions.zsh").write_text(SCRIPTS["zsh"])
    start = "autoload -U compinit; compinit -u -D; eval \"$(cat completions.zsh)\"; echo rea''dy\n"
    with PtyChat(tmp_path, program=["zsh", "-f", "-i"], columns=150, env={"PS1": "shell> "}) as shell:
        shell.until("shell>")
        shell.type(start)
        shell.until("ready")
        for number, (typed, (completed,)) in enumerate(TYPED):
            whole = f"{typed.rpartition(' ')[0]} {completed}"
            shell.type(typed, TAB)
            shell.until(lambda _, whole=whole: any(line.endswith(whole) for line in shell.lines))
            shell.type(CTRL_U, f"echo next{number}'' \n")
            shell.until(lambda _, number=number: f"next{number}" in shell.lines)
        shell.type("exit\n")
