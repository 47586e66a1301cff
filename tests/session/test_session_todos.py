"""The plan: what a host may send, when finished tasks go, what comes back from a branch, and reminders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.clock import virtually
from pigeon.session.context.transcript import Transcript
from pigeon.session.history.entry_line import EntryLine, line_from_entry
from pigeon.session.policies.policy import CompletedTurn
from pigeon.session.policies.reminders import Reminders
from pigeon.session.todos import CLEAR_DELAY, Todos, fill_in_plan
from pigeon.tools.catalog import list_plan_tool_names
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import AssistantBlock, TextContent, ToolCall
from pigeon.wire.entries import MessageEntry
from pigeon.wire.errors import BadRecord
from pigeon.wire.events import Outbound, TodoAutoClear, TodoReminder
from pigeon.wire.messages import AssistantMessage, CustomMessage, StopReason, ToolResultMessage, UserMessage
from pigeon.wire.model import zero_usage
from pigeon.wire.steering import TodoPhaseGiven
from support.strategies import empty_journal


class Timers:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: dict[object, tuple[float, Callable[[], None]]] = {}

    def later(self, seconds: float, work: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self.waiting[key] = (self.now + seconds, work)
        return lambda: self.waiting.pop(key, None) and None

    def pass_to(self, moment: float) -> None:
        self.now = moment
        for key, (due, work) in list(self.waiting.items()):
            if due <= moment and self.waiting.pop(key, None):
                work()


class TodosSetup:
    def __init__(self, clear_delay: float = CLEAR_DELAY) -> None:
        self.timers = Timers()
        self.posted: list[Outbound] = []
        self.planned = 0
        self.todos = Todos(
            self.posted.append, list_plan_tool_names(), clear_delay, self._host_planned, self.timers.later
        )
        self.journal = empty_journal()
        self.reminders = Reminders(self.todos, Transcript(self.journal), self._publish, lambda: 7)

    def _host_planned(self) -> None:
        self.planned += 1

    async def _publish(self, event: Outbound) -> None:
        self.posted.append(event)

    def count_clears(self) -> int:
        return sum(isinstance(event, TodoAutoClear) for event in self.posted)

    def plan(self) -> Any:
        return codec.to_plain(self.todos.current_phases())


@pytest.fixture
def setup() -> TodosSetup:
    return TodosSetup()


def phases(value: Any) -> list[TodoPhaseGiven]:
    return codec.convert(value, list[TodoPhaseGiven])


def one(**task: Any) -> list[TodoPhaseGiven]:
    return phases([{"name": "Work", "tasks": [{"content": "do it", **task}]}])


def answer(*content: AssistantBlock, stop: StopReason = "stop") -> AssistantMessage:
    return AssistantMessage(
        content=list(content), api="a", provider="p", model="m", usage=zero_usage(), stop_reason=stop, timestamp=1
    )


def result(details: Any, name: str = "todo", is_error: bool = False) -> EntryLine:
    message = ToolResultMessage(
        tool_call_id="c", tool_name=name, content=[], details=details, is_error=is_error, timestamp=1
    )
    return line_from_entry(MessageEntry(id="1", parent_id=None, timestamp="t", message=message), bytes)


def test_what_is_missing_is_filled_in_and_what_is_unknown_is_dropped(setup: TodosSetup) -> None:
    given = [
        {"name": "A", "color": "red", "tasks": [{"content": "a"}, {"content": "b", "status": "completed", "x": 1}]},
        {"id": "own", "name": "B", "tasks": [{"id": "t", "content": "c", "notes": "n", "details": "d"}]},
        {"name": "C", "tasks": [{"content": "d", "status": None, "id": None, "notes": None}]},
    ]
    setup.todos.set_host_plan(phases(given))
    assert setup.plan() == [
        {
            "id": "phase-1",
            "name": "A",
            "tasks": [
                {"id": "task-1", "content": "a", "status": "pending"},
                {"id": "task-2", "content": "b", "status": "completed"},
            ],
        },
        {
            "id": "own",
            "name": "B",
            "tasks": [{"id": "t", "content": "c", "status": "pending", "notes": "n", "details": "d"}],
        },
        {"id": "phase-2", "name": "C", "tasks": [{"id": "task-3", "content": "d", "status": "pending"}]},
    ]


def test_an_invented_id_never_takes_one_that_was_given() -> None:
    filled = fill_in_plan(phases([{"name": "A", "tasks": [{"content": "a"}, {"id": "task-1", "content": "b"}]}]))
    assert [task.id for task in filled[0].tasks] == ["task-2", "task-1"]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("no list", "array"),
        ([{"name": "A"}], "tasks"),
        ([{"name": "A", "tasks": {}}], "tasks"),
        ([{"tasks": []}], "name"),
        ([{"name": 5, "tasks": []}], "name"),
        ([{"name": "A", "tasks": [{"content": 5}]}], "content"),
        ([{"name": "A", "tasks": [{"status": "pending"}]}], "content"),
        ([{"name": "A", "tasks": [{"content": "x", "status": "blocked"}]}], "status"),
        ([{"name": "A", "tasks": ["x"]}], "tasks"),
        ([{"content": "flat"}], "name"),
    ],
)
def test_a_plan_of_the_wrong_shape_is_refused_by_its_field(value: Any, field: str) -> None:
    with pytest.raises(BadRecord, match=field):
        phases(value)


def test_a_second_plan_replaces_the_first_and_an_empty_one_clears(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(one())
    assert len(setup.todos.set_host_plan(phases([{"name": "B", "tasks": []}, {"name": "C", "tasks": []}]))) == 2
    assert setup.todos.set_host_plan([]) == []
    assert setup.todos.current_phases() == []


def test_the_todo_tool_is_wanted_once_the_host_has_made_a_plan(setup: TodosSetup) -> None:
    setup.todos.set_host_plan([])
    assert setup.planned == 0
    setup.todos.set_host_plan(one())
    assert setup.planned == 1


def test_finished_tasks_go_after_a_minute_one_by_one(setup: TodosSetup) -> None:
    tasks = [
        {"content": "a", "status": "completed"},
        {"content": "b", "status": "abandoned"},
        {"content": "c", "status": "in_progress"},
    ]
    setup.todos.set_host_plan(phases([{"name": "A", "tasks": tasks}, {"name": "B", "tasks": tasks[:1]}]))
    setup.timers.pass_to(59.9)
    assert setup.count_clears() == 0
    setup.timers.pass_to(60)
    assert setup.count_clears() == 3
    assert [(phase.name, [task.content for task in phase.tasks]) for phase in setup.todos.current_phases()] == [
        ("A", ["c"])
    ]


def test_a_plan_that_is_given_again_gets_its_time_anew(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(one(status="completed"))
    setup.timers.pass_to(30)
    setup.todos.set_host_plan(one(status="completed"))
    setup.timers.pass_to(60)
    assert setup.todos.current_phases() != []
    setup.timers.pass_to(90)
    assert setup.todos.current_phases() == []


def test_a_negative_delay_keeps_finished_tasks() -> None:
    setup = TodosSetup(clear_delay=-1)
    setup.todos.set_host_plan(one(status="completed"))
    assert setup.timers.waiting == {}


def test_a_task_that_was_finished_before_does_not_get_more_time(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(
        phases([{"name": "A", "tasks": [{"content": "a", "status": "completed"}, {"content": "b"}]}])
    )
    setup.timers.pass_to(30)
    tasks = [{"content": "a", "status": "completed"}, {"content": "b", "status": "completed"}]
    setup.todos.replace_phases(fill_in_plan(phases([{"name": "A", "tasks": tasks}])))
    setup.timers.pass_to(60)
    assert [task.content for task in setup.todos.current_phases()[0].tasks] == ["b"]
    setup.timers.pass_to(90)
    assert setup.todos.current_phases() == []


def test_a_task_that_was_taken_up_again_stays(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(one(status="completed"))
    setup.todos.replace_phases(fill_in_plan(one(status="in_progress")))
    setup.timers.pass_to(100)
    assert setup.count_clears() == 0
    assert len(setup.todos.open_tasks()) == 1


def test_the_same_number_in_two_phases_means_two_tasks(setup: TodosSetup) -> None:
    first = {"name": "A", "tasks": [{"id": "1", "content": "a", "status": "completed"}]}
    setup.todos.set_host_plan(phases([first, {"name": "B", "tasks": [{"id": "1", "content": "b"}]}]))
    setup.timers.pass_to(60)
    assert [task.content for task in setup.todos.open_tasks()] == ["b"]


def test_time_is_the_loops_when_nothing_else_is_said() -> None:
    async def wait() -> list[Outbound]:
        posted: list[Outbound] = []
        todos = Todos(posted.append, list_plan_tool_names())
        todos.set_host_plan(one(status="completed"))
        await asyncio.sleep(59)
        assert posted == []
        await asyncio.sleep(2)
        return posted

    assert virtually(wait()) == [TodoAutoClear()]


def test_a_conversation_brings_back_what_its_last_good_result_leaves_to_do(setup: TodosSetup) -> None:
    plan = {
        "phases": [
            {"id": "p", "name": "A", "tasks": [{"id": "x", "content": "a", "status": "completed"}, {"content": "b"}]},
            {"name": "B", "tasks": [{"content": "c", "status": "abandoned"}]},
        ]
    }
    older = {"phases": [{"name": "old", "tasks": [{"content": "old"}]}]}
    branch = [result(older), result(plan, "todo_write"), result(older, is_error=True), result(older, "other")]
    setup.todos.set_host_plan(one(status="completed"))
    setup.todos.restore_from_branch(branch)
    assert [(phase.id, [task.content for task in phase.tasks]) for phase in setup.todos.current_phases()] == [
        ("p", ["b"])
    ]
    setup.timers.pass_to(1000)
    assert setup.count_clears() == 0


@pytest.mark.parametrize("details", [ABSENT, None, {}, {"phases": 5}, {"phases": [{"name": 1}]}, [1]])
def test_a_result_that_holds_no_plan_is_passed_over(setup: TodosSetup, details: Any) -> None:
    setup.todos.set_host_plan(one())
    setup.todos.restore_from_branch([result({"phases": [{"name": "A", "tasks": [{"content": "a"}]}]}), result(details)])
    assert [task.content for task in setup.todos.open_tasks()] == ["a"]


def test_a_new_conversation_has_no_plan(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(one())
    setup.todos.restore_from_branch([])
    assert setup.todos.current_phases() == []


_words = st.text(max_size=5)
_tasks = st.fixed_dictionaries(
    {"content": _words}, optional={"id": _words, "status": st.sampled_from(["pending", "completed"])}
)
_plans = st.lists(st.fixed_dictionaries({"name": _words, "tasks": st.lists(_tasks)}, optional={"id": _words}))


@given(_plans)
def test_every_plan_that_fits_gets_an_id_and_a_status_everywhere(plan: list[Any]) -> None:
    filled = fill_in_plan(phases(plan))
    assert [phase.name for phase in filled] == [phase["name"] for phase in plan]
    for phase in filled:
        assert phase.id
        assert all(task.id and not isinstance(task.status, Absent) for task in phase.tasks)
    assert codec.convert(codec.to_plain(filled), list[TodoPhaseGiven]) is not None


async def test_a_stop_with_open_tasks_brings_a_reminder_three_times(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(
        phases([{"name": "A", "tasks": [{"content": "a"}, {"content": "b", "status": "completed"}]}])
    )
    for attempt in (1, 2, 3):
        said = await setup.reminders.after_turn(CompletedTurn(answer(TextContent(text="done")), (), ends=True))
        assert isinstance(said[0], CustomMessage)
        assert "a (pending)" in str(said[0].content)
        event = setup.posted[-1]
        assert isinstance(event, TodoReminder)
        assert (event.attempt, event.max_attempts) == (attempt, 3)
        assert [(task.id, task.content, task.status) for task in event.todos] == [("task-1", "a", "pending")]
    assert await setup.reminders.after_turn(CompletedTurn(answer(), (), ends=True)) == ()


async def test_what_the_user_says_starts_the_count_again(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(one())
    for _ in range(3):
        said = await setup.reminders.after_turn(CompletedTurn(answer(), (), ends=True))
        setup.journal.append_message(answer())
        assert said
    assert await setup.reminders.after_turn(CompletedTurn(answer(), (), ends=True)) == ()
    setup.journal.append_message(UserMessage(content="go on", timestamp=1))
    assert await setup.reminders.after_turn(CompletedTurn(answer(), (), ends=True))


async def test_nothing_is_said_where_there_is_no_final_stop(setup: TodosSetup) -> None:
    setup.todos.set_host_plan(one())
    call = ToolCall(id="c", name="x", arguments={})
    for last in (answer(stop="error"), answer(stop="aborted"), answer(call, stop="toolUse")):
        assert await setup.reminders.after_turn(CompletedTurn(last, (), ends=True)) == ()
    assert setup.posted == []


async def test_reminders_need_something_open(setup: TodosSetup) -> None:
    assert await setup.reminders.after_turn(CompletedTurn(answer(), (), ends=True)) == ()
    setup.todos.set_host_plan(one(status="completed"))
    assert await setup.reminders.after_turn(CompletedTurn(answer(), (), ends=True)) == ()
    setup.todos.set_host_plan(one())
    assert await setup.reminders.after_turn(CompletedTurn(answer(), (), ends=True))
