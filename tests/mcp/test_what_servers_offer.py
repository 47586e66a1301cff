"""Prompts and resources, changes of lists, progress, cancellation, questions, environment, and what is deferred."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.mcp.server_tool import ServerTool
from pigeon.testing import call
from pigeon.wire import codec
from pigeon.wire.tokens import estimated_tokens
from support.processes import processes_in
from support.sdk_agents import ServedAgents, scripted_server, tool_results

pytestmark = pytest.mark.asyncio(loop_scope="session")


def text_sent(result: pigeon.Result) -> str:
    """What the user's message said to the model."""
    (message,) = [one for one in result.messages if isinstance(one, pigeon.UserMessage)]
    return "\n".join(block.text for block in message.content if isinstance(block, pigeon.TextContent))


async def test_prompts_are_slash_commands_and_resources_are_mentions(agents: ServedAgents) -> None:
    agents.write({"notes": scripted_server()})
    async with agents.agent() as agent:
        commands = {one.name: one for one in (await agent.get_commands()).commands}
        assert commands["mcp__notes__poem"].description == "Write a poem <topic> [tone]"
        said = text_sent(await agent.run('/mcp__notes__poem "the sea" sad'))
        assert said == "Write a poem about the sea (sad)"
        assert text_sent(await agent.run("/mcp__notes__poem tone=glad storms")) == "Write a poem about storms (glad)"
        assert text_sent(await agent.run("/mcp__notes__poem it's late")) == "Write a poem about it's (late)"
        with pytest.raises(pigeon.Refusal, match="needs topic"):
            await agent.run("/mcp__notes__poem")
        listed = (await agent.get_mcp_resources()).resources
        assert [(one.uri, one.template) for one in listed] == [("note://one", False), ("note://{name}", True)]
        said = text_sent(await agent.run("sum up @notes:note://one and @notes:note://two"))
        assert "the text of note://one" in said
        assert "the text of note://two" in said
        with pytest.raises(pigeon.Refusal, match="there is no such note"):
            await agent.run("read @notes:note://none")
        assert text_sent(await agent.run("mail me@notes:x or @other:y://z")) == "mail me@notes:x or @other:y://z"


async def test_a_list_that_changes_is_read_again(agents: ServedAgents) -> None:
    agents.write({"s": scripted_server()})
    async with agents.agent(call("mcp__s__grow"), "Grown.", call("mcp__s__new_0"), "Done.") as agent:
        events = agent.events()
        await agent.run("grow")
        async for event in events:
            if isinstance(event, pigeon.McpServerChanged) and "mcp__s__new_0" in event.server.tools:
                break
        assert tool_results(await agent.run("use it")) == ["did new_0"]


async def test_progress_is_shown_and_an_abort_reaches_the_server(agents: ServedAgents, tmp_path: Path) -> None:
    log = tmp_path / "log"
    agents.write({"s": scripted_server(env={"LOG": str(log)})})
    async with agents.agent(call("mcp__s__slow", text="30"), "Done.") as agent:
        shown: list[Any] = []
        async for event in agent.prompt("wait"):
            if isinstance(event, pigeon.ToolExecutionUpdate):
                shown += [block.text for block in event.partial_result.content]
                await agent.abort()
        assert shown == ["1 of 3: begun"]
        result = (await agent.get_messages()).messages[2]
        assert result.content[0].text == "The call of mcp__s__slow was aborted"
        # The server has heard of it before the next call, which it answers.
        with pytest.raises(pigeon.Refusal):
            await agent.run("/mcp__s__poem")
        await agent.run("/mcp__s__poem x")
    assert "notifications/cancelled" in log.read_text()


async def test_a_server_asks_a_person_and_learns_the_folder_but_gets_no_answer_of_the_model(
    agents: ServedAgents,
) -> None:
    asked: list[Any] = []

    def answers(question: Any) -> str | None:
        asked.append(question)
        return "Yes" if isinstance(question, pigeon.SelectRequest) else "Ada"

    agents.write({"s": scripted_server()})
    async with agents.agent(call("mcp__s__ask"), call("mcp__s__roots"), "Done.", on_dialog=answers) as agent:
        reply, others = map(json.loads, tool_results(await agent.run("ask")))
    assert reply == {"action": "accept", "content": {"name": "Ada", "sure": True}}
    assert "The tool server s asks: Who are you?" in asked[0].title
    roots, sampling = others
    assert roots["result"]["roots"][0]["uri"] == f"file://{agents.work}"
    assert "error" in sampling


async def test_without_a_person_a_question_is_cancelled(agents: ServedAgents) -> None:
    agents.write({"s": scripted_server()})
    async with agents.agent(call("mcp__s__ask"), "Done.", unattended=True) as agent:
        (reply,) = tool_results(await agent.run("ask"))
    assert json.loads(reply) == {"action": "cancel"}


async def test_a_program_sees_what_it_needs_and_what_its_entry_says_and_no_key(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
    monkeypatch.setenv("SOME_SECRET", "s3cret-77aa11")
    monkeypatch.setenv("GREETING", "hello")
    names = "ANTHROPIC_API_KEY,SOME_SECRET,GREETING,PATH,GIVEN,DEFAULTED"
    given = {"GIVEN": "${GREETING} you", "DEFAULTED": "${NONE:-there}"}
    agents.write({"s": scripted_server(env=given), "all": scripted_server(inheritEnv=True)})
    calls = (call("mcp__s__env", text=names), call("mcp__all__env", text=names))
    async with agents.agent(*calls, "Done.") as agent:
        seen, inherited = map(json.loads, tool_results(await agent.run("look")))
    assert (seen["ANTHROPIC_API_KEY"], seen["SOME_SECRET"], seen["GREETING"]) == (None, None, None)
    assert (seen["GIVEN"], seen["DEFAULTED"]) == ("hello you", "there")
    assert seen["PATH"]
    assert (inherited["ANTHROPIC_API_KEY"], inherited["GREETING"]) == (None, "hello")


async def test_a_missing_variable_is_the_failure_of_its_server_alone(agents: ServedAgents) -> None:
    agents.write({"bad": scripted_server(env={"T": "$NO_SUCH_VARIABLE"}), "good": scripted_server()})
    async with agents.agent() as agent:
        states = await agents.wait_until_connected(agent)
    assert (states["bad"].status, states["bad"].step) == ("failed", "configuration")
    assert "env.T names the variable NO_SUCH_VARIABLE, which is not set" in str(states["bad"].error)
    assert states["good"].status == "connected"


async def test_a_long_result_is_cut_and_kept_like_that_of_other_tools(agents: ServedAgents) -> None:
    agents.write({"s": scripted_server()})
    async with agents.agent(call("mcp__s__long"), "Done.") as agent:
        result = await agent.run("read")
    (message,) = [one for one in result.messages if isinstance(one, pigeon.ToolResultMessage)]
    (text,) = tool_results(result)
    assert "Showing lines 1-2000 of 20000" in text
    assert len(text) < 60_000
    assert _lines_in(message.details["fullOutputPath"]) == 20_000


def _lines_in(path: str) -> int:
    return len(Path(path).read_text().splitlines())


async def test_a_thousand_tools_cost_less_than_a_thousand_tokens_and_can_all_be_used(agents: ServedAgents) -> None:
    agents.write({"big": scripted_server(env={"TOOLS": "1000"})})
    replies = (
        call("tool_search", query="thing 777 widget", limit=3),
        call("mcp__big__thing_777"),
        call("mcp__big__thing_5"),
        "Done.",
    )
    async with agents.agent(*replies) as agent:
        (state,) = (await agent.get_mcp_servers()).servers
        assert (len(state.tools), state.deferred) == (1001, 1001)
        before = await _tools_of(agent)
        assert set(before) >= {"tool_search"}
        assert not [name for name in before if name.startswith("mcp__")]
        cost = estimated_tokens(sum(len(codec.encode(tool)) for name, tool in before.items() if name == "tool_search"))
        assert cost < 1000
        found, *others = tool_results(await agent.run("do thing 777"))
        assert "mcp__big__thing_777" in found.splitlines()[1]
        assert others == ["did thing_777", "did thing_5"]
        after = list(await _tools_of(agent))
        assert after[: len(before)] == list(before), "what the model was told of stays in its place"
        assert "mcp__big__thing_777" in after
        assert "mcp__big__thing_5" in after
        assert (await agent.get_mcp_servers()).servers[0].deferred == 1001 - (len(after) - len(before))


async def _tools_of(agent: pigeon.Agent) -> dict[str, Any]:
    assert agent._built is not None
    return {spec.name: spec for spec in agent._built.session.toolset.specs()}


async def test_a_search_waits_for_servers_that_are_being_connected(agents: ServedAgents) -> None:
    agents.write({"s": scripted_server()})
    async with agents.agent(call("tool_search", query="echo text"), "Done.", wait=False) as agent:
        (text,) = tool_results(await agent.run("find"))
    assert "mcp__s__echo" in text


async def test_a_search_is_offered_only_while_there_may_be_something_to_find(agents: ServedAgents) -> None:
    agents.write({})
    async with agents.agent("Done.") as agent:
        await agent.set_mcp_servers({"big": scripted_server(env={"TOOLS": "1000"})})
        await agents.wait_until_connected(agent)
        assert "tool_search" in await _tools_of(agent)
        await agent.set_mcp_servers({"small": scripted_server()})
        await agents.wait_until_connected(agent)
        tools = await _tools_of(agent)
        assert "mcp__small__echo" in tools
        assert "tool_search" not in tools


async def test_options_and_rules_are_over_what_servers_offer(agents: ServedAgents) -> None:
    agents.write({"s": scripted_server(excludeTools=["die", "gr*"])})
    rules = {"deny": ["mcp__s__echo"], "ask": ["mcp__s"]}
    calls = (call("mcp__s__echo", text="x"), call("mcp__s__fail"), call("mcp__s__die"))
    async with agents.agent(*calls, "Done.", permissions=rules, on_permission=lambda request: False) as agent:
        (state,) = (await agent.get_mcp_servers()).servers
        assert not [name for name in state.tools if "die" in name or "grow" in name]
        denied, refused, missing = tool_results(await agent.run("try"))
    assert "not allowed" in denied or "denied" in denied.lower()
    assert "denied" in refused.lower() or "not allowed" in refused.lower()
    assert missing == "Tool mcp__s__die not found"


async def test_read_only_tools_run_side_by_side(agents: ServedAgents) -> None:
    agents.write({"s": scripted_server()})
    async with agents.agent() as agent:
        assert agent._built is not None
        tools = agent._built.session.toolset.active_tools()
        assert (tools["mcp__s__echo"].reads_only, tools["mcp__s__slow"].reads_only) == (True, False)


async def test_servers_of_a_project_wait_for_trust(agents: ServedAgents) -> None:
    (agents.work / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": scripted_server()}}))
    async with agents.agent() as agent:
        assert (await agent.get_mcp_servers()).servers == []
        assert (await agent.get_trust()).waiting == [str(agents.work / ".mcp.json")]
        change = await agent.set_trust(True)
        assert change.applied == [str(agents.work / ".mcp.json")]
        states = await agents.wait_until_connected(agent)
        assert (states["theirs"].status, states["theirs"].source) == ("connected", "project")
        await agent.set_trust(False)
        assert (await agent.get_mcp_servers()).servers == []


async def test_an_agent_leaves_nothing_behind(agents: ServedAgents) -> None:
    def count_resources() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(asyncio.all_tasks())

    log = {"LOG": str(agents.folder / "log")}
    late = scripted_server("ends_late", env=log)
    agents.write({"a": scripted_server(env=log), "b": late, "c": {"url": "http://127.0.0.1:9/"}})
    async with agents.agent() as agent:
        await agent.run("hello")
    before = count_resources()
    for _ in range(3):
        async with agents.agent() as agent:
            await agent.run("hello")
    after = count_resources()
    assert after[0] <= before[0] + 1
    assert after[1:] <= (before[1] + 1, before[2] + 1)
    assert not processes_in(str(agents.folder / "log"))


async def _descriptions(agent: pigeon.Agent) -> dict[str, str]:
    tools = await _tools_of(agent)
    return {name: spec.description for name, spec in tools.items() if name.startswith("mcp__")}


SAID = "says of all of its tools: Be kind."


async def test_what_a_server_says_of_all_its_tools_goes_with_the_first_that_the_model_is_told_of(
    agents: ServedAgents,
) -> None:
    agents.write({"a": scripted_server(), "b": scripted_server(excludeTools=["echo"])})
    async with agents.agent() as agent:
        before = await _descriptions(agent)
        assert {name for name, text in before.items() if SAID in text} == {"mcp__a__echo", "mcp__b__slow"}
        assert before["mcp__a__echo"] == f"Say the text again\n\nThe server a {SAID}"
        await agent.run("hello")
        assert await _descriptions(agent) == before


async def test_what_was_told_stays_when_another_server_comes_and_leaves_less_room(agents: ServedAgents) -> None:
    agents.write({"a": scripted_server()}, settings={})
    (agents.home / "settings.json").write_text(json.dumps({"mcp": {"toolBudget": 600}}))
    async with agents.agent(call("mcp__a__grow"), "Done.") as agent:
        await agent.run("hello")
        before = await _descriptions(agent)
        assert SAID in before["mcp__a__echo"]
        await agent.set_mcp_servers({"big": scripted_server(env={"TOOLS": "100"})})
        await agents.wait_until_connected(agent)
        await agent.run("hello")
        after = await _descriptions(agent)
        assert {name: after[name] for name in before} == before
        assert not [name for name, text in after.items() if "server big says" in text], "it has deferred tools only"


async def test_what_a_server_says_is_cut_to_the_room_that_there_is(agents: ServedAgents) -> None:
    agents.write({"a": scripted_server(env={"INSTRUCTIONS": "x" * 1000})})
    async with agents.agent() as agent:
        assert agent._built is not None
        tool = agent._built.session.toolset.active_tools()["mcp__a__echo"]
        assert isinstance(tool, ServerTool)
        for room, taken in ((10_000, 1041), (300, 300), (100, 0), (-5, 0)):
            tool.set_instructions(room)
            assert (tool.instructions_length, tool.spec.description.endswith("...")) == (taken, room == 300)


async def test_what_a_server_says_has_no_room_beyond_the_budget(agents: ServedAgents) -> None:
    agents.write({"a": scripted_server()})
    (agents.home / "settings.json").write_text(json.dumps({"mcp": {"toolBudget": 252}}))
    async with agents.agent() as agent:
        told = await _descriptions(agent)
        assert told
        assert not [name for name, text in told.items() if SAID in text]
