"""What the loop needs from others: a provider, tools, a gate, a feed of messages, a way to tell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, Protocol, TypeVar

from pigeon.agent.inference import Delta, Failure, ModelRequest, ToolSpec
from pigeon.agent.scope import Scope
from pigeon.wire.base import Json
from pigeon.wire.content import ToolCall
from pigeon.wire.events import Outbound, StreamEvent, ToolOutcome
from pigeon.wire.messages import AssistantMessage, CustomMessage, Message, ToolResultMessage, UserMessage
from pigeon.wire.model import Model

Publish = Callable[[Outbound], Awaitable[None]]
ToolMode = Literal["ordered", "parallel", "sequential"]
Spoken = UserMessage | CustomMessage
Sendable = Spoken | ToolResultMessage
SendableT = TypeVar("SendableT", bound=Sendable)


class ModelProvider(Protocol):
    """Answers one request with a stream of deltas that ends in exactly one `Finished`."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Begin an answer; closing the iterator drops the connection."""
        ...


class ToolRun(Protocol):
    """What a tool knows of its own call."""

    @property
    def call_id(self) -> str:
        """The model's id of this call."""
        ...

    @property
    def scope(self) -> Scope:
        """Cancelled when the call must stop."""
        ...

    async def update(self, progress: ToolOutcome) -> None:
        """Tell the host everything there is so far."""
        ...


class Tool(Protocol):
    """Something the model can call."""

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        ...

    @property
    def reads_only(self) -> bool:
        """True if neighbouring calls may run beside it."""
        ...

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Rewrite old or sloppy argument forms before they are checked."""
        ...

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Do it; failure is an exception, `ToolFailed` to keep details."""
        ...


class Gate(Protocol):
    """Stands before and after each tool: permissions and extensions."""

    async def before(self, call: ToolCall, arguments: dict[str, Json]) -> dict[str, Json]:
        """The arguments to run with; raising blocks the call with that text."""
        ...

    async def after(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        """The outcome to report."""
        ...


class Queued(Protocol):
    """A message that waited."""

    @property
    def message(self) -> Spoken:
        """What will be said."""
        ...


class Feed(Protocol):
    """Messages that wait for a break in the run."""

    def steering_waits(self) -> bool:
        """True if a steering message is queued."""
        ...

    def next_steering(self) -> list[Queued]:
        """What steering delivers now, by its mode; it stays queued until delivered."""
        ...

    def next_follow_ups(self) -> list[Queued]:
        """What follow-ups deliver now, by their mode."""
        ...

    def still_waits(self, item: Queued) -> bool:
        """False if somebody took the item back in the meantime."""
        ...

    async def delivered(self, item: Queued) -> None:
        """The item leaves the queue; called right before its `message_start`."""
        ...


class Watch(Protocol):
    """Looks at an answer while it streams."""

    def sees(self, event: StreamEvent) -> Outbound | None:
        """What to announce if the answer must be cut here; none lets it go on."""
        ...


class RunOwner(Protocol):
    """What the owner of the loop decides, asked anew each time because it may change while a run lasts."""

    async def request(self) -> ModelRequest:
        """The next request: context, tools, model and thinking as they are now."""
        ...

    def model(self) -> Model:
        """The model that is asked."""
        ...

    def watch(self) -> Watch | None:
        """Somebody who may cut the next answer; asked once per answer."""
        ...

    async def ready(self, message: SendableT) -> SendableT:
        """The message as models take it; asked right before its `message_start`."""
        ...

    async def final(self, message: Message) -> Message:
        """The message as it goes on record; asked right before its `message_end`."""
        ...

    async def adds(self, answer: AssistantMessage, ends: bool) -> list[Spoken]:
        """What the owner itself wants said before a further turn; with `ends`, the run ends if that is nothing."""
        ...

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        ...

    def tool_mode(self) -> ToolMode:
        """How the calls of one answer run."""
        ...

    def interrupts(self) -> bool:
        """True if waiting steering skips calls that have not started."""
        ...

    async def between_turns(self, scope: Scope) -> None:
        """Called before each further turn; the run's scope says when to stop."""
        ...

    async def answered(self, answer: AssistantMessage) -> None:
        """A good answer is complete; called right after its `message_end`."""
        ...

    async def failed(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """An answer ended in an error; true if it will be tried again."""
        ...
