"""Tools of servers, end to end: a program is started, its tools are called by a scripted model."""

from __future__ import annotations

import json

import pytest

import pigeon
from pigeon.testing import call, scripted
from support.sdk_agents import ServedAgents, scripted_server, tool_results

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_tool_of_a_server_is_called_by_its_name(agents: ServedAgents) -> None:
    agents.write({"notes": scripted_server()})
    async with agents.agent(call("mcp__notes__echo", text="hello"), "Done.") as agent:
        result = await agent.run("say hello")
        states = (await agent.get_mcp_servers()).servers
    assert tool_results(result) == ["hello"]
    assert [(state.name, state.status, state.source) for state in states] == [("notes", "connected", "user")]
    assert "mcp__notes__echo" in states[0].tools
    assert states[0].server_name == "scripted"


async def test_servers_of_the_host_replace_each_other_and_leave_those_of_files_alone(agents: ServedAgents) -> None:
    agents.write({"mine": scripted_server()})
    async with agents.agent() as agent:
        given = {"one": scripted_server(), "wrong": {"command": 7}, "both": {"command": "x", "url": "http://y"}}
        states = {state.name: state for state in (await agent.set_mcp_servers(given)).servers}
        assert states["wrong"].status == states["both"].status == "failed"
        assert "command must be a string" in str(states["wrong"].error)
        states = await agents.wait_until_connected(agent, "one")
        assert (states["one"].status, states["one"].source) == ("connected", "host")
        assert states["mine"].status == "connected"
        left = await agent.set_mcp_servers({})
        assert [(state.name, state.status) for state in left.servers] == [("mine", "connected")]


async def test_events_of_servers_come_only_to_hosts_that_ask_for_them(agents: ServedAgents) -> None:
    async with agents.agent() as agent:
        await agent.hello(features=[])
        events = agent.events()
        await agent.set_mcp_servers({"one": scripted_server("refuses")})
        result = await agent.run("hello")
        assert result.ended == "done"
        await agent.hello(features=["mcp"])
        await agent.connect_mcp_server("one")
        changed = [event async for event in _until_failed(events)]
    assert changed[-1].server.status == "failed"
    assert "no license was found" in str(changed[-1].server.error)


async def _until_failed(events):  # type: ignore[no-untyped-def]
    async for event in events:
        if isinstance(event, pigeon.McpServerChanged):
            yield event
            if event.server.status == "failed":
                return


async def test_failures_pictures_and_values_of_a_tool_are_results(agents: ServedAgents) -> None:
    agents.write({"s": scripted_server()})
    names = ("fail", "picture", "structured")
    async with agents.agent(*[call(f"mcp__s__{name}") for name in names], "Done.") as agent:
        result = await agent.run("do it")
    results = [message for message in result.messages if isinstance(message, pigeon.ToolResultMessage)]
    assert [message.is_error for message in results] == [True, False, False]
    assert tool_results(result)[0] == "it went wrong"
    assert isinstance(results[1].content[0], pigeon.ImageContent)
    assert json.loads(tool_results(result)[2]) == {"answer": 42}
    assert results[2].details == {"structuredContent": {"answer": 42}}


async def test_servers_are_started_after_a_pause_or_when_a_tool_is_looked_for(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.mcp.start_schedule.START_PAUSE", 3600.0)
    log = agents.folder / "log"
    agents.write({"one": scripted_server(env={"LOG": str(log)})})
    with scripted("Hello.", call("tool_search", query="echo"), call("mcp__one__echo", text="x"), "Done.") as model:
        async with pigeon.Agent(model=model, cwd=str(agents.work), agent_dir=str(agents.home)) as agent:
            assert (await agent.run("hello")).text == "Hello."
            assert not log.exists(), "a prompt that needs no server starts none"
            found, said = tool_results(await agent.run("use the server"))
    assert "mcp__one__echo" in found
    assert said == "x"


async def test_a_few_servers_start_at_a_time_and_those_that_hang_hold_up_the_others_for_a_moment(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.mcp.start_schedule.MOST_STARTING", 1)
    monkeypatch.setattr("pigeon.mcp.start_schedule.LONGEST_TURN", 0.05)
    log = agents.folder / "log"
    hanging = {f"hangs{number}": scripted_server("hangs", env={"LOG": str(log)}) for number in range(3)}
    agents.write({**hanging, "good": scripted_server()})
    async with agents.agent(wait=False) as agent:
        states = await agents.wait_until_connected(agent, "good")
        assert states["good"].status == "connected"
        assert {states[name].status for name in hanging} == {"connecting"}


async def test_a_tool_that_is_called_while_its_server_is_being_connected_waits_for_it(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.mcp.start_schedule.START_PAUSE", 3600.0)
    agents.write({"one": scripted_server(), "one__two": scripted_server()})
    calls = call("mcp__one__echo", text="a"), call("mcp__one__two__echo", text="b"), call("mcp__one__nothing")
    with scripted(*calls, "Done.") as model:
        agent = pigeon.Agent(model=model, cwd=str(agents.work), agent_dir=str(agents.home))
        async with agent:
            assert tool_results(await agent.run("go on")) == ["a", "b", "Tool mcp__one__nothing not found"]


async def test_rules_are_asked_about_a_tool_before_its_server_is_waited_for(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.mcp.start_schedule.START_PAUSE", 3600.0)
    monkeypatch.setattr("pigeon.mcp.server.WAIT_SECONDS", 3600.0)
    agents.write({"one": scripted_server("hangs")})
    asked: list[str] = []

    def refuse(request: pigeon.PermissionRequest) -> bool:
        asked.append(request.tool_name)
        return False

    with scripted(call("mcp__one__echo", text="a"), call("mcp__one__fail"), "Done.") as model:
        agent = pigeon.Agent(
            model=model,
            cwd=str(agents.work),
            agent_dir=str(agents.home),
            permissions={"deny": ["mcp__one__echo"], "ask": ["mcp__one"]},
            on_permission=refuse,
        )
        async with agent:
            denied, refused = tool_results(await agent.run("go on"))
    assert "Permission denied for mcp__one__echo" in denied
    assert "Permission denied for mcp__one__fail" in refused
    assert asked == ["mcp__one__fail"]


async def test_a_tool_that_was_waited_for_gets_the_arguments_that_were_allowed_and_no_others(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.mcp.start_schedule.START_PAUSE", 3600.0)
    agents.write({"one": scripted_server()})
    asked: list[object] = []

    def allow(request: pigeon.PermissionRequest) -> bool:
        asked.append(request.arguments)
        return True

    # Its schema wants a text, and a number is made one.
    calls = call("mcp__one__echo", text=7), call("mcp__one__echo", text=7)
    with scripted(*calls, "Done.") as model:
        agent = pigeon.Agent(
            model=model,
            cwd=str(agents.work),
            agent_dir=str(agents.home),
            permissions={"ask": ["mcp__one"]},
            on_permission=allow,
        )
        async with agent:
            again, done = tool_results(await agent.run("go on"))
    assert "was not run: its server has been connected only now" in again
    assert done == "7"
    assert asked == [{"text": 7}, {"text": "7"}]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (scripted_server("hangs"), "is still being connected. Continue with other work"),
        (scripted_server("refuses"), "no license was found"),
        (scripted_server(disabled=True), "is disabled. Continue without it"),
        ({"command": 7}, "command must be a string"),
    ],
    ids=["hangs", "refuses", "disabled", "wrong"],
)
async def test_a_tool_whose_server_cannot_be_used_fails_with_the_state_of_the_server(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch, entry: dict[str, object], said: str
) -> None:
    monkeypatch.setattr("pigeon.mcp.server.WAIT_SECONDS", 0.1 if said.startswith("is still") else 15.0)
    agents.write({"one": entry})
    async with agents.agent(call("mcp__one__echo", text="a"), "Done.", wait=False) as agent:
        (text,) = tool_results(await agent.run("go on"))
    assert text.startswith("mcp__one__echo cannot be called: the tool server one ")
    assert said in text


async def test_an_abort_ends_the_wait_for_a_server(agents: ServedAgents) -> None:
    agents.write({"one": scripted_server("hangs")})
    async with agents.agent(call("mcp__one__echo", text="a"), "Done.", wait=False) as agent:
        ends: list[pigeon.ToolExecutionEnd] = []
        async for event in agent.prompt("go on"):
            if isinstance(event, pigeon.ToolExecutionStart):
                await agent.abort()
            elif isinstance(event, pigeon.ToolExecutionEnd):
                ends.append(event)
    assert [end.is_error for end in ends] == [True]


async def test_a_value_that_is_one_of_some_is_asked_for_as_a_choice(agents: ServedAgents) -> None:
    asked: list[object] = []

    def choose(question: object) -> str:
        asked.append(question)
        return "Trial"

    options = ["live", {"label": "Trial", "value": "test"}]
    picked = {"type": "pickString", "id": "stage", "description": "Stage", "options": options}
    agents.write({"s": scripted_server(env={"STAGE": "${input:stage}"})}, inputs=[picked])
    async with agents.agent(call("mcp__s__env", text="STAGE"), "Done.", on_dialog=choose) as agent:
        assert tool_results(await agent.run("show")) == ['{"STAGE": "test"}']
    (question,) = asked
    assert isinstance(question, pigeon.SelectRequest)
    assert (question.title, question.options) == ("Tool server s: Stage", ["live", "Trial"])
