"""What the loop asks its owner, answered from the session's parts."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.agent.protocols import Tool, ToolMode
from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity
from pigeon.session.compaction import Compaction
from pigeon.session.retry import Retry
from pigeon.session.toolset import Toolset
from pigeon.wire.commands import InterruptMode
from pigeon.wire.inference import Failure, ModelRequest
from pigeon.wire.messages import AssistantMessage


class Conduct:
    """What the loop asks its owner, answered from the session's parts."""

    def __init__(
        self,
        request: Callable[[], ModelRequest],
        toolset: Toolset,
        retry: Retry,
        compaction: Compaction,
        activity: Activity,
    ) -> None:
        self._request = request
        self._toolset = toolset
        self._retry = retry
        self._compaction = compaction
        self._activity = activity
        self.interrupt_mode: InterruptMode = "immediate"
        self.mode: ToolMode = "ordered"

    def request(self) -> ModelRequest:
        """The next request."""
        return self._request()

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        return self._toolset.active()

    def tool_mode(self) -> ToolMode:
        """How the calls of one answer run."""
        return self.mode

    def interrupts(self) -> bool:
        """True if waiting steering skips calls that have not started."""
        return self.interrupt_mode == "immediate"

    async def between_turns(self, scope: Scope) -> None:
        """Make room if the last turn filled the context."""
        await self.make_room(scope)

    async def make_room(self, scope: Scope) -> None:
        """Compact if the context is nearly full and nobody asked to stop."""
        if scope.cancelled or not self._compaction.due():
            return
        self._activity.enter("compacting")
        try:
            await self._compaction.automatic(scope)
        finally:
            self._activity.enter("running")

    async def answered(self, answer: AssistantMessage) -> None:
        """A retry that led here has succeeded."""
        await self._retry.succeeded()

    async def failed(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """True if the answer will be tried again."""
        return self._retry.wanted(failure)
