"""The client `picable`, which refuses whatever pi 0.73.1 does not send: with that version, and with `pi-0.73`.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, Hang, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import command_line_named
from support.installed_programs import SETTINGS, only_on_request, program, python_with

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "picable_client.py"


def converse(executable: str, folders: AgentFolders, *arguments: str) -> dict[str, Any]:
    """Hold the conversation; what the client saw."""
    with ModelServer() as server:
        folders.configure(providers(server.url), SETTINGS)
        server.answers("Looking. ", Call("bash", {"command": "echo found"}))
        server.answers("It was there.")
        server.fails(529, "Overloaded", kind="overloaded_error")
        server.answers("At last.")
        server.answers("On and on", Hang())
        server.answers("THE SUMMARY")
        for _ in range(4):
            server.answers("The last one.")
        done = subprocess.run(
            [str(python_with("picable==0.1.0")), str(DRIVER), executable, str(folders.work), *arguments],
            env=folders.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def script(folder: Path, words: list[str]) -> str:
    """A program of one word."""
    made = folder / "agent"
    made.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    made.chmod(0o700)
    return str(made)


@pytest.mark.parametrize("named", ["flag", "program"])
def test_a_strict_client_sees_what_it_sees_of_the_original(named: str, tmp_path: Path) -> None:
    ours, original = AgentFolders(tmp_path / "ours"), AgentFolders(tmp_path / "original")
    if named == "program":
        (executable,) = command_line_named(ours, "pi-0.73")
        seen = converse(executable, ours)
    else:
        (executable,) = command_line_named(ours, "pi")
        seen = converse(executable, ours, "--dialect", "pi-0.73")
    assert seen == converse(script(tmp_path, program("pi-0.73.1")), original)
    assert seen["last"] == "The last one."
