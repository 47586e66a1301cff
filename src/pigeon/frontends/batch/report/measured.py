"""The numbers of a batch, gathered from its results in one pass: by model, by group, and each task for the plots."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from pigeon.frontends.batch.records import TaskResult
from pigeon.frontends.batch.report.statistics import Estimate, Sample, success_rate

# A measure of a task, with its label and unit.
Measure = Callable[[TaskResult], float]
MEASURES: dict[str, tuple[Measure, str]] = {
    "cost": (lambda one: one.cost, "US dollars"),
    "tokens": (lambda one: float(one.usage.total_tokens), "tokens"),
    "time": (lambda one: one.seconds, "seconds"),
    "turns": (lambda one: float(one.turns), "turns"),
    "tool calls": (lambda one: float(sum(one.tools.values())), "calls"),
    "agents": (lambda one: float(one.agents), "agents"),
}
NO_GROUP = "(no group)"
NO_MODEL = "(no model)"
MOST_GROUPS = 200
# The most rows that fit in a plot.
MOST_ROWS = 12


class GroupFigures(Struct):
    """The totals of one model or group."""

    count: int = 0
    done: int = 0
    samples: dict[str, Sample] = field(default_factory=lambda: {name: Sample() for name in MEASURES})
    values: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in MEASURES})

    def add(self, result: TaskResult) -> None:
        self.count += 1
        self.done += result.status == "done"
        for name, (measure, _) in MEASURES.items():
            value = measure(result)
            self.samples[name].add(value)
            self.values[name].append(value)

    @property
    def success(self) -> Estimate:
        return success_rate(self.done, self.count)


class BatchFigures(Struct):
    """The totals of a whole batch."""

    everything: GroupFigures = field(default_factory=GroupFigures)
    by_model: dict[str, GroupFigures] = field(default_factory=dict)
    by_group: dict[str, GroupFigures] = field(default_factory=dict)
    by_status: dict[str, int] = field(default_factory=dict)
    tools: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, result: TaskResult) -> None:
        self.everything.add(result)
        _ensure_group(self.by_model, result.model or NO_MODEL).add(result)
        _ensure_group(self.by_group, result.group or NO_GROUP).add(result)
        self.by_status[result.status] = self.by_status.get(result.status, 0) + 1
        for name, count in result.tools.items():
            self.tools[name] = self.tools.get(name, 0) + count
        if result.status != "done":
            reason = " ".join((result.error or "no reason was given").split())[:300]
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


def _ensure_group(groups: dict[str, GroupFigures], name: str) -> GroupFigures:
    """The group of this name, added if missing; beyond a limit, one group for all others."""
    if name not in groups and len(groups) >= MOST_GROUPS:
        name = "(others)"
    return groups.setdefault(name, GroupFigures())


def largest_groups(groups: Mapping[str, GroupFigures]) -> list[str]:
    """The groups with the most tasks, as many as a plot has room for."""
    return sorted(groups, key=lambda name: (-groups[name].count, name))[:MOST_ROWS]


def title_of_largest(title: str, groups: Mapping[str, GroupFigures]) -> str:
    """The title of a plot of groups; which mentions if some are left out."""
    return f"{title} (the {MOST_ROWS} largest of {len(groups)})" if len(groups) > MOST_ROWS else title
