"""The tool `task`: agents with contexts of their own, whose last answer is the result of the call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import pigeon
from support.agent_trees import AgentTree, calls, events_of, results_of, task, text_of_result
from support.sdk_agents import call


@pytest.fixture
def tree(tmp_path: Path) -> AgentTree:
    return AgentTree(tmp_path)


async def test_the_result_is_the_last_answer_with_the_id_and_the_changed_files(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD", title="write a file")), "Thanks.")
    tree.says("CHILD", call("write", path="a.txt", content="x"), "It is written.")
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
    [end] = results_of(events)
    details = end.result.details
    assert not end.is_error
    assert text_of_result(end).startswith("It is written.")
    assert known.agent_id in text_of_result(end)
    assert "a.txt" in text_of_result(end)
    assert details["agentId"] == details["sessionId"] == known.agent_id
    assert (details["agent"], details["ended"], details["changedFiles"]) == ("general", "done", ["a.txt"])
    assert details["sessionFile"] == known.session_file
    assert (known.status, known.title, known.depth) == ("done", "write a file", 1)
    assert known.tool_call_id == end.tool_call_id
    assert (tree.work / "a.txt").read_text() == "x"


async def test_an_agent_has_a_context_of_its_own(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", "I know nothing of the rest.")
    async with tree.start() as agent:
        await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
        messages = (await agent.get_agent_messages(known.agent_id)).messages
    assert [message.__struct_config__.tag for message in messages] == ["user", "assistant"]
    assert pigeon.text_of(messages[0].content) == "CHILD"


async def test_several_calls_in_one_answer_run_side_by_side(tree: AgentTree) -> None:
    """Each waits for a file that another one writes: one after the other, they would never end."""
    wait = "while [ ! -e {} ]; do :; done; touch {}"
    tree.says("ROOT", calls(task("FIRST"), task("SECOND")), "Done.")
    tree.says("FIRST", call("bash", command="touch one; " + wait.format("two", "both")), "one")
    tree.says("SECOND", call("bash", command="touch two; " + wait.format("one", "both")), "two")
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
    assert [text_of_result(end).split()[0] for end in sorted(results_of(events), key=lambda e: e.tool_call_id)] == [
        "one",
        "two",
    ]


async def test_an_output_schema_gives_a_value(tree: AgentTree) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tree.says("ROOT", calls(task("CHILD", output_schema=schema)), "Done.")
    tree.says("CHILD", '{"n": 5}')
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    assert text_of_result(end).startswith('{"n":5}')
    assert end.result.details["output"] == {"n": 5}


async def test_an_agent_that_has_ended_continues_with_what_it_knows(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD one")), "Done.")
    tree.says("CHILD", "The word is plum.")
    async with tree.start() as agent:
        await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
        run = agent.spawn("CHILD again", resume=known.agent_id)
        result = await run.result()
        messages = (await agent.get_agent_messages(known.agent_id)).messages
        assert len((await agent.get_agents()).agents) == 1
    assert result.ended == "done"
    assert run.agent_id == known.agent_id
    assert [message.__struct_config__.tag for message in messages] == ["user", "assistant"] * 2


async def test_it_continues_in_another_process(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", "The word is plum.")
    async with tree.start() as agent:
        await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
        state = await agent.get_state()
    async with tree.start(session=state.session_file) as again:
        assert (await again.get_agents()).agents == [known]
        result = await again.spawn("CHILD more", resume=known.agent_id).result()
        assert len((await again.get_agent_messages(known.agent_id)).messages) == 4
    assert result.session_id == known.agent_id


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"prompt": "x", "agent": "painter"}, 'no agent type "painter". Known: general, explore'),
        ({"prompt": "  "}, "prompt is empty"),
        ({"prompt": "x", "resume": "0199-nobody"}, 'no agent "0199-nobody"'),
        ({"prompt": "x", "resume": "../../etc/passwd"}, "no agent"),
        ({"prompt": "x", "isolation": "worktree"}, "needs a git repository"),
        ({"prompt": "x", "output_schema": {"type": "nonsense"}}, "output"),
    ],
)
async def test_a_call_that_cannot_be_made_says_why(tree: AgentTree, arguments: dict[str, Any], expected: str) -> None:
    tree.says("ROOT", calls(("task", arguments)), "I see.")
    tree.says("x", "Never asked.")
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        assert (await agent.get_agents()).agents == [] or (await agent.get_agents()).agents[0].status == "error"
    assert end.is_error
    assert expected in text_of_result(end)


async def test_an_agent_that_fails_is_an_error_result_and_the_conversation_goes_on(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "It failed, so I did it myself.")
    tree.says("CHILD", {"text": "I beg", "error": {"message": "the model is broken", "status": 400}})
    async with tree.start() as agent:
        events = await events_of(agent, "ROOT")
    [end] = results_of(events)
    assert end.is_error
    assert end.result.details["ended"] == "error"
    assert "the model is broken" in text_of_result(end)
    assert isinstance(events[-1], pigeon.AgentSettled)
    assert events[-1].reason == "done"


async def test_agents_start_no_agents_unless_the_settings_say_so(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", calls(task("GRANDCHILD")), "I did it alone.")
    async with tree.start() as agent:
        await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
        messages = (await agent.get_agent_messages(known.agent_id)).messages
    assert "agents may be 1 deep (setting agents.maxDepth)" in pigeon.text_of(messages[2].content)


async def test_a_tree_is_as_deep_as_the_settings_say(tree: AgentTree) -> None:
    tree.made.settings(agents={"maxDepth": 2})
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", calls(task("GRANDSON")), "He did it.")
    tree.says("GRANDSON", call("write", path="deep.txt", content="x"), "Done down here.")
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        agents = (await agent.get_agents()).agents
        root = (await agent.get_state()).session_id
    assert [(one.depth, one.status) for one in agents] == [(1, "done"), (2, "done")]
    assert [one.parent_agent_id for one in agents] == [root, agents[0].agent_id]
    assert end.result.details["changedFiles"] == ["deep.txt"]


async def test_a_tree_with_one_place_does_not_block_itself(tree: AgentTree) -> None:
    tree.made.settings(agents={"maxDepth": 3, "maxParallel": 1})
    tree.says("ROOT", calls(task("A one"), task("A two")), "Done.")
    tree.says("A ", calls(task("B one"), task("B two")), calls(task("B one"), task("B two")), "a")
    tree.says("B ", calls(task("C")), calls(task("C")), calls(task("C")), calls(task("C")), "b")
    tree.says("C", "c")
    async with tree.start() as agent:
        async with asyncio.timeout(30):
            events = await events_of(agent, "ROOT")
        agents = (await agent.get_agents()).agents
    assert [end.is_error for end in results_of(events)] == [False, False]
    assert {one.status for one in agents} == {"done"}
    assert {one.depth for one in agents} == {1, 2, 3}


async def test_an_agent_cannot_continue_while_it_runs(tree: AgentTree) -> None:
    tree.says("CHILD", {"text": "On and on", "hang": True})
    async with tree.start() as agent:
        run = agent.spawn("CHILD")
        async for event in run:
            if isinstance(event, pigeon.TextDelta):
                break
        with pytest.raises(pigeon.Refusal, match="still running"):
            await agent.spawn("CHILD", resume=run.agent_id).result()
        await run.abort()


async def test_a_long_answer_is_cut_and_its_session_has_all_of_it(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", {"blocks": [{"type": "text", "text": "0123456789\n", "repeat": 10_000}]})
    async with tree.start() as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
    text = text_of_result(end)
    assert len(text.encode()) <= 51_200
    assert end.result.details["agentId"] in text
    assert "cut" in text


async def test_without_sessions_on_disk_agents_live_in_memory(tree: AgentTree) -> None:
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", "Here.")
    async with tree.start(no_session=True) as agent:
        [end] = results_of(await events_of(agent, "ROOT"))
        assert end.result.details["sessionFile"] is None
        again = await agent.spawn("CHILD", resume=end.result.details["agentId"]).result()
    assert again.ended == "done"
    assert not list(tree.folders.agent.rglob("*.jsonl"))


def replace_file(path: Path, data: bytes | None) -> None:
    """Give a file this content; none removes it."""
    path.unlink()
    if data is not None:
        path.write_bytes(data)


@pytest.mark.parametrize("left", [None, b"", b'{"type":"session","id'])
async def test_an_agent_whose_session_was_never_written_continues_under_its_id(
    tree: AgentTree, left: bytes | None
) -> None:
    """The process died between the record of its start and its first message."""
    tree.says("ROOT", calls(task("CHILD")), "Done.")
    tree.says("CHILD", "Here.")
    async with tree.start() as agent:
        await events_of(agent, "ROOT")
        [known] = (await agent.get_agents()).agents
        file = (await agent.get_state()).session_file
    replace_file(Path(str(known.session_file)), left)
    async with tree.start(session=file) as again:
        result = await again.spawn("CHILD", resume=known.agent_id).result()
        assert len((await again.get_agent_messages(known.agent_id)).messages) == 2
    assert (result.ended, result.session_id) == ("done", known.agent_id)
