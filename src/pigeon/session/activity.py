"""The state machine of a session: the current activity, in one place that `get_state`, `abort` and prompts read.

idle -> running -> idle          a run, from acceptance of a prompt to settlement
        running <-> retrying     waiting before another attempt
        running <-> compacting   automatic compaction inside a run
idle -> compacting -> idle       requested compaction
any  -> closing                  the process ends

A prompt that comes while a run has something left to do, although its host has seen an end, waits for the next place
(`NextRun`): the run that follows takes over without a moment in which the session is idle.
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
    """A compaction (or a navigation) that comes next, as soon as the current work has ended."""

    def __init__(self) -> None:
        self._cancelled = False

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True


class NextRun:
    """A run that begins when the current one has ended; an abort in between reaches it, too. `run_id` is its id, and
    `wait_for_turn` returns when it has begun."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.scope = Scope()
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait_for_turn(self) -> None:
        """Raises `Aborted` if the session was closed instead."""
        await self._turn

    @property
    def has_begun(self) -> bool:
        return self._turn.done() and self._turn.exception() is None

    def begin(self) -> None:
        self._turn.set_result(None)

    def refuse(self) -> None:
        self._turn.set_exception(Aborted())


class Activity:
    def __init__(self, life_id: str | None = None) -> None:
        """`life_id` is the prefix of the ids of its runs."""
        self._state: ActivityState = "idle"
        self._owner: ActivityOwner | None = None
        self._scope: Scope | None = None
        self._life_id = life_id or RANDOM_IDS.request_id()
        self._runs = 0
        self._continued_id: str | None = None
        self._ended: asyncio.Future[None] | None = None
        self._claim: CompactionClaim | None = None
        self._next_run: NextRun | None = None
        self._allows_next_run = False
        self._after_run: list[Callable[[], object]] = []
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def state(self) -> ActivityState:
        return self._state

    @property
    def is_running(self) -> bool:
        return self._owner == "run"

    @property
    def run_id(self) -> str:
        """The id of the run that is active, else of the last one; it lasts from the prompt to `agent_settled`."""
        return self._continued_id or f"{self._life_id}-{self._runs}"

    @property
    def scope(self) -> Scope | None:
        """What `abort` cancels; None while the session is idle."""
        return self._scope

    @property
    def is_compacting(self) -> bool:
        return self._state == "compacting"

    def begin_run(self, continued_id: str | None = None) -> Scope:
        """Reserve the run at once, a new one or, with its id, one of an earlier process; raises `SessionBusy`, or
        another `Refusal` with the obstacle."""
        if self._owner == "compaction" or self._claim is not None:
            raise Refusal(COMPACTING_TEXT)
        if self._owner is not None:
            raise SessionBusy
        scope = self._begin_run(Scope())
        self._continued_id = continued_id
        return scope

    def _begin_run(self, scope: Scope) -> Scope:
        self._begin_activity("run", "running", scope)
        self._runs += 1
        self._continued_id = None
        self._allows_next_run = False
        return scope

    def allow_next_run(self) -> None:
        """From here on a host may take the session for idle: one prompt is accepted, and waits for the true end."""
        self._allows_next_run = True

    @property
    def can_reserve_next_run(self) -> bool:
        """True if a host may take the session for idle, and no other prompt and no compaction comes next."""
        return self.is_running and self._allows_next_run and self._next_run is None and self._claim is None

    def reserve_next_run(self) -> NextRun:
        """Reserve the run after this one; `can_reserve_next_run` was True."""
        self._next_run = NextRun(f"{self._life_id}-{self._runs + 1}")
        return self._next_run

    def release_next_run(self, following: NextRun) -> None:
        """Give up a reserved run, which may have begun meanwhile."""
        if self._next_run is following:
            self._next_run = None
        elif following.has_begun:
            self.end()

    def claim_compaction(self, *, replaces: bool = False) -> CompactionClaim:
        """Stop the current work and come next: from here on no prompt is accepted. `begin_compaction` takes up the
        claim. With `replaces`, it stops another compaction or navigation, too."""
        if not replaces and (self._claim is not None or self._owner == "compaction"):
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
        return self._begin_activity("compaction", "compacting", Scope())

    def _begin_activity(self, owner: ActivityOwner, state: ActivityState, scope: Scope) -> Scope:
        if self._state == "closing":
            raise Refusal("The session is closing")
        self._owner = owner
        self._state = state
        self._scope = scope
        if self._ended is None or self._ended.done():
            self._ended = asyncio.get_running_loop().create_future()
        self._idle.clear()
        return scope

    @contextmanager
    def pausing_run(self, state: Literal["retrying", "compacting"]) -> Iterator[None]:
        """Switch to another state while the run pauses."""
        self._set_state(state)
        try:
            yield
        finally:
            self._set_state("running")

    def _set_state(self, state: ActivityState) -> None:
        if self._state != "closing":
            self._state = state

    def defer_to_run_end(self, action: Callable[[], object]) -> None:
        """Run the action now, or right before the active run ends: an entry must not come between a tool call and its
        result."""
        if self.is_running:
            self._after_run.append(action)
        else:
            action()

    def end(self) -> None:
        """End the current work, after the actions that were deferred to its end. A prompt that waits takes over."""
        try:
            while self._after_run:
                self._after_run.pop(0)()
        finally:
            following, self._next_run = self._next_run, None
            self._owner = None
            self._scope = None
            # Who has aborted both waits for the end of both.
            ends_both = following is not None and following.scope.cancelled and self._state != "closing"
            if self._ended is not None and not self._ended.done() and not ends_both:
                self._ended.set_result(None)
            if self._state != "closing":
                self._state = "idle"
            if following is None:
                self._idle.set()
            elif self._state == "closing":
                following.refuse()
                self._idle.set()
            else:
                self._begin_run(following.scope)
                following.begin()

    def cancel(self) -> None:
        """Stop the current work and what comes next, a compaction or a prompt; all of it ends soon after."""
        if self._claim is not None:
            self._claim.cancel()
        if self._scope is not None:
            self._scope.cancel()
        if self._next_run is not None:
            self._next_run.scope.cancel()

    def wait_for_end(self) -> Awaitable[None] | None:
        """Waits for the end of the current work, but of nothing that begins later; None if idle."""
        return None if self._owner is None or self._ended is None else asyncio.shield(self._ended)

    @property
    def is_busy(self) -> bool:
        """True while there is current work or a claim."""
        return self._owner is not None or self._claim is not None

    def close(self) -> None:
        """Refuse to begin anything from here on."""
        self._state = "closing"
        self.cancel()

    async def wait_until_idle(self) -> None:
        await self._idle.wait()
