"""Another try after a transient failure: when, how long to wait, and what is told about it.

The failed answer stays in the history and leaves the context, by an entry, so that it stays away after a restart too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from pigeon.agent.protocols import Publish
from pigeon.agent.scope import Scope
from pigeon.session.journal import Journal
from pigeon.wire.entries import ContextEdit
from pigeon.wire.errors import Aborted
from pigeon.wire.events import AutoRetryEnd, AutoRetryStart, EntryAppended
from pigeon.wire.inference import Failure

CANCELLED = "Retry cancelled"


class RetryPolicy(Struct):
    """How often and how patiently; the delay doubles with each attempt."""

    max_retries: int = 3
    base_delay_ms: int = 2000
    max_delay_ms: int = 60000


class Retry:
    """Counts attempts between two good answers."""

    def __init__(self, journal: Callable[[], Journal], publish: Publish) -> None:
        self._journal = journal
        self._publish = publish
        self._attempt = 0
        self._waiting: Scope | None = None
        self.enabled = True
        self.policy = RetryPolicy()

    def wanted(self, failure: Failure | None) -> bool:
        """True if this failure should be tried again."""
        if not self.enabled or failure is None or not failure.retryable or failure.overflow:
            return False
        return self._attempt < self.policy.max_retries and self._delay(failure) <= self.policy.max_delay_ms

    async def pause(self, failure: Failure, scope: Scope) -> bool:
        """Announce the attempt, take the failed answer out of the context, wait; false if that was cancelled."""
        delay = self._delay(failure)
        self._attempt += 1
        await self._publish(
            AutoRetryStart(
                attempt=self._attempt,
                max_attempts=self.policy.max_retries,
                delay_ms=delay,
                error_message=failure.message,
            )
        )
        await self.leave_out()
        self._waiting = scope.child()
        try:
            await self._waiting.wait(asyncio.sleep(delay / 1000))
        except Aborted:
            await self._end(CANCELLED)
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
            await self._end(error)

    def cancel(self) -> None:
        """Stop waiting; nothing happens if nothing waits."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def _end(self, error: str) -> None:
        attempt, self._attempt = self._attempt, 0
        await self._publish(AutoRetryEnd(success=False, attempt=attempt, final_error=error))

    async def leave_out(self) -> None:
        """Take the last answer out of the context, on record."""
        journal = self._journal()
        failed = next((line for line in reversed(journal.branch) if line.role == "assistant"), None)
        if failed is not None:
            entry = journal.append(ContextEdit, target_id=failed.id, replacement=None)
            await self._publish(EntryAppended(entry=entry))

    def _delay(self, failure: Failure) -> int:
        if failure.retry_after_ms is not None and failure.retry_after_ms > 0:
            return failure.retry_after_ms
        return min(self.policy.base_delay_ms << self._attempt, self.policy.max_delay_ms)
