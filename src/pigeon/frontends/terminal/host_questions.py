"""Questions of the agent to the person: permissions for tool calls, and dialogs of extensions."""

from __future__ import annotations

from pigeon.frontends.terminal.content.tool_details import main_argument
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, TextQuestion, View
from pigeon.sdk.host_calls import PermissionAnswer, PermissionRequest, Question
from pigeon.wire.base import value_or_default
from pigeon.wire.dialogs import ConfirmRequest, EditorRequest, InputRequest, SelectRequest

PERMISSION_CHOICES = (
    Choice("allow", "Yes, once"),
    Choice("always", "Yes, for this session"),
    Choice("deny", "No"),
)
YES_OR_NO = (Choice("yes", "Yes"), Choice("no", "No"))


class HostQuestions:
    """Asks in a view. Cancelling a question removes it from the view."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def ask_permission(self, request: PermissionRequest) -> PermissionAnswer:
        """Ask whether a tool call may run; no answer counts as a refusal."""
        # A change is named after its file; for everything else the whole call is shown above the question.
        about = f" {main_argument(request.arguments)}" if request.diff else ""
        title = f"Allow {request.tool_name}{about}?"
        detail = "" if request.text == title else request.text.removeprefix(f"Allow {request.tool_name}: ")
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


def _to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
