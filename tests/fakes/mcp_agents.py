"""Agents that use tool servers, for tests: a folder of their own, servers of `fakes.tool_server`, scripted models."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pigeon
from pigeon.testing import Reply, scripted
from pigeon.wire.commands.mcp import McpServerState, McpStatus

PROGRAM = str(Path(__file__).with_name("tool_server.py"))
ENDS: tuple[McpStatus, ...] = ("connected", "failed", "sign_in", "disabled")


def scripted_server(mode: str = "well", **more: Any) -> dict[str, Any]:
    """The entry of a server that behaves like this."""
    return {"command": sys.executable, "args": [PROGRAM, mode], **more}


class ServedAgents:
    """Makes agents; `folder` has their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.home = folder / "agent"
        self.work.mkdir()
        self.home.mkdir()

    def write(self, servers: dict[str, Any], **beside: Any) -> None:
        """The user's file."""
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": servers, **beside}))

    @asynccontextmanager
    async def agent(self, *replies: Reply, wait: bool = True, **options: Any) -> AsyncIterator[pigeon.Agent]:
        """An agent whose model says this, with all servers connected or failed."""
        options = {"env": None, **options}
        with scripted(*replies, default="That is all.") as model:
            agent = pigeon.Agent(model=model, cwd=str(self.work), agent_dir=str(self.home), **options)
            async with agent:
                await agent.hello(features=["mcp"])
                if wait:
                    await self.settled(agent)
                yield agent

    async def settled(self, agent: pigeon.Agent, name: str | None = None) -> dict[str, McpServerState]:
        """All servers, once none of them is being connected."""
        await agent.hello(features=["mcp"])
        events = agent.events()
        while True:
            states = {state.name: state for state in (await agent.get_mcp_servers()).servers}
            looked = [states[name]] if name is not None else list(states.values())
            if all(state.status in ENDS for state in looked):
                return states
            async for event in events:
                if isinstance(event, pigeon.McpServerChanged):
                    break


def tool_results(result: pigeon.Result) -> list[str]:
    """The texts of the tool results of a run."""
    return [
        "\n".join(block.text for block in message.content if isinstance(block, pigeon.TextContent))
        for message in result.messages
        if isinstance(message, pigeon.ToolResultMessage)
    ]
