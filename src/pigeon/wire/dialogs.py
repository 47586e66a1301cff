"""Questions and notices from extensions to the host: `extension_ui_request`, one record per method."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Json, Outgoing

REQUEST: Literal["extension_ui_request"] = "extension_ui_request"
# The options of a permission question.
ALLOW_ONCE = "Allow once"
ALLOW_ALWAYS = "Allow for this session"
DENY = "Deny"
# The question about a plan: its first line, which the plan follows after a blank one, and its options.
PLAN_QUESTION = "Accept this plan?"
ACCEPT_PLAN, CHANGE_PLAN, REFUSE_PLAN = "Accept", "Change", "Refuse"
# The first option of oh-my-pi's question; it means the same as `ALLOW_ONCE`.
APPROVE = "Approve"


class _Request(Outgoing, tag_field="method", kw_only=True):
    type: Literal["extension_ui_request"] = REQUEST
    id: str
    seq: int | Absent = ABSENT
    run_id: str | Absent = ABSENT


class SelectRequest(_Request, tag="select", kw_only=True):
    """Choose one of the options; answered with `value`.

    A question about permission also says which tool call it is about: `toolCallId`, `toolName`, the arguments it would
    run with, and for a call that changes a file what would change. `agentId` and `agent`, for hosts with the
    feature `agents`, are the started agent whose call it is, and its type, which the title names, too.
    """

    member_features = MappingProxyType({"agent_id": "agents", "agent": "agents"})

    title: str
    options: list[str]
    timeout: int | Absent = ABSENT
    tool_call_id: str | Absent = ABSENT
    tool_name: str | Absent = ABSENT
    args: dict[str, Json] | Absent = ABSENT
    diff: str | Absent = ABSENT
    agent_id: str | Absent = ABSENT
    agent: str | Absent = ABSENT


def make_plan_question(id: str, plan: str) -> SelectRequest:
    """The question whether a plan is accepted."""
    return SelectRequest(id=id, title=f"{PLAN_QUESTION}\n\n{plan}", options=[ACCEPT_PLAN, CHANGE_PLAN, REFUSE_PLAN])


def find_asked_plan(question: SelectRequest) -> str | None:
    """The plan that a question is about, as Markdown; None if it is another question."""
    first, _, plan = question.title.partition("\n\n")
    return plan if first == PLAN_QUESTION and ACCEPT_PLAN in question.options else None


class ConfirmRequest(_Request, tag="confirm", kw_only=True):
    """Yes or no; answered with `confirmed`."""

    title: str
    message: str
    timeout: int | Absent = ABSENT


class InputRequest(_Request, tag="input", kw_only=True):
    """One line of text; answered with `value`."""

    title: str
    placeholder: str | Absent = ABSENT
    timeout: int | Absent = ABSENT


class EditorRequest(_Request, tag="editor", kw_only=True):
    """Several lines of text; answered with `value`."""

    title: str
    prefill: str | Absent = ABSENT
    prompt_style: bool | Absent = ABSENT


class CancelRequest(_Request, tag="cancel", kw_only=True):
    """Close the dialog `targetId`; no answer."""

    target_id: str


NotifyType = Literal["info", "warning", "error"]


class NotifyRequest(_Request, tag="notify", kw_only=True):
    """Show a notice to the user; no answer is expected."""

    message: str
    notify_type: NotifyType | Absent = ABSENT


class SetStatusRequest(_Request, tag="setStatus", kw_only=True):
    """Set an entry of the status bar, or clear it when the text is absent; no answer."""

    status_key: str
    status_text: str | Absent = ABSENT


WidgetPlacement = Literal["aboveEditor", "belowEditor"]


class SetWidgetRequest(_Request, tag="setWidget", kw_only=True):
    """Set a widget, or remove it when the lines are absent; no answer."""

    widget_key: str
    widget_lines: list[str] | Absent = ABSENT
    widget_placement: WidgetPlacement | Absent = ABSENT


class SetTitleRequest(_Request, tag="setTitle", kw_only=True):
    """Set the title of the window; no answer."""

    title: str


class SetEditorTextRequest(_Request, tag="set_editor_text", kw_only=True):
    """Put text into the input editor; no answer."""

    text: str


DialogRequest = (
    SelectRequest
    | ConfirmRequest
    | InputRequest
    | EditorRequest
    | CancelRequest
    | NotifyRequest
    | SetStatusRequest
    | SetWidgetRequest
    | SetTitleRequest
    | SetEditorTextRequest
)
