"""The same conversation in all three ways: the same events and answers, ids, times and places aside."""

from __future__ import annotations

from pathlib import Path

import pigeon
from support.records import plain_record
from support.sdk_agents import KINDS, Conversations, call


@pigeon.tool
async def population(city: str) -> int:
    """How many people live in a city."""
    return len(city)


async def test_events_and_answers_are_the_same_in_all_ways(tmp_path: Path) -> None:
    seen = {}
    for index, kind in enumerate(KINDS):
        # Of one length: the model's prompt names the folder, and tokens are counted.
        root = tmp_path / str(index)
        made = Conversations(kind, root)
        made.script(
            {"thinking": "Let me see.", "text": "Looking.", **call("bash", command="echo found")},
            call("population", city="Bern"),
            call("write", path="note.txt", content="one\n"),
            {"text": "All done.", "usage": {"input": 10, "output": 3}},
            {"error": {"message": "it broke"}},
        )
        made.settings(retry={"enabled": False})
        asking = {
            "tools": [population],
            "on_permission": lambda request: True,
            "permissions": {"ask": ["write"], "timeoutMs": 60_000},
        }
        async with made.start(**asking) as agent:
            events = [event async for event in agent.prompt("go")]
            failed = await agent.run("again")
            answers = [await agent.get_state(), await agent.get_session_stats(), await agent.get_messages(), failed]
            answers += [await agent.get_entries(), await agent.get_permissions(), await agent.get_available_models()]
        made.stop()
        seen[kind] = [plain_record(one, root) for one in (*events, *answers)]
    for kind in KINDS[1:]:
        assert seen[kind] == seen["agent"]
