"""omp-rpc-cli, which reads the tool and the command out of a permission question and denies what it cannot read: a
whole session of it, with an oh-my-pi set-up, and beside it the same with oh-my-pi itself.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import folder_with
from support.installed_programs import node, npm_from_github, npm_package, only_on_request

pytestmark = only_on_request
CLIENT = ("omp-rpc-cli", "kylebrodeur/omp-rpc-cli", "c4ed93d")
ORIGINAL = ("@oh-my-pi/pi-coding-agent", "18.2.0", "bun@1.4.4")
# What its guard denies, and what only looks like it.
DANGEROUS = "rm -rf ./nothing"


class Client:
    """Its command line, with a folder of its own for the daemon."""

    def __init__(self, folders: AgentFolders, programs: Path) -> None:
        self._program = [node(), str(npm_from_github(*CLIENT) / "bin" / "omp-rpc.js")]
        self._folders = folders
        self.runtime = folders.temp / "omp-rpc"
        path = f"{programs}:{os.environ['PATH']}"
        # No variable names the folder of the agent: it is that of its name.
        self._environment = folders.environment(
            {"PATH": path, "OMP_RPC_DIR": str(self.runtime), "PI_CODING_AGENT_DIR": ""}
        )

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._program, *words],
            env=self._environment,
            cwd=self._folders.work,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr, self.log)
        return done.stdout

    @property
    def log(self) -> list[str]:
        """What the daemon wrote, without times."""
        path = self.runtime / "daemon.log"
        return [line.partition("] ")[2] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


@pytest.fixture
def server(folders: AgentFolders) -> Iterator[ModelServer]:
    """What the model says in the session; the folder of oh-my-pi names its server and the default model."""
    with ModelServer() as server:
        agent = folders.home / ".omp" / "agent"
        agent.mkdir(parents=True)
        (agent / "models.yml").write_text(yaml.safe_dump(providers(server.url)))
        (agent / "config.yml").write_text("modelRoles: {default: fake/fake-1}\nmemory: {backend: 'off'}\n")
        server.answers("Looking. ", Call("bash", {"command": "echo found"}))
        server.answers("It was there.")
        server.answers("Now. ", Call("bash", {"command": DANGEROUS}))
        server.answers("It was refused.")
        server.answers("Writing. ", Call("write", {"path": "made.txt", "content": f"Command: {DANGEROUS}\n"}))
        server.answers("Written.")
        server.answers("From the second.")
        yield server


def hold_session(client: Client) -> dict[str, Any]:
    """A session from the list of models to its end; what a person saw of it."""
    seen: dict[str, Any] = {}
    listed = json.loads(client.run("models", "--json"))
    seen["models"] = [model["selector"] for model in listed if model["provider"] == "fake"]
    client.run("start", "--models", "fake/fake-1,fake/fake-2")
    try:
        seen["answers"] = [client.run("send", "--quiet", word).strip() for word in ("run it", "delete it", "write it")]
        seen["switched"] = client.run("model", "fake/fake-2").strip()
        seen["second"] = client.run("send", "--quiet", "again").strip()
        status = client.run("status")
        seen["turns"] = next(line.split()[-1] for line in status.splitlines() if "turns:" in line)
    finally:
        client.run("stop", "--yes", "--force")
    seen["log"] = [
        line for line in client.log if line.startswith(("approved", "BLOCKED", "omp-stderr", "prompt error"))
    ]
    return seen


def check(seen: dict[str, Any], folders: AgentFolders) -> None:
    assert seen["models"] == ["fake/fake-1", "fake/fake-2"]
    assert seen["answers"] == ["Looking. It was there.", "Now. It was refused.", "Writing. Written."]
    assert (seen["switched"], seen["second"]) == ("model -> fake/fake-2", "From the second.")
    assert seen["turns"] == "4"
    # Files in the folder need no approval in this mode.
    denied = f"BLOCKED dangerous command (recursive force rm): {DANGEROUS} -> Deny"
    assert seen["log"] == ["approved permission -> Approve", denied]
    assert (folders.work / "made.txt").read_text() == f"Command: {DANGEROUS}\n"


def test_its_session_with_an_oh_my_pi_setup(folders: AgentFolders, server: ModelServer) -> None:
    check(hold_session(Client(folders, folder_with(folders, "omp"))), folders)
    # The second request of each turn has what became of the call.
    assert "found" in json.dumps(server.requests[1]["messages"][-1])


def test_the_same_session_with_the_original(folders: AgentFolders, server: ModelServer) -> None:
    package = npm_package(*ORIGINAL)
    programs = folders.temp / "original"
    programs.mkdir()
    words = [str(package.parents[1] / ".bin" / "bun"), str(package / "src" / "cli.ts")]
    (programs / "omp").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    (programs / "omp").chmod(0o700)
    check(hold_session(Client(folders, programs)), folders)
