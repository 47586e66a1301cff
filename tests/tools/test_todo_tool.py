"""todo: operations on the plan, all or none, with one task in progress."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tool_run import call_for_failure, call_for_text, call_tool
from pigeon.tools.todo import TodoTool, ensure_one_in_progress
from pigeon.wire import codec
from pigeon.wire.steering import TodoPhase, TodoTask


class Plan:
    def __init__(self) -> None:
        self.phases: list[TodoPhase] = []

    def current_phases(self) -> list[TodoPhase]:
        return self.phases

    def replace_phases(self, phases: list[TodoPhase]) -> None:
        self.phases = phases

    def states(self) -> dict[Any, str]:
        return {task.id: task.status for phase in self.phases for task in phase.tasks}


@pytest.fixture
def plan() -> Plan:
    return Plan()


@pytest.fixture
def tool(plan: Plan) -> TodoTool:
    return TodoTool(plan)


TWO = {
    "op": "replace",
    "phases": [
        {"name": "Look", "tasks": [{"content": "read"}, {"content": "search"}]},
        {"name": "Change", "tasks": [{"content": "edit", "details": "with care"}]},
    ],
}


async def test_a_new_plan_is_numbered_through_and_its_first_task_begins(tool: TodoTool, plan: Plan) -> None:
    outcome = await call_tool(tool, ops=[TWO])
    assert [phase.id for phase in plan.phases] == ["phase-1", "phase-2"]
    assert plan.states() == {"task-1": "in_progress", "task-2": "pending", "task-3": "pending"}
    assert outcome.details == {"phases": codec.to_plain(plan.phases)}


async def test_the_model_is_shown_the_whole_plan_with_its_ids(tool: TodoTool) -> None:
    await call_tool(tool, ops=[TWO])
    assert await call_for_text(
        tool, ops=[{"op": "update", "id": "task-1", "status": "completed", "notes": "all clear"}]
    ) == (
        "1 of 3 tasks are finished.\n\nLook (phase-1)\n[x] task-1: read\n    all clear\n[>] task-2: search\n"
        "\nChange (phase-2)\n[ ] task-3: edit\n    with care"
    )


async def test_when_a_task_is_done_the_next_one_begins(tool: TodoTool, plan: Plan) -> None:
    await call_tool(tool, ops=[TWO, {"op": "update", "id": "task-1", "status": "abandoned"}])
    assert plan.states() == {"task-1": "abandoned", "task-2": "in_progress", "task-3": "pending"}


async def test_a_task_begun_on_purpose_puts_the_present_one_back(tool: TodoTool, plan: Plan) -> None:
    await call_tool(tool, ops=[TWO])
    await call_tool(tool, ops=[{"op": "update", "id": "task-3", "status": "in_progress"}])
    assert plan.states() == {"task-1": "pending", "task-2": "pending", "task-3": "in_progress"}


async def test_phases_and_tasks_can_be_added_changed_and_removed(tool: TodoTool, plan: Plan) -> None:
    await call_tool(tool, ops=[TWO])
    await call_tool(
        tool,
        ops=[
            {"op": "add_phase", "name": "Check", "tasks": [{"content": "test", "status": "completed"}]},
            {"op": "add_task", "phase": "Check", "content": "lint"},
            {"op": "add_task", "phase": "phase-1", "content": "ask"},
            {"op": "update", "id": "task-2", "content": "find"},
            {"op": "remove_task", "id": "task-3"},
        ],
    )
    shown = [(phase.name, [(task.id, task.content) for task in phase.tasks]) for phase in plan.phases]
    assert shown == [
        ("Look", [("task-1", "read"), ("task-2", "find"), ("task-6", "ask")]),
        ("Check", [("task-4", "test"), ("task-5", "lint")]),
    ]


async def test_an_empty_plan_says_so(tool: TodoTool, plan: Plan) -> None:
    await call_tool(tool, ops=[TWO])
    assert (
        await call_for_text(tool, ops=[{"op": "replace", "phases": [{"name": "x", "tasks": []}]}])
        == "The plan is empty."
    )


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (
            {"op": "update", "id": "task-9", "status": "completed"},
            'no task "task-9"; there are: task-1, task-2, task-3',
        ),
        ({"op": "update", "status": "completed"}, '"id" is needed'),
        ({"op": "update", "id": "task-1", "content": ""}, '"content" is needed'),
        ({"op": "remove_task", "id": "x"}, 'no task "x"'),
        ({"op": "add_task", "phase": "Nowhere", "content": "x"}, 'no phase "Nowhere"; there are: phase-1, phase-2'),
        ({"op": "add_task", "phase": "Look"}, '"content" is needed'),
        ({"op": "add_phase"}, '"name" is needed'),
        ({"op": "replace"}, '"phases" is needed'),
    ],
)
async def test_one_bad_operation_leaves_the_plan_alone(
    tool: TodoTool, plan: Plan, op: dict[str, Any], words: str
) -> None:
    await call_tool(tool, ops=[TWO])
    before = plan.states()
    error = await call_for_failure(tool, ops=[{"op": "update", "id": "task-1", "status": "completed"}, op])
    assert words in error.text
    assert error.text.startswith(f"ops[1] ({op['op']})")
    assert error.text.endswith("The plan is unchanged.")
    assert plan.states() == before


@pytest.mark.parametrize("ops", [[], [{"op": "burn"}], [{}], "x", [{"op": "replace", "phases": [{"name": "a"}]}]])
async def test_arguments_that_do_not_fit_are_refused_before_anything_happens(
    tool: TodoTool, plan: Plan, ops: Any
) -> None:
    assert "Validation failed" in (await call_for_failure(tool, ops=ops)).text
    assert plan.phases == []


_statuses = st.sampled_from(["pending", "in_progress", "completed", "abandoned"])


@given(st.lists(st.lists(_statuses)))
def test_exactly_one_task_is_in_progress_as_long_as_any_is_open(plan: list[list[Any]]) -> None:
    phases = [TodoPhase(name="p", tasks=[TodoTask(content="t", status=one) for one in tasks]) for tasks in plan]
    states = [task.status for phase in ensure_one_in_progress(phases) for task in phase.tasks]
    before = [status for tasks in plan for status in tasks]
    still_open = any(status in ("pending", "in_progress") for status in before)
    assert states.count("in_progress") == int(still_open)
    finished = ("completed", "abandoned")
    assert [one for one in states if one in finished] == [one for one in before if one in finished]
