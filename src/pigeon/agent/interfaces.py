"""The interfaces of the loop: what it needs of a provider, of tools and their gate, of the queue, and of its owner.

Other rooms import these instead of stating them again: `providers` and `tools` implement them, `session` is the owner,
`guard` and `extensions` are gates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from pigeon.agent.inference import Delta, Failure, ModelRequest, ToolSpec
from pigeon.agent.scope import Scope
from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent, ToolCall
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


class PreparedImage(Struct, frozen=True):
    """An image as models take it, none if it cannot be sent; `readable` is false if the data is no image at all."""

    image: ImageContent | None
    notes: tuple[str, ...] = ()
    readable: bool = True


class ImagePreparer(Protocol):
    """Knows which images models take; `tools/images` implements it."""

    def at_once(self, image: ImageContent) -> PreparedImage | None:
        """The answer if the first bytes are enough for one; none if the image has to be decoded."""
        ...

    def fitted(self, image: ImageContent) -> PreparedImage:
        """The answer for any image; decoding may take seconds, so it is called in a thread."""
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


class QueuedItem(Protocol):
    """A message that waits in the queue."""

    @property
    def id(self) -> str:
        """Tells it apart from others with the same text."""
        ...

    @property
    def message(self) -> Spoken:
        """What will be said."""
        ...


class Feed(Protocol):
    """The queue as the loop sees it: messages that wait for a break in the run."""

    def interrupts(self) -> bool:
        """True if a message waits that skips the tool calls which have not started."""
        ...

    def next_steering(self) -> list[QueuedItem]:
        """What steering delivers now, by its mode; it stays queued until delivered."""
        ...

    def next_follow_ups(self) -> list[QueuedItem]:
        """What follow-ups deliver now, by their mode."""
        ...

    def still_waits(self, item: QueuedItem) -> bool:
        """False if the item was taken back in the meantime."""
        ...

    async def delivered(self, item: QueuedItem) -> None:
        """The item leaves the queue; called right before its `message_start`."""
        ...


class Watch(Protocol):
    """Looks at an answer while it streams."""

    def sees(self, event: StreamEvent) -> Outbound | None:
        """What to announce if the answer must be cut here; none lets it go on."""
        ...


class RunOwner(Protocol):
    """What the owner of the loop decides, asked anew each time because it may change while a run lasts.

    `session/engine` is the one implementation.
    """

    async def request(self) -> ModelRequest:
        """The next request: context, tools, model and thinking as they are now."""
        ...

    def model(self) -> Model:
        """The model that is asked."""
        ...

    def watch(self) -> Watch | None:
        """What may cut the next answer; asked once per answer, none where nothing could."""
        ...

    async def prepare(self, message: SendableT) -> SendableT:
        """The message as models take it; asked right before its `message_start`."""
        ...

    async def finalize(self, message: Message) -> Message:
        """The message as it goes on record; asked right before its `message_end`."""
        ...

    async def additions(self, answer: AssistantMessage, ends: bool) -> list[Spoken]:
        """What the owner itself wants said before a further turn; with `ends`, the run ends if that is nothing."""
        ...

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        ...

    async def between_turns(self, scope: Scope) -> None:
        """Called before each further turn; the run's scope says when to stop."""
        ...

    async def answered(self, answer: AssistantMessage) -> None:
        """A good answer is complete; called right after its `message_end`."""
        ...

    async def wants_retry(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """An answer ended in an error; true if it will be tried again."""
        ...
