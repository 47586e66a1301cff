"""Extensions before and after each tool call: the `Gate` of the loop, answered by `tool_call` and `tool_result`.

A handler of `tool_call` that does not return a valid answer blocks the call, whatever the reason: it raised, took too
long, returned an invalid value, or its thread is blocked or gone.
"""

from __future__ import annotations

import copy
from typing import Any

from pigeon.agent.interfaces import PreparedCall
from pigeon.extensions.public.events import ToolCall, ToolResult
from pigeon.extensions.public.results import Block, Override, to_plain_json, validate_record
from pigeon.extensions.runtime.dispatcher import Answer, Dispatcher
from pigeon.wire import content as wire
from pigeon.wire.base import Absent, Json
from pigeon.wire.errors import CallDenied
from pigeon.wire.events import ToolOutcome

# A handler that is registered in `session_start` counts from the first call on, if it exists within this time.
START_SECONDS = 5.0
UNJUDGED = 'The extension "{name}" could not judge this call: {why}. It was not run.'


class Blocked(CallDenied):
    """An extension blocks a tool call; with `terminate` the run ends with this batch of calls."""

    def __init__(self, text: str, terminate: bool = False) -> None:
        super().__init__(text)
        self.terminate = terminate


class ExtensionGate:
    """Calls the handlers of `tool_call` and `tool_result`."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def before_call(self, prepared: PreparedCall) -> None:
        """Let the handlers change the arguments; raises `Blocked`."""
        await self._dispatcher.wait_until_started(START_SECONDS)
        if not self._dispatcher.has_listeners(ToolCall):
            return
        call, current = prepared.call, prepared.arguments
        stopped: list[Blocked] = []

        def apply_arguments_or_block(answer: Answer) -> bool:
            nonlocal current
            if answer.failure is not None:
                stopped.append(Blocked(UNJUDGED.format(name=answer.loaded.extension.name, why=answer.failure)))
            elif isinstance(answer.value, Block):
                stopped.append(Blocked(_block_reason_of(answer.value), answer.value.terminate is True))
            else:
                try:
                    current = _check_arguments(answer.event.args)
                except TypeError as error:
                    self._dispatcher.reports(answer.loaded.source.path, "tool_call", str(error))
                    stopped.append(Blocked(UNJUDGED.format(name=answer.loaded.extension.name, why=error)))
            return bool(stopped)

        await self._dispatcher.ask_handlers(
            ToolCall, lambda: ToolCall(call.name, call.id, copy.deepcopy(current)), apply_arguments_or_block
        )
        if stopped:
            raise stopped[0]
        if current != prepared.arguments:
            await prepared.replace_arguments(current)

    async def after_call(self, call: wire.ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        """The outcome after the handlers' changes."""
        if not self._dispatcher.has_listeners(ToolResult):
            return outcome, is_error
        current, failed = outcome, is_error

        def make_result_event() -> ToolResult:
            shown = copy.deepcopy(current)
            details = None if isinstance(shown.details, Absent) else shown.details
            usage = None if isinstance(shown.usage, Absent) else shown.usage
            arguments = copy.deepcopy(call.arguments)
            return ToolResult(call.name, call.id, arguments, shown.content, details, failed, usage)

        def apply_override_answer(answer: Answer) -> bool:
            nonlocal current, failed
            if isinstance(answer.value, Override):
                try:
                    current = apply_override(current, answer.value)
                except TypeError as error:
                    self._dispatcher.reports(answer.loaded.source.path, "tool_result", str(error))
                else:
                    failed = failed if answer.value.is_error is None else bool(answer.value.is_error)
            return False

        await self._dispatcher.ask_handlers(ToolResult, make_result_event, apply_override_answer)
        return current, failed


def _check_arguments(changed: Any) -> dict[str, Json]:
    """The arguments after a handler's changes; raises `TypeError` for invalid ones."""
    arguments = to_plain_json(changed, "args")
    if not isinstance(arguments, dict):
        raise TypeError("args must be a dict")
    return arguments


def _block_reason_of(block: Block) -> str:
    """The reason of a block, which holds even if the reason cannot be shown."""
    try:
        return str(block.reason)
    except Exception:
        return "blocked by an extension"


def apply_override(outcome: ToolOutcome, change: Override) -> ToolOutcome:
    """The outcome with the given members replaced; raises `TypeError` for an invalid outcome."""
    content: Any = outcome.content if change.content is None else change.content
    if isinstance(content, str):
        content = [wire.TextContent(text=content)]
    return validate_record(
        ToolOutcome(
            content=content,
            details=outcome.details if isinstance(change.details, Absent) else change.details,
            usage=outcome.usage if isinstance(change.usage, Absent) else change.usage,
            terminate=outcome.terminate,
        )
    )
