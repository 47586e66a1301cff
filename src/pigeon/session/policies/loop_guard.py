"""The loop guard: notices that the model makes the same tool calls again and again, warns it, and then ends the run.

Calls are the same if their names and arguments are, in any order and with any white space. A loop is one call that
repeats, or a cycle of up to `LONGEST_CYCLE` calls. If the results are the same too, the limits below apply; a tool that
is called until its result changes, such as for a build in progress, gets `PATIENCE` times as many.

    repeats of the cycle    what happens
    fewer than `warn`       nothing
    `warn`                  the model is warned, once for each loop
    `stop`                  the run ends, if the model was warned before its last answer

The figures are generous, because a stopped run is worse than a few wasted calls: models that repeat a call on purpose,
such as a test run after an edit, make other calls in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pigeon.session.context.transcript import Transcript
from pigeon.session.policies.policy import CompletedTurn, RunPolicy
from pigeon.session.settings import LoopGuardPolicy
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.content import ToolCall
from pigeon.wire.messages import AssistantMessage, ToolResultMessage
from pigeon.wire.steering import LimitReached

LONGEST_CYCLE = 8
PATIENCE = 10
IN_VAIN = """<notice>
You have made the same tool calls {repeats} times in a row, and their results were the same each time. Making them again
will not change anything. Try another way, or say what keeps you from going on. If you go on like this, you are stopped.
</notice>"""
VERY_OFTEN = """<notice>
You have made the same tool calls {repeats} times in a row. If you wait for something, wait longer in each call. If not,
try another way, or say what keeps you from going on. If you go on like this, you are stopped.
</notice>"""


class CycleCount:
    """How often the last values, one or a cycle of several, came in a row; constant work for each."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=LONGEST_CYCLE)
        self._same = [0] * (LONGEST_CYCLE + 1)

    def add(self, thing: int) -> None:
        for length in range(1, LONGEST_CYCLE + 1):
            is_same = length <= len(self._last) and self._last[-length] == thing
            self._same[length] = self._same[length] + 1 if is_same else 0
        self._last.append(thing)

    def count_repeats(self) -> int:
        """The number of repeats of the most frequent cycle; 1 if nothing repeats."""
        rounds = (1 + same // length for length, same in enumerate(self._same) if length)
        return max(rounds) if self._last else 0


class LoopGuard(RunPolicy):
    """Watches the calls since the user's last message; `stop_run` is called with the reason."""

    def __init__(
        self, policy: LoopGuardPolicy, transcript: Transcript, stop_run: Callable[[LimitReached], None]
    ) -> None:
        self._warn = policy.warn
        self._stop = max(policy.stop, policy.warn + 1)
        self._transcript = transcript
        self._stop_run = stop_run
        self._since: str | None = None
        self._reset_counts(None)

    def collect_notices(self, turn: CompletedTurn) -> Sequence[str]:
        warning = self.add_calls(turn.answer, turn.results, self._transcript.find_last_user_entry())
        if warning is not None:
            return (warning,)
        reached = self.find_reached_limit()
        if reached is not None:
            self._stop_run(reached)
        return ()

    def _reset_counts(self, since: str | None) -> None:
        self._since = since
        self._calls = CycleCount()
        self._ends = CycleCount()
        self._told = False

    def add_calls(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], since: str | None
    ) -> str | None:
        """Count the calls of one answer; returns a warning for the model. `since` identifies the user's last
        message."""
        if self._warn <= 0:
            return None
        if since != self._since:
            self._reset_counts(since)
        by_id = {result.tool_call_id: result for result in results}
        told_before = self._told
        for block in answer.content:
            if isinstance(block, ToolCall) and block.id in by_id:
                result = by_id[block.id]
                call = hash((block.name, _to_canonical(block.arguments)))
                self._calls.add(call)
                self._ends.add(hash((call, result.is_error, codec.encode(result.content))))
        in_vain, repeats = self._ends.count_repeats(), self._calls.count_repeats()
        self._told = in_vain >= self._warn or repeats >= self._warn * PATIENCE
        if not self._told or told_before:
            return None
        return IN_VAIN.format(repeats=in_vain) if in_vain >= self._warn else VERY_OFTEN.format(repeats=repeats)

    def find_reached_limit(self) -> LimitReached | None:
        """The limit that is reached, if the model was warned and continues all the same."""
        counts = ((self._ends.count_repeats(), self._stop), (self._calls.count_repeats(), self._stop * PATIENCE))
        passed = next(((repeats, stop) for repeats, stop in counts if self._told and repeats >= stop), None)
        return passed and LimitReached(name="repeated_calls", allowed=passed[1], reached=passed[0])


def _to_canonical(value: Json) -> object:
    """A JSON value that compares equal regardless of key order and white space in texts."""
    if isinstance(value, dict):
        return tuple(sorted((key, _to_canonical(item)) for key, item in value.items()))
    if isinstance(value, list):
        return tuple(_to_canonical(item) for item in value)
    return " ".join(value.split()) if isinstance(value, str) else (repr(value),)
