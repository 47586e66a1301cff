"""`pi-agent-python-sdk` from PyPI, unmodified, through a conversation.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the package goes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from fakes import contract_extension
from fakes.model_server import Call, Hang, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import command_line_named
from support.installed_programs import only_on_request, python_with

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "python_sdk.py"


def test_the_python_sdk_holds_a_whole_conversation(tmp_path: Path) -> None:
    python = python_with("pi-agent-python-sdk==0.2.6")
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(providers(server.url))
        server.answers("Looking. ", Call("bash", {"command": "echo found"}))
        server.answers("It was there.")
        server.answers("On and on", Hang())
        server.answers("From the second.")
        done = subprocess.run(
            [
                str(python),
                str(DRIVER),
                *command_line_named(folders, "pi"),
                str(folders.work),
                contract_extension.__file__,
            ],
            env=folders.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["state"]["model"]["id"] == "fake-1"
    assert seen["first"] == ["It was there.", "stop"]
    assert seen["aborted"] == "Pi run ended with aborted"
    assert "On and on".startswith(seen["pieces"])
    assert (seen["model"], seen["second"]) == ("fake-2", "From the second.")
    assert seen["levels"] == ["off", "minimal", "low", "medium", "high"]
    assert "fake-2" in seen["models"]
    assert "ask" in seen["commands"]
    assert (seen["stats"], seen["bash"]) == (3, "from bash")
    assert (seen["tree"], seen["entries"]) == (True, True)
    assert seen["forkable"] == ["use a tool", "talk for ever", "again"]
    assert seen["dialog"] == "confirm: True"
    assert seen["host_tools"] == ["echo_host"]
    assert (seen["new"], seen["empty"]) == (False, [])
    assert seen["stderr"] == ""
