"""The state machine of a session: what is going on now, in one place that `get_state`, `abort` and prompts read.

idle -> running -> idle          a run, from acceptance of a prompt to settlement
        running <-> retrying     waiting before another attempt
        running <-> compacting   automatic compaction inside a run
idle -> compacting -> idle       compaction that was asked for
any  -> closing                  the process ends
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from pigeon.agent.scope import Scope
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire.errors import Aborted, Refusal, SessionBusy

ActivityState = Literal["idle", "running", "retrying", "compacting", "closing"]
ActivityOwner = Literal["run", "compaction"]
COMPACTING_TEXT = "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."


class CompactionClaim:
    """A compaction (or a navigation) that comes next, as soon as what is going on has ended."""

    def __init__(self) -> None:
        self._cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """True if it was stopped before it could begin."""
        return self._cancelled

    def cancel(self) -> None:
        """Give the claim up before its compaction begins."""
        self._cancelled = True


class Activity:
    """The state machine that `get_state`, `agent_settled` and `abort` read."""

    def __init__(self, life_id: str | None = None) -> None:
        """`life_id` is what the ids of its runs begin with."""
        self._state: ActivityState = "idle"
        self._owner: ActivityOwner | None = None
        self._scope: Scope | None = None
        self._life_id = life_id or RANDOM_IDS.request_id()
        self._runs = 0
        self._ended: asyncio.Future[None] | None = None
        self._claim: CompactionClaim | None = None
        self._after_run: list[Callable[[], object]] = []
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def state(self) -> ActivityState:
        return self._state

    @property
    def is_running(self) -> bool:
        """True from the acceptance of a prompt until just before it has settled."""
        return self._owner == "run"

    @property
    def run_id(self) -> str:
        """The id of the run that is active, else of the last one; it lasts from the prompt to `agent_settled`."""
        return f"{self._life_id}-{self._runs}"

    @property
    def scope(self) -> Scope | None:
        """What `abort` cancels; none while nothing is going on."""
        return self._scope

    @property
    def is_compacting(self) -> bool:
        """True while a summary is being made."""
        return self._state == "compacting"

    def begin_run(self) -> Scope:
        """Reserve the run, at once; raises `SessionBusy` or says what else is in the way."""
        if self._owner == "compaction" or self._claim is not None:
            raise Refusal(COMPACTING_TEXT)
        if self._owner is not None:
            raise SessionBusy
        scope = self._begin_activity("run", "running")
        self._runs += 1
        return scope

    def claim_compaction(self) -> CompactionClaim:
        """Stop what is going on and be next: from here on no prompt is accepted. `begin_compaction` takes it up."""
        if self._claim is not None or self._owner == "compaction":
            raise Refusal("A compaction is already in progress")
        self.cancel()
        self._claim = CompactionClaim()
        return self._claim

    def begin_compaction(self, claim: CompactionClaim) -> Scope:
        """Take up a claim once everything before it has ended; raises `Aborted` if it was cancelled in between."""
        if self._claim is claim:
            self._claim = None
        if claim.is_cancelled:
            raise Aborted
        return self._begin_activity("compaction", "compacting")

    def _begin_activity(self, owner: ActivityOwner, state: ActivityState) -> Scope:
        if self._state == "closing":
            raise Refusal("The session is closing")
        self._owner = owner
        self._state = state
        self._scope = Scope()
        self._ended = asyncio.get_running_loop().create_future()
        self._idle.clear()
        return self._scope

    @contextmanager
    def pausing_run(self, state: Literal["retrying", "compacting"]) -> Iterator[None]:
        """Be in another state for as long as the run does not go on."""
        self._set_state(state)
        try:
            yield
        finally:
            self._set_state("running")

    def _set_state(self, state: ActivityState) -> None:
        if self._state != "closing":
            self._state = state

    def defer_to_run_end(self, action: Callable[[], object]) -> None:
        """Do this at once, or right before the active run ends: an entry must not come between a tool call and its
        result."""
        if self.is_running:
            self._after_run.append(action)
        else:
            action()

    def end(self) -> None:
        """What was begun is over; what was kept for the end of the run is done first."""
        try:
            while self._after_run:
                self._after_run.pop(0)()
        finally:
            if self._state != "closing":
                self._state = "idle"
            self._owner = None
            self._scope = None
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)
            self._idle.set()

    def cancel(self) -> None:
        """Stop what is going on, and what is next; it ends by itself soon after."""
        if self._claim is not None:
            self._claim.cancel()
        if self._scope is not None:
            self._scope.cancel()

    def wait_for_end(self) -> Awaitable[None] | None:
        """The end of what is going on now, and of nothing that begins later; none while nothing is."""
        return None if self._owner is None or self._ended is None else asyncio.shield(self._ended)

    @property
    def is_busy(self) -> bool:
        """True while something is going on, or is next."""
        return self._owner is not None or self._claim is not None

    def close(self) -> None:
        """Refuse to begin anything from here on."""
        self._state = "closing"
        self.cancel()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is going on."""
        await self._idle.wait()
