"""The client that oh-my-pi ships, unmodified, sees children as from the original: frames, the list, and transcripts.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`. Not every package that 18.3.4 names can be had: its client runs with
those of 18.2.0, of which it needs few.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import command_line_named
from support.installed_programs import npm_package, npm_source, only_on_request

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "omp_subagents.ts"
NAME = "@oh-my-pi/pi-coding-agent"
PROGRESS = {
    *(
        "index",
        "id",
        "agent",
        "agentSource",
        "status",
        "task",
        "assignment",
        "recentTools",
        "recentOutput",
        "toolCount",
    ),
    *("requests", "tokens", "cost", "durationMs", "contextWindow", "resolvedModel"),
}


@pytest.mark.parametrize("version", ["18.2.0", "18.3.4"])
def test_the_client_of_oh_my_pi_sees_children(version: str, tmp_path: Path) -> None:
    installed = npm_package(NAME, "18.2.0", "bun@1.4.4")
    modules = installed.parents[1]
    package = installed if version == "18.2.0" else npm_source(NAME, version, modules)
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(providers(server.url))
        server.answers("Look. ", Call("task", {"prompt": "CHILD", "title": "look"}))
        server.answers("So. ", Call("bash", {"command": "while [ ! -e go ]; do :; done"}))
        server.answers("It says hi.")
        server.answers("Done.")
        options = {"cwd": str(folders.work), "provider": "fake", "model": "fake-1"}
        module = package / "src" / "modes" / "rpc" / "rpc-client.ts"
        words = [str(module), *command_line_named(folders, "omp"), json.dumps(options), str(folders.work / "go")]
        done = subprocess.run(
            [str(modules / ".bin" / "bun"), str(DRIVER), *words],
            env=folders.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["level"] == "events"
    assert [payload["status"] for payload in seen["lifecycle"]] == ["started", "completed"]
    [id] = {payload["id"] for payload in seen["lifecycle"]}
    assert {payload["description"] for payload in seen["lifecycle"]} == {"look"}
    progress = [payload["progress"] for payload in seen["progress"]]
    assert all(one.keys() >= PROGRESS for one in progress)
    assert (progress[0]["status"], progress[-1]["status"]) == ("pending", "completed")
    assert {one["task"] for one in progress} == {"CHILD"}
    assert progress[-1]["recentTools"][0]["tool"] == "bash"
    [running] = seen["listing"]
    assert (running["id"], running["status"], running["progress"]["currentTool"]) == (id, "running", "bash")
    assert seen["after"] == []
    kinds = [kind for one, kind in seen["events"] if one == id]
    assert (kinds[0], kinds[-1]) == ("agent_start", "agent_end")
    assert {"turn_start", "message_update", "tool_execution_start", "tool_execution_end", "turn_end"} <= set(kinds)
    assert [message["role"] for message in seen["page"]["messages"]] == ["user", "assistant", "toolResult", "assistant"]
    assert (seen["rest"]["fromByte"], seen["rest"]["entries"]) == (seen["page"]["nextByte"], [])
    assert seen["stderr"] == ""
