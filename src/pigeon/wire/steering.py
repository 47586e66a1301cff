"""What steers the model besides the conversation: the plan that host and model share, and stream rules.

A plan is a list of phases with tasks. A stream rule is advice for the model that is given when what it writes matches
the rule's condition.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

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


RuleInterrupt = Literal["always", "never", "prose-only", "tool-only"]
RuleLevel = Literal["user", "project"]


class RuleSource(Record, kw_only=True):
    """Where a rule comes from."""

    provider: str
    provider_name: str
    path: str
    level: RuleLevel


class Rule(Record, kw_only=True):
    """One rule file: `condition` are regular expressions, `scope` says what they are held against.

    `repeat` is 0 for a rule that is given once, else the number of messages that must lie between two times.
    """

    name: str
    path: str
    content: str
    description: str | Absent = ABSENT
    globs: list[str] | Absent = ABSENT
    always_apply: bool | Absent = ABSENT
    condition: list[str] | Absent = ABSENT
    scope: list[str] | Absent = ABSENT
    interrupt_mode: RuleInterrupt | Absent = ABSENT
    repeat: int | Absent = ABSENT
    source: RuleSource | Absent = field(default=ABSENT, name="_source")
