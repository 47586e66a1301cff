"""Extensions before and after each tool call.

Extensions before a change of conversation: the first that says no is heard.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

from pigeon.extensions.public.events import Event, SessionBeforeFork, SessionBeforeSwitch, ToolCall, ToolResult
from pigeon.extensions.public.results import Block, Cancel, Override
from pigeon.extensions.runtime.dispatcher import Answer, Dispatcher
from pigeon.extensions.runtime.validation import checked, plain
from pigeon.wire import content as wire
from pigeon.wire.base import Absent, Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

Check = Callable[[str, dict[str, Json]], dict[str, Json]]


class Blocked(ToolFailed):
    """An extension does not let a tool run; `terminate` asks for the run to end with this batch."""

    def __init__(self, text: str, terminate: bool = False) -> None:
        super().__init__(text)
        self.terminate = terminate


class ExtensionGate:
    """Asks the handlers of `tool_call` and `tool_result`."""

    def __init__(self, dispatcher: Dispatcher, check: Check) -> None:
        self._dispatcher = dispatcher
        self._check = check

    async def before(self, call: wire.ToolCall, arguments: dict[str, Json]) -> dict[str, Json]:
        """The arguments as the handlers left them, checked again; raises `Blocked`."""
        if not self._dispatcher.listens(ToolCall):
            return arguments
        current = arguments
        stopped: list[Blocked] = []

        def take(answer: Answer) -> bool:
            nonlocal current
            if answer.failure is not None:
                stopped.append(Blocked(answer.failure))
            elif isinstance(answer.value, Block):
                stopped.append(Blocked(str(answer.value.reason), bool(answer.value.terminate)))
            else:
                try:
                    current = plain(answer.event.args, "args")
                except TypeError as error:
                    self._dispatcher.reports(answer.loaded.source.path, "tool_call", str(error))
                    stopped.append(Blocked(str(error)))
            return bool(stopped)

        await self._dispatcher.ask(
            ToolCall, lambda: ToolCall(call.name, call.id, copy.deepcopy(current)), take, (Block,)
        )
        if stopped:
            raise stopped[0]
        return self._check(call.name, current) if current != arguments else arguments

    async def after(self, call: wire.ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        """The outcome as the handlers left it."""
        if not self._dispatcher.listens(ToolResult):
            return outcome, is_error
        current, failed = outcome, is_error

        def make() -> ToolResult:
            shown = copy.deepcopy(current)
            details = None if isinstance(shown.details, Absent) else shown.details
            usage = None if isinstance(shown.usage, Absent) else shown.usage
            arguments = copy.deepcopy(call.arguments)
            return ToolResult(call.name, call.id, arguments, shown.content, details, failed, usage)

        def take(answer: Answer) -> bool:
            nonlocal current, failed
            if isinstance(answer.value, Override):
                try:
                    current = overridden(current, answer.value)
                except TypeError as error:
                    self._dispatcher.reports(answer.loaded.source.path, "tool_result", str(error))
                else:
                    failed = failed if answer.value.is_error is None else bool(answer.value.is_error)
            return False

        await self._dispatcher.ask(ToolResult, make, take, (Override,))
        return current, failed


def overridden(outcome: ToolOutcome, change: Override) -> ToolOutcome:
    """The outcome with what is given replaced; raises `TypeError` for what cannot be an outcome."""
    content: Any = outcome.content if change.content is None else change.content
    if isinstance(content, str):
        content = [wire.TextContent(text=content)]
    return checked(
        ToolOutcome(
            content=content,
            details=outcome.details if isinstance(change.details, Absent) else change.details,
            usage=outcome.usage if isinstance(change.usage, Absent) else change.usage,
            terminate=outcome.terminate,
        )
    )


class ExtensionVeto:
    """Asks the handlers of `session_before_switch` and `session_before_fork`."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

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

        await self._dispatcher.ask(kind, make, take, (Cancel,))
        return bool(refused)
