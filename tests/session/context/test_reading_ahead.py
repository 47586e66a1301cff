"""What an agent does before its first prompt, beside the answers it owes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pigeon.providers.history import cache
from pigeon.session.context.reading_ahead import READ_AHEAD
from support.in_process_agent import InProcessAgent

LENGTH = 3 * READ_AHEAD


@pytest.fixture
async def reopened(tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    """An agent that has opened a long conversation and talks to a model over HTTP."""
    agent = InProcessAgent(tmp_path)
    model = {"id": "m", "contextWindow": 1_000_000, "maxTokens": 100}
    provider = {"baseUrl": "http://127.0.0.1:9", "api": "anthropic-messages", "apiKey": "k", "models": [model]}
    agent.configure({"retry": {"enabled": False}})
    (agent.agent_dir / "models.json").write_text(json.dumps({"providers": {"p": provider}}))
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in a_long_session(str(agent.work))))
    await agent.start(model="p/m", session=str(file))
    yield agent
    await agent.stop()


def a_long_session(folder: str) -> list[dict[str, Any]]:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": folder}
    entries = [
        {
            "type": "message",
            "id": f"{number:08x}",
            "parentId": f"{number - 1:08x}" if number else None,
            "timestamp": header["timestamp"],
            "message": {"role": "user", "content": [{"type": "text", "text": str(number)}], "timestamp": 1}
            if number % 2 == 0
            else {
                "role": "assistant",
                "content": [{"type": "text", "text": str(number)}],
                "api": "anthropic-messages",
                "provider": "p",
                "model": "m",
                "stopReason": "stop",
                "usage": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2, "cost": {}},
                "timestamp": 1,
            },
        }
        for number in range(LENGTH)
    ]
    return [header, *entries]


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each conversion had."""
    counts: list[int] = []
    real = cache.normalize_messages

    def count_call(messages: Any, *more: Any) -> Any:
        counts.append(len(messages))
        return real(messages, *more)

    monkeypatch.setattr(cache, "normalize_messages", count_call)
    return counts


async def test_a_long_conversation_is_converted_before_the_first_prompt(
    reopened: InProcessAgent, converted: list[int]
) -> None:
    await reopened.agent.session.warm_up()
    ahead = sum(converted)
    converted.clear()
    await reopened.prompt("now")
    assert ahead >= LENGTH - READ_AHEAD
    assert sum(converted) <= READ_AHEAD + 10


async def test_a_prompt_is_not_held_up_by_what_is_converted_ahead(
    reopened: InProcessAgent, converted: list[int]
) -> None:
    warming = asyncio.ensure_future(reopened.agent.session.warm_up())
    async with asyncio.timeout(60):
        for _ in iter(lambda: bool(converted), True):
            await asyncio.sleep(0)
    await reopened.ask("now")
    before = sum(converted)
    await warming
    assert before <= 2 * READ_AHEAD
    await reopened.wait_until_settled()
