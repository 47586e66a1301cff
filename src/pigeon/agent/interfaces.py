"""The interfaces of the loop: what it needs of a provider, of tools and their gate, of the queue, and of its owner.

Other rooms import these instead of stating them again: `providers` and `tools` implement them, `session` is the owner,
`guard` and `extensions` are gates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from pigeon.agent.arguments import checked_arguments
from pigeon.agent.inference import Delta, Failure, ModelRequest, OutputFormat, Sampled, ToolSpec
from pigeon.agent.scope import RunningCalls, Scope
from pigeon.agent.tool_facts import ToolFacts, facts_named
from pigeon.system.paths import HeldPath, shows_process_memory
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

    def output_format(self, model: Model, schema: dict[str, Json], beside_tools: bool) -> OutputFormat | None:
        """The schema, which is that of an object, as the model's API takes it; none if it cannot be asked for so."""
        ...

    def refused_format(self, model: Model) -> None:
        """The server of the model has refused a format, and took the request without: it is not asked for again."""
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

    async def fitted(self, image: ImageContent) -> PreparedImage:
        """The answer for any image; decoding may take seconds."""
        ...


class CommandSubject(Struct, frozen=True):
    """A call that is about a shell command; with `outside`, one that is to run outside the sandbox, and why."""

    command: str
    outside: bool = False
    reason: str = ""

    def close(self) -> None:
        """Nothing is held."""


class PathSubject(Struct, frozen=True):
    """A call that is about a file or a folder, which it holds from the decision about the call to its end."""

    path: HeldPath
    access: Access

    def close(self) -> None:
        """Let go of the file."""
        self.path.close()


class ArgumentSubject(Struct, frozen=True):
    """A call that is about its arguments, whatever they mean: calls of tools that Pigeon does not know."""

    arguments: dict[str, Json]

    def close(self) -> None:
        """Nothing is held."""


# What a call is about. The permission gate, its question to the host and its memory look at this and nothing else, and
# the tool acts on it.
Subject = CommandSubject | PathSubject | ArgumentSubject


class PreparedCall:
    """A tool call between its arrival and its run: checked arguments, what it is about, what it must not show.

    Gates look at it and may `change` or `conceal`. `close` lets go of what its subject holds; `agent/tool_calls` calls
    that when the call has ended, also for one that was refused.
    """

    def __init__(self, call: ToolCall, tool: Tool, scope: Scope) -> None:
        self.call = call
        self.tool = tool
        self._scope = scope
        self._arguments: dict[str, Json] = {}
        self._subject: Subject = ArgumentSubject({})
        self._conceals: Callable[[str], bool] = shows_process_memory

    @property
    def arguments(self) -> dict[str, Json]:
        """The arguments to run with."""
        return self._arguments

    @property
    def subject(self) -> Subject:
        """What the call is about, as the tool itself says."""
        return self._subject

    @property
    def conceals(self) -> Callable[[str], bool]:
        """Whether what stands at a real path must not be shown by this call."""
        return self._conceals

    async def change(self, arguments: dict[str, Json]) -> None:
        """Take these arguments instead, checked anew; raises `ToolFailed`. What a gate concealed before is shown."""
        arguments = checked_arguments(self.call.name, self.tool.spec.parameters, self.tool.prepare(arguments))
        subject = self.tool.subject(arguments)
        if isawaitable(subject):
            subject = await self._scope.wait(subject)
        self.close()
        self._arguments, self._subject, self._conceals = arguments, subject, shows_process_memory

    async def preview(self) -> str | None:
        """What the call would change, as the tool itself says; none if there is nothing to show."""
        return await self._scope.wait(self.tool.preview(self._arguments, self._subject))

    def conceal(self, conceals: Callable[[str], bool]) -> None:
        """Do not show what this says of a real path, nor, as ever, what shows the memory of a process."""
        self._conceals = lambda place: shows_process_memory(place) or conceals(place)

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

    def read_path(self, place: str) -> str | None:
        """The path by which the host is asked for a file; none if it is read from the disk."""
        ...

    def write_path(self, place: str) -> str | None:
        """The same for writing."""
        ...

    async def read(self, run: ToolRun, path: str) -> str:
        """The text of a file; raises `HostRefused` as the host says, and `ToolFailed`."""
        ...

    async def write(self, run: ToolRun, path: str, content: str) -> None:
        """Give a file this content; raises `HostRefused` as the host says, and `ToolFailed`."""
        ...

    def tell_change(self, run: ToolRun, path: str, old: str | None, new: str) -> None:
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

    def read_path(self, place: str) -> str | None:
        """The disk has it."""
        return None

    def write_path(self, place: str) -> str | None:
        """The disk takes it."""
        return None

    async def read(self, run: ToolRun, path: str) -> str:
        """Never asked."""
        raise HostRefused(path)

    async def write(self, run: ToolRun, path: str, content: str) -> None:
        """Never asked."""
        raise HostRefused(path)

    def tell_change(self, run: ToolRun, path: str, old: str | None, new: str) -> None:
        """Not told."""

    async def run(
        self, run: ToolRun, argv: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float | None
    ) -> HostCommandEnd:
        """Never asked."""
        raise HostRefused(argv[0])


NO_HOST: HostAccess = NoHost()


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

    @property
    def facts(self) -> ToolFacts:
        """What is declared about its calls beside what the model sees."""
        ...

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Rewrite old or sloppy argument forms before they are checked, and drop what the tool does not know."""
        ...

    def subject(self, arguments: dict[str, Json]) -> Subject | Awaitable[Subject]:
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
        """Nothing but the name."""
        return facts_named(self.spec.name)

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """The arguments unchanged."""
        return arguments

    def subject(self, arguments: dict[str, Json]) -> ArgumentSubject:
        """All of the arguments."""
        return ArgumentSubject(arguments)

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> None:
        """Nothing: what a call would change is not known."""


class Gate(Protocol):
    """Stands before and after each tool: permissions and extensions."""

    async def before(self, prepared: PreparedCall) -> None:
        """Look at a call and change it; raising blocks the call with that text."""
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

    def take(self, item: QueuedItem) -> bool:
        """From here on the item cannot be taken back; false if it was in the meantime."""
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

    async def request(self) -> ModelRequest:
        """The next request: context, tools, model and thinking as they are now."""
        ...

    def model(self) -> Model:
        """The model that is asked."""
        ...

    def watches(self) -> Sequence[Watch]:
        """What may cut the next answer; asked once per answer, usually nothing."""
        ...

    async def prepare(self, message: SendableT) -> SendableT:
        """The message as models take it; asked right before its `message_start`."""
        ...

    async def finalize(self, message: Message) -> Message:
        """The message as it goes on record; asked right before its `message_end`."""
        ...

    async def additions(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], ends: bool
    ) -> list[Spoken] | None:
        """What the owner itself wants said before a further turn; with `ends`, the run ends if that is nothing.

        None ends the run in any case.
        """
        ...

    def takes_messages(self) -> bool:
        """False if queued messages must stay where they are, because no further answer will be asked for."""
        ...

    def refused_call(self, call: ToolCall) -> str | None:
        """Why this tool call must not be made; asked once for each call that would be, in their order."""
        ...

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        ...

    def missing_tool(self, name: str) -> Tool | None:
        """The tool that a call names and `tools` lacks, or one that waits for it when run; raises `ToolFailed`."""
        ...

    async def declare_tools(self) -> None:
        """Announce the tools of the run, if they are news; called once, before anything is said."""
        ...

    async def between_turns(self, scope: Scope) -> None:
        """Called before each further turn; the run's scope says when to stop."""
        ...

    async def answered(self, answer: AssistantMessage) -> None:
        """A good answer is complete; called right after its `message_end`."""
        ...

    def keep_tokens(self, sampled: Sampled) -> None:
        """The server has told the token ids of the answer that was said last."""
        ...

    async def wants_retry(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """An answer ended in an error; true if it will be tried again."""
        ...
