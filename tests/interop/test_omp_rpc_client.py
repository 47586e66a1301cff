"""The client that oh-my-pi ships, unmodified, through a conversation.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; its packages are large. `support/installed_programs.py` says where
they go.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from fakes.model_server import Call, Hang, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import command_line, command_line_named
from support.installed_programs import npm_package, only_on_request
from support.pigeon_serve import ServedConversations

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "omp_client.ts"
CLIENT = ("@oh-my-pi/pi-coding-agent", "18.2.0")


def test_the_client_of_oh_my_pi_holds_a_whole_conversation(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    hold_it(folders, command_line_named(folders, "omp"))


def test_the_client_of_oh_my_pi_holds_it_with_a_served_conversation(tmp_path: Path) -> None:
    served = ServedConversations(tmp_path)
    program = tmp_path / "attach"
    words = ["attach", f"unix:{served.socket}", "--new", str(served.folders.work), "--model", "fake/fake-1"]
    program.write_text(f"#!/bin/sh\nexec {shlex.join([*command_line(), *words, '--dialect', 'omp'])}\n")
    program.chmod(0o700)
    try:
        hold_it(served.folders, [str(program)])
    finally:
        served.stop()


def hold_it(folders: AgentFolders, program: list[str]) -> None:
    package = npm_package(*CLIENT, "bun@1.4.4")
    bun = package.parents[1] / ".bin" / "bun"
    with ModelServer() as server:
        folders.configure(providers(server.url), {"retry": {"baseDelayMs": 1}})
        server.answers("Looking. ", Call("bash", {"command": "echo found"}))
        server.answers("It was there.")
        server.answers("On and on", Hang())
        server.answers("From the second.")
        server.answers(Call("echo_host", {"message": "hello"}))
        server.answers("The host spoke.")
        server.fails(529, "Overloaded", kind="overloaded_error")
        server.answers("At last.")
        options = {"cwd": str(folders.work), "provider": "fake", "model": "fake-1"}
        module = package / "src" / "modes" / "rpc" / "rpc-client.ts"
        done = subprocess.run(
            [str(bun), str(DRIVER), str(module), *program, json.dumps(options)],
            env=folders.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["state"]["model"]["id"] == "fake-1"
    assert "fake/fake-2" in seen["models"]
    assert seen["commands"] == []
    assert (seen["first"][0], seen["first"][-1]) == ("agent_start", "agent_end")
    assert seen["firstText"] == "Looking. It was there."
    assert seen["aborted"] == "aborted"
    assert (seen["model"], seen["second"]) == ("fake-2", "From the second.")
    assert (seen["hostResult"], seen["third"]) == ("host says hello", "The host spoke.")
    assert (seen["retried"], seen["lastText"]) == ("At last.", "At last.")
    assert (seen["bash"], seen["stats"]) == ("from bash", 5)
    assert seen["branch"] == {"text": "talk for ever", "cancelled": False}
    assert seen["newSession"] == {"cancelled": False}
    assert seen["stderr"] == ""
