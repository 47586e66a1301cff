"""What one client is shown of agents that were started: each as an agent of its own, in the client's dialect.

Clients with the feature `agents` get the events of every agent with its ids. Those of oh-my-pi subscribe instead, and
get frames of their own around what the agent would have sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pigeon.dialects.base import Dialect, OutputLine
from pigeon.dialects.choice import switch_dialect
from pigeon.wire import codec
from pigeon.wire.answers import SubagentLevel
from pigeon.wire.events import (
    AgentChanged,
    AgentEnd,
    AgentEvent,
    AgentSettled,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Outbound,
    SubagentEvent,
    SubagentLifecycle,
    SubagentProgress,
    ThinkingLevelChanged,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from pigeon.wire.subagent_frames import make_lifecycle, make_progress

# The events that oh-my-pi passes on.
_PASSED_ON = (
    *(AgentStart, AgentEnd, AgentSettled, TurnStart, TurnEnd, MessageStart, MessageUpdate, MessageEnd),
    *(ToolExecutionStart, ToolExecutionUpdate, ToolExecutionEnd, ThinkingLevelChanged),
)


class AgentViews:
    """A dialect for each agent that is at work: its snapshots and counts are its own. A client may subscribe to frames
    about them."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        # By agent, and whether for frames: who gets both gets each event twice.
        self._views: dict[tuple[str, bool], Dialect] = {}
        self._begun: set[str] = set()
        self._level: SubagentLevel = "off"

    def set_level(self, level: SubagentLevel) -> None:
        """Send the frames of this subscription from here on."""
        self._level = level

    def reset(self, dialect: Dialect) -> None:
        """Use another dialect from here on."""
        self._dialect = dialect
        self._views.clear()

    def to_event_lines(self, event: AgentEvent, shown: Outbound) -> list[OutputLine]:
        """The event of an agent, as far as the client is shown it."""
        return self._convert(event, shown, False)

    def _convert(self, event: AgentEvent, shown: Outbound, for_frames: bool) -> list[OutputLine]:
        lines = self._view_of(event, for_frames).to_lines(shown)
        self._forget_if_over(event, for_frames)
        return lines

    def to_records(self, event: AgentEvent, shown: Outbound) -> Iterable[Any]:
        """The same as records, for a host in this process."""
        records = self._view_of(event, False).to_records(shown)
        self._forget_if_over(event, False)
        return records

    def to_subscribed_lines(self, event: AgentEvent | AgentChanged) -> list[OutputLine]:
        """The frames that the client has subscribed to; none in dialects that have no such frames."""
        if self._level == "off" or self._dialect.name not in SubagentEvent.dialects:
            return []
        if isinstance(event, AgentChanged):
            return self._to_frames(event)
        if self._level != "events" or not isinstance(event.event, _PASSED_ON):
            return []
        id = codec.encode(event.agent_id)
        head = b'{"type":"subagent_event","payload":{"id":' + id + b',"event":'
        about = SubagentEvent(payload={})
        return [
            OutputLine((head, *line.pieces, b"}}"), line.apart, about)
            for line in self._convert(event, event.event, True)
        ]

    def _to_frames(self, event: AgentChanged) -> list[OutputLine]:
        agent = event.agent
        frames: list[SubagentLifecycle | SubagentProgress] = []
        is_over = agent.status not in ("waiting", "running")
        if agent.agent_id not in self._begun:
            self._begun.add(agent.agent_id)
            frames.append(make_lifecycle(event, has_begun=True))
        frames.append(make_progress(event))
        if is_over:
            self._begun.discard(agent.agent_id)
            frames.append(make_lifecycle(event, has_begun=False))
        return [OutputLine((codec.encode(frame),), record=frame) for frame in frames]

    def _view_of(self, event: AgentEvent, for_frames: bool) -> Dialect:
        key = str(event.agent_id), for_frames
        view = self._views.get(key)
        if view is None:
            dialect = self._dialect
            view = self._views[key] = switch_dialect(dialect, dialect.name, dialect.deltas)
        return view

    def _forget_if_over(self, event: AgentEvent, for_frames: bool) -> None:
        if isinstance(event.event, AgentSettled):
            self._views.pop((str(event.agent_id), for_frames), None)
