"""Extensions before a change of conversation: the first that says no is heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pigeon.extensions.public.events import Event, SessionBeforeFork, SessionBeforeSwitch
from pigeon.extensions.public.results import Cancel
from pigeon.extensions.runtime.dispatcher import Answer, Team


class ExtensionVeto:
    """Asks the handlers of `session_before_switch` and `session_before_fork`."""

    def __init__(self, team: Team) -> None:
        self._team = team

    async def switch(self, reason: Literal["new", "resume"], target: str | None) -> bool:
        """True to refuse."""
        return await self._refused(SessionBeforeSwitch, lambda: SessionBeforeSwitch(reason, target))

    async def fork(self, entry_id: str, position: Literal["before", "at"]) -> bool:
        """True to refuse."""
        return await self._refused(SessionBeforeFork, lambda: SessionBeforeFork(entry_id, position))

    async def _refused(self, kind: type[Event], make: Callable[[], Event]) -> bool:
        refused: list[bool] = []

        def take(answer: Answer) -> bool:
            if isinstance(answer.value, Cancel):
                refused.append(True)
            return bool(refused)

        await self._team.ask(kind, make, take, (Cancel,))
        return bool(refused)
