"""The engine: what follows a run by itself, what a request holds, and what state is left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from fakes.agent_loop import AnyTool, Script, calls, fails, says
from pigeon.agent.inference import Metered
from pigeon.session.compaction.compaction import TWICE
from pigeon.session.context.transcript import NO_IMAGES
from pigeon.session.hooks import NoHooks, PromptAdditions, RunOutcome
from pigeon.session.host.host_shell import NOT_RUN
from pigeon.session.prompting import HostMessage
from pigeon.session.settings import CompactionPolicy, RetryPolicy, SessionSettings
from pigeon.wire.answers import Accepted, BashResult, Compacted
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageContent, ImageInput, TextContent, text_of
from pigeon.wire.errors import Refusal
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AutoRetryEnd,
    AutoRetryStart,
    CompactionEnd,
    CompactionStart,
    Outbound,
    ToolExecutionStart,
    ToolOutcome,
)
from pigeon.wire.messages import CustomMessage, Message, UserMessage
from pigeon.wire.model import Cost, Usage
from support.model_requests import PNG, a_model
from support.session_setup import SessionSetup

SMALL = a_model(context_window=10_000, max_tokens=1_000)
KEEPS = SessionSettings(compaction=CompactionPolicy(keep_tokens=50, reserve_tokens=1_000))
LONG = "lorem ipsum dolor sit amet " * 40


def full(script: Script) -> Script:
    """An answer that nearly fills the window of `SMALL`."""
    return [Metered(usage=Usage(input=9_500, output=1, total_tokens=9_501, cost=Cost())), *script]


class Held:
    """A step of a script that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = False
        self._open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached = True
        await self._open.wait()

    def open(self) -> None:
        self._open.set()


async def make_talked_setup(*scripts: Script, **more: Any) -> SessionSetup:
    """A session with a conversation that can be summarized; further scripts follow."""
    setup = SessionSetup(says("one"), says("two"), *scripts, model=SMALL, **{"settings": KEEPS, **more})
    for number in (1, 2):
        await setup.prompt(f"question {number} {LONG}")
    return setup


def queue(setup: SessionSetup, text: str, kind: Any = "followUp") -> None:
    accepted = setup.session.prompting.queue_message(HostMessage(text), kind)
    assert isinstance(accepted, Accepted)
    assert accepted.disposition == "queued"


async def test_a_message_taken_back_during_compaction_is_not_delivered() -> None:
    held = Held()
    setup = await make_talked_setup(full(says("three")), [held, *says("THE SUMMARY")])
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: setup.session.activity.is_running)
    queue(setup, "later")
    await setup.until(lambda: held.reached)
    assert setup.session.queue.clear() == ([], ["later"])
    held.open()
    await running
    assert setup.message_texts()[-2:] == ["user: go", "assistant: three"]
    assert setup.heard.outline().count("agent_start") == 3


async def test_steering_that_comes_during_compaction_is_delivered_in_the_same_run() -> None:
    held = Held()
    setup = await make_talked_setup(
        full(calls(("tool", {}))), [held, *says("THE SUMMARY")], says("four"), tools=(AnyTool("tool"),)
    )
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: held.reached)
    queue(setup, "now", "steering")
    held.open()
    await running
    assert setup.message_texts()[-2:] == ["user: now", "assistant: four"]
    assert len(setup.heard.of(AgentEnd)) == 3


async def compact(setup: SessionSetup) -> Compacted:
    return await setup.session.history.compact()


async def test_the_state_is_idle_after_a_compaction_that_succeeded() -> None:
    held = Held()
    setup = await make_talked_setup([held, *says("THE SUMMARY")], says("three"))
    work = asyncio.ensure_future(compact(setup))
    await setup.until(lambda: held.reached)
    assert setup.session.activity.state == "compacting"
    assert not setup.session.activity.is_running
    held.open()
    assert "THE SUMMARY" in (await work).summary
    assert (setup.session.activity.state, setup.session.activity.is_busy) == ("idle", False)
    await setup.prompt("on")
    assert setup.message_texts()[-1] == "assistant: three"


async def test_the_state_is_idle_after_a_compaction_that_failed() -> None:
    setup = await make_talked_setup(fails("no"), says("three"))
    with pytest.raises(Refusal, match="no"):
        await compact(setup)
    assert (setup.session.activity.state, setup.session.activity.is_busy) == ("idle", False)
    await setup.prompt("on")
    assert setup.message_texts()[-1] == "assistant: three"


async def test_the_state_is_idle_after_a_compaction_that_was_aborted() -> None:
    held = Held()
    setup = await make_talked_setup([held], says("three"))
    work = asyncio.ensure_future(compact(setup))
    await setup.until(lambda: held.reached)
    ended = setup.session.engine.abort()
    assert ended is not None
    await ended
    with pytest.raises(Refusal, match="Compaction cancelled"):
        await work
    assert (setup.session.activity.state, setup.session.activity.is_busy) == ("idle", False)
    await setup.prompt("on")
    assert setup.message_texts()[-1] == "assistant: three"


@pytest.mark.parametrize("summary", [says("THE SUMMARY"), fails("no summary")])
async def test_a_run_goes_on_after_an_automatic_compaction_whatever_became_of_it(summary: Script) -> None:
    held, goes_on = Held(), Held()
    scripts = (full(calls(("tool", {}))), [held, *summary], [goes_on, *says("four")])
    setup = await make_talked_setup(*scripts, tools=(AnyTool("tool"),))
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: held.reached)
    assert setup.session.activity.state == "compacting"
    assert setup.session.activity.is_running
    held.open()
    await setup.until(lambda: goes_on.reached)
    assert setup.session.activity.state == "running"
    goes_on.open()
    await running
    assert setup.message_texts()[-1] == "assistant: four"
    assert setup.session.activity.state == "idle"


async def test_an_overflow_is_compacted_once_and_repeated() -> None:
    goes_on = Held()
    setup = await make_talked_setup(fails("too long", overflow=True), says("THE SUMMARY"), [goes_on, *says("three")])
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: goes_on.reached)
    assert setup.session.activity.state == "running"
    goes_on.open()
    await running
    assert setup.message_texts()[-1] == "assistant: three"
    assert [event.reason for event in setup.heard.of(CompactionStart)] == ["overflow"]
    assert setup.session.activity.state == "idle"
    assert len(setup.heard.of(AgentSettled)) == 3


async def test_a_second_overflow_in_a_row_ends_the_run_and_the_next_prompt_may_recover_again() -> None:
    too_long = fails("too long", overflow=True)
    setup = await make_talked_setup(too_long, says("THE SUMMARY"), too_long, too_long, says("ANOTHER"), says("three"))
    await setup.prompt("go")
    assert len(setup.heard.of(CompactionStart)) == 1
    assert [event.error_message for event in setup.heard.of(CompactionEnd)] == [ABSENT, TWICE]
    await setup.prompt(f"on {LONG}")
    assert len(setup.heard.of(CompactionStart)) == 2
    assert setup.message_texts()[-1] == "assistant: three"


async def test_without_automatic_compaction_an_overflow_ends_the_run() -> None:
    setup = await make_talked_setup(fails("too long", overflow=True))
    setup.session.engine.compaction.set_enabled(False)
    await setup.prompt("go")
    assert setup.heard.of(CompactionStart) == []
    assert setup.session.activity.state == "idle"


async def test_a_failed_answer_is_repeated_and_left_out_of_the_next_request() -> None:
    quick = SessionSettings(retry=RetryPolicy(base_delay_ms=0))
    goes_on = Held()
    setup = SessionSetup(fails("busy", retryable=True), [goes_on, *says("one")], settings=quick)
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: setup.session.activity.state == "retrying")
    await setup.until(lambda: goes_on.reached)
    assert setup.session.activity.state == "running"
    goes_on.open()
    await running
    assert [event.attempt for event in setup.heard.of(AutoRetryStart)] == [1]
    assert setup.heard.of(AutoRetryEnd)[0].success
    assert [message.__struct_config__.tag for message in setup.provider.requests[1].messages] == ["user"]
    assert len(setup.heard.of(AgentSettled)) == 1


async def test_retries_end_where_the_policy_says_and_the_switch_turns_them_off() -> None:
    busy = fails("busy", retryable=True)
    quick = SessionSettings(retry=RetryPolicy(max_retries=2, base_delay_ms=0))
    setup = SessionSetup(busy, busy, busy, busy, settings=quick)
    await setup.prompt("go")
    assert len(setup.provider.requests) == 3
    assert [(event.success, event.final_error) for event in setup.heard.of(AutoRetryEnd)] == [(False, "busy")]
    setup.session.engine.retry.set_enabled(False)
    await setup.prompt("again")
    assert len(setup.provider.requests) == 4


@pytest.mark.parametrize(("blocked", "sent"), [(True, NO_IMAGES), (False, PNG)])
async def test_blocked_images_stay_on_record_and_are_not_sent(blocked: bool, sent: Any) -> None:
    async def screenshot(arguments: Any, run: Any) -> ToolOutcome:
        return ToolOutcome(content=[TextContent(text="here"), PNG, PNG])

    setup = SessionSetup(
        calls(("tool", {})),
        says("seen"),
        settings=SessionSettings(block_images=blocked),
        tools=(AnyTool("tool", screenshot),),
    )
    await setup.prompt("look", images=[ImageInput(data=PNG.data, mime_type=PNG.mime_type)])
    last = setup.provider.requests[-1].messages
    contents = [message.content for message in (last[0], last[2])]
    shown = [[getattr(block, "text", block) for block in content] for content in contents]
    assert shown == [["look", sent], ["here", sent] if blocked else ["here", PNG, PNG]]
    on_record = [line.message for line in setup.session.journal.branch if line.role in ("user", "toolResult")]
    assert all(any(isinstance(block, ImageContent) for block in message.content) for message in on_record if message)


def note(text: str) -> CustomMessage:
    return CustomMessage(custom_type="x", content=text, display=True, timestamp=1)


async def test_messages_that_come_while_a_run_ends_are_said_in_a_run_of_their_own() -> None:
    setup = SessionSetup(says("one"), says("two"))

    def late(event: Outbound) -> None:
        if isinstance(event, AgentEnd) and len(setup.provider.requests) == 1:
            setup.session.queue.add(note("late"), "followUp")

    setup.session.bus.add_recorder(late)
    await setup.prompt("go")
    assert setup.message_texts() == ["user: go", "assistant: one", "custom: late", "assistant: two"]
    assert setup.heard.outline().count("agent_start") == 2
    assert len(setup.heard.of(AgentSettled)) == 1


class Continuing(NoHooks):
    """Extensions that want one more run, with these notes."""

    def __init__(self, *notes: str) -> None:
        self.notes = list(notes)
        self.outcomes: list[RunOutcome] = []

    def collect_continuations(self, outcome: RunOutcome) -> list[CustomMessage]:
        self.outcomes.append(outcome)
        return [note(self.notes.pop(0))] if self.notes else []


async def test_extensions_may_ask_for_one_more_run_before_the_agent_settles() -> None:
    hooks = Continuing("check it", "and again")
    setup = SessionSetup(says("one"), fails("broken"), says("three"), hooks=hooks)
    await setup.prompt("go")
    assert hooks.outcomes == ["stop", "error", "stop"]
    assert setup.message_texts()[-2:] == ["custom: and again", "assistant: three"]
    assert len(setup.heard.of(AgentSettled)) == 1


async def test_a_stopped_run_is_not_continued_and_leaves_the_queue_as_it_is() -> None:
    held = Held()
    setup = SessionSetup([held], hooks=Continuing("never"))
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: held.reached)
    queue(setup, "later")
    ended = setup.session.engine.abort()
    assert ended is not None
    await ended
    await running
    assert setup.message_texts() == ["user: go", "assistant: "]
    assert setup.session.queue.clear() == ([], ["later"])
    assert setup.session.activity.state == "idle"


async def test_the_locale_is_part_of_the_system_prompt_from_the_next_request_on() -> None:
    setup = SessionSetup(says("one"), says("two"), says("three"))
    await setup.prompt("go")
    setup.session.system_prompt.set_locale(" de-DE ")
    await setup.prompt("on")
    setup.session.system_prompt.set_locale("")
    await setup.prompt("on")
    prompts = [request.system_prompt for request in setup.provider.requests]
    assert ["de-DE" in prompt for prompt in prompts] == [False, True, False]
    assert prompts[1].startswith("Be brief.\n\n")


async def test_a_hook_that_is_asked_when_the_run_is_stopped_is_not_waited_for() -> None:
    class Slow(NoHooks):
        asked = False

        async def transform_message(self, message: Message) -> Message:  # type: ignore[override]
            self.asked = True
            await asyncio.get_running_loop().create_future()
            return message

    hooks = Slow()
    setup = SessionSetup(says("one"), hooks=hooks)
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: hooks.asked)
    setup.session.engine.abort()
    await running
    assert setup.message_texts() == ["user: go", "assistant: "]


async def test_a_system_prompt_of_an_extension_holds_for_its_run_only() -> None:
    class Own(NoHooks):
        def collect_prompt_additions(self, prompt: UserMessage, system_prompt: Any) -> PromptAdditions:
            return PromptAdditions([], "Mine." if text_of(prompt.content) == "go" else None)

    setup = SessionSetup(calls(("tool", {})), says("one"), says("two"), hooks=Own(), tools=(AnyTool("tool"),))
    await setup.prompt("go")
    await setup.prompt("on")
    assert [request.system_prompt for request in setup.provider.requests] == ["Mine.", "Mine.", "Be brief."]


async def test_what_a_shell_command_of_the_host_printed_goes_on_record_after_the_run() -> None:
    class Shell(NoHooks):
        def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> BashResult:  # type: ignore[override]
            return structs.replace(NOT_RUN, output=command)

    held = Held()
    setup = SessionSetup([held, *says("one")], says("two"), hooks=Shell())
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: held.reached)
    before = len(setup.session.journal.branch)
    await setup.session.shell.run("ls", False, "b")
    assert len(setup.session.journal.branch) == before
    held.open()
    await running
    assert [line.role for line in setup.session.journal.branch[-2:]] == ["assistant", "bashExecution"]
    await setup.session.shell.run("pwd", True, "b")
    assert setup.session.journal.branch[-1].role == "bashExecution", "at once while nothing runs"
    await setup.prompt("on")
    texts = [text_of(message.content) for message in setup.provider.requests[-1].messages]
    assert (any("ls" in text for text in texts), any("pwd" in text for text in texts)) == (True, False)


async def test_a_follow_up_waits_for_the_answer_that_is_repeated() -> None:
    held = Held()
    quick = SessionSettings(retry=RetryPolicy(base_delay_ms=0))
    setup = SessionSetup([held, *fails("busy", retryable=True)], says("one"), says("two"), settings=quick)
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: held.reached)
    queue(setup, "later")
    held.open()
    await running
    assert setup.message_texts() == ["user: go", "assistant: ", "assistant: one", "user: later", "assistant: two"]


async def test_a_failure_that_is_not_retried_leaves_the_follow_up_in_the_queue() -> None:
    held = Held()
    setup = SessionSetup([held, *fails("broken")])
    running = asyncio.ensure_future(setup.prompt("go"))
    await setup.until(lambda: held.reached)
    queue(setup, "later")
    held.open()
    await running
    assert setup.session.queue.clear() == ([], ["later"])
    assert setup.session.activity.state == "idle"


async def test_a_compaction_needs_a_model() -> None:
    setup = SessionSetup(model=None)
    with pytest.raises(Refusal, match="No model selected"):
        await compact(setup)
    assert not setup.session.activity.is_busy
    assert setup.heard.of(CompactionEnd)[-1].error_message == "Compaction failed: No model selected"


async def test_processes_are_prepared_when_an_answer_names_a_command_and_not_before() -> None:
    setup = SessionSetup(
        says("hello"),
        calls(("read", {}), ("bash", {"command": "true"})),
        says("done"),
        tools=(AnyTool("bash"), AnyTool("read")),
    )
    await setup.prompt("hi")
    assert setup.warmings == []
    await setup.prompt("run it")
    [before] = setup.warmings
    assert not any(isinstance(event, ToolExecutionStart) for event in setup.heard.events[:before])
    await setup.close()
