"""The prompts of a session that have not been answered. A prompt ends in exactly one way:

begun -> accepted -> settled            the stop reason says why, an error if the run failed
  |         |
  +---------+-> cancelled               whatever the run does meanwhile, the answer is `cancelled`
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from msgspec.structs import replace

from pigeon.frontends.acp.editions.edition import PromptEnd
from pigeon.frontends.acp.prompt_blocks import PromptGiven
from pigeon.frontends.acp.rpc_errors import INTERNAL_ERROR, RpcError
from pigeon.system import clock
from pigeon.system.ids import RANDOM_IDS

MOST_ENDS = 64


class PromptTurn:
    """A prompt that has not been answered.

    The future `taken` is done when its message is part of the conversation (`inserted`) or never will be, `ended` when
    the prompt is over.
    """

    def __init__(self, given: PromptGiven) -> None:
        self.given = given
        self.message_id = RANDOM_IDS.session_id(clock.now_ms())
        self.inserted = False
        self._cancelled = False
        self._run_id: str | None = None
        loop = asyncio.get_running_loop()
        self.taken: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[PromptEnd] = loop.create_future()

    @property
    def run_id(self) -> str | None:
        return self._run_id

    def join_run(self, run_id: str) -> None:
        self._run_id = run_id

    def is_cancelled(self) -> bool:
        """True if it ends as `cancelled`, whatever the run does."""
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True

    def mark_inserted(self) -> bool:
        """Note that its message is part of the conversation; returns False if it was known already."""
        if self.taken.done():
            return False
        self.inserted = True
        self.taken.set_result(None)
        return True

    def end(self, end: PromptEnd) -> None:
        if not self.ended.done():
            self.ended.set_result(replace(end, stop="cancelled", error=None) if self._cancelled else end)
        if not self.taken.done():
            self.taken.set_result(None)


class PromptTurns:
    """All unanswered prompts of one session, and how its last runs ended: a run may end before its prompt joins it."""

    def __init__(self) -> None:
        self._turns: dict[str, PromptTurn] = {}
        self._ends: OrderedDict[str, PromptEnd] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, given: PromptGiven) -> PromptTurn:
        turn = PromptTurn(given)
        self._turns[turn.message_id] = turn
        return turn

    def remove(self, turn: PromptTurn) -> None:
        self._turns.pop(turn.message_id, None)

    def find(self, message_id: str) -> PromptTurn | None:
        return self._turns.get(message_id)

    @property
    def has_joined(self) -> bool:
        return any(turn.run_id for turn in self._turns.values())

    @property
    def has_cancelled(self) -> bool:
        return any(turn.is_cancelled() for turn in self._turns.values())

    def cancel_all(self) -> None:
        for turn in self._turns.values():
            turn.cancel()

    def join_run(self, turn: PromptTurn, run_id: str) -> bool:
        """Make a prompt part of a run; returns False if the run has already ended, which ends the prompt too."""
        turn.join_run(run_id)
        if run_id not in self._ends:
            return True
        turn.end(self._ends[run_id])
        return False

    def record_run_end(self, run_id: str, end: PromptEnd) -> list[PromptTurn]:
        """Remember how a run ended; returns its prompts, which are not ended yet."""
        self._ends[run_id] = end
        while len(self._ends) > MOST_ENDS:
            self._ends.popitem(last=False)
        return [turn for turn in self._turns.values() if turn.run_id == run_id]

    def fail_all(self, error: Exception) -> None:
        for turn in self._turns.values():
            turn.end(PromptEnd("end_turn", RpcError(INTERNAL_ERROR, str(error) or type(error).__name__)))

    async def wait_until_ended(self) -> None:
        for turn in list(self._turns.values()):
            await asyncio.wait({turn.ended})
