"""Two agents in one process, with different folders, variables, settings, trust and extensions: nothing leaks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import UNSET

from pigeon.dialects.base import Dialect
from pigeon.rpc.handlers.state import get_state
from pigeon.rpc.session_connection import SessionConnection
from pigeon.wire.commands import GetState
from support.in_process_agent import InProcessAgent, bash

COUNTING = """
from pigeon.extensions import Extension, ToolContext

ext = Extension("counting")
who = ext.flag("who", default="")
seen = []

@ext.tool
def count(ctx: ToolContext, word: str) -> str:
    "Count words."
    seen.append(word)
    return f"{who.value} in {ctx.cwd}: {' '.join(seen)}"
"""


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[InProcessAgent, InProcessAgent]]:
    ours = InProcessAgent(tmp_path / "one"), InProcessAgent(tmp_path / "two")
    yield ours
    for one in ours:
        if one.is_running:
            await one.stop()


class Gate:
    """A FIFO: a command that does `read < gate` waits until it is opened."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "gate")
        self._descriptor = os.open(folder / "gate", os.O_RDWR | os.O_CLOEXEC)

    def open(self) -> None:
        os.write(self._descriptor, b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


async def test_two_conversations_at_once_keep_folders_variables_and_files_apart(
    pair: tuple[InProcessAgent, InProcessAgent],
) -> None:
    one, two = pair
    gate = Gate(one.work)
    known = "session=$PI_SESSION_ID file=$PI_SESSION_FILE"
    look = f'pwd; echo "own=$OWN one=$ONLY_ONE two=$ONLY_TWO key=$ANTHROPIC_API_KEY {known}"'
    one.configure(
        replies=[bash(f"read < gate; {look}"), "first of one", bash(look), "second of one"], OWN="1", ONLY_ONE="y"
    )
    two.configure(replies=[bash(look), "first of two", bash(look), "second of two"], OWN="2", ONLY_TWO="z")
    await one.start()
    await two.start()
    await one.ask("hello one")
    await two.prompt("hello two")
    await two.prompt("again two")
    gate.open()
    await one.wait_until_settled()
    gate.close()
    await one.prompt("again one")
    for agent, own, others in ((one, "own=1 one=y two=", "two"), (two, "own=2 one= two=z", "one")):
        session = agent.agent.session.journal
        expected = f"{agent.work}\n{own} key= session={session.session_id} file={session.file}"
        assert [result.strip() for result in agent.results()] == [expected, expected]
        assert session.file is not None
        assert Path(session.file).is_relative_to(agent.agent_dir / "sessions")
        text = await asyncio.to_thread(Path(session.file).read_text)
        assert f"hello {others}" not in text
        assert str(pair[others == "two"].work) not in text
        said = [event for event in agent.events if event["type"] != "tools_declared"]
        assert not [event for event in said if f"of {others}" in json.dumps(event)]
        assert not list((pair[others == "two"].agent_dir / "sessions").rglob(f"*{session.session_id}*"))


async def test_keys_models_and_settings_are_each_agents_own(pair: tuple[InProcessAgent, InProcessAgent]) -> None:
    one, two = pair
    one.configure({"steeringMode": "all", "defaultThinkingLevel": "high"}, ANTHROPIC_API_KEY="sk-one")
    two.configure({"defaultTools": ["read", "ls"], "retry": {"enabled": False}}, OPENAI_API_KEY="sk-two")
    first, second = await one.start(interrupt_mode="wait"), await two.start(no_session=True)
    known = [{model.provider for model in agent.session.models.list_available()} for agent in (first, second)]
    assert known == [{"scripted", "anthropic"}, {"scripted", "openai"}]
    assert [agent.session.models.level for agent in (first, second)] == ["high", "medium"]
    assert list(second.session.toolset.active_tools()) == ["read", "ls"]
    assert "bash" in first.session.toolset.active_tools()
    states = [get_state(GetState(), SessionConnection(agent.session, Dialect())) for agent in (first, second)]
    assert [state.steering_mode for state in states] == ["all", "one-at-a-time"]
    assert [state.interrupt_mode for state in states] == ["wait", "immediate"]
    assert [state.session_file is UNSET for state in states] == [False, True]


async def test_permissions_and_trust_are_each_agents_own(pair: tuple[InProcessAgent, InProcessAgent]) -> None:
    one, two = pair
    for agent in pair:
        extensions = agent.work / ".pigeon" / "extensions"
        extensions.mkdir(parents=True)
        (extensions / "counting.py").write_text(COUNTING)
    one.configure({"permissions": {"deny": ["bash(echo *)"]}}, [bash("echo secret"), "done"])
    two.configure({}, [bash("echo secret"), "done"])
    await one.start(trust_project=True)
    await two.start(trust_project=False)
    await asyncio.gather(one.prompt("go"), two.prompt("go"))
    assert one.results()[0].startswith("Permission denied for bash: echo secret")
    assert two.results() == ["secret\n"]
    assert one.agent.session.toolset.find_tool("count") is not None
    assert two.agent.session.toolset.find_tool("count") is None


async def test_extensions_reports_and_the_system_prompt_are_each_agents_own(
    pair: tuple[InProcessAgent, InProcessAgent], tmp_path: Path
) -> None:
    extension = tmp_path / "counting.py"
    extension.write_text(COUNTING)
    for name, agent in zip(("one", "two"), pair, strict=True):
        call = {"toolCalls": [{"name": "count", "arguments": {"word": name}}]}
        agent.configure(replies=[call, "counted", call, "counted"])
        (agent.agent_dir / "AGENTS.md").write_text(f"Be number {name}.")
        await agent.start(extensions=(str(extension),), flags={"who": name})
    one, two = pair
    (one.agent_dir / "skills" / "broken").mkdir(parents=True)
    (one.agent_dir / "skills" / "broken" / "SKILL.md").write_text("no head")
    await asyncio.gather(one.prompt("go"), two.prompt("go"))
    await asyncio.gather(one.prompt("go"), two.prompt("go"))
    assert one.results() == [f"one in {one.work}: one", f"one in {one.work}: one one"]
    assert two.results() == [f"two in {two.work}: two", f"two in {two.work}: two two"]
    assert [notice["method"] for notice in one.events_of("extension_ui_request")] == ["notify"]
    assert two.events_of("extension_ui_request") == []
    prompts = [agent.agent.session.system_prompt.text() for agent in pair]
    assert ["number one" in prompt for prompt in prompts] == [True, False]
    assert ["number two" in prompt for prompt in prompts] == [False, True]


async def test_the_end_of_one_agent_leaves_the_other_with_its_running_command(
    pair: tuple[InProcessAgent, InProcessAgent], tmp_path: Path
) -> None:
    one, two = pair
    extension = tmp_path / "counting.py"
    extension.write_text(COUNTING)
    gate = Gate(two.work)
    call = {"toolCalls": [{"name": "count", "arguments": {"word": "x"}}]}
    one.configure(replies=[bash("echo done"), "done"])
    two.configure(replies=[bash("read < gate; echo alive"), "done", bash("echo still"), call, "done"])
    for agent in pair:
        await agent.start(extensions=(str(extension),), flags={"who": "me"})
    await one.prompt("go")
    await two.ask("go")
    await two.until("tool_execution_start")
    await one.stop()
    gate.open()
    await two.wait_until_settled()
    gate.close()
    await two.prompt("and now?")
    assert two.results() == ["alive\n", "still\n", f"me in {two.work}: x"]
