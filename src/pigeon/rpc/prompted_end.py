"""The end of a run as a client understands it that has sent its next prompt already.

Many clients send the next prompt at an `agent_end` after which another attempt, a compaction or a continuation follows,
or while a run is going on that no client has asked for. Such a prompt is accepted and has the next run
(`session/prompting.py`). A client without ids of runs takes the first end that comes then for the end of this prompt.
So until its run has begun, the ends of the previous one are left out, as is the beginning of this one: the messages of
both come with one `agent_end`.
"""

from __future__ import annotations

from msgspec.structs import replace

from pigeon.wire.events import AgentEnd, AgentRestarted, AgentSettled, AgentStart, Outbound
from pigeon.wire.messages import Message


class PromptedEnd:
    """Follows the runs of a session and the accepted prompts of one client."""

    def __init__(self) -> None:
        self._is_in_run = False
        self._lacks_end = False
        self._has_waiting_prompt = False
        self._withheld: list[Message] = []

    def on_accepted(self) -> None:
        """A prompt of the client was accepted that starts a run; it waits while another run has not settled."""
        self._has_waiting_prompt = self._is_in_run

    def to_shown_event(self, event: Outbound) -> Outbound | None:
        """What the client is shown of an event: usually all of it, None if it is left out."""
        if isinstance(event, AgentStart):
            self._is_in_run = True
            shown, self._lacks_end = not self._lacks_end, False
            return event if shown else None
        if isinstance(event, AgentEnd):
            return self._to_shown_end(event)
        if isinstance(event, AgentSettled):
            waits, self._has_waiting_prompt, self._is_in_run = self._has_waiting_prompt, False, False
            return None if waits else event
        if isinstance(event, AgentRestarted):
            # The prompt waits in the queue of the restored session.
            self._has_waiting_prompt = False
        return event

    def _to_shown_end(self, event: AgentEnd) -> AgentEnd | None:
        messages = [*self._withheld, *event.messages]
        self._is_in_run = True
        self._lacks_end = self._has_waiting_prompt
        self._withheld = messages if self._lacks_end else []
        if self._lacks_end:
            return None
        return event if len(messages) == len(event.messages) else replace(event, messages=messages)
