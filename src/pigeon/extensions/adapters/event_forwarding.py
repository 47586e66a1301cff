"""From the session's bus to the extensions that listen: at once, without waiting, at no cost where nobody does.

The session's events as extensions hear of them: pure, but for the numbers of turns and the level before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pigeon.extensions.adapters.hooks import ExtensionHooks
from pigeon.extensions.public import events as e
from pigeon.extensions.public.events import MessageEnd
from pigeon.extensions.runtime.dispatcher import Dispatcher
from pigeon.wire import events as w
from pigeon.wire.base import Absent, or_else

_DELTAS = (w.TextDelta, w.ThinkingDelta, w.ToolcallDelta)


class Observed:
    """Makes an extension's event of a wire event; none for those that extensions do not hear of."""

    def __init__(self) -> None:
        self._turn = -1
        self._level: str | None = None
        self._makers: dict[type[Any], Callable[[Any], e.Event | None]] = {
            w.AgentStart: self._agent_start,
            w.AgentEnd: lambda event: e.AgentEnd(_copy(event.messages), event.will_retry is True),
            w.AgentSettled: lambda event: e.AgentSettled(),
            w.TurnStart: self._turn_start,
            w.TurnEnd: lambda event: e.TurnEnd(self._turn, _copy(event.message), _copy(event.tool_results)),
            w.MessageStart: lambda event: e.MessageStart(_copy(event.message)),
            w.MessageUpdate: _update,
            w.MessageEnd: lambda event: e.MessageEnd(_copy(event.message)),
            w.ToolExecutionStart: lambda event: e.ToolExecutionStart(
                event.tool_name, event.tool_call_id, _copy(event.args)
            ),
            w.ToolExecutionUpdate: lambda event: e.ToolExecutionUpdate(
                event.tool_name, event.tool_call_id, _copy(event.partial_result)
            ),
            w.ToolExecutionEnd: lambda event: e.ToolExecutionEnd(
                event.tool_name, event.tool_call_id, _copy(event.result), event.is_error
            ),
            w.SessionInfoChanged: lambda event: e.SessionInfoChanged(or_else(event.name, "") or None),
            w.ThinkingLevelChanged: self._thinking,
            w.CompactionEnd: _compaction,
        }
        self._kinds: dict[type[Any], type[e.Event]] = {
            w.AgentStart: e.AgentStart,
            w.AgentEnd: e.AgentEnd,
            w.AgentSettled: e.AgentSettled,
            w.TurnStart: e.TurnStart,
            w.TurnEnd: e.TurnEnd,
            w.MessageStart: e.MessageStart,
            w.MessageUpdate: e.MessageUpdate,
            w.MessageEnd: e.MessageEnd,
            w.ToolExecutionStart: e.ToolExecutionStart,
            w.ToolExecutionUpdate: e.ToolExecutionUpdate,
            w.ToolExecutionEnd: e.ToolExecutionEnd,
        }

    def kind(self, event: w.Outbound) -> type[e.Event] | None:
        """What the event would become, if that can be told without making it; then nobody listening costs nothing."""
        return self._kinds.get(type(event))

    def of(self, event: w.Outbound) -> e.Event | None:
        """The event for extensions."""
        maker = self._makers.get(type(event))
        return None if maker is None else maker(event)

    def counts(self, event: w.Outbound) -> bool:
        """True for the few events that must be looked at even if nobody listens."""
        return isinstance(event, (w.AgentStart, w.TurnStart, w.ThinkingLevelChanged))

    def _agent_start(self, event: w.AgentStart) -> e.Event:
        self._turn = -1
        return e.AgentStart()

    def _turn_start(self, event: w.TurnStart) -> e.Event:
        self._turn += 1
        return e.TurnStart(self._turn)

    def _thinking(self, event: w.ThinkingLevelChanged) -> e.Event:
        before, self._level = self._level, event.level
        return e.ThinkingLevelSelect(event.level, before)


def _update(event: w.MessageUpdate) -> e.Event:
    stream = event.assistant_message_event
    kind = str(stream.__struct_config__.tag)
    return e.MessageUpdate(kind, stream.content_index, stream.delta if isinstance(stream, _DELTAS) else "")


def _compaction(event: w.CompactionEnd) -> e.Event:
    if isinstance(event.result, Absent):
        return e.SessionCompactFailed(event.reason, event.aborted, or_else(event.error_message, "") or None)
    result = event.result
    return e.SessionCompact(
        event.reason, result.summary, result.first_kept_entry_id, result.tokens_before, event.will_retry
    )


def _copy(value: Any) -> Any:
    return copy.deepcopy(value)


class Ears:
    """Passes events on."""

    def __init__(self, dispatcher: Dispatcher, hooks: ExtensionHooks) -> None:
        self._dispatcher = dispatcher
        self._hooks = hooks
        self._observed = Observed()

    def heard(self, event: w.Outbound) -> None:
        """Something happened."""
        kind = self._observed.kind(event)
        if kind is not None and not self._dispatcher.listens(kind):
            if self._observed.counts(event):
                self._observed.of(event)
            return
        if isinstance(event, w.MessageEnd) and any(event.message is one for one in self._hooks.ended):
            return  # its handlers were asked already, before it was put on record
        made = self._observed.of(event)
        if made is not None and (kind is MessageEnd or type(made).observed):
            self._dispatcher.tell(made)
