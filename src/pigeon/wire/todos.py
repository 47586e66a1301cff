"""The plan that host and model share: phases with tasks."""

from __future__ import annotations

from typing import Literal

from pigeon.wire.base import ABSENT, Absent, Record

TodoStatus = Literal["pending", "in_progress", "completed", "abandoned"]


class TodoTask(Record, kw_only=True):
    """One thing to do."""

    id: str | Absent = ABSENT
    content: str
    status: TodoStatus = "pending"
    notes: str | list[str] | Absent = ABSENT
    details: str | Absent = ABSENT


class TodoPhase(Record, kw_only=True):
    """A named group of tasks."""

    id: str | Absent = ABSENT
    name: str
    tasks: list[TodoTask]


class TodoTaskGiven(Record, kw_only=True):
    """A task as a host may write it; what is null or left out is filled in."""

    id: str | Absent | None = ABSENT
    content: str
    status: TodoStatus | Absent | None = ABSENT
    notes: str | list[str] | Absent | None = ABSENT
    details: str | Absent | None = ABSENT


class TodoPhaseGiven(Record, kw_only=True):
    """A phase as a host may write it."""

    id: str | Absent | None = ABSENT
    name: str
    tasks: list[TodoTaskGiven]
