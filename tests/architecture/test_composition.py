"""`app` puts an agent together and is out of the way then: no function of it runs while the agent works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from pigeon.frontends.serve.workers.warming import simulate_conversation
from pigeon.wire import codec
from support.agent_folders import AgentFolders
from support.in_process_agent import InProcessAgent, bash
from support.source_tree import ROOT

PACKAGE = str(ROOT / "src" / "pigeon") + os.sep
APP = PACKAGE + "app"


@contextmanager
def calls_of_app() -> Iterator[list[str]]:
    """The functions of `app` that are called meanwhile, lambdas and comprehensions included."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(APP):
            called.append(frame.f_code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def calls_while_it_works(calls: Iterable[tuple[str, str]]) -> list[str]:
    """Of calls as file and function, those of `app` from the first prompt until the agent is closed."""
    found: list[str] = []
    prompted = False
    for file, function in calls:
        prompted = prompted or function == "Prompting.prompt"
        if prompted and function == "Lifecycle.close_extensions":
            return found
        if prompted and file.startswith("app"):
            found.append(function)
    raise AssertionError("the agent was not prompted and closed")


def _copy_to(folder: Path, session: Path) -> Path:
    """The same conversation in another working directory."""
    lines = session.read_bytes().splitlines(keepends=True)
    header = {**codec.decode(lines[0]), "cwd": str(folder), "id": "elsewhere"}
    copy = session.with_name("elsewhere.jsonl")
    copy.write_bytes(codec.encode(header) + b"\n" + b"".join(lines[1:]))
    return copy


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    made = InProcessAgent(tmp_path)
    made.configure(
        {"permissions": {"deny": ["bash(rm*)"]}},
        [bash("echo one"), bash("rm -rf x"), "done", "and again"],
        EXAMPLE_API_KEY="sk-1234567890abcdef",
    )
    (made.work / ".pigeon" / "rules").mkdir(parents=True)
    (made.work / ".mcp.json").write_text('{"mcpServers": {}}')
    yield made
    await made.stop()


async def test_nothing_of_app_is_called_during_a_prompt_with_tool_calls(agent: InProcessAgent) -> None:
    await agent.start()
    with calls_of_app() as called:
        await agent.prompt("go")
    assert agent.results()[0] == "one\n"
    assert "rm" in agent.results()[1]
    assert called == []


async def test_nothing_of_app_is_called_when_the_host_decides_about_trust(agent: InProcessAgent) -> None:
    session = (await agent.start()).session
    with calls_of_app() as called:
        assert session.dependencies.trust.set_decision(trusted=True, keep=False).trusted
        await agent.prompt("go")
    assert called == []


async def test_nothing_of_app_is_called_when_the_conversation_moves_to_another_folder(agent: InProcessAgent) -> None:
    session = (await agent.start()).session
    other = agent.root / "other"
    other.mkdir()
    await agent.prompt("go")
    file = session.journal.file
    assert file is not None
    moved = _copy_to(other, Path(file))
    with calls_of_app() as called:
        await session.switching.veto_or_open(str(moved))
        assert session.dependencies.files.find_files("x", 5) == []
        await agent.prompt("go on")
    assert session.journal.cwd == str(other)
    assert called == []


async def test_nothing_of_app_is_called_while_a_served_conversation_works(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls.append((frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        await simulate_conversation("warm-messages/messages", str(tmp_path), os.environ["PATH"], 2)
    finally:
        sys.setprofile(None)
    assert calls_while_it_works(calls) == []


@pytest.mark.parametrize("arguments", [["-p"], ["--mode", "json"]], ids=["-p", "json"])
def test_nothing_of_app_is_called_while_a_prompt_of_the_command_line_is_answered(
    tmp_path: Path, arguments: list[str]
) -> None:
    folders, log = AgentFolders(tmp_path), tmp_path / "calls.json"
    script = tmp_path / "script.json"
    script.write_text(json.dumps([bash("echo one"), "done"]))
    tracer = str(ROOT / "scripts" / "prompt_trace.py")
    subprocess.run(
        [sys.executable, tracer, str(ROOT), str(log), "--model", f"scripted/{script}", *arguments, "go"],
        cwd=folders.work,
        env=folders.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )
    assert calls_while_it_works((file, function) for file, function, *_ in json.loads(log.read_text())) == []
