"""What tool servers offer for a word in the chat: an agent that does not answer offers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import pigeon
from fakes.clock import virtually
from pigeon.frontends.terminal.chat_mode import find_server_completions
from pigeon.frontends.terminal.screen.completion import ServerOffer
from pigeon.wire.commands.mcp import McpCompletion, McpCompletions

OFFERED = McpCompletions(replaces="@no", completions=[McpCompletion(text="@notes:note://one", label="one")])


class Asked(pigeon.Client):
    """A client whose agent answers like this."""

    def __init__(self, answer: Callable[[], Awaitable[McpCompletions]]) -> None:
        super().__init__(url="unix:/nowhere")
        self._answer = answer

    async def complete_mcp(self, text: str) -> McpCompletions:  # type: ignore[override]
        return await self._answer()


async def offer() -> McpCompletions:
    return OFFERED


async def never() -> McpCompletions:
    await asyncio.Event().wait()
    return OFFERED


async def refuse() -> McpCompletions:
    raise pigeon.Refusal("it knows no servers")


def test_what_servers_offer_is_offered() -> None:
    found = virtually(find_server_completions(Asked(offer), "see @no"))
    assert found == [ServerOffer("@no", "@notes:note://one", "one", "")]


@pytest.mark.parametrize("answer", [never, refuse])
def test_an_agent_that_does_not_answer_offers_nothing(answer: Callable[[], Awaitable[McpCompletions]]) -> None:
    assert virtually(find_server_completions(Asked(answer), "see @no")) == []


def test_without_an_agent_nothing_is_offered() -> None:
    assert virtually(find_server_completions(None, "see @no")) == []
