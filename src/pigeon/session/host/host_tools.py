"""Tools that the host runs: defined by `set_host_tools`, called by an event, answered by a command.

Every call ends in exactly one result: the host's, or an error that explains its absence. A host that forgets a call
blocks only that call, and `abort` still ends it. A report for a call that has ended is ignored, since it may have been
in transit; one for an unknown call is refused while others are open, or its host would wait for the run for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import ArgumentTool, Tool, ToolRun
from pigeon.session.toolset import Toolset
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import HostTool, HostToolOutcome
from pigeon.wire.content import ImageInput, TextContent, UserBlock, to_image_content
from pigeon.wire.errors import Aborted, BadRecord, Refusal, ToolFailed
from pigeon.wire.events import HostToolCall, HostToolCancel, Outbound, ToolOutcome

MOST_UPDATES = 32
MOST_ENDED = 1000
DISCONNECTED = "RPC client disconnected before host tool execution completed"
FAILED = "Host tool execution failed"


class HostTools:
    """The tools of the host, and their open calls.

    With `announces_ends`, every call that has ended is cancelled, even one with a result: several clients may be
    working on it.
    """

    def __init__(
        self,
        toolset: Toolset,
        post: Callable[[Outbound], None],
        new_id: Callable[[], str] = RANDOM_IDS.request_id,
        announces_ends: bool = False,
    ) -> None:
        self._toolset = toolset
        self._post = post
        self._new_id = new_id
        self._open: dict[str, _OpenCall] = {}
        self._ended: deque[str] = deque(maxlen=MOST_ENDED)
        self._gone = False
        self._announces_ends = announces_ends

    def replace_tools(self, definitions: list[HostTool]) -> list[str]:
        """Replace all tools of the host from the next model call on; a refusal keeps the previous ones."""
        wanted = [_check_definition(definition, index) for index, definition in enumerate(definitions)]
        names = [tool.name for tool in wanted]
        if len(set(names)) < len(names):
            raise Refusal("RPC host tool names must be unique")
        for name in names:
            if self._toolset.is_name_taken(name):
                raise Refusal(f'RPC host tool "{name}" conflicts with an existing tool')
        tools: dict[str, Tool] = {tool.name: _HostTool(tool, self) for tool in wanted}
        self._toolset.set_host_tools(tools, [tool.name for tool in wanted if not tool.hidden])
        return names

    def on_progress(self, id: Json | Absent, progress: HostToolOutcome) -> None:
        call = self._find_call(id)
        if call is not None:
            call.on_progress(_to_outcome(progress))

    def on_result(self, id: Json | Absent, result: HostToolOutcome, is_error: bool) -> None:
        call = self._find_call(id)
        if call is not None and isinstance(id, str):
            self._try_close_call(id)
            outcome = _to_outcome(result)
            call.on_result(ToolFailed(_error_text(outcome), outcome.details) if is_error else outcome)

    def _find_call(self, id: Json | Absent) -> _OpenCall | None:
        """The open call with this id, or None if it has ended. Raises `Refusal` for an unknown id while calls
        are open."""
        call = self._open.get(id) if isinstance(id, str) else None
        if call is None and self._open and id not in self._ended:
            given = "without an id" if isinstance(id, Absent) else f"with the id {codec.encode(id).decode()}"
            known = ", ".join(codec.encode(name).decode() for name in self._open)
            raise Refusal(f"There is no host tool call {given}. Open calls: {known}")
        return call

    def _try_close_call(self, id: str) -> bool:
        """Close an open call; returns False if it had ended before."""
        if self._open.pop(id, None) is None:
            return False
        self._ended.append(id)
        return True

    def on_host_disconnected(self) -> None:
        """The host is gone: open and later calls fail."""
        self._gone = True
        for id, call in list(self._open.items()):
            self._try_close_call(id)
            call.on_result(ToolFailed(DISCONNECTED))

    def close(self) -> None:
        """The session ends; nothing stays open."""
        self.on_host_disconnected()

    async def call(self, name: str, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Call the host and wait for its result, showing progress meanwhile."""
        if run.scope.cancelled:
            raise ToolFailed(_abort_text(name))
        if self._gone:
            raise ToolFailed(DISCONNECTED)
        id = self._new_id()
        call = self._open[id] = _OpenCall()
        self._post(HostToolCall(id=id, tool_call_id=run.call_id, tool_name=name, arguments=arguments))
        try:
            return await call.wait_for_result(run)
        except Aborted:
            raise ToolFailed(_abort_text(name)) from None
        finally:
            if self._try_close_call(id) or self._announces_ends:
                self._post(HostToolCancel(id=self._new_id(), target_id=id))


class _OpenCall:
    """One open call, with the reports of the host that were not read yet."""

    def __init__(self) -> None:
        self._reports: asyncio.Queue[ToolOutcome | _End] = asyncio.Queue()

    def on_progress(self, progress: ToolOutcome) -> None:
        """Each report contains all progress so far, so the oldest may be dropped for a slow reader."""
        if self._reports.qsize() >= MOST_UPDATES:
            self._reports.get_nowait()
        self._reports.put_nowait(progress)

    def on_result(self, result: ToolOutcome | ToolFailed) -> None:
        self._reports.put_nowait(_End(result))

    async def wait_for_result(self, run: ToolRun) -> ToolOutcome:
        """Show progress until the result arrives; a result takes precedence over an abort."""
        while True:
            try:
                report = await run.scope.wait(self._reports.get())
            except Aborted:
                report = self._pop_end()
            if isinstance(report, _End):
                if isinstance(report.result, ToolFailed):
                    raise report.result
                return report.result
            await run.update(report)

    def _pop_end(self) -> _End:
        while not self._reports.empty():
            report = self._reports.get_nowait()
            if isinstance(report, _End):
                return report
        raise Aborted


class _End:
    __slots__ = ("result",)

    def __init__(self, result: ToolOutcome | ToolFailed) -> None:
        self.result = result


class _Definition:
    __slots__ = ("description", "hidden", "label", "name", "parameters", "reads_only")

    def __init__(self, name: str, description: str, parameters: dict[str, Json], tool: HostTool) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.label = _trim_text(tool.label) or name
        self.hidden = tool.hidden is True
        self.reads_only = tool.read_only is True


class _HostTool(ArgumentTool):
    """A host tool for the loop: a `Tool` whose calls go to the host."""

    def __init__(self, definition: _Definition, owner: HostTools) -> None:
        self._owner = owner
        self.label = definition.label
        self.reads_only = definition.reads_only
        self.spec = ToolSpec(definition.name, definition.description, definition.parameters)

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        return await self._owner.call(self.spec.name, arguments, run)


def _check_definition(tool: HostTool, index: int) -> _Definition:
    name = _trim_text(tool.name)
    if not name:
        raise Refusal(f"Host tool at index {index} must provide a non-empty name")
    description = _trim_text(tool.description)
    if not description:
        raise Refusal(f'Host tool "{name}" must provide a non-empty description')
    if not isinstance(tool.parameters, dict):
        raise Refusal(f'Host tool "{name}" must provide a JSON Schema object')
    return _Definition(name, description, tool.parameters, tool)


def _trim_text(value: Json | Absent) -> str:
    return value.strip() if isinstance(value, str) else ""


def _abort_text(name: str) -> str:
    return f'Host tool "{name}" was aborted'


def _to_outcome(given: HostToolOutcome) -> ToolOutcome:
    details = ABSENT if given.details is None else given.details
    return ToolOutcome(content=[_to_block(block) for block in given.content], details=details)


def _to_block(value: Json) -> UserBlock:
    """A content block; anything but text and images is shown to the model as it arrived."""
    if isinstance(value, str):
        return TextContent(text=value)
    kind = value.get("type") if isinstance(value, dict) else None
    try:
        if kind == "text":
            return codec.convert(value, TextContent)
        if kind == "image":
            return to_image_content(codec.convert(value, ImageInput), "content")
    except BadRecord:
        pass
    return TextContent(text=codec.encode(value).decode())


def _error_text(outcome: ToolOutcome) -> str:
    texts = [block.text for block in outcome.content if isinstance(block, TextContent)]
    return "\n".join(texts).strip() or FAILED
