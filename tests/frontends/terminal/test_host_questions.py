"""What the chat asks for the agent."""

from __future__ import annotations

import asyncio

import pytest

from pigeon.frontends.terminal.host_questions import HostQuestions
from pigeon.frontends.terminal.inputs import Inputs
from pigeon.frontends.terminal.plain import PlainView
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import ChoiceQuestion, Question
from pigeon.sdk.host_calls import PermissionRequest


class AskedView(PlainView):
    """Keeps the questions, and declines them."""

    def __init__(self) -> None:
        inputs: Inputs = asyncio.Queue()
        super().__init__(ChatTranscript(lambda: 0.0), inputs, None, None)  # type: ignore[arg-type]
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> str | None:
        self.asked.append(question)
        return None


@pytest.mark.parametrize(
    ("always", "labels"),
    [(True, ["Yes, once", "Yes, for this session", "No"]), (False, ["Yes, once", "No"])],
)
async def test_only_answers_that_count_are_offered_the_first_one_once(always: bool, labels: list[str]) -> None:
    view = AskedView()
    request = PermissionRequest(
        id="1", tool_name="bash", tool_call_id="c", arguments={}, text="Allow bash: ls", can_allow_always=always
    )
    assert await HostQuestions(view).ask_permission(request) == "deny"
    (question,) = view.asked
    assert isinstance(question, ChoiceQuestion)
    assert [one.label for one in question.choices] == labels
    assert (question.chosen, question.seconds) == ("", None)
