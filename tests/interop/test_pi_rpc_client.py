"""The client that pi ships, in the versions that matter, unmodified, through a conversation.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes import contract_extension
from fakes.model_server import Call, Hang, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import command_line
from support.installed_programs import SHIM, node, npm_source, only_on_request, shim_environment
from support.pigeon_serve import ServedConversations

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "rpc_client.mjs"
CLIENTS = [
    ("@mariozechner/pi-coding-agent", "0.73.1"),
    ("@earendil-works/pi-coding-agent", "0.87.1"),
    ("@earendil-works/pi-coding-agent", "1.5.0"),
]
PLAIN_RUN = ["agent_start", "turn_start", "message_start", "message_end", "message_start"]


def seen_by(package: Path, dialect: str, folders: AgentFolders, program: Path | None = None) -> dict[str, Any]:
    """Hold the conversation, and give what the client saw; `program` is another one than ours itself."""
    options = {
        "cliPath": str(SHIM),
        "cwd": str(folders.work),
        "provider": "fake",
        "model": "fake-1",
        "args": ["--dialect", dialect, "--extension", contract_extension.__file__],
    }
    done = subprocess.run(
        [node(), str(DRIVER), str(package / "dist" / "modes" / "rpc" / "rpc-client.js"), json.dumps(options)],
        env=shim_environment(folders.environment()) | ({} if program is None else {"PIGEON_PROGRAM": str(program)}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("name", "version"), CLIENTS)
@pytest.mark.parametrize("dialect", ["pi", "pi-latest"])
def test_the_client_of_pi_holds_a_whole_conversation(name: str, version: str, dialect: str, tmp_path: Path) -> None:
    package = npm_source(name, version)
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(providers(server.url))
        answer_all(server)
        seen = seen_by(package, dialect, folders)
    check_all(seen, version)


@pytest.mark.parametrize(("name", "version"), CLIENTS)
@pytest.mark.parametrize("dialect", ["pi", "pi-latest"])
def test_the_client_of_pi_holds_it_with_a_served_conversation(
    name: str, version: str, dialect: str, tmp_path: Path
) -> None:
    package = npm_source(name, version)
    served = ServedConversations(tmp_path)
    folders, program = served.folders, tmp_path / "attach"
    words = ["attach", f"unix:{served.socket}", "--new", str(folders.work), "--model", "fake/fake-1"]
    program.write_text(f"#!/bin/sh\nexec {shlex.join([*command_line(), *words, '--dialect', dialect])}\n")
    program.chmod(0o700)
    try:
        with ModelServer() as server:
            folders.configure(providers(server.url), {"extensions": [contract_extension.__file__]})
            answer_all(server)
            seen = seen_by(package, dialect, folders, program)
    finally:
        served.stop()
    check_all(seen, version)


def answer_all(server: ModelServer) -> None:
    """What the model says in it."""
    server.answers("Looking. ", Call("bash", {"command": "echo found"}))
    server.answers("It was there.")
    server.answers("On and on", Hang())
    server.answers("From the second.")
    server.answers(Call("echo_host", {"message": "hello"}))
    server.answers("The host spoke.")


def check_all(seen: dict[str, Any], version: str) -> None:
    """What its client must have seen."""
    assert seen["state"]["model"]["id"] == "fake-1"
    assert "fake/fake-2" in seen["models"]
    assert "ask" in seen["commands"]
    assert seen["first"][:5] == PLAIN_RUN
    assert seen["first"][-1] == ("agent_end" if version == "0.73.1" else "agent_settled")
    assert (seen["firstText"], seen["toolResult"]) == ("Looking. It was there.", "found")
    assert seen["aborted"] == "aborted"
    assert (seen["model"], seen["second"]) == ("fake-2", "From the second.")
    assert seen["failure"] == "Model not found: no/such"
    assert seen["dialog"] == "confirm: True"
    assert seen["hostTools"] == ["echo_host"]
    assert (seen["hostResult"], seen["third"]) == ("host says hello", "The host spoke.")
    assert (seen["bash"], seen["lastText"]) == ("from bash", "The host spoke.")
    assert seen["stats"]["userMessages"] == 4
    assert seen["forkable"] == ["use a tool", "talk for ever", "again", "use the host"]
    assert seen["after"] == ["fake-2", "low", "interop"]
    assert seen["fork"] == {"text": "talk for ever", "cancelled": False}
    assert (seen["newSession"], seen["empty"]) == ({"cancelled": False}, [])
    assert seen["stopMs"] < 1000
    assert seen["stderr"] == ""
