"""The program that a user writes first: events, a result with a value of a type, limits, in all three ways."""

from __future__ import annotations

import pytest

import pigeon
from fakes.sdk_conversations import Conversations, call


@pigeon.tool
async def population(city: str) -> int:
    """How many people live in a city."""
    return 5


async def test_ten_lines_are_enough(conversations: Conversations) -> None:
    conversations.script("There are two files.", call("final_answer", result=["test_a.py"]), default='["test_a.py"]')
    async with conversations.start(tools=[population]) as agent:
        text = ""
        async for event in agent.prompt("list the files"):
            if isinstance(event, pigeon.TextDelta):
                text += event.delta
        limits = pigeon.Limits(turns=30, cost=1.0)
        result = await agent.run("Which of them are tests?", output=list[str], limits=limits)
    assert text == "There are two files."
    assert (result.output, result.ended) == (["test_a.py"], "done")


async def test_a_limit_of_one_prompt_ends_its_run(conversations: Conversations) -> None:
    conversations.script(*[call("bash", command=f"echo {at}") for at in range(9)], "Done.")
    async with conversations.start() as agent:
        result = await agent.run("go on", limits=pigeon.Limits(turns=2))
        assert result.ended == "limit"
        with pytest.raises(pigeon.Refusal, match="limits"):
            await agent.run("more", limits=pigeon.Limits(turns=-1))
