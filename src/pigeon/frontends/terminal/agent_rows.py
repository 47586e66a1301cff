"""The agents that work, as the chat shows them: who does what, for how long, and what each has used so far; and what
runs in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pigeon.frontends.terminal.content.tool_details import IN_BACKGROUND, first_words
from pigeon.wire.base import value_or_default

if TYPE_CHECKING:
    from pigeon.wire.agents import AgentInfo, JobInfo
    from pigeon.wire.events import AgentChanged

WAITS = "waiting for a place"
DECISIONS = {
    "accepted": "You have accepted the plan",
    "change": "You want the plan to be changed",
    "refused": "You have refused the plan",
    "dismissed": "You have not accepted the plan",
}


class AgentRow(Struct, frozen=True):
    """One agent at work; `indent` is how deep it is below the others that are shown."""

    id: str
    parent: str
    type: str
    title: str
    waits: bool
    activity: str
    tool_count: int
    tokens: int
    cost: float
    began: float
    call_id: str
    indent: int = 0


class AgentRows:
    """The agents that wait or work, in the order of their start, and the running jobs. `now` is a steady clock in
    seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rows: dict[str, AgentRow] = {}
        self._jobs: set[str] = set()

    def update(self, event: AgentChanged) -> None:
        """Show what an agent does now; one that has ended is shown no more."""
        from pigeon.wire.agents import UNFINISHED

        info, work = event.agent, event.work
        if info.status not in UNFINISHED:
            self._rows.pop(info.agent_id, None)
            return
        self._rows[info.agent_id] = AgentRow(
            id=info.agent_id,
            parent=info.parent_agent_id,
            type=info.agent,
            title=value_or_default(info.title, "") or work.task,
            waits=info.status == "waiting",
            activity=value_or_default(info.activity, ""),
            tool_count=work.tool_count,
            tokens=work.tokens,
            cost=float(work.cost),
            began=self._now() - work.duration_ms / 1000,
            call_id=value_or_default(info.tool_call_id, ""),
        )

    def add_known(self, agents: Sequence[AgentInfo], jobs: Sequence[JobInfo]) -> None:
        """Show those that were at work before the chat was there; how long they have worked is not known."""
        from pigeon.wire.agents import UNFINISHED

        for info in agents:
            if info.status in UNFINISHED and info.agent_id not in self._rows:
                self._rows[info.agent_id] = AgentRow(
                    id=info.agent_id,
                    parent=info.parent_agent_id,
                    type=info.agent,
                    title=value_or_default(info.title, "") or info.agent_id,
                    waits=info.status == "waiting",
                    activity=value_or_default(info.activity, ""),
                    tool_count=0,
                    tokens=info.usage.total_tokens,
                    cost=float(info.usage.cost.total),
                    began=self._now(),
                    call_id=value_or_default(info.tool_call_id, ""),
                )
        self._jobs |= {job.job_id for job in jobs if job.status == "running"}

    def clear(self) -> None:
        self._rows.clear()
        self._jobs.clear()

    def update_job(self, job: JobInfo) -> str:
        """Note the begin or the end of a job; returns what the person should know of it."""
        if job.status == "running":
            self._jobs.add(job.job_id)
            return ""
        if job.job_id not in self._jobs:
            return ""
        self._jobs.remove(job.job_id)
        code = f" with exit code {job.exit_code}" if isinstance(job.exit_code, int) else ""
        how = {"done": "has ended", "failed": "has failed", "stopped": "was stopped"}[job.status]
        return f'The background {job.kind} "{first_words(job.title)}" {how}{code}. /jobs has its output'

    @property
    def job_count(self) -> int:
        """How many commands and agents run in the background."""
        return len(self._jobs)

    @property
    def has_rows(self) -> bool:
        return bool(self._rows)

    def shows_call(self, call_id: str) -> bool:
        """Whether one of them was started by this call."""
        return any(row.call_id == call_id for row in self._rows.values())

    def list_tree(self) -> list[AgentRow]:
        """Each agent, and below it those that it has started."""
        return list(self._walk([row for row in self._rows.values() if row.parent not in self._rows], 0))

    def _walk(self, rows: list[AgentRow], indent: int) -> Iterator[AgentRow]:
        from msgspec.structs import replace

        for row in rows:
            yield replace(row, indent=indent)
            yield from self._walk([one for one in self._rows.values() if one.parent == row.id], indent + 1)


def describe_plan_decision(details: Any) -> str:
    """What the person has decided about a plan, by the details of the call; empty for any other call."""
    decision = details.get("decision") if isinstance(details, dict) else None
    return DECISIONS.get(decision, "") if isinstance(decision, str) else ""


def describe_use(tokens: int, cost: float) -> str:
    """What an agent has used: `12k tokens, $0.031`."""
    parts = [f"{format_tokens(tokens)} tokens" if tokens else "", f"${cost:.3f}" if cost else ""]
    return ", ".join(part for part in parts if part)


def format_tokens(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1_000_000:.1f}M" if count >= 1_000_000 else f"{count / 1000:.0f}k"


def describe_started_work(details: Any) -> str:
    """What the result of a call tells of the agent that it has started, or of the job that goes on; else empty."""
    if not isinstance(details, dict):
        return ""
    if isinstance(job := details.get("jobId"), str):
        return f"{details.get('agent') or job}, {IN_BACKGROUND}"
    if not isinstance(details.get("agent"), str):
        return ""
    usage = details.get("usage")
    tokens = usage.get("totalTokens") if isinstance(usage, dict) else None
    cost = usage.get("cost") if isinstance(usage, dict) else None
    total = cost.get("total") if isinstance(cost, dict) else None
    used = describe_use(
        tokens if isinstance(tokens, int) else 0, float(total) if isinstance(total, int | float) else 0.0
    )
    branch = details.get("branch")
    parts = [details["agent"], used, f"branch {branch}" if isinstance(branch, str) else ""]
    return ", ".join(part for part in parts if part)
