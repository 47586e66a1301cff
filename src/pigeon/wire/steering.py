"""The data that steers the model besides the conversation: the plan that host and model share, stream rules, and
limits.

A plan is a list of phases with tasks. A stream rule is advice for the model that is given when what it writes matches
the rule's condition. Limits say how much a run or a conversation may use; `parse_limits` is the one check of them, for
commands, options and settings.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field
from msgspec.structs import force_setattr

from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import Number

TodoStatus = Literal["pending", "in_progress", "completed", "abandoned"]


class TodoTask(Record, kw_only=True):
    """One task of the plan, with its status."""

    id: str | Absent = ABSENT
    content: str
    status: TodoStatus = "pending"
    notes: str | list[str] | Absent = ABSENT
    details: str | Absent = ABSENT


class TodoPhase(Record, kw_only=True):
    """A named group of tasks of the plan."""

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
    """Where a rule comes from: its provider, file and level."""

    provider: str
    provider_name: str
    path: str
    level: RuleLevel


class Rule(Record, kw_only=True):
    """One rule file: `condition` has regular expressions, `scope` says what they are matched against.

    `repeat` is 0 for a rule that is given once, otherwise how many messages must come before it is given again.
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


class Limits(Record, kw_only=True):
    """The most that a run or a conversation may use; what is absent is not limited.

    `turns` are requests for an answer, repeated ones included; `cost` is in US dollars; `tokens` are those of all
    requests as providers count them, cached ones included; `seconds` are those of runs, whatever they wait for. An
    invalid value raises `BadRecord`; None counts as absent.

    Example:
        import pigeon

        result = pigeon.run_sync("list the files", model="demo", limits=pigeon.Limits(turns=1, cost=0.50))
        assert result.ended == "limit"
    """

    turns: int | Absent = ABSENT
    cost: Number | Absent = ABSENT
    tokens: int | Absent = ABSENT
    seconds: Number | Absent = ABSENT
    tool_calls: int | Absent = ABSENT

    def __post_init__(self) -> None:
        for name, attribute in LIMIT_FIELDS.items():
            value = getattr(self, attribute)
            if value is None:
                force_setattr(self, attribute, ABSENT)
            elif not isinstance(value, Absent):
                force_setattr(self, attribute, check_limit(name, value, f'Invalid limit "{attribute}"'))


class LimitedUse(Record, kw_only=True):
    """How much of the limits was used since they were set."""

    turns: int = 0
    cost: Number = 0
    tokens: int = 0
    seconds: Number = 0
    tool_calls: int = 0


LimitName = Literal["turns", "cost", "tokens", "seconds", "toolCalls", "repeated_calls"]


class LimitReached(Record, kw_only=True):
    """The limit that ended a run: `reached` is how much of it was used. `repeated_calls` is the loop guard's."""

    name: LimitName
    allowed: Number
    reached: Number


LIMIT_UNITS = {
    "turns": "turns",
    "cost": "US dollars",
    "tokens": "tokens",
    "seconds": "seconds",
    "toolCalls": "tool calls",
}
LARGEST = 2**53 - 1  # the largest number that every JSON parser reads exactly
WHOLE = ("turns", "tokens", "toolCalls")
LIMIT_FIELDS = {"turns": "turns", "cost": "cost", "tokens": "tokens", "seconds": "seconds", "toolCalls": "tool_calls"}


def parse_limits(given: Json, where: str = "limits") -> Limits:
    """Limits written by a person or a program, as JSON or as a record; null counts as absent.

    Raises `BadRecord` that names the member. An unknown name is refused too: a misspelt limit would have no effect.
    """
    if isinstance(given, Limits):
        return given
    if not isinstance(given, dict):
        raise BadRecord(f'Missing or invalid field "{where}": expected an object such as {{"turns": 20, "cost": 0.5}}')
    found: dict[str, Number] = {}
    for name, value in given.items():
        if name not in LIMIT_FIELDS:
            known = ", ".join(LIMIT_FIELDS)
            raise BadRecord(f'Missing or invalid field "{where}.{name}": there is no such limit (known: {known})')
        if value is not None:
            found[LIMIT_FIELDS[name]] = check_limit(name, value, f'Missing or invalid field "{where}.{name}"')
    return Limits(**found)  # type: ignore[arg-type]


def check_limit(name: str, value: Json, label: str) -> Number:
    """Returns the value if it is valid for this limit; raises `BadRecord` that begins with the label."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST
    if name in WHOLE:
        if not is_number or value != int(value):
            raise BadRecord(f"{label}: expected a whole number of at least 1 and at most {LARGEST}")
        return int(value)
    if not is_number:
        raise BadRecord(f"{label}: expected a number greater than 0 and at most {LARGEST}")
    return value  # type: ignore[no-any-return]


def describe_limit(reached: LimitReached) -> str:
    """The text for hosts and models about the limit that ended a run."""
    if reached.name == "repeated_calls":
        return (
            f"Stopped by the loop guard: the same tool calls were made {reached.reached} times in a row, and at most "
            f"{reached.allowed} are allowed (setting loopGuard)"
        )
    unit = LIMIT_UNITS[reached.name]
    if reached.reached < reached.allowed and reached.name != "seconds":
        return (
            f"Limit reached: {format_limit(reached.reached)} of {format_limit(reached.allowed)} {unit} are used, and "
            "the next request needs more than is left"
        )
    return (
        f"Limit reached: {format_limit(reached.allowed)} {unit} are allowed, {format_limit(reached.reached)} are used"
    )


def format_limit(value: Number) -> str:
    """A limit, or its use, for people."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
