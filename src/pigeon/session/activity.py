"""What is going on: one explicit state, and nothing else that could disagree with it.

idle -> running -> idle          a run, from acceptance of a prompt to settlement
        running <-> retrying     waiting before another attempt
        running <-> compacting   automatic compaction inside a run
idle -> compacting -> idle       compaction that was asked for
any  -> closing                  the process ends
"""

from __future__ import annotations

import asyncio
from typing import Literal

from pigeon.agent.scope import Scope
from pigeon.wire.errors import Refusal, SessionBusy

State = Literal["idle", "running", "retrying", "compacting", "closing"]
Owner = Literal["run", "compaction"]
COMPACTING_TEXT = "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."


class Activity:
    """The state machine that `get_state`, `agent_settled` and `abort` read."""

    def __init__(self) -> None:
        self._state: State = "idle"
        self._owner: Owner | None = None
        self._scope: Scope | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def state(self) -> State:
        """Where the machine is."""
        return self._state

    @property
    def in_run(self) -> bool:
        """True from the acceptance of a prompt until just before it has settled."""
        return self._owner == "run"

    @property
    def compacting(self) -> bool:
        """True while a summary is being made."""
        return self._state == "compacting"

    def begin_run(self) -> Scope:
        """Reserve the run, at once; raises `SessionBusy` or says what else is in the way."""
        if self._owner == "compaction":
            raise Refusal(COMPACTING_TEXT)
        if self._owner is not None:
            raise SessionBusy
        return self._begin("run", "running")

    def begin_compaction(self) -> Scope:
        """Reserve a compaction that was asked for."""
        if self._owner is not None:
            raise SessionBusy
        return self._begin("compaction", "compacting")

    def _begin(self, owner: Owner, state: State) -> Scope:
        if self._state == "closing":
            raise Refusal("The session is closing")
        self._owner = owner
        self._state = state
        self._scope = Scope()
        self._idle.clear()
        return self._scope

    def enter(self, state: Literal["running", "retrying", "compacting"]) -> None:
        """Move inside a run."""
        if self._state != "closing":
            self._state = state

    def end(self) -> None:
        """What was begun is over."""
        if self._state != "closing":
            self._state = "idle"
        self._owner = None
        self._scope = None
        self._idle.set()

    def cancel(self) -> None:
        """Stop what is going on; it ends by itself soon after."""
        if self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """Nothing new may begin."""
        self._state = "closing"
        self.cancel()

    async def until_idle(self) -> None:
        """Wait until nothing is going on."""
        await self._idle.wait()
