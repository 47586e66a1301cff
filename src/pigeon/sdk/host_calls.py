"""What an agent asks of the program that drives it: tool calls, permissions and dialogs, answered by plain callables.

Every question gets exactly one answer. A callable that raises, or that is missing, is a no: the permission is denied,
the dialog cancelled, the tool call fails with what was raised. Callables may be async functions, which run in the event
loop, or plain ones, which run in a thread each and may block. A question that the agent takes back cancels the callable
that works on it; of one that blocks, the answer counts no more.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pigeon.sdk.tools import HostFunction, ToolContext, failure_of, run_in_thread
from pigeon.sdk.tools import tool as as_tool
from pigeon.wire.base import ABSENT, Absent, Json, value_or_default
from pigeon.wire.commands import (
    Command,
    ExtensionUiResponse,
    HostServiceResult,
    HostTool,
    HostToolOutcome,
    HostToolResult,
    HostToolUpdate,
)
from pigeon.wire.dialogs import (
    ALLOW_ALWAYS,
    ALLOW_ONCE,
    CancelRequest,
    ConfirmRequest,
    EditorRequest,
    InputRequest,
    SelectRequest,
)
from pigeon.wire.events import (
    HostCommandRun,
    HostFileRead,
    HostFileWrite,
    HostServiceCancel,
    HostToolCall,
    HostToolCancel,
    PermissionResolved,
)

PermissionAnswer = bool | Literal["allow", "always", "deny"] | None
Question = SelectRequest | ConfirmRequest | InputRequest | EditorRequest
_QUESTIONS = (SelectRequest, ConfirmRequest, InputRequest, EditorRequest)


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """A tool call that needs approval.

    Attributes:
        id: the id of the question
        tool_name: the tool that would run
        tool_call_id: the id of the call, as in `ToolExecutionStart`
        arguments: the arguments of the call
        text: the question as a person may be shown it
        diff: what would change in a file, for tools that change files; otherwise `None`
        can_allow_always: whether `"always"` is an answer; of a command that is to leave the sandbox it is a refusal
        agent: the type of the started agent whose call it is; `None` for the conversation's own

    Example:
        import pigeon
        from pigeon.testing import call, scripted


        def on_permission(request: pigeon.PermissionRequest) -> bool:
            return request.tool_name == "bash" and request.arguments["command"].startswith("ls")


        with scripted(call("bash", command="ls"), "Done.") as model:
            result = pigeon.run_sync("list", model=model, approval_mode="always-ask", on_permission=on_permission)
        assert result.ended == "done"
    """

    id: str
    tool_name: str
    tool_call_id: str
    arguments: dict[str, Json]
    text: str
    diff: str | None = None
    can_allow_always: bool = True
    agent: str | None = None


class ServedHost(Protocol):
    """Files and commands that the program serves to the agent, for `Conversation.serve_host`.

    Each may raise any exception, whose text the agent is told. `run` is cancelled when the command must stop; it may
    then still return what was printed.
    """

    async def read(self, request: HostFileRead) -> str | HostServiceResult:
        """The text of a file, or a result with an `error` and what is to be done about it."""
        ...

    async def write(self, request: HostFileWrite) -> None:
        """Write the content of the request to its file."""
        ...

    async def run(self, request: HostCommandRun) -> HostServiceResult:
        """Run a command to its end and return its result."""
        ...


OnPermission = Callable[[PermissionRequest], PermissionAnswer | Awaitable[PermissionAnswer]]
OnDialog = Callable[[Question], str | bool | Awaitable[str | bool | None] | None]
AnyTool = HostFunction[..., Any] | Callable[..., Any]


class HostCalls:
    """The open questions of one conversation. `answer` sends a command that has no response."""

    def __init__(
        self,
        tools: Sequence[AnyTool],
        on_permission: OnPermission | None,
        on_dialog: OnDialog | None,
        answer: Callable[[Command], None],
    ) -> None:
        self._tools = _functions_by_name(tools)
        self._on_permission = on_permission
        self._on_dialog = on_dialog
        self._answer = answer
        self._served: ServedHost | None = None
        self._open: dict[str, asyncio.Task[None]] = {}

    def definitions(self) -> list[HostTool]:
        """The tools as the agent is told of them."""
        return [one.definition() for one in self._tools.values()]

    def replace_tools(self, tools: Sequence[AnyTool]) -> list[HostFunction[..., Any]]:
        """Set other tools and return the previous ones; open calls continue."""
        before, self._tools = list(self._tools.values()), _functions_by_name(tools)
        return before

    def set_served_host(self, served: ServedHost | None) -> None:
        """Use this object for files and commands from now on."""
        self._served = served

    def on_record(self, record: object) -> None:
        """Start to answer a question, or cancel one that was withdrawn; other records are ignored."""
        if isinstance(record, HostToolCall):
            self._start_task(record.id, self._call(record))
        elif isinstance(record, HostFileRead | HostFileWrite | HostCommandRun):
            self._start_task(record.id, self._serve_request(record))
        elif isinstance(record, HostToolCancel | HostServiceCancel | CancelRequest):
            self._cancel(record.target_id)
        elif isinstance(record, PermissionResolved):
            self._cancel(record.id)
        elif isinstance(record, _QUESTIONS):
            self._start_task(record.id, self._answer_question(record))

    def close(self) -> None:
        """Cancel all open calls: the agent asks nothing more."""
        for id in list(self._open):
            self._cancel(id)

    def _start_task(self, id: str, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._open[id] = task
        task.add_done_callback(lambda _: self._open.pop(id, None))

    def _cancel(self, id: str) -> None:
        task = self._open.pop(id, None)
        if task is not None:
            task.cancel()

    async def _call(self, call: HostToolCall) -> None:
        loop = asyncio.get_running_loop()

        def show(progress: HostToolOutcome) -> None:
            # A thread may outlive its conversation, and the loop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(
                    self._send_progress_if_open, HostToolUpdate(id=call.id, partial_result=progress)
                )

        context = ToolContext(call.tool_call_id, show)
        function = self._tools.get(call.tool_name)
        error = False
        try:
            if function is None:
                raise LookupError(f'there is no tool "{call.tool_name}" here')
            result = await function.called(call.arguments, context)
        except (Exception, SystemExit, asyncio.CancelledError) as failure:
            if _is_question_cancelled(failure):
                context.cancel()
                raise
            result, error = failure_of(failure), True
        # The function's last progress is still on its way through the loop.
        await asyncio.sleep(0)
        self._answer(HostToolResult(id=call.id, result=result, is_error=True if error else ABSENT))

    async def _serve_request(self, request: HostFileRead | HostFileWrite | HostCommandRun) -> None:
        result = HostServiceResult(id=request.id)
        try:
            if self._served is None:
                raise LookupError("the program serves neither files nor commands")
            if isinstance(request, HostFileRead):
                read = await self._served.read(request)
                content = HostServiceResult(content=read) if isinstance(read, str) else read
                result = replace(content, id=request.id)
            elif isinstance(request, HostFileWrite):
                await self._served.write(request)
            else:
                result = replace(await self._served.run(request), id=request.id)
        except Exception as failure:
            result = HostServiceResult(id=request.id, error=str(failure) or type(failure).__name__)
        self._answer(result)

    def _send_progress_if_open(self, update: HostToolUpdate) -> None:
        if update.id in self._open:
            self._answer(update)

    async def _answer_question(self, question: Question) -> None:
        response = ExtensionUiResponse(id=question.id, cancelled=True)
        try:
            response = await self._ask_callbacks(question)
        except (Exception, SystemExit, asyncio.CancelledError) as failure:
            if _is_question_cancelled(failure):
                raise
            from logging import getLogger

            what = "on_permission" if _is_permission(question) else "on_dialog"
            getLogger("pigeon").exception("%s raised; the answer is no", what)
        self._answer(response)

    async def _ask_callbacks(self, question: Question) -> ExtensionUiResponse:
        given: Any = None
        if isinstance(question, SelectRequest) and _is_permission(question):
            if self._on_permission is not None:
                given = await _run_callback(self._on_permission, _to_permission_request(question))
            return ExtensionUiResponse(id=question.id, **_to_permission_answer(given, question.options))
        if self._on_dialog is not None:
            given = await _run_callback(self._on_dialog, question)
        if isinstance(question, ConfirmRequest) and isinstance(given, bool):
            return ExtensionUiResponse(id=question.id, confirmed=given)
        if isinstance(given, str) and not isinstance(question, ConfirmRequest):
            return ExtensionUiResponse(id=question.id, value=given)
        if given is not None:
            raise TypeError(f"an answer to {type(question).__name__} cannot be {given!r}")
        return ExtensionUiResponse(id=question.id, cancelled=True)


def _functions_by_name(tools: Sequence[AnyTool]) -> dict[str, HostFunction[..., Any]]:
    found = {one.name: one for one in map(_to_host_function, tools)}
    if len(found) < len(tools):
        raise ValueError("two tools have the same name")
    return found


def _to_host_function(given: AnyTool) -> HostFunction[..., Any]:
    return given if isinstance(given, HostFunction) else as_tool(given)


def _is_permission(question: Question) -> bool:
    return isinstance(question, SelectRequest) and not isinstance(question.tool_call_id, Absent)


def _to_permission_request(question: SelectRequest) -> PermissionRequest:
    return PermissionRequest(
        id=question.id,
        tool_name=value_or_default(question.tool_name, ""),
        tool_call_id=value_or_default(question.tool_call_id, ""),
        arguments=value_or_default(question.args, {}),
        text=question.title,
        diff=value_or_default(question.diff, None),
        can_allow_always=ALLOW_ALWAYS in question.options,
        agent=value_or_default(question.agent, None),
    )


def _to_permission_answer(given: object, options: list[str]) -> dict[str, Any]:
    """Anything but a clear approval is a denial."""
    wanted = ALLOW_ALWAYS if given == "always" else ALLOW_ONCE if given is True or given == "allow" else None
    return {"value": wanted} if wanted in options else {"cancelled": True}


def _is_question_cancelled(failure: BaseException) -> bool:
    """Whether a callable was cancelled because its question was; it may also have cancelled itself."""
    task = asyncio.current_task()
    return isinstance(failure, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def _run_callback(ask: Callable[[Any], Any], question: Any) -> Any:
    """The answer of a callable; a plain one gets a thread, since it may block, for example on a terminal."""
    asked = ask(question) if inspect.iscoroutinefunction(ask) else await run_in_thread(lambda: ask(question))
    return await asked if inspect.isawaitable(asked) else asked
