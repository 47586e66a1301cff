"""`pigeon.Client` with the originals as its agents: pi in three versions and oh-my-pi, each in its own dialect.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where they are taken from.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import pigeon
from fakes.model_server import Call, Hang, ModelServer
from support.agent_folders import AgentFolders, providers
from support.installed_programs import PACKAGES, SETTINGS, npm_package, only_on_request, program

pytestmark = only_on_request
OMP = ("@oh-my-pi/pi-coding-agent", "18.2.0", "bun@1.4.4")


def command_of(name: str) -> list[str]:
    if name != "omp":
        return program(name)
    package = npm_package(*OMP)
    return [str(package.parents[1] / ".bin" / "bun"), str(package / "dist" / "cli.js")]


@pigeon.tool
async def echo_host(message: str) -> str:
    """Say it back."""
    return f"host says {message}"


@pytest.mark.parametrize("name", [*sorted(PACKAGES), "omp"])
async def test_a_client_of_ours_holds_a_whole_conversation_with_an_original(name: str, tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    with ModelServer() as server:
        folders.configure(providers(server.url), SETTINGS)
        command = [*command_of(name), "--mode", "rpc", "--provider", "fake", "--model", "fake-1"]
        # Of the originals only oh-my-pi has tools of the host.
        tools = [echo_host] if name == "omp" else []
        client = pigeon.Client(command=command, cwd=str(folders.work), env=folders.environment(), tools=tools)
        async with client:
            assert client.welcome is None
            await _talk(client, server)
            if tools:
                server.answers(Call("echo_host", {"message": "hello"}))
                server.answers("The host spoke.")
                assert "host says hello" in str((await client.run("use the host")).messages)
            assert (await client.new_session()).cancelled is False
            assert (await client.get_messages()).messages == []
        with pytest.raises(pigeon.ConversationClosed):
            await client.get_state()


async def _talk(client: pigeon.Client, server: ModelServer) -> None:
    state = await client.get_state()
    assert state.model is not None
    assert state.model.id == "fake-1"
    server.answers("Looking. ", Call("bash", {"command": "echo found"}))
    server.answers("It was there.")
    events: list[Any] = [event async for event in client.prompt("use a tool")]
    assert isinstance(events[-1], pigeon.AgentSettled)
    assert sum(isinstance(event, pigeon.AgentSettled) for event in events) == 1
    text = "".join(event.delta for event in events if isinstance(event, pigeon.TextDelta))
    assert text == "Looking. It was there."
    begun = [event for event in events if isinstance(event, pigeon.ToolcallStart)]
    assert [event.tool_name for event in begun] == ["bash"]
    server.answers("On and on", Hang())
    async for event in client.prompt("talk for ever"):
        if isinstance(event, pigeon.TextDelta):
            break
    server.answers("Hello.")
    result = await client.run("hi")
    assert (result.text, result.ended, result.error) == ("Hello.", "done", None)
    assert (result.session_id, result.usage.output > 0) == (state.session_id, True)
    server.fails(529, "overloaded", kind="overloaded_error")
    server.answers("Recovered.")
    assert (await client.run("again")).text == "Recovered."
    server.fails(400, "it is bad", kind="invalid_request_error")
    failed = await client.run("fail")
    assert failed.ended == "error"
    assert "it is bad" in (failed.error or "")
    with pytest.raises(pigeon.Refusal, match="Model not found: no/such"):
        await client.set_model("no", "such")
    with pytest.raises(pigeon.Refusal, match="Unknown command"):
        await client.get_trust()
    server.answers("On and on", Hang())
    running = asyncio.ensure_future(client.run("talk"))
    async for event in client.events():
        if isinstance(event, pigeon.TextDelta):
            break
    await client.abort()
    assert (await running).ended == "aborted"
    assert (await client.bash("echo from bash")).output.strip() == "from bash"
    assert (await client.get_session_stats()).user_messages >= 6
