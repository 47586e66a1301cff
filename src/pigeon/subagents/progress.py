"""What an agent has done so far and is doing now, from its events: for the call that waits for it, and for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from pigeon.agent.tool_facts import ToolFacts
from pigeon.session.history.started_agents import is_result_of_agent
from pigeon.wire.agents import AgentSource, AgentWork, RecentCall
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent
from pigeon.wire.events import MessageEnd, Outbound, ToolCallStarted, ToolExecutionEnd
from pigeon.wire.messages import AssistantMessage, ToolResultMessage
from pigeon.wire.model import Model, Usage, sum_usage, zero_usage

MOST_RECENT = 5
MOST_LINES = 10
LONGEST_LINE = 200


class RunningTool(Struct, frozen=True):
    """A call that has begun: the tool, what it is about, and when."""

    name: str
    title: str
    since_ms: int
    changes: str | None = None


class AgentProgress:
    """Counts the work of one agent; `usage` is without that of agents it has started."""

    def __init__(self, facts_of: Callable[[str], ToolFacts], now: Callable[[], int]) -> None:
        self._facts_of = facts_of
        self._now = now
        self._running: dict[str, RunningTool] = {}
        self._recent: deque[tuple[RunningTool, int]] = deque(maxlen=MOST_RECENT)
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self.began_ms = now()
        self.tool_count = 0
        self.requests = 0
        self.context_tokens = 0
        self.usage: Usage = zero_usage()
        self.changed_files: dict[str, None] = {}
        self.last_answer: AssistantMessage | None = None

    def on_event(self, event: Outbound) -> bool:
        """Count an event; returns True if there is something new to show."""
        if isinstance(event, ToolCallStarted):
            self.tool_count += 1
            changes = self._facts_of(event.tool_name).find_changed_file(event.args) if event.args else None
            self._running[event.tool_call_id] = RunningTool(event.tool_name, event.title, self._now(), changes)
            return True
        if isinstance(event, ToolExecutionEnd):
            ended = self._running.pop(event.tool_call_id, None)
            if ended is not None:
                self._recent.append((ended, self._now()))
                self._note_changes(ended, event)
            return True
        if isinstance(event, MessageEnd):
            return self._count_message(event.message)
        return False

    def _note_changes(self, call: RunningTool, end: ToolExecutionEnd) -> None:
        """The file that a call has changed, or those of the agent that it has started."""
        if call.changes is not None and not end.is_error:
            self.changed_files[call.changes] = None
        elif self._facts_of(call.name).kind == "agent" and isinstance(end.result.details, dict):
            self.changed_files.update(dict.fromkeys(end.result.details.get("changedFiles", ())))

    def _count_message(self, message: Any) -> bool:
        if isinstance(message, ToolResultMessage):
            if isinstance(message.usage, Usage) and not is_result_of_agent(message):
                self.usage = sum_usage(self.usage, message.usage)
            return False
        if not isinstance(message, AssistantMessage):
            return False
        self.requests += 1
        self.last_answer = message
        self.usage = sum_usage(self.usage, message.usage)
        self.context_tokens = message.usage.total_tokens or self.context_tokens
        said = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
        self._lines.extend(line[:LONGEST_LINE] for line in said.splitlines() if line.strip())
        return True

    @property
    def activity(self) -> str:
        """What it is doing now, in a line; empty if it waits for the model."""
        return "; ".join(tool.title for tool in self._running.values())[:LONGEST_LINE]

    def describe(self) -> str:
        """The last calls and what is going on, as the progress of the call that waits."""
        lines = [f"{tool.title}" for tool, _ in self._recent]
        return "\n".join([*lines, *(f"{tool.title} ..." for tool in self._running.values())])

    def to_work(self, index: int, source: AgentSource, task: str, model: Model | None, usage: Usage) -> AgentWork:
        """The same as a record, with what is known of the agent besides."""
        current = next(iter(self._running.values()), None)
        return AgentWork(
            index=index,
            agent_source=source,
            task=task,
            recent_tools=[
                RecentCall(tool=tool.name, args=tool.title, end_ms=ended) for tool, ended in reversed(self._recent)
            ],
            recent_output=list(self._lines),
            tool_count=self.tool_count,
            requests=self.requests,
            tokens=usage.total_tokens,
            cost=usage.cost.total,
            duration_ms=max(0, self._now() - self.began_ms),
            context_window=ABSENT if model is None else model.context_window,
            resolved_model=ABSENT if model is None else model.reference,
            context_tokens=self.context_tokens or ABSENT,
            current_tool=ABSENT if current is None else current.name,
            current_tool_args=ABSENT if current is None else current.title,
            current_tool_start_ms=ABSENT if current is None else current.since_ms,
        )
