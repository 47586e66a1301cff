"""What becomes of a prompt: with and without extensions, with and without a model."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from fakes.agent_loop import says
from pigeon.session.hooks import NoHooks, PromptAdditions, PromptInput
from pigeon.session.prompting import HostMessage
from pigeon.wire.answers import Accepted
from pigeon.wire.content import Attachment, ImageContent, ImageInput, text_of
from pigeon.wire.errors import ABORTED_BEFORE, BadRecord, Refusal, SessionBusy
from pigeon.wire.events import AgentEnd, AgentSettled, MessageEnd, PromptResult, QueueUpdate, SessionSettled
from pigeon.wire.messages import CustomMessage, UserMessage
from support.model_requests import PNG
from support.session_setup import MODEL, SessionSetup

BAD = ImageInput(data="!", mime_type="image/png")


class Asked(NoHooks):
    """Extensions that take their time: an answer comes when `goes_on` is set."""

    def __init__(self, answer: PromptInput | str | None = "as it is") -> None:
        self.goes_on = asyncio.Event()
        self.answer = answer
        self.inputs: list[PromptInput] = []
        self.prompts: list[str] = []

    async def transform_input(self, said: PromptInput) -> PromptInput | None:  # type: ignore[override]
        self.inputs.append(said)
        await self.goes_on.wait()
        return said if isinstance(self.answer, str) else self.answer

    async def collect_prompt_additions(self, prompt: UserMessage, system_prompt: Any) -> PromptAdditions:  # type: ignore[override]
        self.prompts.append(text_of(prompt.content))
        await asyncio.sleep(0)
        return PromptAdditions([note("beside it")], f"{system_prompt()} Twice.")


def note(text: str) -> CustomMessage:
    return CustomMessage(custom_type="x", content=text, display=True, timestamp=1)


def prompt(setup: SessionSetup, text: str, behavior: Literal["steer", "followUp"] | None = None, **more: Any) -> Any:
    """What `prompt` returns; the rest of its work goes on in a task, as that of a command does."""
    given = HostMessage(text, **more)
    prompting = setup.session.prompting
    accepted = prompting.prompt(given) if behavior is None else prompting.prompt(given, behavior)
    return accepted if isinstance(accepted, Accepted) else asyncio.ensure_future(accepted)


async def test_without_extensions_everything_is_decided_before_prompt_returns() -> None:
    setup = SessionSetup(says("one"))
    assert prompt(setup, "go").disposition == "started"
    assert setup.session.activity.is_running
    with pytest.raises(SessionBusy):
        prompt(setup, "again")
    assert prompt(setup, "then", "followUp").disposition == "queued"
    assert setup.heard.of(QueueUpdate)[-1].follow_up == ["then"]


async def test_with_extensions_the_run_is_reserved_at_once_and_begins_when_they_have_answered() -> None:
    hooks = Asked()
    setup = SessionSetup(says("one"), hooks=hooks)
    waiting = prompt(setup, "go")
    assert setup.session.activity.is_running
    refused = prompt(setup, "again")
    await setup.until(lambda: len(hooks.inputs) == 2)
    assert setup.provider.requests == []
    hooks.goes_on.set()
    await waiting
    with pytest.raises(SessionBusy):
        await refused
    await setup.until(lambda: setup.heard.of(AgentSettled))
    assert setup.message_texts() == ["user: go", "custom: beside it", "assistant: one"]
    assert setup.provider.requests[0].system_prompt == "Be brief. Twice."


async def test_a_prompt_for_the_queue_starts_a_run_if_the_one_it_was_meant_for_has_ended() -> None:
    hooks = Asked()
    held = asyncio.Event()
    setup = SessionSetup([held.wait, *says("one")], says("two"), hooks=hooks)
    hooks.goes_on.set()
    await prompt(setup, "go")
    hooks.goes_on.clear()
    late = prompt(setup, "late", "followUp")
    held.set()
    await setup.until(lambda: setup.heard.of(AgentSettled))
    hooks.goes_on.set()
    assert (await late).disposition == "started"
    await setup.until(lambda: len(setup.heard.of(AgentSettled)) == 2)
    assert [said for said in setup.message_texts() if not said.startswith("custom")] == [
        "user: go",
        "assistant: one",
        "user: late",
        "assistant: two",
    ]


async def test_an_abort_reaches_a_prompt_for_the_queue_that_extensions_still_look_at() -> None:
    hooks = Asked()
    setup = SessionSetup([asyncio.Event().wait, *says("one")], hooks=hooks)
    hooks.goes_on.set()
    await prompt(setup, "go")
    hooks.goes_on.clear()
    late = prompt(setup, "late", "followUp")
    await setup.until(lambda: len(hooks.inputs) == 2)
    setup.session.engine.abort()
    with pytest.raises(Refusal, match=ABORTED_BEFORE):
        await late
    await setup.session.engine.abort_and_settle()


async def test_results_are_told_by_the_last_of_the_runs_that_have_ended() -> None:
    setup = SessionSetup(says("one"), says("two"))
    await prompt_and_end(setup, "go")
    await prompt_and_end(setup, "on")
    await setup.session.engine.wait_until_prompts_reported()
    assert [result.status for result in setup.heard.of(PromptResult)] == ["completed", "completed"]
    assert len(setup.heard.of(SessionSettled)) == 1


async def prompt_and_end(setup: SessionSetup, text: str) -> None:
    """Prompt, and return when the run is over but its results may not have been told."""
    assert prompt(setup, text).disposition == "started"
    await setup.session.activity.wait_until_idle()


async def test_what_an_extension_takes_starts_nothing_and_frees_the_session() -> None:
    hooks = Asked(answer=None)
    hooks.goes_on.set()
    setup = SessionSetup(says("one"), hooks=hooks)
    await prompt(setup, "mine")
    assert not setup.session.activity.is_busy
    hooks.answer = "as it is"
    await setup.prompt("yours")
    assert setup.message_texts()[0] == "user: yours"


async def test_an_abort_while_extensions_are_asked_refuses_the_prompt_and_frees_the_session() -> None:
    hooks = Asked()
    setup = SessionSetup(says("one"), hooks=hooks)
    waiting = prompt(setup, "go")
    await setup.until(lambda: hooks.inputs)
    setup.session.engine.abort()
    with pytest.raises(Refusal, match=ABORTED_BEFORE):
        await waiting
    assert not setup.session.activity.is_busy
    assert setup.provider.requests == []


async def test_an_extension_sees_images_and_behavior_and_may_replace_both_text_and_images() -> None:
    other = ImageContent(data="b3RoZXI=", mime_type="image/png")
    hooks = Asked(PromptInput("changed", [other]))
    hooks.goes_on.set()
    setup = SessionSetup(says("one"), hooks=hooks)
    document = Attachment(type="document", file_name="a.md", extracted_text="words")
    picture = ImageInput(data=PNG.data, mime_type=PNG.mime_type)
    await setup.prompt("go", images=[picture], attachments=[document])
    assert (hooks.inputs[0].text, hooks.inputs[0].images, hooks.inputs[0].behavior) == ("go", [PNG], None)
    message = setup.heard.of(MessageEnd)[0].message
    assert [getattr(block, "text", block) for block in message.content] == [
        "changed", "\n\n[Document: a.md]\nwords", other
    ]  # fmt: skip
    assert message.attachments == [document]


async def test_a_queued_message_goes_through_extensions_too() -> None:
    hooks = Asked()
    hooks.goes_on.set()
    setup = SessionSetup(hooks=hooks)
    await setup.session.prompting.queue_message(HostMessage("now"), "steering")  # type: ignore[misc]
    await setup.session.prompting.queue_message(HostMessage("later"), "followUp")  # type: ignore[misc]
    assert [said.behavior for said in hooks.inputs] == ["steer", "followUp"]
    last = setup.heard.of(QueueUpdate)[-1]
    assert (last.steering, last.follow_up) == (["now"], ["later"])


async def test_a_prompt_without_a_model_is_refused_and_runs_once_one_was_chosen() -> None:
    setup = SessionSetup(says("one"), model=None)
    with pytest.raises(Refusal, match=r"No model is selected(.|\n)*/agent/models\.json"):
        prompt(setup, "go")
    assert not setup.session.activity.is_busy
    setup.session.models.select_model(MODEL.provider, MODEL.id)
    await setup.prompt("go")
    assert setup.message_texts() == ["user: go", "assistant: one"]


async def test_an_image_that_cannot_be_read_reserves_nothing() -> None:
    setup = SessionSetup(says("one"))
    with pytest.raises(BadRecord, match="base64"):
        prompt(setup, "look", images=[BAD])
    assert not setup.session.activity.is_busy


async def test_a_note_for_the_next_turn_comes_with_the_next_prompt_and_once() -> None:
    setup = SessionSetup(says("one"), says("two"))
    setup.session.prompting.deliver_custom_message(note("by the way"), False, "nextTurn")
    assert setup.heard.events == []
    await setup.prompt("go")
    await setup.prompt("on")
    assert setup.message_texts() == ["user: go", "custom: by the way", "assistant: one", "user: on", "assistant: two"]


async def test_a_note_in_a_run_is_said_when_the_run_has_ended() -> None:
    def aside() -> Any:
        setup.session.prompting.deliver_custom_message(note("aside"), False, "steer")
        return asyncio.sleep(0)

    setup = SessionSetup([aside, *says("one")])
    await setup.prompt("go")
    assert setup.message_texts() == ["user: go", "assistant: one", "custom: aside"]
    end = [
        "agent_end",
        "message_start custom",
        "message_end custom",
        "agent_settled",
        "prompt_result",
        "session_settled",
    ]
    assert setup.heard.outline()[-6:] == end


@pytest.mark.parametrize("user", [True, False])
async def test_an_extension_may_start_a_run_or_queue_into_one(user: bool) -> None:
    def add(text: str, deliver_as: Any) -> None:
        prompting = setup.session.prompting
        if user:
            prompting.deliver_user_message(UserMessage(content=text, timestamp=1), deliver_as)
        else:
            prompting.deliver_custom_message(note(text), True, deliver_as or "steer")

    def while_it_runs() -> Any:
        add("later", "followUp")
        add("now", "steer")
        return asyncio.sleep(0)

    role = "user" if user else "custom"
    setup = SessionSetup([while_it_runs, *says("one")], says("two"), says("three"))
    add("go", None)
    await setup.until(lambda: setup.heard.of(AgentSettled))
    assert setup.message_texts() == [
        f"{role}: go", "assistant: one", f"{role}: now", "assistant: two", f"{role}: later", "assistant: three"
    ]  # fmt: skip


async def test_a_user_message_of_an_extension_must_say_how_to_queue() -> None:
    setup = SessionSetup(says("one"))
    prompt(setup, "go")
    with pytest.raises(SessionBusy):
        setup.session.prompting.deliver_user_message(UserMessage(content="x", timestamp=1), None)


class Lingering(NoHooks):
    """Extensions that keep a run from settling until `goes_on` is set; they cannot start the prompt "bad", and take
    the prompt "theirs"."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def collect_continuations(self, outcome: Any) -> list[CustomMessage]:  # type: ignore[override]
        await self.goes_on.wait()
        return []

    def transform_input(self, said: PromptInput) -> PromptInput | None:  # type: ignore[override]
        return None if said.text == "theirs" else said

    def collect_prompt_additions(self, prompt: UserMessage, system_prompt: Any) -> PromptAdditions:
        if text_of(prompt.content) == "bad":
            raise ValueError("no additions")
        return PromptAdditions([])


async def linger(hooks: Lingering) -> SessionSetup:
    """A session whose run has shown its end and has not settled."""
    setup = SessionSetup(says("one"), says("two"), hooks=hooks)
    prompt(setup, "go")
    await setup.until(lambda: bool(setup.heard.of(AgentEnd)))
    return setup


async def test_a_prompt_that_an_extension_takes_gives_its_place_back() -> None:
    hooks = Lingering()
    setup = await linger(hooks)
    assert prompt(setup, "theirs").disposition == "handled"
    assert prompt(setup, "again").disposition == "started"
    with pytest.raises(SessionBusy):
        prompt(setup, "one too many")
    hooks.goes_on.set()
    await setup.until(lambda: len(setup.heard.of(AgentSettled)) == 2)
    said = [event.message for event in setup.heard.of(MessageEnd) if isinstance(event.message, UserMessage)]
    assert [text_of(message.content) for message in said] == ["go", "again"]


async def test_an_accepted_prompt_that_cannot_be_started_ends_with_the_reason_and_leaves_the_session_free() -> None:
    hooks = Lingering()
    setup = await linger(hooks)
    assert prompt(setup, "bad", id="b").disposition == "started"
    hooks.goes_on.set()
    await setup.until(lambda: bool(setup.heard.of(SessionSettled)))
    first, second = setup.heard.of(AgentSettled)
    assert (first.reason, second.reason) == ("done", "error")
    assert len(setup.heard.of(AgentEnd)) == 2
    (result,) = (event for event in setup.heard.of(PromptResult) if event.id == "b")
    assert (result.status, result.session_settled) == ("error", True)
    assert not setup.session.activity.is_busy
    assert prompt(setup, "again").disposition == "started"
    await setup.until(lambda: len(setup.heard.of(AgentSettled)) == 3)
