"""Tool servers that an editor hands over: the official SDK of the Agent Client Protocol is the editor, a server of the
official Python package is the server, and a tool of it is called in every way in which a session can be opened.

Runs with `make interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import command_line
from support.installed_programs import node, npm_package, only_on_request

pytestmark = only_on_request
SDK = ("@agentclientprotocol/sdk", "2.4.0")
CLIENT = Path(__file__).parent / "clients" / "acp_servers.mjs"
SERVER = Path(__file__).parent / "mcp_servers" / "python_sdk_server.py"
TOOL = "mcp__register__population"
RULES = [
    {"when": {"toolResult": "340000"}, "reply": "It is 340000."},
    {"when": {"toolResult": TOOL}, "reply": {"toolCalls": [{"name": TOOL, "arguments": {"city": "Bonn"}}]}},
    {"when": {"user": "how many"}, "reply": {"toolCalls": [
        {"name": "tool_search", "arguments": {"query": "population"}}]}},
]  # fmt: skip


@contextmanager
def listening(kind: str) -> Iterator[dict[str, Any]]:
    """A server by HTTP, as an editor names it."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with subprocess.Popen([sys.executable, str(SERVER), kind, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert process.poll() is None
                    assert time.monotonic() < end
                    time.sleep(0.05)
            path = "mcp" if kind == "http" else "sse"
            yield {"type": kind, "name": "register", "url": f"http://127.0.0.1:{port}/{path}", "headers": []}
        finally:
            process.terminate()


@contextmanager
def stdio_server(kind: str) -> Iterator[dict[str, Any]]:
    """A server that Pigeon starts itself; version 1 has no type for it."""
    kinds = {} if kind == "1" else {"type": "stdio"}
    yield {**kinds, "name": "register", "command": sys.executable, "args": [str(SERVER), "stdio"], "env": []}


@pytest.mark.parametrize(
    ("version", "kind"), [("1", "stdio"), ("1", "http"), ("1", "sse"), ("2", "stdio"), ("2", "http")]
)
def test_a_tool_of_a_server_that_the_editor_hands_over_is_called(tmp_path: Path, version: str, kind: str) -> None:
    package = npm_package(*SDK)
    folders = AgentFolders(tmp_path)
    folders.configure()
    (folders.temp / "script.json").write_text(json.dumps({"rules": RULES, "default": "ok"}))
    agent = [*command_line(), "acp", "--approval-mode", "always-ask", "--model"]
    with stdio_server(version) if kind == "stdio" else listening(kind) as server:
        ended = subprocess.run(
            [node(), str(CLIENT), str(package), version, json.dumps(server), str(folders.work),
             *agent, f"scripted/{folders.temp / 'script.json'}"],
            env=folders.environment({"PATH": os.environ["PATH"]}),
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    assert list(said["ways"]) == ["new", *(["load"] if version == "1" else []), "resume", "fork"]
    for way in said["ways"].values():
        assert way == {"said": "It is 340000.", "raw": {"name": "Bonn", "people": 340_000}}
    assert sum(TOOL in question for question in said["questions"]) == len(said["ways"])
    assert said["code"] == 0
