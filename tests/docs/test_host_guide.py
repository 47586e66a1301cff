"""The client of the host guide works as it stands there, also where lines are longer than libraries like them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, providers
from support.source_tree import ROOT

GUIDE = (ROOT / "docs" / "hosts.md").read_text("utf-8")
LIMIT_OF_ASYNCIO = 64 * 1024
MANY_QUOTES = "head -c 40000 /dev/zero | tr '\\0' '\"'"


@pytest.fixture
def client(tmp_path: Path) -> Path:
    found = re.search(r"^```python\n(.+?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None
    program = tmp_path / "client.py"
    program.write_text(found[1])
    return program


def output_of_client(client: Path, folders: AgentFolders, *options: str) -> str:
    environment = folders.environment()
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, str(client), *options],
        cwd=folders.work,
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_client_reads_lines_that_are_longer_than_the_limit_of_asyncio(client: Path, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(providers(server.url))
        server.answers(Call("bash", {"command": MANY_QUOTES}))
        server.answers("That was long.")
        text = output_of_client(client, folders, "--provider", "fake", "--model", "fake-1")
    said, _, counted = text.strip().rpartition("\n")
    assert said == "That was long."
    assert int(re.findall(r"\d+", counted)[1]) > LIMIT_OF_ASYNCIO


def test_the_client_needs_no_options(client: Path, tmp_path: Path) -> None:
    assert re.search(r"\d+ messages, \d+ bytes\n$", output_of_client(client, AgentFolders(tmp_path)))


def test_the_client_hears_that_pigeon_did_not_start(client: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Pigeon has ended"):
        output_of_client(client, AgentFolders(tmp_path), "--mode", "nonsense")
