"""A conversation as a program has it, the same in this process, over a subprocess and over a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.sdk.conversation import FEATURES
from pigeon.sdk.images import image_of, images_of
from pigeon.wire.choices import ALL_FEATURES
from support.sdk_agents import Conversations, call


async def events_of(conversation: pigeon.Conversation, text: str) -> list[Any]:
    return [event async for event in conversation.prompt(text)]


def kinds(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_a_prompt_gives_the_events_of_its_run_and_ends_with_it(conversations: Conversations) -> None:
    conversations.script("Hello there.", chunk=6)
    async with conversations.start() as agent:
        events = await events_of(agent, "hi")
        assert kinds(events) == [
            "AgentStart", "TurnStart", "MessageStart", "MessageEnd", "MessageStart", "MessageEnd", "MessageStart",
            "TextStart", "TextDelta", "TextDelta", "TextEnd", "MessageEnd", "TurnEnd", "AgentEnd", "AgentSettled",
        ]  # fmt: skip
        assert "".join(one.delta for one in events if isinstance(one, pigeon.TextDelta)) == "Hello there."


async def test_a_run_gives_its_text_messages_usage_and_session(conversations: Conversations) -> None:
    conversations.script(
        call("bash", command="echo found"), {"text": "It is there.", "usage": {"input": 7, "output": 2}}
    )
    async with conversations.start() as agent:
        result = await agent.run("look")
        assert (result.text, result.ended, result.error) == ("It is there.", "done", None)
        roles = [type(message).__name__ for message in result.messages]
        assert roles[-4:] == ["UserMessage", "AssistantMessage", "ToolResultMessage", "AssistantMessage"]
        answers = [one for one in result.messages if isinstance(one, pigeon.AssistantMessage)]
        assert result.usage.output == sum(one.usage.output for one in answers)
        assert (result.session_id, result.session_file is not None) == ((await agent.get_state()).session_id, True)
    assert result.session_file in {str(path) for path in conversations.folders.home.rglob("*.jsonl")}


async def test_every_delta_arrives_on_request_however_slowly_they_are_read(conversations: Conversations) -> None:
    text = "0123456789" * 1_000
    conversations.script({"text": text, "chunk": 1}, {"text": text, "chunk": 1})
    async with conversations.start() as agent:
        deltas = []
        async for event in agent.prompt("go", every_delta=True):
            await asyncio.sleep(0)
            if isinstance(event, pigeon.TextDelta):
                deltas.append(event.delta)
        assert deltas == list(text)
        merged = []
        async for event in agent.prompt("go"):
            await asyncio.sleep(0)
            if isinstance(event, pigeon.TextDelta):
                merged.append(event.delta)
        assert "".join(merged) == text


async def test_a_failed_run_says_why(conversations: Conversations) -> None:
    conversations.settings(retry={"enabled": False})
    conversations.script({"error": {"message": "it broke"}})
    async with conversations.start() as agent:
        result = await agent.run("hi")
        assert result.ended == "error"
        assert "it broke" in (result.error or "")


@pytest.mark.parametrize("way", ["break", "exception", "aclose", "cancel"])
async def test_leaving_a_prompt_early_aborts_its_run(conversations: Conversations, way: str) -> None:
    conversations.script({"text": "On and on", "hang": True}, "Fine.")
    async with conversations.start() as agent:
        heard = agent.events()
        if way == "break":
            async for event in agent.prompt("talk"):
                if isinstance(event, pigeon.TextDelta):
                    break
        elif way == "exception":
            with pytest.raises(LookupError):
                await _failing(agent)
        elif way == "aclose":
            events = agent.prompt("talk")
            assert isinstance(await anext(events), pigeon.AgentStart)
            await events.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(events)
        else:
            running = asyncio.ensure_future(agent.run("talk"))
            async for event in heard:
                if isinstance(event, pigeon.TextDelta):
                    break
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert (await agent.run("and now?")).text == "Fine."
        settled = [event async for event in _until_settled(heard)]
        assert settled[-1].aborted is True


async def _failing(agent: pigeon.Conversation) -> None:
    async for event in agent.prompt("talk"):
        if isinstance(event, pigeon.TextDelta):
            raise LookupError


async def _until_settled(events: Any) -> Any:
    async for event in events:
        yield event
        if isinstance(event, pigeon.AgentSettled):
            return


async def test_a_prompt_that_was_left_before_it_began_does_nothing(conversations: Conversations) -> None:
    async with conversations.start() as agent:
        await agent.prompt("never").aclose()
        assert (await agent.get_state()).message_count == 0


async def test_the_first_event_can_be_had_without_holding_the_iterator(conversations: Conversations) -> None:
    conversations.script({"text": "On and on", "hang": True}, "Fine.")
    async with conversations.start() as agent:
        assert isinstance(await anext(agent.prompt("talk")), pigeon.AgentStart)
        assert (await agent.run("and now?")).ended == "done"


async def test_a_prompt_that_waits_for_the_end_of_one_that_was_left_can_be_left_itself(
    conversations: Conversations,
) -> None:
    conversations.script({"text": "On and on", "hang": True}, "Fine.")
    async with conversations.start() as agent:
        async for event in agent.prompt("talk"):
            if isinstance(event, pigeon.TextDelta):
                break
        waiting = asyncio.ensure_future(agent.run("never sent"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await agent.run("and now?")).text == "Fine."
        assert "never sent" not in str((await agent.get_messages()).messages)


async def test_leaving_a_prompt_that_will_be_refused_does_not_abort_the_run_in_its_way(
    conversations: Conversations,
) -> None:
    conversations.script({"text": "one two three four", "chunk": 1, "chunkDelayMs": 5})
    async with conversations.start() as agent:
        texts = []
        async for event in agent.prompt("first"):
            if isinstance(event, pigeon.TextStart):
                second = asyncio.ensure_future(agent.run("second"))
                for _ in range(4):
                    await asyncio.sleep(0)
                second.cancel()
                with pytest.raises((asyncio.CancelledError, pigeon.Refusal)):
                    await second
            if isinstance(event, pigeon.TextDelta):
                texts.append(event.delta)
        assert "".join(texts) == "one two three four"


async def test_a_second_prompt_during_a_run_is_refused_and_the_first_goes_on(conversations: Conversations) -> None:
    conversations.script({"text": "one two three", "chunk": 1, "chunkDelayMs": 5})
    async with conversations.start() as agent:
        texts = []
        async for event in agent.prompt("first"):
            if isinstance(event, pigeon.TextStart):
                with pytest.raises(pigeon.Refusal, match="already processing"):
                    await agent.run("second")
            if isinstance(event, pigeon.TextDelta):
                texts.append(event.delta)
        assert "".join(texts) == "one two three"


async def test_steering_and_follow_ups_become_part_of_the_run(conversations: Conversations) -> None:
    # The second answer takes a moment, so that what is said arrives during the run however busy the machine is.
    conversations.script(call("bash", command="true"), {"text": "Steered.", "delayMs": 300}, "Followed.")
    async with conversations.start() as agent:
        async for event in agent.prompt("go"):
            if isinstance(event, pigeon.ToolExecutionStart):
                assert (await agent.steer("left")).disposition == "queued"
                assert (await agent.follow_up("then right")).disposition == "queued"
        said = [one for one in (await agent.get_messages()).messages if isinstance(one, pigeon.UserMessage)]
        assert [block.text for one in said for block in one.content if isinstance(block, pigeon.TextContent)] == [
            "go", "left", "then right",
        ]  # fmt: skip


async def test_abort_ends_the_run_and_the_iteration(conversations: Conversations) -> None:
    conversations.script({"text": "On and on", "hang": True})
    async with conversations.start() as agent:
        async for event in agent.prompt("talk"):
            if isinstance(event, pigeon.TextDelta):
                await agent.abort()
        assert isinstance(event, pigeon.AgentSettled)
        assert event.aborted


async def test_the_result_of_an_aborted_run_says_so(conversations: Conversations) -> None:
    conversations.script({"text": "On and on", "hang": True})
    async with conversations.start() as agent:
        heard = agent.events()
        running = asyncio.ensure_future(agent.run("talk"))
        async for event in heard:
            if isinstance(event, pigeon.TextDelta):
                await agent.abort()
                break
        result = await running
        assert (result.ended, result.error) == ("aborted", None)


async def test_each_reader_of_events_gets_all_of_them(conversations: Conversations) -> None:
    async with conversations.start() as agent:
        one, other = agent.events(), agent.events()
        prompted = await events_of(agent, "hi")
        first = [event async for event in _until_settled(one)]
        second = [event async for event in _until_settled(other)]
        assert kinds(first) == kinds(second) == kinds(prompted)


async def test_readers_end_when_the_conversation_is_closed(conversations: Conversations) -> None:
    agent = conversations.start()
    await agent.open()
    reading = asyncio.ensure_future(_count(agent.events()))
    await agent.get_state()
    await agent.close()
    assert await reading == 0
    with pytest.raises(pigeon.ConversationClosed):
        await agent.get_state()
    await agent.close()


async def _count(events: Any) -> int:
    return len([event async for event in events])


async def test_closing_in_a_run_ends_the_iteration_with_an_error(conversations: Conversations) -> None:
    conversations.script({"text": "On and on", "hang": True})
    agent = conversations.start()
    await agent.open()
    with pytest.raises(pigeon.ConversationClosed):
        await _closing(agent)


async def _closing(agent: pigeon.Conversation) -> None:
    async for event in agent.prompt("talk"):
        if isinstance(event, pigeon.TextDelta):
            await agent.close()


async def test_refusals_are_raised_with_their_text(conversations: Conversations) -> None:
    async with conversations.start() as agent:
        with pytest.raises(pigeon.Refusal, match="Model not found: no/such"):
            await agent.set_model("no", "such")
        with pytest.raises(pigeon.Refusal, match=r'invalid field "level".*allowed'):
            await agent.set_thinking_level("much")  # type: ignore[arg-type]
        with pytest.raises(pigeon.Refusal, match="Entry not found: x"):
            await agent.get_entries(since="x")


async def test_a_filter_of_events_leaves_what_prompts_need(conversations: Conversations) -> None:
    conversations.script("Hello.", "Again.")
    async with conversations.start() as agent:
        await agent.set_event_filter(events=["agent_start"])
        assert set(kinds(await events_of(agent, "hi"))) == {"AgentStart", "MessageEnd", "AgentSettled"}
        assert (await agent.run("again")).text == "Again."
        await agent.set_event_filter(events=None)
        assert "TurnStart" in kinds(await events_of(agent, "once more"))


async def test_events_are_numbered_on_request_and_the_dialect_cannot_be_changed(conversations: Conversations) -> None:
    async with conversations.start() as agent:
        welcome = await agent.hello(features=["deltas", "seq"])
        assert welcome.dialect == "pi-latest"
        # All clients of a served conversation share one form of events, with every feature.
        of_kind = ALL_FEATURES if conversations.kind == "websocket" else (*FEATURES, "seq")
        assert set(welcome.features) == set(of_kind)
        assert (await agent.run("what results need is asked for again")).run_id is not None
        events = [event for event in await events_of(agent, "hi") if isinstance(event, pigeon.AgentEnd)]
        assert isinstance(events[0].seq, int)
        with pytest.raises(pigeon.Refusal, match="cannot change to omp"):
            await agent.hello(dialect="omp")


async def test_keys_are_masked_in_events_and_answers(conversations: Conversations) -> None:
    conversations.script("Hello.", "Hello.")
    async with conversations.start(api_key="sk-very-secret-key-1234567890") as agent:
        events = await events_of(agent, "my key is sk-very-secret-key-1234567890")
        said = (await agent.get_messages()).messages
        shell = await agent.bash("echo sk-very-secret-key-1234567890")
    assert "very-secret" not in f"{events} {said} {shell}"
    assert "my key is" in str(said)


async def test_answers_are_records(conversations: Conversations) -> None:
    conversations.script("Hello.")
    async with conversations.start() as agent:
        await agent.run("hi")
        stats = await agent.get_session_stats()
        assert (stats.user_messages, stats.assistant_messages) == (1, 1)
        tree = await agent.get_tree()
        assert isinstance(tree.tree[0], pigeon.TreeNode)
        entries = await agent.get_entries()
        assert entries.leaf_id == entries.entries[-1].id
        assert (await agent.get_last_assistant_text()).text == "Hello."
        shell = await agent.bash("echo from the shell", exclude_from_context=True)
        assert (shell.output.strip(), shell.exit_code) == ("from the shell", 0)


async def test_a_session_goes_on_in_another_conversation_and_is_listed_and_forked(conversations: Conversations) -> None:
    conversations.script("One.", "Two.")
    async with conversations.start() as agent:
        first = await agent.run("first")
        await agent.set_session_name("the first")
    conversations.script("Three.")
    async with conversations.start(session=first.session_file) as agent:
        assert (await agent.run("second")).session_id == first.session_id
        listed = (await agent.list_sessions()).sessions
        assert [(row.id, row.name) for row in listed] == [(first.session_id, "the first")]
        messages = (await agent.get_fork_messages()).messages
        assert [one.text for one in messages] == ["first", "second"]
        assert (await agent.fork(messages[1].entry_id)).text == "second"
        assert (await agent.get_state()).session_id != first.session_id


async def test_images_come_from_paths_bytes_and_pillow(conversations: Conversations, tmp_path: Path) -> None:
    from PIL import Image

    picture = Image.new("RGB", (4, 4), "red")
    path = tmp_path / "red.png"
    picture.save(path)
    async with conversations.start() as agent:
        await agent.run("look", images=[path, str(path), path.read_bytes(), picture])
        (said, _) = [one for one in (await agent.get_messages()).messages if not isinstance(one, pigeon.SystemMessage)]
        assert isinstance(said, pigeon.UserMessage)
        types = [block.mime_type for block in said.content if isinstance(block, pigeon.ImageContent)]
        assert types == ["image/png"] * 4


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "F", "PA", "RGBa"])
async def test_images_of_pillow_in_colours_that_png_does_not_know_are_converted(mode: str) -> None:
    from PIL import Image

    (made,) = [await asyncio.to_thread(image_of, Image.new(mode, (2, 2)))]
    assert made.mime_type == "image/png"


class Unsavable:
    """Looks like an image."""

    def save(self, fp: Any, format: str) -> None:
        raise LookupError("lost")


@pytest.mark.parametrize("given", [Path("one.png"), 5, bytearray(b"x")])
async def test_images_that_are_no_list_are_refused(given: Any) -> None:
    with pytest.raises(pigeon.Refusal, match="must be a list"):
        await images_of(given)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"no image", r"images\[0\]: these bytes are not a supported image"),
        ("/no/such.png", r"/no/such.png: No such file"),
        ("a\0b", "null byte"),
        (Unsavable(), "cannot be saved as PNG: lost"),
        (5, "int"),
    ],
)
async def test_what_is_no_image_is_refused_before_anything_is_sent(
    conversations: Conversations, image: Any, reason: str
) -> None:
    async with conversations.start() as agent:
        with pytest.raises(pigeon.Refusal, match=reason):
            await agent.run("look", images=[image])
        assert (await agent.run("without")).ended == "done"


async def test_a_program_without_limits_is_not_kept_busy_by_a_model_that_repeats_itself(tmp_path: Path) -> None:
    made = Conversations("agent", tmp_path)
    made.script(default=call("bash", command="echo again"))
    async with made.start() as agent:
        result = await agent.run("go")
        last = [event async for event in agent.prompt("go on")][-1]
    assert result.ended == "limit"
    assert "the same tool calls were made 10 times in a row" in str(result.error)
    assert isinstance(last, pigeon.AgentSettled)
    assert last.limit == pigeon.LimitReached(name="repeated_calls", allowed=10, reached=10)
