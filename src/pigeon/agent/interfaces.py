"""The interfaces of the loop: its provider, tools and their gate, the queue, and its owner.

Other packages import these instead of repeating them: `providers` and `tools` implement them, `session` is the owner,
`permissions` and `extensions` are gates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from pigeon.agent.inference import Delta, Failure, ModelRequest, OutputFormat, Sampled, ToolSpec
from pigeon.agent.scope import RunningCalls, Scope
from pigeon.agent.tool_facts import ToolFacts, make_default_facts
from pigeon.system.held_paths import HeldPath
from pigeon.system.paths import is_process_memory
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
    """Whether models have a format for answers that a program reads; called before each request of such a run."""

    def find_output_format(self, model: Model, schema: dict[str, Json], beside_tools: bool) -> OutputFormat | None:
        """The schema of an object in the form of the model's API, or None if the API cannot enforce it."""
        ...

    def on_format_refused(self, model: Model) -> None:
        """Called when the model's server has refused a format but accepted the request without it; the format is not
        sent again."""
        ...


class PreparedImage(Struct, frozen=True):
    """An image in a form for models, None if it cannot be sent; `readable` is False if the data is not an image."""

    image: ImageContent | None
    notes: tuple[str, ...] = ()
    readable: bool = True


class ImagePreparer(Protocol):
    """Knows which images models accept; `tools/images` implements it."""

    def prepare_quickly(self, image: ImageContent) -> PreparedImage | None:
        """The result if the first bytes are enough, or None if the image has to be decoded."""
        ...

    async def fit_image(self, image: ImageContent) -> PreparedImage:
        """The result for any image; decoding may take seconds."""
        ...


class CommandSubject(Struct, frozen=True):
    """The subject of a shell command; with `outside`, the command is to run outside the sandbox, for that reason."""

    command: str
    outside: bool = False
    reason: str = ""

    def close(self) -> None:
        """Does nothing: a command holds no file open."""


class PathSubject(Struct, frozen=True):
    """The subject of a file or folder, which is held from the decision about the call to its end."""

    path: HeldPath
    access: Access

    def close(self) -> None:
        self.path.close()


class ArgumentSubject(Struct, frozen=True):
    """The subject of calls about arguments with an unknown meaning: those of tools that Pigeon does not know."""

    arguments: dict[str, Json]

    def close(self) -> None:
        """Does nothing: arguments hold no file open."""


# The subject of a call. The permission gate, its question to the host and its allowances only use this, and the tool
# acts on it.
Subject = CommandSubject | PathSubject | ArgumentSubject


class PreparedCall:
    """A tool call between its arrival and its run: checked arguments, its subject, what it must not show.

    Gates check it and may `replace_arguments` or `conceal`. `close` releases what its subject holds; `agent/tool_calls`
    calls it when the call has ended or was refused.
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
        return self._subject

    @property
    def conceals(self) -> Callable[[str], bool]:
        """Whether this call must not show the file at a real path."""
        return self._conceals

    async def replace_arguments(self, arguments: dict[str, Json]) -> None:
        """Replace the arguments, which are checked again; raises `ToolFailed`. What a gate concealed before is
        shown."""
        from pigeon.agent.arguments import validate_arguments

        arguments = validate_arguments(self.call.name, self.tool.spec.parameters, self.tool.prepare(arguments))
        subject = self.tool.resolve_subject(arguments)
        if isawaitable(subject):
            subject = await self._scope.wait(subject)
        self.close()
        self._arguments, self._subject, self._conceals = arguments, subject, is_process_memory

    async def preview(self) -> str | None:
        """The tool's preview of the change, or None if there is nothing to show."""
        return await self._scope.wait(self.tool.preview(self._arguments, self._subject))

    def conceal_paths(self, conceals: Callable[[str], bool]) -> None:
        """Hide real paths for which this returns True; files that show the memory of processes are always hidden."""
        self._conceals = lambda place: is_process_memory(place) or conceals(place)

    def close(self) -> None:
        self._subject.close()


class ToolRun(Protocol):
    """A tool's view of its own call."""

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
        """The subject that was allowed, on which the tool acts."""
        ...

    @property
    def conceals(self) -> Callable[[str], bool]:
        """Whether the file at a real path must not be shown."""
        ...

    async def update(self, progress: ToolOutcome) -> None:
        """Report all progress so far to the host."""
        ...


class HostRefused(Exception):
    """The host refuses a request; the text is its reason."""


class HostCommandEnd(Struct, frozen=True):
    """How a command at the host ended; `cause` is set if it was stopped: `cancelled` or `timeout`."""

    output: str
    truncated: bool
    exit_code: int | None
    cause: str | None


class HostAccess(Protocol):
    """Services of the host for tools in place of the disk and the shell; `session/host/host_services` implements it.

    Everything about a call is checked before the host gets a request.
    """

    @property
    def runs_commands(self) -> bool:
        """True if commands run at the host."""
        ...

    @property
    def wants_changes(self) -> bool:
        """True if the host wants reports of changed files."""
        ...

    def find_host_path_to_read(self, place: str) -> str | None:
        """The path under which to request a file from the host, or None if it is read from the disk."""
        ...

    def find_host_path_to_write(self, place: str) -> str | None:
        """The path under which the host writes a file, or None if it is written to the disk."""
        ...

    async def read(self, run: ToolRun, path: str) -> str:
        """The text of a file; raises `HostRefused` with the host's reason, and `ToolFailed`."""
        ...

    async def write(self, run: ToolRun, path: str, content: str) -> None:
        """Write a file; raises `HostRefused` with the host's reason, and `ToolFailed`."""
        ...

    def report_change(self, run: ToolRun, path: str, old: str | None, new: str) -> None:
        """Report the change of a file by a tool; `old` is None for a new one."""
        ...

    async def run(
        self, run: ToolRun, argv: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float | None
    ) -> HostCommandEnd:
        """Run a command to its end, or until it must stop; raises `ToolFailed`."""
        ...


class NoHost:
    """A host without services: files are on the disk, and commands run here."""

    runs_commands = False
    wants_changes = False

    def find_host_path_to_read(self, place: str) -> str | None:
        return None

    def find_host_path_to_write(self, place: str) -> str | None:
        return None

    async def read(self, run: ToolRun, path: str) -> str:
        raise HostRefused(path)

    async def write(self, run: ToolRun, path: str, content: str) -> None:
        raise HostRefused(path)

    def report_change(self, run: ToolRun, path: str, old: str | None, new: str) -> None: ...

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
    def definition(self) -> ToolSpec | None:
        """What its calls mean, as far as it has been said: a person's yes to more than one call holds only as long as
        this stays the same. None if it is not known yet."""
        ...

    @property
    def reads_only(self) -> bool:
        """True if neighbouring calls may run in parallel with it."""
        ...

    @property
    def facts(self) -> ToolFacts:
        """The declared facts about its calls that the model does not see."""
        ...

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Convert old or sloppy argument forms before they are checked, and drop unknown arguments."""
        ...

    def resolve_subject(self, arguments: dict[str, Json]) -> Subject | Awaitable[Subject]:
        """The subject of a call with these arguments, at once unless the disk is needed; raises `ToolFailed`."""
        ...

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> str | None:
        """The change that a run would make, for a person who approves it; None if there is nothing to show."""
        ...

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Run the tool; failures are exceptions, `ToolFailed` to keep details."""
        ...


class ArgumentTool:
    """The common part of every `Tool` whose subject is its arguments, whatever they mean."""

    spec: ToolSpec

    @property
    def definition(self) -> ToolSpec | None:
        return self.spec

    @property
    def facts(self) -> ToolFacts:
        return make_default_facts(self.spec.name)

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        return arguments

    def resolve_subject(self, arguments: dict[str, Json]) -> ArgumentSubject:
        return ArgumentSubject(arguments)

    async def preview(self, arguments: dict[str, Json], subject: Subject) -> None:
        """Returns None: the change of a call is not known."""


class Gate(Protocol):
    """Called before and after each tool call: permissions and extensions."""

    async def before_call(self, prepared: PreparedCall) -> None:
        """Check a call, and perhaps change it; an exception blocks the call with its text."""
        ...

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]: ...


class QueuedItem(Protocol):
    """A message that waits in the queue."""

    @property
    def id(self) -> str:
        """Distinguishes it from other messages with the same text."""
        ...

    @property
    def message(self) -> Spoken: ...


class Feed(Protocol):
    """The queue from the loop's point of view: messages that wait for a break in the run."""

    def should_interrupt(self) -> bool:
        """True if a queued message skips tool calls that have not started."""
        ...

    def peek_steering(self) -> list[QueuedItem]:
        """The steering messages to deliver now, by their mode; they stay queued until delivered."""
        ...

    def peek_follow_ups(self) -> list[QueuedItem]:
        """The follow-ups to deliver now, by their mode."""
        ...

    def try_reserve_item(self, item: QueuedItem) -> bool:
        """Reserve an item, so that it cannot be removed any more; returns False if it was removed before."""
        ...

    async def mark_delivered(self, item: QueuedItem) -> None:
        """Remove an item from the queue; called right before its `message_start`."""
        ...


class Watch(Protocol):
    """Checks an answer while it streams."""

    def check_for_cut(self, event: StreamEvent) -> Outbound | None:
        """The event to announce if the answer must be cut here, or None to continue."""
        ...


class UnfinishedAnswer(Struct, frozen=True):
    """An answer of an earlier process, and the ids of its calls that have not begun yet."""

    answer: AssistantMessage
    open_calls: frozenset[str]


class RunOwner(Protocol):
    """Decisions of the loop's owner, requested each time because they may change during a run.

    `session/run_owner` is the one implementation.
    """

    @property
    def calls(self) -> RunningCalls: ...

    @property
    def one_at_a_time(self) -> bool:
        """True if calls that may run in parallel run one after the other, so that they end in the same order."""
        ...

    async def build_request(self) -> ModelRequest:
        """The next request: the current context, tools, model and thinking level."""
        ...

    def model(self) -> Model: ...

    def make_watches(self) -> Sequence[Watch]:
        """What may cut the next answer; called once per answer, usually empty."""
        ...

    def on_tool_named(self, name: str) -> None:
        """Called when a streamed answer names a tool, before its arguments have arrived."""
        ...

    async def prepare_message(self, message: SendableT) -> SendableT:
        """The message in a form for models; called right before its `message_start`."""
        ...

    async def finalize_message(self, message: Message) -> Message:
        """The message to record; called right before its `message_end`."""
        ...

    def name_machine(self, failure: ToolOutcome) -> ToolOutcome:
        """The result of a failed call, which names the machine that it was about, if that is another one."""
        ...

    async def collect_additions(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], ends: bool
    ) -> list[Spoken] | None:
        """Messages of the owner itself before a further turn; with `ends`, the run ends if there are none.

        None ends the run in any case.
        """
        ...

    def can_accept_messages(self) -> bool:
        """False if queued messages must stay queued, because no further answer will be requested."""
        ...

    def admit_call(self, call: ToolCall) -> str | None:
        """Admit a tool call, or return why it must not be made; called once for each call, in order."""
        ...

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        ...

    def find_unlisted_tool(self, name: str) -> Tool | None:
        """The tool that a call names and `tools` lacks, or a stand-in that waits for it; raises `ToolFailed`."""
        ...

    async def announce_tools(self) -> None:
        """Announce the tools of the run if they have changed; called once, before the first message."""
        ...

    async def before_next_turn(self, scope: Scope) -> None:
        """Called before each further turn; the run's scope limits the work."""
        ...

    async def on_answer(self, answer: AssistantMessage) -> None:
        """Called when a good answer is complete, right after its `message_end`."""
        ...

    def record_tokens(self, sampled: Sampled) -> None:
        """Called when the server has reported the token ids of the last answer."""
        ...

    async def should_retry_answer(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """Called when an answer ended in an error; returns True if it will be tried again."""
        ...
