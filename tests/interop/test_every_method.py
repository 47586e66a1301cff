"""Every method of the clients that others wrote, unmodified: none fails, none waits in vain, none is left out.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Hang, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import command_line_named
from support.installed_programs import (
    SHIM,
    node,
    npm_package,
    npm_source,
    only_on_request,
    python_with,
    shim_environment,
)

pytestmark = only_on_request
CLIENTS = Path(__file__).parent / "clients"
SETTINGS = {"compaction": {"keepRecentTokens": 20, "reserveTokens": 1000}}
INTERNALS = ("handleLine", "send", "getData", "createProcessExitError", "rejectPendingRequests")
PI = [
    ("@mariozechner/pi-coding-agent", "0.73.1"),
    ("@earendil-works/pi-coding-agent", "0.87.1"),
    ("@earendil-works/pi-coding-agent", "1.5.0"),
]
OMP = "@oh-my-pi/pi-coding-agent"
REFUSED = {
    "getSubagentMessages": "Unknown subagent or session file unavailable: none",
    "login": "Unknown OAuth provider: nowhere",
}
PYTHON = [("pi-agent-python-sdk==0.2.6", "pi_agent"), ("pi-py-sdk==0.2.1", "pi_py_sdk")]


def run_driver(folders: AgentFolders, command: list[str]) -> dict[str, Any]:
    """Run a driver against a model that answers every prompt; what it printed."""
    with ModelServer() as server:
        folders.configure(providers(server.url), SETTINGS)
        server.answers("first")
        server.answers("On and on", Hang())
        for number in range(9):
            server.answers(f"answer {number}")
        done = subprocess.run(
            command,
            env=shim_environment(folders.environment()),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert (seen["failed"], seen["uncalled"]) == ({}, [])
    assert (seen["bash"], bool(seen["compacted"])) == ("from bash", True)
    return seen


def options(folders: AgentFolders, **more: Any) -> str:
    return json.dumps({"cwd": str(folders.work), "provider": "fake", "model": "fake-1", **more})


@pytest.mark.parametrize(("name", "version"), PI)
@pytest.mark.parametrize("dialect", ["pi", "pi-latest"])
def test_every_method_of_the_client_of_pi(name: str, version: str, dialect: str, tmp_path: Path) -> None:
    module = npm_source(name, version) / "dist" / "modes" / "rpc" / "rpc-client.js"
    folders = AgentFolders(tmp_path)
    given = options(folders, cliPath=str(SHIM), args=["--dialect", dialect])
    seen = run_driver(folders, [node(), str(CLIENTS / "every_method.mjs"), str(module), given, *INTERNALS])
    last = "agent_end" if version == "0.73.1" else "agent_settled"
    assert (seen["run"], seen["collected"], seen["stopped"], seen["stderr"]) == (last, last, True, "")
    assert Path(seen["exported"]).exists()


@pytest.mark.parametrize("version", ["18.2.0", "18.3.4"])
def test_every_method_of_the_client_of_oh_my_pi(version: str, tmp_path: Path) -> None:
    whole = npm_package(OMP, "18.2.0", "bun@1.4.4").parents[2]
    package = npm_source(OMP, version, within=whole)
    bun = whole / "node_modules" / ".bin" / "bun"
    folders = AgentFolders(tmp_path)
    given = options(folders, command=[*command_line_named(folders, "omp"), "--mode", "rpc"], customTools=True)
    module = package / "src" / "modes" / "rpc" / "rpc-client.ts"
    seen = run_driver(folders, [str(bun), str(CLIENTS / "every_method.mjs"), str(module), given])
    assert (seen["run"], seen["collected"], seen["stopped"], seen["stderr"]) == ("agent_end", "agent_end", True, "")
    assert "long time" not in seen["refused"].pop("handoff", "")
    assert (seen["refused"], seen["page"]) == (REFUSED, 1)
    if version == "18.3.4":
        assert seen["heard"]["results"] == seen["heard"]["settled"] == 5


@pytest.mark.parametrize(("requirement", "module"), PYTHON)
def test_every_method_of_the_sdks_in_python(requirement: str, module: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    driver = [str(python_with(requirement)), str(CLIENTS / "every_method.py"), module]
    assert run_driver(folders, [*driver, *command_line_named(folders, "pi"), str(folders.work)])["run"] is True
