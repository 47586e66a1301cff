"""The plan: set by the host, kept by the model, reminded of, cleared, and brought back."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, Hang, ModelServer, said_in
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.contract_scenes import Seen, Stage, scenario
from support.records import answers, finished_messages, outline, text_of, tool_texts

Record = dict[str, Any]
ALL = ("pi", "omp", "xcsh")
PLAN = [{"id": "p", "name": "Work", "tasks": [{"id": "t", "content": "do it", "status": "in_progress"}]}]
TWO = [{"op": "replace", "phases": [{"name": "Work", "tasks": [{"content": "one"}, {"content": "two"}]}]}]


@pytest.fixture
def host(start: Start, dialect: str) -> RpcProcess:
    """The program in each dialect that has todos."""
    return start(dialect=dialect)


def plan(agent: RpcProcess) -> Any:
    return agent.ask("get_state")["todoPhases"]


@proves("xcsh/set_todos.response")
def test_the_plan_comes_back_normalised(host: RpcProcess) -> None:
    tasks = [{"content": "a", "color": "red"}, {"id": "own", "content": "b", "status": "completed", "notes": "n"}]
    given = [{"name": "A", "tasks": tasks}, {"id": "x", "name": "B", "tasks": [{"content": "c", "details": "d"}]}]
    expected = [
        {
            "id": "phase-1",
            "name": "A",
            "tasks": [
                {"id": "task-1", "content": "a", "status": "pending"},
                {"id": "own", "content": "b", "status": "completed", "notes": "n"},
            ],
        },
        {
            "id": "x",
            "name": "B",
            "tasks": [{"id": "task-2", "content": "c", "status": "pending", "details": "d"}],
        },
    ]
    assert host.ask("set_todos", phases=given) == {"todoPhases": expected}
    assert plan(host) == expected


@proves("xcsh/set_todos.state")
def test_the_plan_stands_in_the_state(host: RpcProcess) -> None:
    host.ask("set_todos", phases=PLAN)
    assert plan(host) == PLAN


@proves("xcsh/set_todos.replaces")
def test_a_second_plan_replaces_the_first_and_an_empty_one_clears(host: RpcProcess) -> None:
    host.ask("set_todos", phases=PLAN)
    other = [{"id": "q", "name": "Other", "tasks": []}]
    assert host.ask("set_todos", phases=other) == {"todoPhases": other}
    assert host.ask("set_todos", phases=[]) == {"todoPhases": []}
    assert plan(host) == []


@proves("todos.refused")
def test_a_plan_of_the_wrong_shape_is_refused_and_changes_nothing(agent: RpcProcess) -> None:
    agent.ask("set_todos", phases=PLAN)
    wrong: list[tuple[Any, str]] = [
        (None, "phases"),
        ("x", "phases"),
        ([{"name": "A"}], "tasks"),
        ([{"tasks": []}], "name"),
        ([{"name": "A", "tasks": [{"content": 1}]}], "content"),
        ([{"name": "A", "tasks": [{"content": "x", "status": "blocked"}]}], "status"),
        ([{"content": "flat", "status": "pending"}], "name"),
    ]
    for phases, field in wrong:
        assert field in agent.expect_error("set_todos", phases=phases)
        assert plan(agent) == PLAN


@scenario
def reminded(stage: Stage) -> Seen:
    """A model that stops four times with an open task."""
    host = stage.start()
    host.ask("set_todos", phases=PLAN)
    asked = [stage.server.answers(f"stop {number}") for number in range(4)]
    records = host.run("x")
    return Seen(
        records=records, reminders=[record for record in records if record["type"] == "todo_reminder"],
        words=outline(records), said=said_in(asked[1].request)[-1][1],
    )  # fmt: skip


@proves("xcsh/event.todo_reminder")
def test_a_stop_with_open_tasks_is_followed_by_a_reminder(reminded: Seen) -> None:
    assert reminded.reminders[0]["todos"] == [{"id": "t", "content": "do it", "status": "in_progress"}]
    at = reminded.words.index("todo_reminder")
    assert reminded.words[at - 1 : at + 4] == [
        "turn_end", "todo_reminder", "turn_start", "message_start:custom", "message_end:custom"
    ]  # fmt: skip
    assert "do it" in reminded.said


@proves("xcsh/event.todo_reminder_limit")
def test_there_are_three_reminders_at_most(reminded: Seen) -> None:
    assert [(one["attempt"], one["maxAttempts"]) for one in reminded.reminders] == [(1, 3), (2, 3), (3, 3)]
    assert [text_of(message) for message in answers(reminded.records)] == ["stop 0", "stop 1", "stop 2", "stop 3"]


@proves("todos.one_end")
def test_reminders_continue_inside_the_run(reminded: Seen) -> None:
    words = reminded.words
    assert words.count("agent_start") == words.count("agent_end") == 1
    assert words.count("turn_start") == words.count("turn_end") == 4


@proves("todos.counts_anew")
def test_the_next_prompt_is_reminded_anew_and_a_finished_plan_is_not(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_todos", phases=PLAN)
    for _ in range(8):
        server.answers("ok")
    for _ in range(2):
        records = agent.run("x")
        assert len([record for record in records if record["type"] == "todo_reminder"]) == 3
    done = {"id": "t", "content": "do it", "status": "completed"}
    agent.ask("set_todos", phases=[{"name": "Work", "tasks": [done]}])
    server.answers("ok")
    assert "todo_reminder" not in outline(agent.run("x"))


@proves("todos.abort")
def test_an_aborted_run_is_not_reminded(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_todos", phases=PLAN)
    server.answers("half", Hang())
    agent.ask("prompt", message="x")
    agent.wait_delta("h")
    agent.ask("abort")
    assert agent.since(0, "todo_reminder") == []


@proves("xcsh/start.reset_todo", dialects=("pi", "omp", "xcsh"))
def test_the_users_own_todo_settings_do_not_count_here(start: Start, server: ModelServer) -> None:
    settings = {"todo": {"reminders": False, "reminders.max": 0, "enabled": False}, "todo.reminders": False}
    for dialect in ALL:
        agent = start(settings=settings, dialect=dialect)
        agent.ask("set_todos", phases=PLAN)
        for _ in range(4):
            server.answers("ok")
        assert outline(agent.run("x")).count("todo_reminder") == 3


@proves("todos.tool")
def test_the_model_can_keep_the_plan_itself(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_todos", phases=PLAN)
    asked = server.answers(Call("todo", {"ops": [{"op": "update", "id": "t", "status": "completed"}]}))
    server.answers("all done")
    records = agent.run("x")
    assert "todo" in [tool["name"] for tool in asked.request["tools"]]
    assert "todo_reminder" not in outline(records)
    assert plan(agent)[0]["tasks"][0]["status"] == "completed"
    (result,) = finished_messages(records, "toolResult")
    assert result["details"]["phases"] == plan(agent)


@proves("todos.tool_new")
def test_the_model_can_make_a_plan_of_its_own(start: Start, server: ModelServer) -> None:
    agent = start("--tools", "read,todo")
    server.answers(Call("todo", {"ops": TWO}))
    update = {"op": "update", "id": "task-1", "status": "completed"}
    server.answers(Call("todo", {"ops": [update, {**update, "id": "task-2", "status": "abandoned"}]}))
    server.answers("done")
    agent.run("x")
    assert [task["status"] for task in plan(agent)[0]["tasks"]] == ["completed", "abandoned"]
    assert "[>] task-1: one" in tool_texts(agent.records)[0]


@proves("xcsh/event.todo_auto_clear", dialects=("pi", "omp", "xcsh"))
def test_finished_tasks_are_cleared_one_by_one(start: Start) -> None:
    for dialect in ALL:
        agent = start(settings={"tasks": {"todoClearDelay": 0}}, dialect=dialect)
        tasks = [{"content": "a", "status": "completed"}, {"content": "b", "status": "abandoned"}, {"content": "c"}]
        phases = [{"name": "A", "tasks": tasks}, {"name": "B", "tasks": tasks[:1]}]
        assert len(agent.ask("set_todos", phases=phases)["todoPhases"]) == 2
        events = agent.wait_count("todo_auto_clear", 3)
        assert events[0] == {"type": "todo_auto_clear"}
        assert [[task["content"] for task in phase["tasks"]] for phase in plan(agent)] == [["c"]]


@proves("todos.clear_never")
def test_a_negative_delay_keeps_finished_tasks(start: Start, server: ModelServer) -> None:
    agent = start(settings={"tasks": {"todoClearDelay": -1}})
    agent.ask("set_todos", phases=[{"name": "A", "tasks": [{"content": "a", "status": "completed"}]}])
    server.answers("ok")
    agent.run("x")
    assert agent.since(0, "todo_auto_clear") == []
    assert len(plan(agent)) == 1


@proves("todos.new_session")
def test_a_new_session_has_no_plan(agent: RpcProcess, server: ModelServer) -> None:
    agent.ask("set_todos", phases=PLAN)
    agent.ask("new_session")
    assert plan(agent) == []
    server.answers("ok")
    assert "todo_reminder" not in outline(agent.run("x"))


@proves("todos.restored")
def test_a_session_that_is_opened_brings_back_what_its_plan_leaves_to_do(
    folders: AgentFolders, server: ModelServer
) -> None:
    folders.configure(providers(server.url))
    with RpcProcess(folders, "--provider", "fake", "--model", "fake-1", "--tools", "todo") as agent:
        server.answers(Call("todo", {"ops": [*TWO, {"op": "update", "id": "task-1", "status": "completed"}]}))
        for _ in range(4):
            server.answers("ok")
        agent.run("x")
        file = agent.ask("get_state")["sessionFile"]
        agent.ask("new_session")
        assert plan(agent) == []
        agent.ask("switch_session", sessionPath=file)
        left = [
            {
                "id": "phase-1",
                "name": "Work",
                "tasks": [{"id": "task-2", "content": "two", "status": "in_progress"}],
            }
        ]
        assert plan(agent) == left
    with RpcProcess(folders, "--session", file) as agent:
        assert plan(agent) == left
