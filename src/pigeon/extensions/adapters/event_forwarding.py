"""From the session's bus to the extensions that listen: at once, without waiting, at no cost if none does.

`_FORWARDED` is the table: for each wire event the extension events that it becomes, and how they are made. The bus
calls `forward` for every event of the session.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pigeon.extensions.adapters.hooks import ExtensionHooks
from pigeon.extensions.public import events as e
from pigeon.extensions.runtime.dispatcher import Dispatcher
from pigeon.wire import events as w
from pigeon.wire.base import Absent, value_or_default

_DELTAS = (w.TextDelta, w.ThinkingDelta, w.ToolcallDelta)


class EventForwarding:
    """Forwards the session's events to extensions; it remembers only what the wire events leave out."""

    def __init__(self, dispatcher: Dispatcher, hooks: ExtensionHooks) -> None:
        self._dispatcher = dispatcher
        self._hooks = hooks
        self.turn = -1
        self.level: str | None = None
        self.level_before: str | None = None

    def forward(self, event: w.Outbound) -> None:
        """Queue an event of the session for the extensions that listen to it."""
        self._track_turn_and_level(event)
        forwarded = _FORWARDED.get(type(event))
        if forwarded is None or not any(self._dispatcher.has_listeners(kind) for kind in forwarded[0]):
            return
        if isinstance(event, w.MessageEnd) and self._hooks.has_seen_message(event.message):
            return  # its handlers were called before it was recorded
        self._dispatcher.post_event(forwarded[1](event, self))

    def _track_turn_and_level(self, event: w.Outbound) -> None:
        if isinstance(event, w.AgentStart):
            self.turn = -1
        elif isinstance(event, w.TurnStart):
            self.turn += 1
        elif isinstance(event, w.ThinkingLevelChanged):
            self.level_before, self.level = self.level, event.level


def _to_update_event(event: w.MessageUpdate, state: EventForwarding) -> e.Event:
    stream = event.assistant_message_event
    kind = str(stream.__struct_config__.tag)
    return e.MessageUpdate(kind, stream.content_index, stream.delta if isinstance(stream, _DELTAS) else "")


def _to_compaction_event(event: w.CompactionEnd, state: EventForwarding) -> e.Event:
    if isinstance(event.result, Absent):
        return e.SessionCompactFailed(event.reason, event.aborted, value_or_default(event.error_message, "") or None)
    done = event.result
    return e.SessionCompact(event.reason, done.summary, done.first_kept_entry_id, done.tokens_before, event.will_retry)


_copy = copy.deepcopy
_Make = Callable[[Any, EventForwarding], e.Event]
_FORWARDED: dict[type[Any], tuple[tuple[type[e.Event], ...], _Make]] = {
    w.AgentStart: ((e.AgentStart,), lambda event, state: e.AgentStart()),
    w.AgentEnd: ((e.AgentEnd,), lambda event, state: e.AgentEnd(_copy(event.messages), event.will_retry is True)),
    w.AgentSettled: ((e.AgentSettled,), lambda event, state: e.AgentSettled()),
    w.TurnStart: ((e.TurnStart,), lambda event, state: e.TurnStart(state.turn)),
    w.TurnEnd: (
        (e.TurnEnd,),
        lambda event, state: e.TurnEnd(state.turn, _copy(event.message), _copy(event.tool_results)),
    ),
    w.MessageStart: ((e.MessageStart,), lambda event, state: e.MessageStart(_copy(event.message))),
    w.MessageUpdate: ((e.MessageUpdate,), _to_update_event),
    w.MessageEnd: ((e.MessageEnd,), lambda event, state: e.MessageEnd(_copy(event.message))),
    w.ToolCallStarted: (
        (e.ToolExecutionStart,),
        lambda event, state: e.ToolExecutionStart(event.tool_name, event.tool_call_id, _copy(event.args)),
    ),
    w.ToolExecutionUpdate: (
        (e.ToolExecutionUpdate,),
        lambda event, state: e.ToolExecutionUpdate(event.tool_name, event.tool_call_id, _copy(event.partial_result)),
    ),
    w.ToolExecutionEnd: (
        (e.ToolExecutionEnd,),
        lambda event, state: e.ToolExecutionEnd(
            event.tool_name, event.tool_call_id, _copy(event.result), event.is_error
        ),
    ),
    w.SessionInfoChanged: (
        (e.SessionInfoChanged,),
        lambda event, state: e.SessionInfoChanged(value_or_default(event.name, "") or None),
    ),
    w.ThinkingLevelChanged: (
        (e.ThinkingLevelSelect,),
        lambda event, state: e.ThinkingLevelSelect(event.level, state.level_before),
    ),
    w.CompactionEnd: ((e.SessionCompact, e.SessionCompactFailed), _to_compaction_event),
}
