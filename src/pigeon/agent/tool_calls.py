"""The tool calls of one answer: ordered by default, each with exactly one result, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from pigeon.agent.interfaces import (
    Feed,
    Gate,
    PreparedCall,
    Publish,
    RunOwner,
    Subject,
    Tool,
    ToolMode,
    UnfinishedAnswer,
)
from pigeon.agent.scope import Scope
from pigeon.agent.tool_facts import make_default_facts
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.errors import Aborted, CallDenied, ToolFailed, text_for_host
from pigeon.wire.events import (
    MessageEnd,
    MessageStart,
    ToolCallStarted,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolOutcome,
)
from pigeon.wire.messages import AssistantMessage, ToolResultMessage

STOPPED = "The user stopped this tool call before it had ended."
SKIPPED = "Skipped due to queued user message."
CUT_OFF = (
    'Tool call "{name}" was not executed: the response hit the output token limit, so its arguments may be '
    "truncated. Re-issue the tool call with complete arguments."
)

UNREADABLE = 'Invalid arguments for tool "{name}": {problem}'


class CallResult:
    """How a call ended, and how long the tool ran, if it did; `denied` if it was not allowed to run."""

    __slots__ = ("denied", "duration_ms", "is_error", "outcome")

    def __init__(
        self, outcome: ToolOutcome, is_error: bool, duration_ms: int | Absent = ABSENT, denied: bool = False
    ) -> None:
        self.outcome = outcome
        self.is_error = is_error
        self.duration_ms = duration_ms
        self.denied = denied


class Progress:
    """The `ToolRun` of a running tool: its id, its scope, and a way to show progress."""

    def __init__(self, prepared: PreparedCall, scope: Scope, publish: Publish) -> None:
        self._call = prepared.call
        self._prepared = prepared
        self._publish = publish
        self._open = True
        self.scope = scope

    @property
    def call_id(self) -> str:
        return self._call.id

    @property
    def subject(self) -> Subject:
        return self._prepared.subject

    @property
    def conceals(self) -> Callable[[str], bool]:
        """Whether the file at a real path must not be shown."""
        return self._prepared.conceals

    async def update(self, progress: ToolOutcome) -> None:
        """Announce all progress so far; ignored once the call has ended."""
        if self._open:
            await self._publish(
                ToolExecutionUpdate(
                    tool_call_id=self._call.id,
                    tool_name=self._call.name,
                    args=self._call.arguments,
                    partial_result=progress,
                )
            )

    def stop_updates(self) -> None:
        self._open = False


class ToolBatch:
    """Runs the calls of one answer."""

    def __init__(
        self,
        owner: RunOwner,
        feed: Feed,
        gate: Callable[[], Gate | None],
        publish: Publish,
        now: Callable[[], int],
        scope: Scope,
        mode: ToolMode = "ordered",
        unfinished: UnfinishedAnswer | None = None,
    ) -> None:
        """Of an `unfinished` answer, only the calls that have not begun are run."""
        self._unfinished = unfinished
        self._owner = owner
        self._feed = feed
        self._gate = gate
        self._publish = publish
        self._now = now
        self._scope = scope
        self._mode = mode
        self._terminated: list[bool] = []
        self._denied: list[bool] = []

    async def run(self, answer: AssistantMessage) -> list[ToolResultMessage]:
        """All results, in the order of the calls; calls whose arguments could not be read are refused."""
        calls = [block for block in answer.content if isinstance(block, ToolCall)]
        if self._unfinished is not None:
            calls = [call for call in calls if call.id in self._unfinished.open_calls]
        results: list[ToolResultMessage] = []
        tools = self._owner.tools()
        for group in group_calls(calls, tools, self._mode):
            # An answer that hit the token limit is not acted on at all, because some of its calls may be missing.
            refused = {
                call.id: UNREADABLE.format(name=call.name, problem=call.arguments_error)
                for call in group
                if not isinstance(call.arguments_error, Absent)
            }
            if answer.stop_reason == "length":
                refused = {call.id: CUT_OFF.format(name=call.name) for call in group}
            ended = await self._run_group(group, tools, refused)
            for call, end in zip(group, ended, strict=True):
                results.append(await self._report_result(call, end))
        return results

    @property
    def should_end_run(self) -> bool:
        """True if every call of the batch asked to end the run."""
        return bool(self._terminated) and all(self._terminated)

    @property
    def is_denied(self) -> bool | None:
        """True if no call of the batch was allowed to run; None if there was no call."""
        return all(self._denied) if self._denied else None

    async def _run_group(
        self, group: list[ToolCall], tools: dict[str, Tool], refused: dict[str, str]
    ) -> list[CallResult]:
        ended: list[CallResult | None] = [None] * len(group)
        running: list[asyncio.Task[None]] = []
        all_begun = asyncio.Event()

        async def execute_and_announce_end(index: int, prepared: PreparedCall, scope: Scope) -> None:
            try:
                ended[index] = await self._announce_end(prepared.call, await self._execute(prepared, scope))
            finally:
                self._owner.calls.end_call(scope)

        for index, call in enumerate(group):
            await self._announce_start(call, tools.get(call.name))
            scope = self._owner.calls.begin_call(call.id, self._scope)
            try:
                self._raise_if_not_admitted(call, refused)
                prepared = await self._prepare_call(call, tools, scope)
            except BaseException as error:
                try:
                    if not isinstance(error, Exception):
                        raise
                    ended[index] = await self._announce_end(call, self._error_to_result(error))
                finally:
                    self._owner.calls.end_call(scope)
                continue
            # The gate decides about this call before the next one of the group starts, in call order.
            if len(group) == 1:
                await execute_and_announce_end(index, prepared, scope)
            else:
                work = execute_and_announce_end(index, prepared, scope)
                if self._owner.one_at_a_time:
                    work = _run_after_previous(work, all_begun, running[-1] if running else None)
                running.append(asyncio.ensure_future(work))
        all_begun.set()
        await asyncio.gather(*running)
        return [end for end in ended if end is not None]

    def _raise_if_not_admitted(self, call: ToolCall, refused: dict[str, str]) -> None:
        self._scope.raise_if_cancelled()
        if call.id in refused:
            raise ToolFailed(refused[call.id])
        if self._feed.should_interrupt():
            raise ToolFailed(SKIPPED)
        limit = self._owner.admit_call(call)
        if limit is not None:
            raise ToolFailed(limit)

    async def _prepare_call(self, call: ToolCall, tools: dict[str, Tool], scope: Scope) -> PreparedCall:
        tool = tools.get(call.name) or self._owner.find_unlisted_tool(call.name)
        if tool is None:
            raise ToolFailed(f"Tool {call.name} not found")
        prepared = PreparedCall(call, tool, scope)
        try:
            await prepared.replace_arguments(call.arguments)
            gate = self._gate()
            if gate is not None:
                await scope.wait(gate.before_call(prepared))
            scope.raise_if_cancelled()
        except BaseException:
            prepared.close()
            raise
        return prepared

    def _error_to_result(self, error: Exception) -> CallResult:
        """The error result; a call that was aborted while the turn continues was stopped individually."""
        alone = isinstance(error, Aborted) and not self._scope.cancelled
        return error_to_result(ToolFailed(STOPPED) if alone else error)

    async def _execute(self, prepared: PreparedCall, scope: Scope) -> CallResult:
        call, began = prepared.call, self._now()
        progress = Progress(prepared, scope, self._publish)
        try:
            work = prepared.tool.execute(prepared.arguments, progress)
            ended = CallResult(await scope.run(work), is_error=False)
        except Exception as error:
            ended = self._error_to_result(error)
        finally:
            progress.stop_updates()
            prepared.close()
        took = max(0, self._now() - began)
        gate = self._gate()
        if gate is not None:
            try:
                ended = CallResult(*await self._scope.wait(gate.after_call(call, ended.outcome, ended.is_error)))
            except Aborted:
                pass
            except Exception as error:
                ended = error_to_result(error)
        return CallResult(ended.outcome, ended.is_error, took)

    async def _announce_start(self, call: ToolCall, tool: Tool | None) -> None:
        facts = make_default_facts(call.name) if tool is None else tool.facts
        title = facts.title(call.arguments)
        await self._publish(
            ToolCallStarted(
                tool_call_id=call.id, tool_name=call.name, args=call.arguments, kind=facts.kind, title=title
            )
        )

    async def _announce_end(self, call: ToolCall, ended: CallResult) -> CallResult:
        if ended.is_error:
            ended = CallResult(self._owner.name_machine(ended.outcome), True, ended.duration_ms, ended.denied)
        await self._publish(
            ToolExecutionEnd(
                tool_call_id=call.id,
                tool_name=call.name,
                result=ended.outcome,
                is_error=ended.is_error,
                duration_ms=ended.duration_ms,
            )
        )
        return ended

    async def _report_result(self, call: ToolCall, ended: CallResult) -> ToolResultMessage:
        outcome = ended.outcome
        self._terminated.append(outcome.terminate is True)
        self._denied.append(ended.denied)
        message = ToolResultMessage(
            tool_call_id=call.id,
            tool_name=call.name,
            content=outcome.content,
            details=outcome.details,
            is_error=ended.is_error,
            timestamp=self._now(),
            usage=outcome.usage,
            duration_ms=ended.duration_ms,
        )
        message = await self._owner.prepare_message(message)
        await self._publish(MessageStart(message=message))
        final = await self._owner.finalize_message(message)
        message = final if isinstance(final, ToolResultMessage) else message
        await self._publish(MessageEnd(message=message))
        return message


async def _run_after_previous(
    work: Coroutine[None, None, None], all_begun: asyncio.Event, before: asyncio.Task[None] | None
) -> None:
    """Do the work once every call of the group was announced and the previous one has ended."""
    try:
        await all_begun.wait()
        if before is not None:
            await asyncio.wait({before})
    except BaseException:
        work.close()
        raise
    await work


def error_to_result(error: Exception) -> CallResult:
    """The error result for an exception."""
    details = error.details if isinstance(error, ToolFailed) else {}
    text = str(error) or type(error).__name__
    if isinstance(error, (OSError, UnicodeEncodeError)):
        text = text_for_host(error)
    if not isinstance(error, (ToolFailed, Aborted)) and type(error) in (KeyError, IndexError, AssertionError):
        text = f"{type(error).__name__}: {text}"
    outcome = ToolOutcome(
        content=[TextContent(text=text)],
        details={} if isinstance(details, Absent) else details,
        usage=error.usage if isinstance(error, ToolFailed) else ABSENT,
        terminate=True if getattr(error, "terminate", False) else ABSENT,
    )
    return CallResult(outcome, is_error=True, denied=isinstance(error, CallDenied))


def group_calls(calls: list[ToolCall], tools: dict[str, Tool], mode: ToolMode) -> list[list[ToolCall]]:
    """Groups of calls that may run in parallel, in call order: neighbours that only read or are declared independent,
    or all, or none."""
    if mode == "parallel":
        return [calls] if calls else []
    groups: list[list[ToolCall]] = []
    last_reads = False
    for call in calls:
        tool = tools.get(call.name)
        reads = (
            tool is not None
            and mode != "sequential"
            and (tool.reads_only or _is_declared_independent(call, tool, mode))
        )
        if reads and last_reads:
            groups[-1].append(call)
        else:
            groups.append([call])
        last_reads = reads
    return groups


def _is_declared_independent(call: ToolCall, tool: Tool, mode: ToolMode) -> bool:
    """True if the model was offered to declare calls independent, and did so for this one."""
    if mode != "declared" or call.arguments.get("parallel") is not True:
        return False
    return "parallel" in tool.spec.parameters.get("properties", {})
