"""Repeats a request after a transient failure: when, how long to wait before it, and the events about it.

The failed answer stays in the history but leaves the context by an entry, so that it stays out after a restart.
"""

from __future__ import annotations

from pigeon.agent.inference import Failure
from pigeon.agent.scope import Scope
from pigeon.session.bus import Bus
from pigeon.session.context.transcript import Transcript
from pigeon.session.settings import RetryPolicy
from pigeon.wire.base import ABSENT
from pigeon.wire.entries import ContextEdit
from pigeon.wire.errors import Aborted
from pigeon.wire.events import AutoRetryEnd, AutoRetryStart, EntryAppended

CANCELLED = "Retry cancelled"


class Retry:
    """Counts attempts between two good answers."""

    def __init__(self, transcript: Transcript, bus: Bus, policy: RetryPolicy, enabled: bool) -> None:
        self._transcript = transcript
        self._bus = bus
        self._policy = policy
        self._enabled = enabled
        self._attempt = 0
        self._waiting: Scope | None = None

    def set_enabled(self, enabled: bool) -> None:
        """Takes effect at the next failure."""
        self._enabled = enabled

    def should_retry(self, failure: Failure | None) -> bool:
        if not self._enabled or failure is None or not failure.retryable or failure.overflow:
            return False
        wanted = self._policy.wanted_delay_ms(self._attempt, failure)
        return self._attempt < self._policy.max_retries and wanted <= self._policy.max_delay_ms

    async def pause_before_retry(self, failure: Failure, scope: Scope) -> bool:
        """Announce the retry, remove the failed answer from the context, and wait; returns False if cancelled."""
        delay = self._policy.jittered_delay_ms(self._attempt, failure)
        self._attempt += 1
        self._waiting = scope.make_child()
        try:
            await self._bus.publish(
                AutoRetryStart(
                    attempt=self._attempt,
                    max_attempts=self._policy.max_retries,
                    delay_ms=delay,
                    error_message=failure.message,
                    explanation=failure.explanation or ABSENT,
                )
            )
            await self.hide_last_answer()
            await self._waiting.wait(self._policy.sleep(delay))
        except Aborted:
            await self.on_give_up(CANCELLED)
            return False
        finally:
            self._waiting.close()
            self._waiting = None
        return True

    async def on_success(self) -> None:
        """Announce the end of the retries after a good answer."""
        if self._attempt:
            attempt, self._attempt = self._attempt, 0
            await self._bus.publish(AutoRetryEnd(success=True, attempt=attempt))

    async def on_give_up(self, error: str) -> None:
        """Announce that the last attempt failed too, or in a way that is not retried."""
        if self._attempt:
            await self._bus.publish(self._make_end_event(error))

    def cancel(self) -> None:
        """Stop waiting, and announce that before this returns; does nothing if nothing waits."""
        # The event comes before the answer of `abort_retry`, so it is posted here and not where the waiting ends.
        if self._waiting is not None and not self._waiting.cancelled:
            self._bus.post(self._make_end_event(CANCELLED))
            self._waiting.cancel()

    def _make_end_event(self, error: str) -> AutoRetryEnd:
        attempt, self._attempt = self._attempt, 0
        return AutoRetryEnd(success=False, attempt=attempt, final_error=error)

    async def hide_last_answer(self) -> None:
        """Remove the last answer from the context by an entry."""
        journal = self._transcript.journal
        failed = next((line for line in reversed(journal.branch) if line.role == "assistant"), None)
        if failed is not None:
            entry = journal.append(ContextEdit, target_id=failed.id, replacement=None)
            await self._bus.publish(EntryAppended(entry=entry))
