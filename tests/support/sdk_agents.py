"""Agents of the SDK: conversations in its four ways, and agents that use tool servers.

The four ways are: in this process, over a subprocess, a unix socket or a WebSocket. `Conversations(kind, folder)` has
`start(...)`, which gives one that is not opened yet; `script` writes what the scripted model says. Subprocesses are
forked agents behind a relay; `by_exec` is for tests whose subject is the process itself. Behind the WebSocket is one
`pigeon serve` for all tests of a pytest worker.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import pigeon
from pigeon.testing import Reply, scripted
from pigeon.wire.base import ABSENT
from pigeon.wire.commands.mcp import McpServerState, McpStatus
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess, command_line, light_command_line
from support.pigeon_serve import shared_server
from support.processes import eventually

KINDS = ("agent", "subprocess", "socket", "websocket")
PROGRAM = str(Path(__file__).parents[1] / "fakes" / "mcp_server.py")
ENDS: tuple[McpStatus, ...] = ("connected", "failed", "sign_in", "disabled")


class Conversations:
    """Starts conversations of one kind, with a scripted model, in folders of their own."""

    def __init__(self, kind: str, root: Path, by_exec: bool = False) -> None:
        self.kind = kind
        self._command = command_line if by_exec else light_command_line
        self.folders = shared_server().folders if kind == "websocket" else AgentFolders(root)
        self.folders.configure({"providers": {}})
        self.work = root / "work" if kind == "websocket" else self.folders.work
        self.work.mkdir(parents=True, exist_ok=True)
        self._script = root / "script.json"
        self._root = root
        self._served: list[RpcProcess] = []
        self.script("Nothing to say.")

    def script(self, *replies: Any, **members: Any) -> None:
        """What the model says, one reply for each request."""
        self._script.write_text(json.dumps({"replies": list(replies), **members}))

    def settings(self, **settings: Any) -> None:
        self.folders.configure(settings=settings)

    def start(self, **options: Any) -> pigeon.Conversation:
        """A conversation of the kind; `options` are those of `Agent`, and become flags for the others.

        `at_client` are arguments of `Client` itself.
        """
        own = {name: options.pop(name) for name in ("tools", "on_permission", "on_dialog") if name in options}
        model = options.pop("model", f"scripted/{self._script}")
        limits = options.pop("limits", None)
        if limits is not None and self.kind == "agent":
            options["limits"] = limits
        elif limits is not None:
            options |= {f"max_{name}": value for name, value in structs.asdict(limits).items() if value is not ABSENT}
        own |= options.pop("at_client", {})
        if self.kind == "agent":
            return pigeon.Agent(
                model=model,
                cwd=str(self.work),
                agent_dir=str(self.folders.agent),
                env=self.folders.environment(),
                **own,
                **options,
            )
        flags = ["--model", model, "--agents", *_flags(options)]
        if self.kind == "subprocess":
            return self.client(model, *_flags(options), **own)
        if self.kind == "websocket":
            return _served_client(self.work, model, own, options)
        path = self._root / f"socket-{len(self._served)}"
        self._served.append(RpcProcess(self.folders, *flags, "--socket", str(path)))
        return _SocketClient(path, own)

    def client(self, model: str = "", *flags: str, **own: Any) -> pigeon.Client:
        """A client that starts its agent, with these flags, and has these arguments of its own."""
        model_words = ["--model", model or f"scripted/{self._script}"]
        command = [*self._command(), "--mode", "rpc", "--agents", *model_words, *flags]
        return pigeon.Client(command=command, cwd=str(self.work), env=self.folders.environment(), **own)

    def stop(self) -> None:
        """Everything that was started has ended by itself."""
        for process in self._served:
            process.close()


class _SocketClient(pigeon.Client):
    """Connects once the agent listens."""

    def __init__(self, path: Path, own: dict[str, Any]) -> None:
        super().__init__(url=f"unix:{path}", **own)
        self._path = path

    async def open(self) -> None:
        await asyncio.to_thread(eventually, self._path.exists)
        await super().open()


def _served_client(work: Path, model: str, own: dict[str, Any], options: dict[str, Any]) -> pigeon.Client:
    """A client of the server; what others are started with, it tells its agent."""
    server = shared_server()
    names = {"max_turns": "turns", "max_cost": "cost", "max_tokens": "tokens"}
    limits = {names[name]: options.pop(name) for name in list(options) if name in names}
    told = {} if not limits else {"limits": pigeon.Limits(**limits)}
    if "permissions" in options:
        told["permissions"] = options.pop("permissions")
    if options:
        pytest.skip(f"the agents of a server are not started by their clients with {', '.join(options)}")
    return pigeon.Client(url=server.url, cwd=str(work), model=model, token=server.token, **told, **own)


def _flags(options: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        flag = {"continue_newest": "--continue"}.get(name, f"--{name.replace('_', '-')}")
        words += [flag] if value is True else [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A reply of the model that calls a tool."""
    return {"toolCalls": [{"name": name, "arguments": arguments}]}


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
                    await self.wait_until_connected(agent)
                yield agent

    async def wait_until_connected(self, agent: pigeon.Agent, name: str | None = None) -> dict[str, McpServerState]:
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
