"""The interfaces of the loop: what it needs of a provider, of tools and their gate, of the queue, and of its owner.

Other packages import these instead of stating them again: `providers` and `tools` implement them, `session` is the
owner, `permissions` and `extensions` are gates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from pigeon.agent.inference import Delta, Failure, ModelRequest, OutputFormat, Sampled, ToolSpec
from pigeon.agent.scope import RunningCalls, Scope
from pigeon.agent.tool_facts import ToolFacts, make_default_facts
from pigeon.system.paths import HeldPath, is_process_memory
from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent, ToolCall
from pigeon.wire.events import Outbound, StreamEvent, ToolOutcome
from pigeon.wire.messages import AssistantMessage, CustomMessage, Message, ToolResultMessage, UserMessage
from pigeon.wire.model import Model

Publish = Callable[[Outbound], Awaitable[None]]
Access = Literal["read", "search", "write"]
ToolMode = Literal["ordered", "declared", "parallel", "sequential"]
Spoken = UserMessage | CustomMessage
Sendable = Spoken | ToolResultMessage
SendableT = TypeVar("SendableT", bound=Sendable)


class ModelProvider(Protocol):
    """Answers one request with a stream of deltas that ends in exactly one `Finished`."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Begin an answer; closing the iterator drops the connection."""
        ...


class OutputFormats(Protocol):
    """Which models have a format for answers that a program reads; asked before each request of such a run."""

    def find_output_format(self, model: Model, schema: dict[str, Json], beside_tools: bool) -> OutputFormat | None:
        """The schema, which is that of an object, as the model's API takes it; none if it cannot be asked for so."""
        ...

    def on_format_refused(self, model: Model) -> None:
        """The server of the model has refused a format, and took the request without: it is not asked for again."""
        ...


class PreparedImage(Struct, frozen=True):
    """An image as models take it, none if it cannot be sent; `readable` is false if the data is no image at all."""

    image: ImageContent | None
    notes: tuple[str, ...] = ()
    readable: bool = True


class ImagePreparer(Protocol):
    """Knows which images models take; `tools/images` implements it."""

    def prepare_quickly(self, image: ImageContent) -> PreparedImage | None:
        """The answer if the first bytes are enough for one; none if the image has to be decoded."""
        ...

    async def fit_image(self, image: ImageContent) -> PreparedImage:
        """The answer for any image; decoding may take seconds."""
        ...


class CommandSubject(Struct, frozen=True):
    """A call that is about a shell command; with `outside`, one that is to run outside the sandbox, and why."""

    command: str
    outside: bool = False
    reason: str = ""

    def close(self) -> None:
        """Does nothing: a command holds no file open."""


class PathSubject(Struct, frozen=True):
    """A call that is about a file or a folder, which it holds from the decision about the call to its end."""

    path: HeldPath
    access: Access

    def close(self) -> None:
        self.path.close()


class ArgumentSubject(Struct, frozen=True):
    """A call that is about its arguments, whatever they mean: calls of tools that Pigeon does not know."""

    arguments: dict[str, Json]

    def close(self) -> None:
        """Does nothing: arguments hold no file open."""


# What a call is about. The permission gate, its question to the host and its memory look at this and nothing else, and
# the tool acts on it.
Subject = CommandSubject | PathSubject | ArgumentSubject


class PreparedCall:
    """A tool call between its arrival and its run: checked arguments, what it is about, what it must not show.

    Gates look at it and may `replace_arguments` or `conceal`. `close` lets go of what its subject holds;
    `agent/tool_calls` calls that when the call has ended, also for one that was refused.
    """

    def __init__(self, call: ToolCall, tool: Tool, scope: Scope) -> None:
        self.call = call
        self.tool = tool
        self._scope = scope
        self._arguments: dict[str, Json] = {}
        self._subject: Subject = ArgumentSubject({})
        self._conceals: Callable[[str], bool] = is_process_memory

    @property
    def arguments(self) -> dict[str, Json]:
        return self._arguments

    @property
    def subject(self) -> Subject:
        """What the call is about, as the tool itself says."""
        return self._subject

    @property
    def conceals(self) -> Callable[[str], bool]:
        """Whether what stands at a real path must not be shown by this call."""
        return self._conceals

    async def replace_arguments(self, arguments: dict[str, Json]) -> None:
        """Take these arguments instead, checked anew; raises `ToolFailed`. What a gate concealed before is shown."""
        from pigeon.agent.arguments import validate_arguments

        arguments = validate_arguments(self.call.name, self.tool.spec.parameters, self.tool.prepare(arguments))
        subject = self.tool.resolve_subject(arguments)
        if isawaitable(subject):
            subject = await self._scope.wait(subject)
        self.close()
        self._arguments, self._subject, self._conceals = arguments, subject, is_process_memory

    async def preview(self) -> str | None:
        """What the call would change, as the tool itself says; none if there is nothing to show."""
        return await self._scope.wait(self.tool.preview(self._arguments, self._subject))

    def conceal(self, conceals: Callable[[str], bool]) -> None:
        """Do not show what this says of a real path, nor, as ever, what shows the memory of a process."""
        self._conceals = lambda place: is_process_memory(place) or conceals(place)

    def close(self) -> None:
        """Let go of what the subject holds."""
        self._subject.close()


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

    @property
    def subject(self) -> Subject:
        """What the call was allowed to be about: the tool acts on this."""
        ...

    @property
    def conceals(self) -> Callable[[str], bool]:
        """Whether what stands at a real path must not be shown."""
        ...

    async def update(self, progress: ToolOutcome) -> None:
        """Tell the host everything there is so far."""
        ...


class HostRefused(Exception):
    """The host does not do what it was asked for; the text is its reason."""


class HostCommandEnd(Struct, frozen=True):
    """How a command at the host ended; `cause` is set if it was stopped: `cancelled` or `timeout`."""

    output: str
    truncated: bool
    exit_code: int | None
    cause: str | None


class HostAccess(Protocol):
    """What the host does for tools in the place of the disk and the shell; `session/host/host_services` implements it.

    Everything about a call is checked before the host is asked.
    """

    @property
    def runs_commands(self) -> bool:
        """True if commands run at the host."""
        ...

    @property
    def wants_changes(self) -> bool:
        """True if the host is told what has changed in files."""
        ...

    def path_for_reading(self, place: str) -> str | None:
        """The path by which the host is asked for a file; none if it is read from the disk."""
        ...

    def path_for_writing(self, place: str) -> str | None:
        """The path by which the host is asked to write a file; None if it is written to the disk."""
        ...

    async def read(self, run: ToolRun, path: str) -> str:
        """The text of a file; raises `HostRefused` as the host says, and `ToolFailed`."""
        ...

    async def write(self, run: ToolRun, path: str, content: str) -> None:
        """Give a file this content; raises `HostRefused` as the host says, and `ToolFailed`."""
        ...

    def report_change(self, run: ToolRun, path: str, old: str | None, new: str) -> None:
        """A tool has changed a file; `old` is none for a new one."""
        ...

    async def run(
        self, run: ToolRun, argv: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float | None
    ) -> HostCommandEnd:
        """Run a command to its end, or until it must stop; raises `ToolFailed`."""
        ...


class NoHost:
    """A host that does nothing for tools: files are those of the disk, and commands run here."""

    runs_commands = False
    wants_changes = False

    def path_for_reading(self, place: str) -> str | None:
        return None

    def path_for_writing(self, place: str) -> str | None:
        return None

    async def read(self, run: ToolRun, path: str) -> str:
        raise HostRefused(path)

    async def write(self, run: ToolRun, path: str, content: str) -> None:
        raise HostRefused(path)

    def report_change(self, run: ToolRun, path: str, old: str | None, new: str) -> None:
        """Does nothing: there is no host that wants to know."""

    async def run(
        self, run: ToolRun, argv: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float | None
    ) -> HostCommandEnd:
        raise HostRefused(argv[0])


NO_HOST: HostAccess = NoHost()


class Tool(Protocol):
    """Something the model can call."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def reads_only(self) -> bool:
        """True if neighbouring calls may run beside it."""
        ...

    @property
    def facts(self) -> ToolFacts:
        """What is declared about its calls beside what the model sees."""
        ...

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Rewrite old or sloppy argument forms before they are checked, and drop what the tool does not know."""
        ...

    def resolve_subject(self, arguments: dict[str, Json]) -> Subject | Awaitable[Subject]:
        """What a call with these arguments is about, at once unless a disk is asked; raises `ToolFailed`."""
        ...

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> str | None:
        """What a run would change, for a person who is asked before; none if there is nothing to show."""
        ...

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Do it; failure is an exception, `ToolFailed` to keep details."""
        ...


class ArgumentTool:
    """The part of `Tool` that is the same for every tool whose calls are about their arguments, whatever these mean."""

    spec: ToolSpec

    @property
    def facts(self) -> ToolFacts:
        return make_default_facts(self.spec.name)

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        return arguments

    def resolve_subject(self, arguments: dict[str, Json]) -> ArgumentSubject:
        return ArgumentSubject(arguments)

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> None:
        """Nothing: what a call would change is not known."""


class Gate(Protocol):
    """Stands before and after each tool: permissions and extensions."""

    async def before_call(self, prepared: PreparedCall) -> None:
        """Look at a call and change it; raising blocks the call with that text."""
        ...

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]: ...


class QueuedItem(Protocol):
    """A message that waits in the queue."""

    @property
    def id(self) -> str:
        """Tells it apart from others with the same text."""
        ...

    @property
    def message(self) -> Spoken: ...


class Feed(Protocol):
    """The queue as the loop sees it: messages that wait for a break in the run."""

    def should_interrupt(self) -> bool:
        """True if a message waits that skips the tool calls which have not started."""
        ...

    def next_steering(self) -> list[QueuedItem]:
        """What steering delivers now, by its mode; it stays queued until delivered."""
        ...

    def next_follow_ups(self) -> list[QueuedItem]:
        """What follow-ups deliver now, by their mode."""
        ...

    def try_reserve_item(self, item: QueuedItem) -> bool:
        """Reserves an item, so that it cannot be taken back any more; returns False if it was taken back before."""
        ...

    async def mark_delivered(self, item: QueuedItem) -> None:
        """The item leaves the queue; called right before its `message_start`."""
        ...


class Watch(Protocol):
    """Looks at an answer while it streams."""

    def process_event(self, event: StreamEvent) -> Outbound | None:
        """What to announce if the answer must be cut here; none lets it go on."""
        ...


class RunOwner(Protocol):
    """What the owner of the loop decides, asked anew each time because it may change while a run lasts.

    `session/run_owner` is the one implementation.
    """

    @property
    def calls(self) -> RunningCalls:
        """Where calls are listed while they run."""
        ...

    @property
    def one_at_a_time(self) -> bool:
        """True if calls that may run side by side run one after the other, so that they end in the same order."""
        ...

    async def build_request(self) -> ModelRequest:
        """The next request: context, tools, model and thinking as they are now."""
        ...

    def model(self) -> Model: ...

    def make_watches(self) -> Sequence[Watch]:
        """What may cut the next answer; asked once per answer, usually nothing."""
        ...

    async def prepare_message(self, message: SendableT) -> SendableT:
        """The message as models take it; asked right before its `message_start`."""
        ...

    async def finalize_message(self, message: Message) -> Message:
        """The message as it goes on record; asked right before its `message_end`."""
        ...

    async def collect_additions(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], ends: bool
    ) -> list[Spoken] | None:
        """What the owner itself wants said before a further turn; with `ends`, the run ends if that is nothing.

        None ends the run in any case.
        """
        ...

    def can_accept_messages(self) -> bool:
        """False if queued messages must stay where they are, because no further answer will be asked for."""
        ...

    def admit_call(self, call: ToolCall) -> str | None:
        """Admits a tool call, or returns why it must not be made; called once for each call, in their order."""
        ...

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        ...

    def find_missing_tool(self, name: str) -> Tool | None:
        """The tool that a call names and `tools` lacks, or one that waits for it when run; raises `ToolFailed`."""
        ...

    async def declare_tools(self) -> None:
        """Announce the tools of the run, if they are news; called once, before anything is said."""
        ...

    async def before_next_turn(self, scope: Scope) -> None:
        """Called before each further turn; the run's scope says when to stop."""
        ...

    async def on_answer(self, answer: AssistantMessage) -> None:
        """A good answer is complete; called right after its `message_end`."""
        ...

    def record_tokens(self, sampled: Sampled) -> None:
        """The server has told the token ids of the answer that was said last."""
        ...

    async def should_retry_answer(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """An answer ended in an error; true if it will be tried again."""
        ...
