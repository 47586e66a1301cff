"""The loop guard: notices that the model makes the same tool calls again and again, tells it, and then ends the run.

A call is the same if its name, its arguments (in whatever order) and its result are: a tool that is asked repeatedly
until its result changes is no loop. A loop is one call that repeats, or a cycle of two or three.

    repeats of the cycle    what happens
    fewer than `warn`       nothing
    `warn`                  the model is told, once for each loop
    `stop`                  the run ends, if the model was told before its last answer

The figures are generous, because a stopped run is worse than a few calls in vain: models that repeat a call on purpose,
such as a test run after an edit, get other results or make other calls in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pigeon.session.settings import LoopGuardPolicy
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.content import ToolCall
from pigeon.wire.messages import AssistantMessage, ToolResultMessage
from pigeon.wire.steering import LimitReached

LONGEST_CYCLE = 3
NOTICE = """<notice>
You have made the same tool calls {repeats} times in a row, and their results were the same each time. Making them again
will not change anything. Try another way, or say what keeps you from going on. If you go on like this, you are stopped.
</notice>"""


class LoopGuard:
    """Watches the calls since the user last said something."""

    def __init__(self, policy: LoopGuardPolicy) -> None:
        self._warn = policy.warn
        self._stop = max(policy.stop, policy.warn + 1)
        self._calls: deque[int] = deque(maxlen=LONGEST_CYCLE * (self._stop + 1))
        self._since: str | None = None
        self._told = False

    def notes(self, answer: AssistantMessage, results: Sequence[ToolResultMessage], since: str | None) -> str | None:
        """Take in the calls of one answer; what to tell the model of them. `since` names the user's last message."""
        if self._warn <= 0:
            return None
        if since != self._since:
            self._since = since
            self._calls.clear()
            self._told = False
        by_id = {result.tool_call_id: result for result in results}
        told_before = self._told
        for call in answer.content:
            if isinstance(call, ToolCall) and call.id in by_id:
                self._calls.append(_signature(call, by_id[call.id]))
        repeats = self._repeats()
        self._told = repeats >= self._warn
        return NOTICE.format(repeats=repeats) if self._told and not told_before else None

    def stops(self) -> LimitReached | None:
        """The limit that is reached, if the model was told and goes on all the same."""
        repeats = self._repeats()
        if not self._told or repeats < self._stop:
            return None
        return LimitReached(name="repeated_calls", allowed=self._stop, reached=repeats)

    def _repeats(self) -> int:
        """How often the last call, or the last two or three, were made in a row."""
        calls = list(self._calls)
        most = min(len(calls), 1)
        for length in range(1, LONGEST_CYCLE + 1):
            same = 0
            while same + length < len(calls) and calls[-1 - same] == calls[-1 - same - length]:
                same += 1
            most = max(most, (same + length) // length if same >= length or length == 1 else 1)
        return most


def _signature(call: ToolCall, result: ToolResultMessage) -> int:
    return hash((call.name, _canonical(call.arguments), result.is_error, codec.encode(result.content)))


def _canonical(value: Json) -> object:
    """A JSON value that compares equal whatever the order of its keys."""
    if isinstance(value, dict):
        return tuple(sorted((key, _canonical(item)) for key, item in value.items()))
    if isinstance(value, list):
        return tuple(_canonical(item) for item in value)
    return repr(value)
