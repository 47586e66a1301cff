"""Tool servers as others write them: the reference servers from npm, and one with the official Python SDK."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import pigeon
from fakes.mcp_web_server import follow
from pigeon.testing import call
from support.installed_programs import node, npm_package, only_on_request
from support.sdk_agents import ServedAgents, tool_results

pytestmark = only_on_request
VERSION = "2026.8.31"
SDK_SERVER = Path(__file__).parent / "mcp_servers" / "python_sdk_server.py"


def reference(name: str) -> str:
    """The program of a reference server."""
    package = npm_package(f"@modelcontextprotocol/server-{name}", VERSION)
    start = json.loads((package / "package.json").read_text())["bin"]
    return str(package / (start if isinstance(start, str) else next(iter(start.values()))))


@pytest.fixture
def agents(tmp_path: Path) -> ServedAgents:
    return ServedAgents(tmp_path)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def running(port: int, *command: str, **variables: str) -> AsyncIterator[None]:
    """A server that listens on a port while this lasts."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                except OSError:
                    await asyncio.sleep(0.1)
        yield
    finally:
        process.kill()
        await process.wait()


async def test_the_files_server(agents: ServedAgents) -> None:
    (agents.work / "note.txt").write_text("pigeons fly")
    agents.write({"files": {"command": node(), "args": [reference("filesystem"), str(agents.work)]}})
    replies = (
        call("mcp__files__read_text_file", path=str(agents.work / "note.txt")),
        call("mcp__files__write_file", path=str(agents.work / "new.txt"), content="new"),
        call("mcp__files__read_text_file", path="/etc/passwd"),
        "Done.",
    )
    async with agents.agent(*replies) as agent:
        read, wrote, refused = tool_results(await agent.run("go"))
    assert read == "pigeons fly"
    assert (agents.work / "new.txt").read_text() == "new", wrote
    assert "denied" in refused.lower()


async def test_the_memory_server(agents: ServedAgents) -> None:
    file = agents.folder / "memory.json"
    entry = {"command": node(), "args": [reference("memory")], "env": {"MEMORY_FILE_PATH": str(file)}}
    agents.write({"memory": entry})
    bonn = {"name": "Bonn", "entityType": "city", "observations": ["on the Rhine"]}
    replies = (call("mcp__memory__create_entities", entities=[bonn]), call("mcp__memory__read_graph"), "Done.")
    async with agents.agent(*replies) as agent:
        made, graph = tool_results(await agent.run("remember"))
    assert "Bonn" in made
    assert "on the Rhine" in graph
    assert "Bonn" in file.read_text()


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp", "sse", "sse as http"])
async def test_the_server_with_everything(agents: ServedAgents, transport: str) -> None:
    program = reference("everything")
    replies = (call("mcp__all__echo", message="hello"), call("mcp__all__get-sum", a=2, b=40), "Done.")
    if transport == "stdio":
        agents.write({"all": {"command": node(), "args": [program, "stdio"]}})
        await _hold(agents, replies)
        return
    port = free_port()
    async with running(port, node(), program, transport.partition(" ")[0], PORT=str(port)):
        path = "mcp" if transport == "streamableHttp" else "sse"
        kind = "sse" if transport == "sse" else "http"
        agents.write({"all": {"url": f"http://127.0.0.1:{port}/{path}", "type": kind}})
        await _hold(agents, replies)


async def _hold(agents: ServedAgents, replies: tuple[Any, ...]) -> None:
    async with agents.agent(*replies) as agent:
        (state,) = (await agent.get_mcp_servers()).servers
        assert state.status == "connected", state.error
        assert state.prompts
        assert state.resources
        echo, total = tool_results(await agent.run("go"))
        assert "hello" in echo
        assert "42" in total
        resource = next(one for one in (await agent.get_mcp_resources()).resources if not one.template)
        result = await agent.run(f"read @all:{resource.uri}")
        (message,) = [one for one in result.messages if isinstance(one, pigeon.UserMessage)]
        assert len(message.content) > 1
        listed = (await agent.complete_mcp("read @all:")).completions
        assert f"all:{resource.uri}" in [one.text for one in listed]
        templates = [one for one in (await agent.get_mcp_resources()).resources if one.template]
        assert templates
        prompt = next(name for name in state.prompts if "complet" in name)
        offered = await agent.complete_mcp(f"/{prompt} ")
        assert [one.text for one in offered.completions if not one.text.endswith("=")], offered


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_a_server_of_the_official_python_package(agents: ServedAgents, transport: str) -> None:
    replies = (
        call("mcp__register__population", city="Bonn"),
        call("mcp__register__erase", city="Bonn"),
        call("mcp__register__count", to=3),
        "Done.",
    )
    if transport == "stdio":
        agents.write({"register": {"command": sys.executable, "args": [str(SDK_SERVER), "stdio"]}})
        await _register(agents, replies)
        return
    port = free_port()
    async with running(port, sys.executable, str(SDK_SERVER), transport, str(port)):
        url = f"http://127.0.0.1:{port}/{'mcp' if transport == 'http' else 'sse'}"
        agents.write({"register": {"url": url, "type": transport}})
        await _register(agents, replies)


async def _register(agents: ServedAgents, replies: tuple[Any, ...]) -> None:
    async with agents.agent(*replies, on_dialog=lambda question: "Yes") as agent:
        (state,) = (await agent.get_mcp_servers()).servers
        assert state.status == "connected", state.error
        city, erased, counted = tool_results(await agent.run("go"))
        assert json.loads(city) == {"name": "Bonn", "people": 340000}
        assert "accept" in erased
        assert "sure=True" in erased
        assert counted == "counted to 3"
        result = await agent.run("/mcp__register__greet Ada")
        (message,) = [one for one in result.messages if isinstance(one, pigeon.UserMessage)]
        assert message.content[0].text == "Say hello to Ada."  # type: ignore[union-attr]
        result = await agent.run("what is @register:city://Bonn")
        (message,) = [one for one in result.messages if isinstance(one, pigeon.UserMessage)]
        assert message.content[-1].text == "Bonn is a city."  # type: ignore[union-attr]


async def test_a_sign_in_at_the_authorization_server_of_the_official_package(agents: ServedAgents) -> None:
    port = free_port()
    asked: list[str] = []

    async def browser(question: Any) -> None:
        asked.append(question.title)
        await follow(re.findall(r"http\S+", question.title)[0])

    async with running(port, sys.executable, str(SDK_SERVER.with_name("signed_in_server.py")), str(port)):
        agents.write({"guarded": {"url": f"http://127.0.0.1:{port}/mcp"}})
        replies = (call("mcp__guarded__refreshed"), call("mcp__guarded__refreshed"), "Done.")
        async with agents.agent(*replies, on_dialog=browser) as agent:
            (state,) = (await agent.get_mcp_servers()).servers
            assert state.status == "connected", state.error
            first, second = tool_results(await agent.run("go"))
    assert first.startswith("refreshed")
    assert int(second.split()[1]) >= 1, "an expired token was refreshed in the middle of the conversation"
    assert len(asked) == 1
