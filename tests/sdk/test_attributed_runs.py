"""Which run a prompt belongs to, with several callers on one conversation, and messages that are sent twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import pigeon
from support.processes import Fifo
from support.sdk_agents import Conversations, call

HANGS = {"text": "On and on", "hang": True}
SLOW = {"text": "one two three four", "chunk": 1, "chunkDelayMs": 2}


async def first(events: Any, kind: type) -> Any:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(kind)


async def test_a_result_names_its_run_and_so_does_every_event_of_it(conversations: Conversations) -> None:
    conversations.script("One.", "Two.")
    async with conversations.start() as agent:
        one = await agent.run("first")
        events = [event async for event in agent.prompt("second")]
        assert one.run_id
        ids = {getattr(event, "run_id", events[0].run_id) for event in events}
        assert ids == {events[-1].run_id}
        assert ids != {one.run_id}


async def test_of_two_runs_at_once_one_is_refused_and_the_other_is_whole(conversations: Conversations) -> None:
    conversations.script(SLOW)
    async with conversations.start() as agent:
        ends = await asyncio.gather(agent.run("first"), agent.run("second"), return_exceptions=True)
        results = [one for one in ends if isinstance(one, pigeon.Result)]
        assert [one.text for one in results] == ["one two three four"]
        assert [isinstance(one, pigeon.Refusal) for one in ends if one not in results] == [True]


@pytest.mark.parametrize("behavior", ["steer", "followUp"])
async def test_a_prompt_that_joins_a_run_ends_with_it(conversations: Conversations, behavior: Any) -> None:
    go = Fifo(conversations.work)
    conversations.script(call("bash", command=go.waits), "Heard.", "Both.")
    async with conversations.start() as agent:
        joined = None
        async for event in agent.prompt("go"):
            if isinstance(event, pigeon.ToolExecutionStart) and joined is None:
                joined = asyncio.ensure_future(agent.run("also", streaming_behavior=behavior))
                await agent.get_state()
                go.release()
        assert joined is not None
        result = await joined
        assert isinstance(event, pigeon.AgentSettled)
        assert (result.run_id, result.ended) == (event.run_id, "done")
        said = [block.text for one in result.messages if isinstance(one, pigeon.UserMessage) for block in one.content]
        assert said[-2:] == ["go", "also"]


async def test_leaving_a_prompt_that_waits_takes_it_back_and_the_run_goes_on(conversations: Conversations) -> None:
    conversations.script({**SLOW, "chunkDelayMs": 15})
    async with conversations.start() as agent:
        async for event in agent.prompt("go"):
            if isinstance(event, pigeon.TextStart):
                joined = agent.prompt("never", streaming_behavior="followUp")
                assert isinstance(await anext(joined), pigeon.Event | pigeon.TextDelta)
                await joined.aclose()
        assert (event.reason, event.aborted) == ("done", False)
        assert "never" not in str((await agent.get_messages()).messages)


async def test_messages_in_the_queue_are_removed_edited_and_promoted(conversations: Conversations) -> None:
    go = Fifo(conversations.work)
    conversations.script(call("bash", command=go.waits), "Steered.", "Followed.")
    async with conversations.start() as agent:
        async for event in agent.prompt("go"):
            if isinstance(event, pigeon.ToolExecutionStart):
                gone = await agent.follow_up("gone", message_id="mine")
                kept = await agent.follow_up("kept")
                assert gone.client_message_id == "mine"
                assert (await agent.remove_queued(str(gone.queued_id))).text == "gone"
                assert (await agent.edit_queued(str(kept.queued_id), "changed")).text == "changed"
                assert (await agent.promote_queued(str(kept.queued_id))).queue == "steering"
                with pytest.raises(pigeon.Refusal):
                    await agent.remove_queued("no such")
                go.release()
        said = [one for one in (await agent.get_messages()).messages if isinstance(one, pigeon.UserMessage)]
        assert [one.content[0].text for one in said] == ["go", "changed"]  # type: ignore[union-attr]


async def test_one_tool_is_aborted_and_the_turn_goes_on(conversations: Conversations) -> None:
    conversations.script(call("bash", command="sleep 60"), "Well then.")
    async with conversations.start() as agent:
        async for event in agent.prompt("go"):
            if isinstance(event, pigeon.ToolExecutionStart):
                await agent.abort(tool_call_id=event.tool_call_id)
            if isinstance(event, pigeon.ToolExecutionEnd):
                assert event.is_error
        assert isinstance(event, pigeon.AgentSettled)
        assert event.reason == "done"
        assert (await agent.get_last_assistant_text()).text == "Well then."


async def test_a_message_that_is_sent_again_gets_the_result_of_its_one_run(conversations: Conversations) -> None:
    conversations.script(call("bash", command="echo found"), SLOW, "Another run.")
    async with conversations.start() as agent:
        events = agent.events()
        running = asyncio.ensure_future(agent.run("go", message_id="a"))
        await first(events, pigeon.TextDelta)
        during = asyncio.ensure_future(agent.run("go", message_id="a"))
        one, two, three = await running, await during, await agent.run("go", message_id="a")
        assert one == two == three
        assert one.text == "one two three four"
        assert [type(event) async for event in agent.prompt("go", message_id="a")] == [pigeon.AgentSettled]
        with pytest.raises(pigeon.Refusal, match="Another message was sent"):
            await agent.run("something else", message_id="a")
        assert (await agent.run("go", message_id="b")).text == "Another run."


async def test_leaving_a_message_that_was_sent_again_does_not_abort_the_run_of_the_first(
    conversations: Conversations,
) -> None:
    conversations.script(SLOW)
    async with conversations.start() as agent:
        async for event in agent.prompt("go", message_id="a"):
            if isinstance(event, pigeon.TextStart):
                async with agent.prompt("go", message_id="a") as again:
                    await anext(again)
        assert event.reason == "done"


async def test_leaving_the_context_of_a_prompt_aborts_its_run_and_waits_for_its_end(
    conversations: Conversations,
) -> None:
    conversations.script(HANGS, "Next.")
    async with conversations.start() as agent:
        async with agent.prompt("go") as events:
            await first(events, pigeon.TextDelta)
        assert not (await agent.get_state()).is_streaming
        assert (await agent.get_messages()).messages[-1].stop_reason == "aborted"
        assert (await agent.run("again")).text == "Next."


async def test_a_message_whose_run_was_over_before_this_conversation_says_so(conversations: Conversations) -> None:
    conversations.script("Done.")
    async with conversations.start() as agent:
        before = await agent.run("go", message_id="a")
    conversations.script(SLOW)
    async with conversations.start(session=before.session_file) as agent:
        with pytest.raises(pigeon.RunOver) as over:
            await agent.run("go", message_id="a")
        assert (over.value.message_id, over.value.run_id) == ("a", before.run_id)
        async for event in agent.prompt("another"):
            if isinstance(event, pigeon.TextStart):
                with pytest.raises(pigeon.RunOver):
                    await agent.run("go", message_id="a")
        assert isinstance(event, pigeon.AgentSettled)
        assert event.reason == "done"


async def test_a_reader_that_does_not_read_never_holds_up_a_run(
    conversations: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pigeon.sdk import reader_queue

    monkeypatch.setattr(reader_queue, "MOST_QUEUED", 20)
    conversations.script(*[call("bash", command="true")] * 4, "Done.")
    async with conversations.start() as agent:
        unread = agent.events()
        assert (await agent.run("go")).ended == "done"
        with pytest.raises(pigeon.ReaderTooSlow):
            await first(unread, pigeon.AgentSettled)
