"""What the chat asks for the agent."""

from __future__ import annotations

import asyncio

import pytest

from pigeon.frontends.terminal.blocks import AnswerText, Block
from pigeon.frontends.terminal.host_questions import HostQuestions
from pigeon.frontends.terminal.inputs import Inputs
from pigeon.frontends.terminal.plain import PlainView
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import ChoiceQuestion, Question
from pigeon.sdk.host_calls import PermissionRequest
from pigeon.wire.dialogs import make_plan_question


class AskedView(PlainView):
    """Keeps the questions and what is shown, and answers in turn, at last with a refusal."""

    def __init__(self, *answers: str | None) -> None:
        inputs: Inputs = asyncio.Queue()
        super().__init__(ChatTranscript(lambda: 0.0), inputs, None, None)  # type: ignore[arg-type]
        self.asked: list[Question] = []
        self.blocks: list[Block] = []
        self._given = list(answers)

    def show(self, block: Block) -> None:
        self.blocks.append(block)

    async def ask(self, question: Question) -> str | None:
        self.asked.append(question)
        return self._given.pop(0) if self._given else None


async def never(text: str) -> None:
    raise AssertionError(f"sent: {text}")


@pytest.mark.parametrize(
    ("always", "labels"),
    [(True, ["Yes, once", "Yes, for this session", "No"]), (False, ["Yes, once", "No"])],
)
async def test_only_answers_that_count_are_offered_the_first_one_once(always: bool, labels: list[str]) -> None:
    view = AskedView()
    request = PermissionRequest(
        id="1", tool_name="bash", tool_call_id="c", arguments={}, text="Allow bash: ls", can_allow_always=always
    )
    assert await HostQuestions(view, never).ask_permission(request) == "deny"
    (question,) = view.asked
    assert isinstance(question, ChoiceQuestion)
    assert [one.label for one in question.choices] == labels
    assert (question.chosen, question.seconds) == ("", None)


async def test_a_question_of_a_started_agent_names_its_type() -> None:
    view = AskedView()
    request = PermissionRequest(
        id="1", tool_name="bash", tool_call_id="c", arguments={}, text="Allow bash (explore): ls", agent="explore"
    )
    await HostQuestions(view, never).ask_permission(request)
    (question,) = view.asked
    assert isinstance(question, ChoiceQuestion)
    assert (question.title, question.detail) == ("Allow bash (explore)?", "ls")


@pytest.mark.parametrize("answer", ["Accept", "Refuse", None])
async def test_a_plan_becomes_part_of_what_is_shown_before_the_question(answer: str | None) -> None:
    view = AskedView(answer)
    assert await HostQuestions(view, never).ask_dialog(make_plan_question("1", "# First\n\n1. Read")) == answer
    assert AnswerText("# First\n\n1. Read") in view.blocks
    assert [one.title for one in view.asked] == ["Accept this plan?"]


async def test_what_should_change_in_a_plan_is_sent_before_the_answer() -> None:
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    # The first time, the person goes back to the question.
    view = AskedView("Change", None, "Change", "Fewer steps")
    assert await HostQuestions(view, send).ask_dialog(make_plan_question("1", "Plan")) == "Change"
    assert sent == ["Fewer steps"]
    assert len([one for one in view.blocks if isinstance(one, AnswerText)]) == 1
