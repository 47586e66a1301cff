"""Plan mode: the model finds out what there is to do, changes nothing, and submits a plan that a person decides about.

The permission gate refuses everything else. This policy gives the model the tool for the plan, which exists only in
this mode, and tells it so; an accepted plan ends the mode.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from pigeon.agent.inference import ModelRequest, ToolSpec
from pigeon.agent.interfaces import ArgumentTool, Gate, Tool, ToolRun
from pigeon.session.dependencies import Dependencies
from pigeon.session.policies.policy import GateExceptTool, NextGate, RunPolicy
from pigeon.wire.base import Json
from pigeon.wire.content import TextContent
from pigeon.wire.dialogs import ACCEPT_PLAN, CHANGE_PLAN, make_plan_question
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

NAME = "submit_plan"
INSTRUCTION = (
    "You are in plan mode: read and search, change nothing, and run no commands. When you know what is to be done, "
    "submit a plan with the tool submit_plan: the steps in order, the files they change, how the result is checked, "
    "and what is still open."
)
ACCEPTED = "The user has accepted the plan. Plan mode is over: carry it out now."
CHANGED = "The user wants the plan to be changed. Ask what to change unless they have said so, and submit it again."
REFUSED = "The user has refused the plan. Do not carry it out; ask what they want instead."
DISMISSED = (
    "The user has not accepted the plan: do not carry it out. If they have written a message instead, it says what "
    "they want; otherwise ask."
)
NOBODY = "The plan could not be shown to anybody, so it is not accepted. Put it into your answer."


class PlanMode(RunPolicy):
    """Offers the tool while the mode is in force; the mode is asked for anew each time, because it may change."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._state = dependencies.permissions.plan_state
        self._tool = _SubmitPlan(dependencies)

    def change_request(self, request: ModelRequest) -> ModelRequest:
        if not self._state.active:
            return request
        return replace(
            request,
            tools=[*request.tools, self._tool.spec],
            system_prompt=f"{request.system_prompt}\n\n{INSTRUCTION}",
        )

    def change_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        return {**tools, NAME: self._tool} if self._state.active else tools

    def wrap_gate(self, gate: NextGate) -> NextGate:
        """No rule is about the plan itself: a person decides about it."""

        def make_gate() -> Gate | None:
            # The mode may have changed since the run began.
            inner = gate()
            return inner if inner is None or not self._state.active else GateExceptTool(inner, self._tool)

        return make_gate


class _SubmitPlan(ArgumentTool):
    reads_only = False
    spec: ClassVar[ToolSpec] = ToolSpec(  # type: ignore[misc]
        NAME,
        "Submit the plan. The user accepts it, wants it changed, or refuses it.",
        {
            "type": "object",
            "properties": {"plan": {"type": "string", "minLength": 1, "description": "The plan, as Markdown"}},
            "required": ["plan"],
        },
        True,
    )

    def __init__(self, dependencies: Dependencies) -> None:
        self._dialogs = dependencies.dialogs
        self._permissions = dependencies.permissions
        self._unattended = dependencies.settings.unattended

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        if self._unattended:
            raise ToolFailed(NOBODY)
        plan = str(arguments["plan"])
        end = await self._dialogs.run_dialog(lambda id: make_plan_question(id, plan), scope=run.scope)
        if end.answer is None:
            raise ToolFailed(NOBODY)
        if end.answer.cancelled:
            raise ToolFailed(DISMISSED, {"decision": "dismissed"})
        if end.answer.value == ACCEPT_PLAN:
            self._permissions.leave_plan_mode()
            return _make_outcome(ACCEPTED, "accepted")
        if end.answer.value == CHANGE_PLAN:
            return _make_outcome(CHANGED, "change")
        raise ToolFailed(REFUSED, {"decision": "refused"})


def _make_outcome(text: str, decision: str) -> ToolOutcome:
    return ToolOutcome(content=[TextContent(text=text)], details={"decision": decision})
