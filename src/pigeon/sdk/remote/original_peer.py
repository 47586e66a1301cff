"""When a run of another agent of the family is over.

Pigeon, and pi from 0.87 on, send `agent_settled`. Older ones end a run with `agent_end`, and may then continue on their
own: they retry, compact, or process queued messages. oh-my-pi's newest send `session_settled`, or report in a
`prompt_result` that a prompt had no effect. So that programs see one end, `agent_settled` is created here if the agent
does not send it: after an `agent_end`, once the agent's state is idle and nothing was announced to follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pigeon.sdk.records import UnknownEvent
from pigeon.wire.answers import State
from pigeon.wire.errors import PigeonError
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    AutoCompactionEnd,
    AutoCompactionStart,
    AutoRetryEnd,
    AutoRetryStart,
    CompactionEnd,
    CompactionStart,
    EndReason,
    MessageEnd,
    Outbound,
    PromptResult,
    SessionSettled,
)
from pigeon.wire.messages import AssistantMessage

# How long to wait for `agent_settled` from an idle agent that may or may not send it.
GRACE_SECONDS = 0.3
# How often the state of a busy agent is requested again, and for how long.
ASK_SECONDS = 0.1
MOST_ASKED = 600
_BEGINS = (AgentStart, AutoRetryStart, AutoCompactionStart, CompactionStart)
_ENDS = (AgentEnd, AutoRetryEnd, AutoCompactionEnd, CompactionEnd)


class OriginalPeer:
    """Follows the events of an agent that is not Pigeon, and reports the end of each run once."""

    def __init__(self, state: Callable[[], Awaitable[State]], tell: Callable[[AgentSettled], None]) -> None:
        self._state = state
        self._tell = tell
        self._settles: bool | None = None
        self._open = False
        self._stopped_by = "stop"
        self._checking: asyncio.Task[None] | None = None

    def on_prompt_accepted(self) -> None:
        """Expect the end of an accepted prompt."""
        self._open = True
        self._stopped_by = "stop"

    def on_prompt_refused(self) -> None:
        """Handle the refusal of a prompt that was accepted before, as oh-my-pi sends it."""
        self._stopped_by = "error"
        self._report_settled()

    def filter_event(self, event: Outbound | UnknownEvent) -> bool:
        """Process an event before the program gets it; False for one that it must not see."""
        if isinstance(event, AgentSettled):
            self._settles = True
            self._stop_polling()
            opened, self._open = self._open, False
            return opened
        return True

    def on_event(self, event: Outbound | UnknownEvent) -> None:
        """Process an event after the program got it, and report an end that it implies."""
        if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._stopped_by = event.message.stop_reason
        elif isinstance(event, _BEGINS):
            self._open = True
            self._stop_polling()
        elif isinstance(event, SessionSettled):
            self._settles = True
            self._report_settled()
        elif isinstance(event, PromptResult) and event.status != "completed" and not event.agent_invoked:
            self._stopped_by = event.status
            self._report_settled()
        elif isinstance(event, _ENDS) and self._open and self._settles is not True:
            self._stop_polling()
            self._checking = asyncio.ensure_future(self._poll_until_idle())

    def close(self) -> None:
        """Stop asking whether a run is over."""
        self._stop_polling()

    async def _poll_until_idle(self) -> None:
        for _ in range(MOST_ASKED):
            try:
                state = await self._state()
            except (PigeonError, OSError):
                return
            if not state.is_streaming and not state.is_compacting and not state.pending_message_count:
                break
            await asyncio.sleep(ASK_SECONDS)
        if self._settles is None:
            await asyncio.sleep(GRACE_SECONDS)
            self._settles = False
        self._checking = None
        self._report_settled()

    def _stop_polling(self) -> None:
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()

    def _report_settled(self) -> None:
        self._stop_polling()
        if self._open:
            self._open = False
            aborted = self._stopped_by == "aborted"
            self._tell(AgentSettled(aborted=aborted, reason=_reason(self._stopped_by)))


def _reason(stopped_by: str) -> EndReason:
    return "aborted" if stopped_by == "aborted" else "error" if stopped_by == "error" else "done"
