# pyright: strict
"""A program as a user of the library writes it; type checkers must see every answer and event (`test_typing.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

import pigeon


@dataclass
class Place:
    name: str


@pigeon.tool
async def population(city: str) -> int:
    """How many people live in a city."""
    return 5


@pigeon.tool(read_only=True)
def town(name: str, *, ctx: pigeon.ToolContext) -> str:
    """A town."""
    return name


def permit(request: pigeon.PermissionRequest) -> bool:
    return request.tool_name == "read"


async def permit_later(request: pigeon.PermissionRequest) -> pigeon.PermissionAnswer:
    return "always" if request.diff else None


async def main() -> None:
    async with pigeon.Agent(
        model="demo", cwd=".", tools=[population, town], on_permission=permit, thinking="low"
    ) as agent:
        assert_type(agent, pigeon.Agent)
        async for event in agent.prompt("list the files"):
            if isinstance(event, pigeon.TextDelta):
                assert_type(event.delta, str)
            elif isinstance(event, pigeon.ToolExecutionEnd):
                assert_type(event.is_error, bool)
            elif isinstance(event, pigeon.SelectRequest):
                assert_type(event.options, list[str])
        result = await agent.run("Which of them are tests?", images=["x.png", b"123"])
        assert_type(result.text, str)
        listed = await agent.run("Which?", output=list[str], limits=pigeon.Limits(turns=3, cost=0.5))
        assert_type(listed.output, list[str] | None)
        if listed.output is None:
            assert_type(listed.error, str | None)
        else:
            assert_type(listed.output, list[str])
        assert_type(result, pigeon.Result[None])
        assert_type((await agent.run("Where?", output=Place, message_id="1")).output, Place | None)
        assert_type((await agent.run("Where?", output={"type": "string"})).output, Any | None)
        assert_type(listed.run_id, str | None)
        assert_type(await agent.remove_queued("1"), pigeon.QueueItem)
        assert_type(await agent.abort(tool_call_id="1"), None)
        assert_type(result.usage.cost.total, int | float)
        assert_type(result.session_file, str | None)
        assert_type(await agent.get_state(), pigeon.State)
        assert_type(await agent.cycle_model(), pigeon.CycledModel | None)
        assert_type(await agent.set_thinking_level("high"), None)
        assert_type((await agent.list_sessions(scope="all", limit=3)).sessions, list[pigeon.SessionRow])
        assert_type(await agent.navigate_tree("x", summarize=True), pigeon.Navigated)
        assert_type(await agent.steer("left"), pigeon.Accepted)
        assert_type(await population("x"), int)
        assert_type(town("x", ctx=pigeon.ToolContext("1", print)), str)
        async for one in agent.events():
            if isinstance(one, pigeon.UnknownEvent):
                assert_type(one.members, dict[str, Any])
    async with pigeon.Client(command=["pigeon", "--mode", "rpc"], on_permission=permit_later) as client:
        assert_type(client.welcome, pigeon.Welcome | None)
        conversation: pigeon.Conversation = client
        await conversation.abort()


def main_without_a_loop() -> None:
    with pigeon.SyncAgent(model="demo") as sync:
        assert_type(sync, pigeon.SyncAgent)
        assert_type(sync.get_state(), pigeon.State)
        assert_type(sync.run("Which?", output=list[str]).output, list[str] | None)
        assert_type(sync.run("Which?", streaming_behavior="steer").output, None)
        for event in sync.prompt("x"):
            if isinstance(event, pigeon.AgentSettled):
                assert_type(event.aborted, bool)
    assert_type(pigeon.run_sync("What is in README?", model="demo").text, str)
    assert_type(pigeon.run_sync("Where?", output=Place, cwd=Path(), limits=pigeon.Limits(turns=2)).output, Place | None)
    with pigeon.SyncClient(command=["pigeon", "--mode", "rpc"], timeout=5) as over_a_pipe:
        assert_type(over_a_pipe.run("Where?", output=Place).output, Place | None)
        assert_type(over_a_pipe.restart(), None)
    try:
        pass
    except pigeon.ProcessDied as death:
        assert_type(death.exit_code, int | None)
