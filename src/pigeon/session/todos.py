"""The plan of a conversation: phases with tasks that host and model both write.

It is kept in memory; what the model wrote is also in the results of its tool, and is restored from there when a
conversation is opened. A finished task is removed some time later, with a `todo_auto_clear`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from pigeon.session.history.entry_line import EntryLine
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.errors import BadRecord
from pigeon.wire.events import Outbound, TodoAutoClear
from pigeon.wire.messages import ToolResultMessage
from pigeon.wire.steering import TodoPhase, TodoPhaseGiven, TodoTask, TodoTaskGiven

_Key = tuple[str | Absent, str | Absent]
Later = Callable[[float, Callable[[], None]], Callable[[], None]]
FINISHED = ("completed", "abandoned")
CLEAR_DELAY = 60.0


def call_later(seconds: float, work: Callable[[], None]) -> Callable[[], None]:
    """Schedule a function; the returned function cancels it."""
    return asyncio.get_running_loop().call_later(seconds, work).cancel


class Todos:
    """The plan of one conversation, which results of `tools` record. A negative `clear_delay` keeps finished tasks;
    `host_planned` is called when the host has set a plan, so that the model gets the tool for it."""

    def __init__(
        self,
        post: Callable[[Outbound], None],
        tools: Sequence[str],
        clear_delay: float = CLEAR_DELAY,
        host_planned: Callable[[], None] = lambda: None,
        later: Later = call_later,
    ) -> None:
        self._post = post
        self._tools = tools
        self._clear_delay = clear_delay
        self._host_planned = host_planned
        self._later = later
        self._timers: dict[_Key, Callable[[], None]] = {}
        self._phases: list[TodoPhase] = []

    def set_host_plan(self, phases: Sequence[TodoPhaseGiven]) -> list[TodoPhase]:
        """Set the host's plan; returns it with missing fields filled in."""
        self._stop_timers()
        self._phases = fill_in_plan(phases)
        self._start_timers()
        if self._phases:
            self._host_planned()
        return self._phases

    def current_phases(self) -> list[TodoPhase]:
        """The plan itself; the caller must not change it."""
        return self._phases

    def replace_phases(self, phases: list[TodoPhase]) -> None:
        """Set the model's plan; a task that was finished before does not stay longer than it would have."""
        self._phases = phases
        finished = {key for key, task in _tasks_by_key(phases) if task.status in FINISHED}
        for key in [key for key in self._timers if key not in finished]:
            self._timers.pop(key)()
        self._start_timers()

    def open_tasks(self) -> list[TodoTask]:
        return [task for _, task in _tasks_by_key(self._phases) if task.status not in FINISHED]

    def restore_from_branch(self, branch: Iterable[EntryLine]) -> None:
        """Restore the plan of another conversation from the last result of its tool."""
        self.close()
        self._phases = drop_finished(find_plan(branch, self._tools))

    def close(self) -> None:
        """Clear the plan and cancel its timers."""
        self._stop_timers()
        self._phases = []

    def _start_timers(self) -> None:
        if self._clear_delay < 0:
            return
        for key, task in _tasks_by_key(self._phases):
            if task.status in FINISHED and key not in self._timers:
                self._timers[key] = self._later(self._clear_delay, partial(self._remove_task, key))

    def _stop_timers(self) -> None:
        for cancel in self._timers.values():
            cancel()
        self._timers.clear()

    def _remove_task(self, key: _Key) -> None:
        self._timers.pop(key, None)
        self._phases = _filter_tasks(self._phases, lambda its, task: its != key or task.status not in FINISHED)
        self._post(TodoAutoClear())


def fill_in_plan(given: Sequence[TodoPhaseGiven]) -> list[TodoPhase]:
    """The same plan with an id for everything and a status for each task; given ids stay."""
    phase_ids = _generate_unused_ids("phase", (phase.id for phase in given))
    task_ids = _generate_unused_ids("task", (task.id for phase in given for task in phase.tasks))
    return [
        TodoPhase(
            id=phase.id or next(phase_ids),
            name=phase.name,
            tasks=[_fill_in_task(task, task_ids) for task in phase.tasks],
        )
        for phase in given
    ]


def _fill_in_task(task: TodoTaskGiven, free: Iterator[str]) -> TodoTask:
    return TodoTask(
        id=task.id or next(free),
        content=task.content,
        status=task.status or "pending",
        notes=ABSENT if task.notes is None else task.notes,
        details=ABSENT if task.details is None else task.details,
    )


def _generate_unused_ids(kind: str, taken: Iterable[str | Absent | None]) -> Iterator[str]:
    known = set(taken)
    return (id for id in (f"{kind}-{number}" for number in count(1)) if id not in known)


def find_plan(branch: Iterable[EntryLine], tools: Sequence[str]) -> list[TodoPhase]:
    """The plan in the last good result of one of these tools, or an empty one."""
    names = [name.encode() for name in tools]
    results = [line for line in branch if line.role == "toolResult" and any(name in line.raw for name in names)]
    for line in reversed(results):
        message = line.message
        if isinstance(message, ToolResultMessage) and message.tool_name in tools and not message.is_error:
            details = message.details
            try:
                return fill_in_plan(codec.convert(_find_phases(details), list[TodoPhaseGiven]))
            except BadRecord:
                continue
    return []


def _find_phases(details: Any) -> Any:
    return details.get("phases") if isinstance(details, dict) else None


def drop_finished(phases: list[TodoPhase]) -> list[TodoPhase]:
    """The unfinished tasks, without empty phases."""
    return _filter_tasks(phases, lambda key, task: task.status not in FINISHED)


def _filter_tasks(phases: list[TodoPhase], keeps: Callable[[_Key, TodoTask], bool]) -> list[TodoPhase]:
    kept = [
        TodoPhase(
            id=phase.id, name=phase.name, tasks=[task for key, task in _tasks_by_key([phase]) if keeps(key, task)]
        )
        for phase in phases
    ]
    return [phase for phase in kept if phase.tasks]


def _tasks_by_key(phases: Iterable[TodoPhase]) -> Iterator[tuple[_Key, TodoTask]]:
    """Each task with its identity; hosts may number the tasks of each phase from the start."""
    return (((phase.id, task.id), task) for phase in phases for task in phase.tasks)
