"""A recording of a conversation whose agents were started side by side plays byte for byte."""

from __future__ import annotations

from pathlib import Path

from fakes.http_server import Calling, Reply, answer
from pigeon.dialects.choice import NAMES
from support.in_process_agent import InProcessAgent, RecordedRun

API = "anthropic-messages"
TOOLS = ("+task", "+jobs")


def replies() -> list[Reply]:
    """Each agent has its two turns before the next one begins."""
    started = [Calling("task", {"prompt": f"Part {number}", "title": f"part {number}"}) for number in range(3)]
    of_agents = [
        reply
        for number in range(3)
        for reply in (
            answer(API, "I look. ", Calling("bash", {"command": f"echo {number} >> notes.txt; cat notes.txt"})),
            answer(API, f"Part {number} is done."),
        )
    ]
    return [answer(API, "Side by side. ", *started), *of_agents, answer(API, "All is done.")]


async def test_agents_of_one_answer_are_played_again_in_each_dialect(tmp_path: Path) -> None:
    async def talk(agent: InProcessAgent) -> None:
        await agent.prompt("Do three things.")

    run = RecordedRun(tmp_path, talk)
    live = await run.record(API, "", replies(), tools=TOOLS)
    (tmp_path / "recorded").rename(tmp_path / "before")
    played = await run.replay("recorded", tools=TOOLS)
    for dialect in NAMES:
        assert played[dialect] == live[dialect], dialect
    told = b"".join(live["pi"])
    assert all(f"Part {number} is done.".encode() in told for number in range(3))
    assert b"agent_changed" not in told


async def test_their_own_events_are_played_again_too(tmp_path: Path) -> None:
    seen: list[list[object]] = []

    async def talk(agent: InProcessAgent) -> None:
        await agent.prompt("Do three things.")
        seen.append(agent.events)

    run = RecordedRun(tmp_path, talk)
    await run.record(API, "", replies(), tools=TOOLS)
    (tmp_path / "recorded").rename(tmp_path / "before")
    await run.replay("recorded", tools=TOOLS)
    live, played = seen
    assert len(live) > 100
    assert played == live
