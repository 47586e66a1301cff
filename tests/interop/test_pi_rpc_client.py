"""The client that pi ships, in the versions that matter, unmodified, through a conversation.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `fakes/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes import contract_extension
from fakes.agent_folders import AgentFolders, providers
from fakes.installed_programs import SHIM, node, npm_source, only_on_request, shimmed
from fakes.model_server import Call, Hang, ModelServer

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "rpc_client.mjs"
CLIENTS = [
    ("@mariozechner/pi-coding-agent", "0.73.1"),
    ("@earendil-works/pi-coding-agent", "0.87.1"),
    ("@earendil-works/pi-coding-agent", "1.5.0"),
]
PLAIN_RUN = ["agent_start", "turn_start", "message_start", "message_end", "message_start"]


def seen_by(package: Path, dialect: str, folders: AgentFolders) -> dict[str, Any]:
    """Hold the conversation, and give what the client saw."""
    options = {
        "cliPath": str(SHIM),
        "cwd": str(folders.work),
        "provider": "fake",
        "model": "fake-1",
        "args": ["--dialect", dialect, "--extension", contract_extension.__file__],
    }
    done = subprocess.run(
        [node(), str(DRIVER), str(package / "dist" / "modes" / "rpc" / "rpc-client.js"), json.dumps(options)],
        env=shimmed(folders.environment()),
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
        server.answers("Looking. ", Call("bash", {"command": "echo found"}))
        server.answers("It was there.")
        server.answers("On and on", Hang())
        server.answers("From the second.")
        server.answers(Call("echo_host", {"message": "hello"}))
        server.answers("The host spoke.")
        seen = seen_by(package, dialect, folders)
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
