"""Another try after a transient failure: when, how long to wait, and what is told about it.

The failed answer stays in the history and leaves the context, by an entry, so that it stays away after a restart too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from pigeon.agent.inference import Failure
from pigeon.agent.interfaces import Publish
from pigeon.agent.scope import Scope
from pigeon.session.history.journal import Journal
from pigeon.wire.entries import ContextEdit
from pigeon.wire.errors import Aborted
from pigeon.wire.events import AutoRetryEnd, AutoRetryStart, EntryAppended, Outbound

CANCELLED = "Retry cancelled"
JITTER = 0.2


class RetryPolicy(Struct):
    """How often and how patiently."""

    max_retries: int = 3
    base_delay_ms: int = 2000
    max_delay_ms: int = 60000

    def wanted_ms(self, tried: int, failure: Failure) -> int:
        """How long to wait after so many attempts: what the server asks for, else twice as long each time."""
        if failure.retry_after_ms is not None and failure.retry_after_ms > 0:
            return failure.retry_after_ms
        return min(self.base_delay_ms << tried, self.max_delay_ms)

    def pause_ms(self, tried: int, failure: Failure) -> int:
        """The same, a little off, so that many agents do not come back at the same moment; never sooner than asked."""
        from random import uniform

        wanted = self.wanted_ms(tried, failure)
        sooner = 0.0 if failure.retry_after_ms is not None and failure.retry_after_ms > 0 else JITTER
        return min(round(wanted * uniform(1 - sooner, 1 + JITTER)), max(wanted, self.max_delay_ms))


class Retry:
    """Counts attempts between two good answers."""

    def __init__(self, journal: Callable[[], Journal], publish: Publish, post: Callable[[Outbound], None]) -> None:
        self._journal = journal
        self._publish = publish
        self._post = post
        self._attempt = 0
        self._waiting: Scope | None = None
        self.enabled = True
        self.policy = RetryPolicy()

    def wanted(self, failure: Failure | None) -> bool:
        """True if this failure should be tried again."""
        if not self.enabled or failure is None or not failure.retryable or failure.overflow:
            return False
        wanted = self.policy.wanted_ms(self._attempt, failure)
        return self._attempt < self.policy.max_retries and wanted <= self.policy.max_delay_ms

    async def pause(self, failure: Failure, scope: Scope) -> bool:
        """Announce the attempt, take the failed answer out of the context, wait; false if that was cancelled."""
        delay = self.policy.pause_ms(self._attempt, failure)
        self._attempt += 1
        self._waiting = scope.child()
        try:
            await self._publish(
                AutoRetryStart(
                    attempt=self._attempt,
                    max_attempts=self.policy.max_retries,
                    delay_ms=delay,
                    error_message=failure.message,
                )
            )
            await self.leave_out()
            await self._waiting.wait(asyncio.sleep(delay / 1000))
        except Aborted:
            await self.gave_up(CANCELLED)
            return False
        finally:
            self._waiting.close()
            self._waiting = None
        return True

    async def succeeded(self) -> None:
        """A good answer came."""
        if self._attempt:
            attempt, self._attempt = self._attempt, 0
            await self._publish(AutoRetryEnd(success=True, attempt=attempt))

    async def gave_up(self, error: str) -> None:
        """The last try failed as well, or in a way that is not tried again."""
        if self._attempt:
            await self._publish(self._ended(error))

    def cancel(self) -> None:
        """Stop waiting, and say so before this returns; nothing happens if nothing waits."""
        if self._waiting is not None and not self._waiting.cancelled:
            self._post(self._ended(CANCELLED))
            self._waiting.cancel()

    def _ended(self, error: str) -> AutoRetryEnd:
        attempt, self._attempt = self._attempt, 0
        return AutoRetryEnd(success=False, attempt=attempt, final_error=error)

    async def leave_out(self) -> None:
        """Take the last answer out of the context, on record."""
        journal = self._journal()
        failed = next((line for line in reversed(journal.branch) if line.role == "assistant"), None)
        if failed is not None:
            entry = journal.append(ContextEdit, target_id=failed.id, replacement=None)
            await self._publish(EntryAppended(entry=entry))
