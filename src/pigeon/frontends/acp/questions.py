"""Questions of the agent, shown by the editor: permissions as session/request_permission, dialogs of extensions as
forms if the client supports them. A question that cannot be shown, or gets no clear answer, counts as refused."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pigeon.frontends.acp.editions.edition import Edition
from pigeon.frontends.acp.editions.tool_views import BlockPiece, ToolView, proposed_pieces, text_block, view_of_call
from pigeon.frontends.acp.incoming import ElicitationResult, PermissionResult
from pigeon.frontends.acp.rpc_errors import PeerGone, RpcError
from pigeon.frontends.acp.rpc_peer import RpcPeer
from pigeon.sdk.host_calls import PermissionAnswer, PermissionRequest, Question
from pigeon.wire import codec
from pigeon.wire.base import Absent, Json, value_or_default
from pigeon.wire.dialogs import (
    ACCEPT_PLAN,
    ALLOW_ALWAYS,
    ALLOW_ONCE,
    DENY,
    PLAN_QUESTION,
    ConfirmRequest,
    EditorRequest,
    InputRequest,
    SelectRequest,
    find_asked_plan,
)
from pigeon.wire.errors import BadRecord

# The choices of the permission gate, which has no permanent denial.
ANSWERS: dict[str, PermissionAnswer] = {"allow_once": "allow", "allow_always": "always", "reject_once": "deny"}
OPTION_NAMES = {"allow_once": ALLOW_ONCE, "allow_always": ALLOW_ALWAYS, "reject_once": DENY}
FIELD = "answer"


class EditorQuestions:
    """Asks the person at the editor for one session; `runs` says whether a prompt is under way there, `find_plan_call`
    which call submits a plan."""

    def __init__(
        self,
        peer: RpcPeer,
        edition: Edition,
        session_id: Callable[[], str],
        runs: Callable[[], bool],
        find_plan_call: Callable[[str], str | None],
        cwd: str,
        home: str,
    ) -> None:
        self._peer = peer
        self._edition = edition
        self._session_id = session_id
        self._runs = runs
        self._find_plan_call = find_plan_call
        self._cwd = cwd
        self._home = home
        self._open = 0

    async def ask_permission(self, request: PermissionRequest) -> PermissionAnswer:
        """Whether a tool call may run."""
        view = view_of_call(request.tool_call_id, request.tool_name, request.arguments, self._cwd, self._home)
        content = proposed_pieces(request.tool_name, request.arguments, request.diff, self._cwd, self._home)
        view = replace(view, status="pending", content=content)
        options: list[Json] = [
            {"optionId": kind, "name": name, "kind": kind}
            for kind, name in OPTION_NAMES.items()
            if kind != "allow_always" or request.can_allow_always
        ]
        params = self._edition.permission_params(view, request.text, options)
        answer = await self._ask_client("session/request_permission", params, PermissionResult)
        if not isinstance(answer, PermissionResult) or answer.outcome.outcome != "selected":
            return "deny"
        return ANSWERS.get(answer.outcome.option_id or "", "deny")

    async def ask_dialog(self, question: Question) -> str | bool | None:
        """Returns the answer to a question about a plan or of an extension, or None if there was no answer."""
        if isinstance(question, SelectRequest) and (plan := find_asked_plan(question)) is not None:
            return await self._ask_about_plan(question, plan)
        if not self._edition.can_show_forms:
            return None
        title = question.title
        message = f"{title}\n{question.message}" if isinstance(question, ConfirmRequest) else title
        schema = {"type": "object", "properties": {FIELD: _form_field(question)}, "required": [FIELD]}
        params = {"mode": "form", "message": message, "requestedSchema": schema}
        answer = await self._ask_client("elicitation/create", params, ElicitationResult)
        if not isinstance(answer, ElicitationResult) or answer.action != "accept":
            return None
        return _value_of_answer(question, (answer.content or {}).get(FIELD))

    async def _ask_about_plan(self, question: SelectRequest, plan: str) -> str | None:
        """A plan is shown in the call that submits it, and accepted as other calls are."""
        call_id = self._find_plan_call(plan) or question.id
        view = ToolView(
            call_id=call_id, title=PLAN_QUESTION, kind="switch_mode", content=[BlockPiece(text_block(plan))]
        )
        options: list[Json] = [
            {"optionId": name, "name": name, "kind": "allow_once" if name == ACCEPT_PLAN else "reject_once"}
            for name in question.options
        ]
        params = self._edition.permission_params(view, PLAN_QUESTION, options)
        answer = await self._ask_client("session/request_permission", params, PermissionResult)
        if not isinstance(answer, PermissionResult) or answer.outcome.outcome != "selected":
            return None
        return answer.outcome.option_id if answer.outcome.option_id in question.options else None

    async def _ask_client(self, method: str, params: dict[str, Json], kind: type[object]) -> object:
        """Returns the client's answer, or None if it cannot be asked or its answer does not fit."""
        self._open += 1
        session_id = self._session_id()
        self._send_state(session_id, waiting=True)
        try:
            return codec.convert(await self._peer.send_request(method, {"sessionId": session_id, **params}), kind)
        except (RpcError, PeerGone, BadRecord):
            return None
        finally:
            self._open -= 1
            if not self._open:
                self._send_state(session_id, waiting=False)

    def _send_state(self, session_id: str, waiting: bool) -> None:
        # A question of an extension's command may come when nothing runs.
        updates = self._edition.state_updates("requires_action" if waiting else "running") if self._runs() else []
        for update in updates:
            self._peer.notify("session/update", {"sessionId": session_id, "update": update})


def _form_field(question: Question) -> dict[str, Json]:
    """A question as one field of a form."""
    if isinstance(question, SelectRequest):
        return {"type": "string", "title": question.title, "enum": question.options}
    if isinstance(question, ConfirmRequest):
        return {"type": "boolean", "title": question.title, "description": question.message, "default": False}
    field: dict[str, Json] = {"type": "string", "title": question.title}
    if isinstance(question, InputRequest) and not isinstance(question.placeholder, Absent):
        field["description"] = question.placeholder
    if isinstance(question, EditorRequest):
        field["default"] = value_or_default(question.prefill, "")
    return field


def _value_of_answer(question: Question, value: Json) -> str | bool | None:
    if isinstance(question, ConfirmRequest):
        return value if isinstance(value, bool) else None
    if isinstance(question, SelectRequest) and value not in question.options:
        return None
    return value if isinstance(value, str) else None
