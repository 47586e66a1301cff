"""The finish gate: when the model stops, it is asked once for each message of the user to verify its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pigeon.agent.interfaces import Spoken
from pigeon.session.context.transcript import Transcript
from pigeon.session.policies.policy import CompletedTurn, RunPolicy
from pigeon.wire.messages import CustomMessage

CUSTOM_TYPE = "finish-gate"
VERIFY = (
    "<reminder>\nBefore this ends: is all of the request done, and is what you say about it true? Check it now with "
    "the tools that you have, such as tests, a build, or a look at the files, and repair what is wrong. Then give your "
    "final answer again, whole: it is the one that counts. What could not be done or checked, say so in it.\n"
    "</reminder>"
)


class FinishGate(RunPolicy):
    """Asks the model to verify its work when it stops, once for each message of the user; `can_go_on` returns whether
    there is room for another answer."""

    def __init__(
        self, enabled: bool, transcript: Transcript, now: Callable[[], int], can_go_on: Callable[[], bool]
    ) -> None:
        self._enabled = enabled
        self._transcript = transcript
        self._now = now
        self._can_go_on = can_go_on
        self._asked_after: str | None = ""

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken]:
        """The request to verify; nothing if it was made already, or if the answer is not the last one."""
        if not self._enabled or not turn.ends or not self._can_go_on():
            return ()
        if not (turn.has_output or turn.has_stopped_by_itself):
            return ()
        after = self._transcript.find_last_user_entry()
        if after == self._asked_after:
            return ()
        self._asked_after = after
        return (CustomMessage(custom_type=CUSTOM_TYPE, content=VERIFY, display=False, timestamp=self._now()),)
