"""The loop of pi 0.73.1's own client, which takes `agent_end` for the end, with something that follows it.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the packages go.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders, model, providers
from support.agent_process import command_line
from support.installed_programs import SHIM, node, npm_source, only_on_request, program, shim_environment
from support.pigeon_serve import ServedConversations

pytestmark = only_on_request
DRIVER = Path(__file__).parent / "clients" / "prompt_loop.mjs"
CLIENT = ("@mariozechner/pi-coding-agent", "0.73.1")
# The client must have sent its next prompt before a second attempt has ended.
SETTINGS = {"compaction": {"keepRecentTokens": 50, "reserveTokens": 1000}, "retry": {"baseDelayMs": 2000}}
SMALL = [model("fake-1", contextWindow=10_000, maxTokens=1000)]
LONG = "lorem ipsum dolor sit amet " * 40
PROMPTS = [f"one {LONG}", f"two {LONG}", "three", "four"]


def loop(folders: AgentFolders, cli: str, args: list[str], program: Path | None = None) -> list[dict[str, Any]]:
    """What each prompt saw."""
    options = {"cliPath": cli, "cwd": str(folders.work), "provider": "fake", "model": "fake-1", "args": args}
    module = npm_source(*CLIENT) / "dist" / "modes" / "rpc" / "rpc-client.js"
    done = subprocess.run(
        [node(), str(DRIVER), str(module), json.dumps(options), json.dumps(PROMPTS)],
        env=shim_environment(folders.environment()) | ({} if program is None else {"PIGEON_PROGRAM": str(program)}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: list[dict[str, Any]] = json.loads(done.stdout)
    return seen


def prepare(folders: AgentFolders, server: ModelServer, follows: str) -> None:
    folders.configure(providers(server.url, SMALL), SETTINGS)
    server.answers("ok")
    if follows == "retry":
        server.fails(529, "Overloaded", kind="overloaded_error")
    server.answers("ok", usage={"input_tokens": 9_500} if follows == "compaction" else None)
    # As many as any agent asks for: pi 0.73.1 summarizes twice.
    for _ in range(6):
        server.answers("ok")


def check(seen: list[dict[str, Any]]) -> None:
    """Four prompts, four answers, each with its own."""
    assert [(one["said"][-1], one["answer"], one["stopReason"]) for one in seen] == [
        (prompt, "ok", "stop") for prompt in PROMPTS
    ]


def test_the_original_answers_each_prompt_of_its_client(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        prepare(folders, server, "compaction")
        check(loop(folders, program("pi-0.73.1")[-1], []))


@pytest.mark.parametrize("dialect", ["pi", "pi-0.73"])
def test_so_does_ours_at_a_compaction(dialect: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        prepare(folders, server, "compaction")
        check(loop(folders, str(SHIM), ["--dialect", dialect]))


@pytest.mark.parametrize("dialect", ["pi", "pi-0.73"])
def test_at_a_retry_the_next_prompt_has_its_own_answer(dialect: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        prepare(folders, server, "retry")
        seen = loop(folders, str(SHIM), ["--dialect", dialect])
    assert [one["said"][-1:] for one in seen] == [[prompt] for prompt in PROMPTS]
    # This client takes the end of the failed attempt for that of its prompt.
    assert [one["stopReason"] for one in seen] == ["stop", "error", "stop", "stop"]


@pytest.mark.parametrize("dialect", ["pi", "pi-0.73"])
def test_so_does_a_served_conversation(dialect: str, tmp_path: Path) -> None:
    served = ServedConversations(tmp_path)
    folders, attach = served.folders, tmp_path / "attach"
    words = ["attach", f"unix:{served.socket}", "--new", str(folders.work), "--model", "fake/fake-1"]
    attach.write_text(f"#!/bin/sh\nexec {shlex.join([*command_line(), *words, '--dialect', dialect])}\n")
    attach.chmod(0o700)
    try:
        with ModelServer() as server:
            prepare(folders, server, "compaction")
            check(loop(folders, str(SHIM), [], attach))
    finally:
        served.stop()
