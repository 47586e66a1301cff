"""Options behind `--` of `pigeon serve`: they are those of every agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pigeon
from pigeon.cli.running import run
from pigeon.wire.errors import UsageError
from pigeon.wire.messages import ToolResultMessage
from support.pigeon_serve import ServedConversations


async def test_every_agent_has_the_options_and_paths_are_meant_from_the_folder_of_the_call(tmp_path: Path) -> None:
    rules = tmp_path / "work" / "rules.json"
    rules.parent.mkdir(exist_ok=True)
    rules.write_text('{"deny": ["bash"]}')
    server = ServedConversations(tmp_path, "--", "--permissions", "rules.json", "--thinking", "low")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    try:
        url = f"{server.ws}/{server.new(cwd=elsewhere)}"
        async with pigeon.Client(url=url, token=server.token) as client:
            assert (await client.get_state()).thinking_level == "low"
            assert (await client.get_permissions()).host.deny == ["bash"]
    finally:
        server.stop()


PHASES = [{"name": "Work", "tasks": [{"content": "one"}]}]
PLAN = {"name": "todo", "arguments": {"ops": [{"op": "replace", "phases": PHASES}]}}
JOBS = {"name": "jobs", "arguments": {"action": "list"}}


@pytest.mark.parametrize("offers", [[], ["plans"], ["agents"], ["plans", "agents"]])
async def test_the_model_has_the_tools_for_what_the_page_that_asked_for_the_conversation_shows(
    tmp_path: Path, offers: list[str]
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"toolCalls": [PLAN, JOBS]}], "default": "Done."}))
    server = ServedConversations(tmp_path)
    try:
        body = {"cwd": str(tmp_path / "work"), "model": f"scripted/{script}", **dict.fromkeys(offers, True)}
        url = f"{server.ws}/{server.call('POST', '/api/sessions', body)['id']}"
        async with pigeon.Client(url=url, token=server.token) as client:
            await client.run("plan it")
            messages = (await client.get_messages()).messages
            failed = [one.is_error for one in messages if isinstance(one, ToolResultMessage)]
            assert failed == ["plans" not in offers, "agents" not in offers]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--nonsense"], "--nonsense"),
        (["hello"], "hello"),
        (["--session", "x"], "--session"),
        (["--continue"], "--continue"),
        (["--record", "x"], "--record"),
    ],
)
def test_what_is_no_option_of_all_agents_is_an_error(words: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        run("pigeon", ["serve", "--", *words])
