"""The run of a session as its client sees it: whether the session is working, what the run has used, how it ended."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pigeon.frontends.acp.editions.edition import Edition, PromptEnd, StopWord, TokenSum, Update
from pigeon.frontends.acp.rpc_errors import INTERNAL_ERROR, RpcError
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.events import AgentSettled
from pigeon.wire.messages import AssistantMessage


class RunProgress:
    """Follows one run after another. `is_busy` is what the client was last sent, `in_run` whether a run is active."""

    def __init__(self, edition: Edition, send_all: Callable[[list[Update]], None]) -> None:
        self._edition = edition
        self._send_all = send_all
        self._last_answer: AssistantMessage | None = None
        self._explanation = ""
        self._spent = TokenSum()
        self.is_busy = False
        self.in_run = False

    def on_run_start(self) -> None:
        self.in_run = True
        self.send_busy()

    def record_answer(self, message: AssistantMessage, explanation: str = "") -> None:
        """Add what an answer has used, and remember it: the last one says how the run ended."""
        self._last_answer, self._explanation = message, explanation
        self._spent = self._spent.plus(message.usage)

    def finish_run(self, event: AgentSettled) -> PromptEnd:
        """End the run; returns how it ended, with everything it has used. `send_idle` reports it to the client."""
        self.in_run = False
        end = replace(self._prompt_end_of(event), usage=self._spent)
        self._last_answer, self._explanation, self._spent = None, "", TokenSum()
        return end

    def send_busy(self) -> None:
        """Report that the session is working, unless the client knows."""
        if not self.is_busy:
            self.is_busy = True
            self.send_state_if_busy()

    def send_idle(self, end: PromptEnd) -> None:
        """Report that the session is idle, and why."""
        self.is_busy = False
        self._send_all(self._edition.idle_updates(end))

    def send_state_if_busy(self) -> None:
        """Report a running session to a client that has just opened it."""
        if self.is_busy:
            self._send_all(self._edition.state_updates("running"))

    def _prompt_end_of(self, event: AgentSettled) -> PromptEnd:
        last = self._last_answer
        if event.reason == "aborted" or event.aborted:
            return PromptEnd("cancelled")
        if event.reason == "error":
            said = value_or_default(last.error_message, "") if last else ""
            text = value_or_default(event.error_message, "") or self._explanation or said
            return PromptEnd("end_turn", RpcError(INTERNAL_ERROR, text or "The run failed"))
        if event.reason == "limit":
            tokens = not isinstance(event.limit, Absent) and event.limit.name == "tokens"
            return PromptEnd("max_tokens" if tokens else "max_turn_requests")
        stop: StopWord = "max_tokens" if last is not None and last.stop_reason == "length" else "end_turn"
        if last is not None and last.raw_stop_reason == "refusal":
            stop = "refusal"
        return PromptEnd(stop)
