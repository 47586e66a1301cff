"""What the loop asks its owner, answered from the session's parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pigeon.agent.inference import Failure, ModelRequest
from pigeon.agent.interfaces import SendableT, Spoken, Tool, ToolMode, Watch
from pigeon.agent.scope import Scope
from pigeon.session.activity import Activity
from pigeon.session.compaction.compaction import Compaction
from pigeon.session.context.images import has_images, ready_to_send
from pigeon.session.dependencies import Dependencies
from pigeon.session.retry import Retry
from pigeon.session.steering.stream_rules import StreamRules
from pigeon.session.steering.todos import Reminders
from pigeon.wire.commands import InterruptMode
from pigeon.wire.errors import Aborted
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage
from pigeon.wire.model import Model

_T = TypeVar("_T")


class Conduct:
    """Answers of the session; what may change between two questions is looked up each time."""

    def __init__(
        self,
        request: Callable[[], Awaitable[ModelRequest]],
        model: Callable[[], Model],
        parts: Dependencies,
        retry: Retry,
        compaction: Compaction,
        activity: Activity,
    ) -> None:
        self._request = request
        self._model = model
        self._parts = parts
        self._retry = retry
        self._compaction = compaction
        self._activity = activity
        self.rules: StreamRules | None = None
        self.reminders: Reminders | None = None
        self.interrupt_mode: InterruptMode = "immediate"
        self.mode: ToolMode = "ordered"
        self.prompt_of_run: str | None = None
        self.scope: Scope | None = None
        self.keeps_unreadable_images = True

    async def request(self) -> ModelRequest:
        """The next request."""
        return await self._request()

    def model(self) -> Model:
        """The model that is asked."""
        return self._model()

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        return self._parts.toolset.active()

    def tool_mode(self) -> ToolMode:
        """How the calls of one answer run."""
        return self.mode

    def interrupts(self) -> bool:
        """True if waiting steering skips calls that have not started."""
        return self.interrupt_mode == "immediate"

    def watch(self) -> Watch | None:
        """The stream rules, if there are any."""
        return self.rules.watch() if self.rules is not None else None

    async def ready(self, message: SendableT) -> SendableT:
        """Images are made so that the model takes them; what a tool returned is kept where nobody can tell."""
        if not has_images(message):
            return message
        keeps = self.keeps_unreadable_images or isinstance(message, ToolResultMessage)
        return await ready_to_send(message, self._parts.pictures, keeps, self.scope)

    async def final(self, message: Message) -> Message:
        """Extensions may change a message before it goes on record, unless that takes longer than the run."""
        return await self.unless_stopped(self._parts.hooks.message_end(message), message)

    async def unless_stopped(self, asked: Awaitable[_T], otherwise: _T) -> _T:
        """What was asked for, or something else as soon as the run is stopped."""
        try:
            return await (asked if self.scope is None else self.scope.wait(asked))
        except Aborted:
            return otherwise

    async def adds(self, answer: AssistantMessage, ends: bool) -> list[Spoken]:
        """A rule that cut the answer, or a reminder of open tasks."""
        said: list[Spoken] = list(await self.rules.adds()) if self.rules is not None else []
        if said or not ends or self.reminders is None:
            return said
        return list(await self.reminders.adds(answer))

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
