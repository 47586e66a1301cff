"""todo: the plan of the conversation, in phases, changed by operations that all succeed or all fail."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from pigeon.agent.interfaces import ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.tools.base import BaseTool, Plan, ToolParts, make_text_outcome
from pigeon.wire import codec
from pigeon.wire.base import Json, value_or_default
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.steering import TodoPhase, TodoStatus, TodoTask

STATUSES = ("pending", "in_progress", "completed", "abandoned")
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "abandoned": "[-]"}
_TASK: dict[str, Json] = {
    "type": "object",
    "properties": {
        "content": {"type": "string", "minLength": 1, "description": "What to do, in a few words"},
        "status": {"type": "string", "enum": list(STATUSES)},
        "notes": {"type": "string"},
        "details": {"type": "string"},
    },
    "required": ["content"],
}
_TASKS: dict[str, Json] = {"type": "array", "items": _TASK}
_PHASE: dict[str, Json] = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "tasks": _TASKS},
    "required": ["name", "tasks"],
}


class TodoTool(BaseTool):
    """Changes the plan and shows it; exactly one task is in progress while any is open."""

    name = "todo"
    description = (
        "Keep a plan of the work, in phases with tasks. Send a list of operations; they are applied in order, all or "
        "none. replace: a whole new plan. add_phase: another phase. add_task: a task at the end of a phase. update: "
        "change the status, text or notes of a task by its id. remove_task: remove a task. One task is in progress "
        "at a time; when it is completed or abandoned the next one begins by itself. The result is the whole plan with "
        "all ids."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "ops": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "op": {
                            "type": "string",
                            "enum": ["replace", "add_phase", "add_task", "update", "remove_task"],
                        },
                        "phases": {"type": "array", "items": _PHASE, "description": "replace: the new plan"},
                        "name": {"type": "string", "description": "add_phase: its name"},
                        "tasks": {**_TASKS, "description": "add_phase: its tasks"},
                        "phase": {"type": "string", "description": "add_task: id or name of the phase"},
                        "id": {"type": "string", "description": "update, remove_task: id of the task"},
                        "content": {"type": "string", "description": "add_task, update: what to do"},
                        "status": {"type": "string", "enum": list(STATUSES), "description": "update: the new status"},
                        "notes": {"type": "string", "description": "add_task, update: findings"},
                        "details": {"type": "string", "description": "add_task, update: how to do it"},
                    },
                    "required": ["op"],
                },
            }
        },
        "required": ["ops"],
    }
    snippet = "Plan work with several steps and keep track of it"
    guidelines = ("Plan work of three or more steps with todo, and mark each task when it is done, not at the end.",)
    facts = ToolFacts(lambda arguments: "Update the plan", kind="plan", other_names=("todo_write", "todowrite"))

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @classmethod
    def create(cls, parts: ToolParts) -> TodoTool | None:
        """The tool, unless there is no plan."""
        return None if parts.plan is None else cls(parts.plan)

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Apply the operations and return the plan."""
        draft = Draft(self._plan.current_phases())
        for index, op in enumerate(arguments["ops"]):
            try:
                draft.apply(op)
            except ValueError as error:
                raise ToolFailed(f"ops[{index}] ({op['op']}): {error}. The plan is unchanged.") from None
        phases = ensure_one_in_progress(draft.phases)
        self._plan.replace_phases(phases)
        return make_text_outcome(format_plan(phases), {"phases": codec.to_plain(phases)})


class Draft:
    """A copy of the plan on which operations are tried."""

    def __init__(self, phases: list[TodoPhase]) -> None:
        self.phases = [replace(phase, tasks=list(phase.tasks)) for phase in phases]

    def apply(self, op: dict[str, Json]) -> None:
        """Apply one operation; raises `ValueError` with the error."""
        kind = op["op"]
        if kind == "replace":
            self.phases = []
            for phase in _require_key(op, "phases"):
                self._add_phase(phase["name"], phase["tasks"])
        elif kind == "add_phase":
            self._add_phase(_require_key(op, "name"), op.get("tasks", []))
        elif kind == "add_task":
            self._find_phase(_require_key(op, "phase")).tasks.append(
                self._make_task({**op, "content": _require_key(op, "content")})
            )
        elif kind == "update":
            self._update(_require_key(op, "id"), op)
        else:
            phase, at = self._find_task(_require_key(op, "id"))
            del phase.tasks[at]
            self.phases = [phase for phase in self.phases if phase.tasks]

    def _add_phase(self, name: str, tasks: list[dict[str, Json]]) -> None:
        phase = TodoPhase(id=_next_id("phase", [phase.id for phase in self.phases]), name=name, tasks=[])
        self.phases.append(phase)
        for task in tasks:
            phase.tasks.append(self._make_task(task))

    def _make_task(self, given: dict[str, Json]) -> TodoTask:
        task = TodoTask(
            id=_next_id("task", [task.id for phase in self.phases for task in phase.tasks]),
            content=given["content"],
            status=given.get("status", "pending"),
        )
        return _with_notes(task, given)

    def _update(self, id: str, op: dict[str, Json]) -> None:
        phase, at = self._find_task(id)
        task = _with_notes(phase.tasks[at], op)
        if "content" in op:
            task = replace(task, content=_require_key(op, "content"))
        if "status" in op:
            task = replace(task, status=op["status"])
            if op["status"] == "in_progress":
                self._pause_current()
        phase.tasks[at] = task

    def _pause_current(self) -> None:
        """Make the current task wait, because another one was begun on purpose."""
        for phase in self.phases:
            phase.tasks[:] = [
                _with_status(task, "pending") if task.status == "in_progress" else task for task in phase.tasks
            ]

    def _find_phase(self, name: str) -> TodoPhase:
        for phase in self.phases:
            if name in (phase.id, phase.name):
                return phase
        raise ValueError(f'there is no phase "{name}"; there are: {_join_ids([phase.id for phase in self.phases])}')

    def _find_task(self, id: str) -> tuple[TodoPhase, int]:
        for phase in self.phases:
            for at, task in enumerate(phase.tasks):
                if task.id == id:
                    return phase, at
        ids = [task.id for phase in self.phases for task in phase.tasks]
        raise ValueError(f'there is no task "{id}"; there are: {_join_ids(ids)}')


def ensure_one_in_progress(phases: list[TodoPhase]) -> list[TodoPhase]:
    """The same plan with one task in progress while any is open: the first that is, else the first that waits."""
    tasks = [task for phase in phases for task in phase.tasks]
    chosen = next((task for task in tasks if task.status == "in_progress"), None)
    chosen = chosen or next((task for task in tasks if task.status == "pending"), None)

    def update_status(task: TodoTask) -> TodoTask:
        if task is chosen:
            return _with_status(task, "in_progress")
        return _with_status(task, "pending") if task.status == "in_progress" else task

    return [replace(phase, tasks=[update_status(task) for task in phase.tasks]) for phase in phases]


def format_plan(phases: list[TodoPhase]) -> str:
    """The plan as a text for the model."""
    tasks = [task for phase in phases for task in phase.tasks]
    if not tasks:
        return "The plan is empty."
    done = sum(task.status in ("completed", "abandoned") for task in tasks)
    lines = [f"{done} of {len(tasks)} tasks are finished."]
    for phase in phases:
        lines.append(f"\n{phase.name} ({value_or_default(phase.id, '')})")
        for task in phase.tasks:
            lines.append(f"{_MARKS[task.status]} {value_or_default(task.id, '')}: {task.content}")
            lines.extend(f"    {line}" for line in _list_remark_lines(task))
    return "\n".join(lines)


def _list_remark_lines(task: TodoTask) -> list[str]:
    notes = value_or_default(task.notes, "")
    texts = [value_or_default(task.details, ""), *([notes] if isinstance(notes, str) else notes)]
    return [line for text in texts for line in text.splitlines()]


def _with_status(task: TodoTask, status: TodoStatus) -> TodoTask:
    return replace(task, status=status)


def _with_notes(task: TodoTask, given: dict[str, Json]) -> TodoTask:
    changes = {key: given[key] for key in ("notes", "details") if key in given}
    return replace(task, **changes) if changes else task


def _require_key(op: dict[str, Json], key: str) -> Json:
    if op.get(key) in (None, ""):
        raise ValueError(f'"{key}" is needed')
    return op[key]


def _next_id(kind: str, known: list[Json]) -> str:
    """One more than the highest used number."""
    prefix = f"{kind}-"
    numbers = [id[len(prefix) :] for id in known if isinstance(id, str) and id.startswith(prefix)]
    return f"{prefix}{max([int(number) for number in numbers if number.isdecimal()], default=0) + 1}"


def _join_ids(ids: list[Json]) -> str:
    return ", ".join(id for id in ids if isinstance(id, str)) or "none"
