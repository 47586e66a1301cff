"""Questions of the agent to the person: permissions for tool calls, and dialogs of extensions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pigeon.frontends.terminal.blocks import AnswerText, Notice
from pigeon.frontends.terminal.content.tool_details import main_argument
from pigeon.frontends.terminal.past import PLAN_LEAD
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, TextQuestion, View
from pigeon.sdk.host_calls import PermissionAnswer, PermissionRequest, Question
from pigeon.wire.base import value_or_default
from pigeon.wire.dialogs import (
    ACCEPT_PLAN,
    CHANGE_PLAN,
    PLAN_QUESTION,
    REFUSE_PLAN,
    ConfirmRequest,
    EditorRequest,
    InputRequest,
    SelectRequest,
    find_asked_plan,
)

PERMISSION_CHOICES = (
    Choice("allow", "Yes, once"),
    Choice("always", "Yes, for this session"),
    Choice("deny", "No"),
)
PLAN_CHOICES = (
    Choice(ACCEPT_PLAN, "Accept", "carry it out"),
    Choice(CHANGE_PLAN, "Change", "say what should change"),
    Choice(REFUSE_PLAN, "Refuse", "do nothing"),
)
YES_OR_NO = (Choice("yes", "Yes"), Choice("no", "No"))


class HostQuestions:
    """Asks in a view. Cancelling a question removes it from the view."""

    def __init__(self, view: View, send_message: Callable[[str], Awaitable[None]]) -> None:
        """`send_message` sends the model a message, which it reads at its next break."""
        self._view = view
        self._send_message = send_message

    async def ask_permission(self, request: PermissionRequest) -> PermissionAnswer:
        """Ask whether a tool call may run; no answer counts as a refusal."""
        # A change is named after its file; for everything else the whole call is shown above the question.
        about = f" {main_argument(request.arguments)}" if request.diff else ""
        agent = f" ({request.agent})" if request.agent else ""
        title = f"Allow {request.tool_name}{agent}{about}?"
        detail = "" if request.text == title else request.text.removeprefix(f"Allow {request.tool_name}{agent}: ")
        choices = [one for one in PERMISSION_CHOICES if one.value != "always" or request.can_allow_always]
        question = ChoiceQuestion(title, choices, detail=detail, diff=request.diff or "")
        answer = await self._view.ask(question)
        return "allow" if answer == "allow" else "always" if answer == "always" else "deny"

    async def ask_dialog(self, request: Question) -> str | bool | None:
        """The answer to a dialog, or None if it was cancelled."""
        if isinstance(request, ConfirmRequest):
            seconds = _to_seconds(value_or_default(request.timeout, None))
            answer = await self._view.ask(ChoiceQuestion(request.title, YES_OR_NO, request.message, seconds=seconds))
            return None if answer is None else answer == "yes"
        if isinstance(request, SelectRequest) and (plan := find_asked_plan(request)) is not None:
            return await self._ask_about_plan(plan)
        if isinstance(request, SelectRequest):
            choices = [Choice(option, option) for option in request.options]
            seconds = _to_seconds(value_or_default(request.timeout, None))
            return await self._view.ask(ChoiceQuestion(request.title, choices, seconds=seconds))
        if isinstance(request, InputRequest):
            seconds = _to_seconds(value_or_default(request.timeout, None))
            return await self._view.ask(
                TextQuestion(request.title, placeholder=value_or_default(request.placeholder, ""), seconds=seconds)
            )
        assert isinstance(request, EditorRequest)
        return await self._view.ask(TextQuestion(request.title, value_or_default(request.prefill, ""), multiline=True))

    async def _ask_about_plan(self, plan: str) -> str | None:
        """Whether the plan is accepted, which becomes part of what is shown. What should change is sent before the
        answer, so that the model reads both together."""
        self._view.show(Notice(PLAN_LEAD))
        self._view.show(AnswerText(plan))
        while True:
            answer = await self._view.ask(ChoiceQuestion(PLAN_QUESTION, PLAN_CHOICES))
            if answer != CHANGE_PLAN:
                return answer
            text = await self._view.ask(TextQuestion("What should change?", multiline=True))
            if text and text.strip():
                await self._send_message(text)
                return answer


def _to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
