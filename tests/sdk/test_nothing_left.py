"""Agents that were closed leave nothing behind in their process."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

import pigeon
from support.processes import processes_in
from support.sdk_agents import Conversations, call

AGENTS = 12


def counts() -> dict[str, int]:
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        # The event loop's own threads for blocking calls are bounded, and how many it needed so far is chance.
        "threads": sum(not one.name.startswith("asyncio_") for one in threading.enumerate()),
        "tasks": len(asyncio.all_tasks()),
        "agents": sum(isinstance(one, pigeon.Agent) for one in gc.get_objects()),
    }


@pytest.mark.parametrize("way", ["run", "left", "failed"])
async def test_many_agents_in_one_process_leave_nothing_behind(tmp_path: Path, way: str) -> None:
    made = Conversations("agent", tmp_path)
    hanging = {"text": "On and on", "hang": True}
    made.script(*([hanging] if way == "left" else [call("bash", command="sleep 60 & echo x"), "Hello."]))
    for _ in range(2):
        await _one(made, way)
    before, objects = counts(), len(gc.get_objects())
    for _ in range(AGENTS):
        await _one(made, way)
    assert counts() == before
    assert len(gc.get_objects()) < objects + 30 * AGENTS
    assert not processes_in(f"HOME={made.folders.home}")


async def _one(made: Conversations, way: str) -> None:
    if way == "failed":
        with pytest.raises(pigeon.StartupError):
            await made.start(thinking="much", session="/no/such/file.jsonl", fork="x").open()
        return
    async with made.start(no_session=True) as agent:
        if way == "run":
            assert (await agent.run("hi")).ended == "done"
            return
        async for event in agent.prompt("talk"):
            if isinstance(event, pigeon.TextDelta):
                break
