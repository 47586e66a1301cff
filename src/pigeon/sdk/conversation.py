"""`Conversation`: one agent and its conversation, as a program sees them, wherever the agent lives.

`Agent` has it in this process, `Client` behind a pipe or a socket. Both pass every record of the agent to `_on_record`
and send commands with `_call`; everything else is here and the same for both: the readers of events, prompts and their
runs, and the program's own callables (`sdk/host_calls.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast, overload
from weakref import WeakSet

from msgspec.structs import replace

from pigeon.sdk.commands import CommandMethods
from pigeon.sdk.errors import ConversationClosed
from pigeon.sdk.host_calls import AnyTool, HostCalls, OnDialog, OnPermission, ServedHost
from pigeon.sdk.images import ImageLike, images_of
from pigeon.sdk.output import OutputType
from pigeon.sdk.prompt_events import PromptEvents, PromptRuns
from pigeon.sdk.reader_queue import ReaderQueue
from pigeon.sdk.records import UnknownEvent
from pigeon.sdk.results import ConversationEvent, OutputT, RecentRuns, Result, RunRecord
from pigeon.sdk.spawned_runs import AgentReaders, SpawnedRun
from pigeon.system.platforms import unsupported_reason
from pigeon.wire.agents import AgentIsolation
from pigeon.wire.answers import Accepted
from pigeon.wire.base import ABSENT
from pigeon.wire.commands import (
    Command,
    FollowUp,
    Hello,
    Prompt,
    SetEventFilter,
    SetHostServices,
    SetHostTools,
    SpawnAgent,
    Steer,
    StreamingBehavior,
)
from pigeon.wire.commands.services import HostServicesState
from pigeon.wire.errors import Refusal, StartupError
from pigeon.wire.events import Event, MessageUpdate, Outbound
from pigeon.wire.steering import Limits

_Self = TypeVar("_Self", bound="Conversation")
DIALECT = "pi-latest"
NEEDED = ("agent_settled", "message_end", "compaction_end")
# The features to request with `hello`.
FEATURES = ["deltas", "permissions", "attribution", "explanations", "agents", "every_delta"]


class Conversation(CommandMethods):
    """One agent and its conversation: an async context manager, with a method for every command of the protocol.

    Example:
        import asyncio

        import pigeon


        async def talk(conversation: pigeon.Conversation) -> None:
            result = await conversation.run("list the files")
            state = await conversation.get_state()
            print(result.text, state.message_count)


        async def main() -> None:
            async with pigeon.Agent(model="demo") as agent:
                await talk(agent)


        asyncio.run(main())
    """

    def __init__(
        self,
        tools: Sequence[AnyTool] = (),
        on_permission: OnPermission | None = None,
        on_dialog: OnDialog | None = None,
    ) -> None:
        why = unsupported_reason()
        if why is not None:
            raise StartupError(why)
        self._readers: WeakSet[ReaderQueue] = WeakSet()
        # What came before the first reader, if anything may have.
        self._unread: ReaderQueue | None = None
        self._host_calls = HostCalls(tools, on_permission, on_dialog, self._send_unanswered)
        self._recent = RecentRuns()
        self._agent_readers = AgentReaders()
        self._runs = PromptRuns(self._call, self._subscribe, self._recent)

    # Implemented by the two kinds of conversation

    @abstractmethod
    async def open(self) -> None:
        """Start or reach the agent; `async with` does it."""

    @abstractmethod
    async def close(self) -> None:
        """Stop what is running, and leave or end the agent; further calls change nothing."""

    @abstractmethod
    def _call(self, command: Command, answered: Callable[[Any], None] | None = None) -> Awaitable[Any]:
        """Send a command; awaiting gives the answer. `answered` gets it before any event that follows it."""

    @abstractmethod
    def _send_unanswered(self, command: Command) -> None:
        """Send a command that has no answer; ignored when the conversation is closed."""

    async def __aenter__(self: _Self) -> _Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Commands and events

    async def send(self, command: Command) -> Any:
        """Send a command as a record; returns its answer, raises a `Refusal` if it is refused."""
        if isinstance(command, Hello) and command.dialect not in (ABSENT, DIALECT):
            raise Refusal(
                f"The events of this conversation are read as {DIALECT}; it cannot change to {command.dialect}"
            )
        if isinstance(command, Hello) and isinstance(command.features, list):
            # Results are made with these.
            missing = [feature for feature in FEATURES if feature not in command.features]
            command = replace(command, features=[*command.features, *missing])
        if isinstance(command, SetEventFilter) and isinstance(command.events, list):
            # Without these no prompt would end, and no result be known.
            command = replace(command, events=[*command.events, *NEEDED])
        return await self._call(command)

    def events(self) -> AsyncIterator[ConversationEvent]:
        """Everything that the agent sends from this call on, for as long as the conversation is open.

        A `message_update` is delivered as its content: a `TextDelta`, a `ToolcallEnd` and so on. Several readers are
        independent of each other. A program that a `Client` has started may send events before any command: if this is
        the first call after opening, they are included.
        """
        unread, self._unread = self._unread, None
        return _EventReader(self._subscribe() if unread is None else unread)

    def prompt(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = (),
        limits: Limits | None = None,
        output: Any = None,
        message_id: str | None = None,
        streaming_behavior: StreamingBehavior | None = None,
        every_delta: bool = False,
    ) -> PromptEvents:
        """Prompt, and iterate over the events of the run up to its `agent_settled`.

        `output` is a type or a JSON Schema; `agent_settled` then has the output of the run, as JSON.

        Leaving the iteration early aborts the run; the next prompt waits until that is over. Raises a `Refusal` if
        the prompt is refused, for example while another run is active. With a `streaming_behavior` it joins that run
        instead and ends with it; leaving then takes back the message, if it is still queued.

        `message_id` is an id of the program's own that makes it safe to send a prompt again: the same prompt under the
        same id starts nothing and gives the rest of the run that the first one started, or only its end if it is over.

        With `every_delta` each delta arrives as the model sent it, however slowly the program reads; beyond 100,000
        unread events the iteration raises `ReaderTooSlow`, and the run is aborted.
        """

        schema = None if output is None else OutputType(output).schema
        asked = {
            "limits": limits,
            "output_schema": schema,
            "client_message_id": message_id,
            "streaming_behavior": streaming_behavior,
        }

        async def make_prompt() -> Prompt:
            return Prompt(message=text, images=await images_of(images), **_drop_none(asked))

        return PromptEvents(self._runs, make_prompt, every_delta)

    @overload
    async def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = ...,
        limits: Limits | None = ...,
        output: None = ...,
        message_id: str | None = ...,
        streaming_behavior: StreamingBehavior | None = ...,
    ) -> Result[None]: ...

    @overload
    async def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = ...,
        limits: Limits | None = ...,
        output: type[OutputT],
        message_id: str | None = ...,
        streaming_behavior: StreamingBehavior | None = ...,
    ) -> Result[OutputT]: ...

    @overload
    async def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = ...,
        limits: Limits | None = ...,
        output: Any,
        message_id: str | None = ...,
        streaming_behavior: StreamingBehavior | None = ...,
    ) -> Result[Any]: ...

    async def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = (),
        limits: Limits | None = None,
        output: Any = None,
        message_id: str | None = None,
        streaming_behavior: StreamingBehavior | None = None,
    ) -> Result[Any]:
        """Prompt, wait for the end of the run, and return how it ended; cancelling this aborts the run.

        `output` is a type (a dataclass, a struct, `list[str]`, ...) or a JSON Schema: the type of `Result.output`
        if `ended` is `done`; otherwise that is `None`. The other arguments are those of `prompt`.
        """
        wanted = None if output is None else OutputType(output)
        record = RunRecord(wanted)
        async with self.prompt(
            text,
            images=images,
            limits=limits,
            output=None if wanted is None else wanted.schema,
            message_id=message_id,
            streaming_behavior=streaming_behavior,
        ) as events:
            async for event in events:
                record.add_event(event)
        whole = None if record.settled_event is None else self._recent.get(record.settled_event.run_id)
        return (record if whole is None else whole.with_output(wanted)).make_result(await self.get_state())

    @overload
    def spawn(
        self,
        text: str,
        *,
        agent: str | None = ...,
        title: str | None = ...,
        resume: str | None = ...,
        isolation: AgentIsolation = ...,
        limits: Limits | None = ...,
        output: None = ...,
    ) -> SpawnedRun[None]: ...

    @overload
    def spawn(
        self,
        text: str,
        *,
        agent: str | None = ...,
        title: str | None = ...,
        resume: str | None = ...,
        isolation: AgentIsolation = ...,
        limits: Limits | None = ...,
        output: type[OutputT],
    ) -> SpawnedRun[OutputT]: ...

    @overload
    def spawn(
        self,
        text: str,
        *,
        agent: str | None = ...,
        title: str | None = ...,
        resume: str | None = ...,
        isolation: AgentIsolation = ...,
        limits: Limits | None = ...,
        output: Any,
    ) -> SpawnedRun[Any]: ...

    def spawn(
        self,
        text: str,
        *,
        agent: str | None = None,
        title: str | None = None,
        resume: str | None = None,
        isolation: AgentIsolation = "none",
        limits: Limits | None = None,
        output: Any = None,
    ) -> SpawnedRun[Any]:
        """Start an agent with a context of its own, beside this conversation, and iterate over its events.

        `agent` is its type, `general` by default. `resume` is the id of one that has ended and is to continue. With
        `isolation="worktree"` it works in a git worktree of its own. `limits` are its own, those of the conversation
        hold besides; `output` is as for `run`. It is started at once, so this needs a running event loop.
        """
        wanted = None if output is None else OutputType(output)
        given = {
            "agent": agent,
            "title": title,
            "resume": resume,
            "limits": limits,
            "output_schema": None if wanted is None else wanted.schema,
        }
        command = SpawnAgent(message=text, isolation=isolation, **_drop_none(given))
        return SpawnedRun(self._call, self._agent_readers, command, wanted)

    async def steer(self, text: str, *, images: Sequence[ImageLike] = (), message_id: str | None = None) -> Accepted:
        """Send a message to the model at the next break in the running turn."""
        given = _drop_none({"client_message_id": message_id})
        return cast("Accepted", await self._call(Steer(message=text, images=await images_of(images), **given)))

    async def follow_up(
        self, text: str, *, images: Sequence[ImageLike] = (), message_id: str | None = None
    ) -> Accepted:
        """Send a message to the model when it would otherwise stop."""
        given = _drop_none({"client_message_id": message_id})
        return cast("Accepted", await self._call(FollowUp(message=text, images=await images_of(images), **given)))

    async def set_tools(self, tools: Sequence[AnyTool]) -> None:
        """Replace the functions that the model may call, from its next request on."""
        before = self._host_calls.replace_tools(tools)
        try:
            await self._call(SetHostTools(tools=self._host_calls.definitions()))
        except Refusal:
            self._host_calls.replace_tools(before)
            raise

    async def serve_host(self, served: ServedHost, services: SetHostServices) -> HostServicesState:
        """Provide these services for the tools of the agent; returns those that are in force."""
        self._host_calls.set_served_host(served)
        return cast("HostServicesState", await self._call(services))

    # Records of the agent

    def _on_record(self, record: Outbound | UnknownEvent, size: int = 0) -> None:
        """Called with each record of the agent, in order; `size` is its length as a line, if it was one."""
        if isinstance(record, Event) and isinstance(record.agent_id, str):
            of_agent = record.assistant_message_event if isinstance(record, MessageUpdate) else record
            self._agent_readers.put(record.agent_id, of_agent, size)
            return
        self._host_calls.on_record(record)
        event = record.assistant_message_event if isinstance(record, MessageUpdate) else record
        run_id = ABSENT if isinstance(record, UnknownEvent) else record.run_id
        self._recent.add_event(event, run_id)
        for reader in list(self._readers):
            reader.put(event, run_id, size)

    def _close_readers(self, error: Exception | None) -> None:
        """End all readers, with this error if there is one: no further record comes."""
        self._host_calls.close()
        self._agent_readers.close(error)
        for reader in list(self._readers):
            reader.close(error)
        self._readers.clear()

    def _subscribe(
        self, run_id: str | None = None, missed: Exception | None = None, *, every_delta: bool = False
    ) -> ReaderQueue:
        queue = ReaderQueue(run_id, missed, every_delta=every_delta)
        self._readers.add(queue)
        return queue


class _EventReader:
    """An iterator over a queue, which is dropped with it."""

    def __init__(self, queue: ReaderQueue) -> None:
        self._queue = queue

    def __aiter__(self) -> _EventReader:
        return self

    async def __anext__(self) -> ConversationEvent:
        try:
            return cast("ConversationEvent", await self._queue.get())
        except ConversationClosed:
            raise StopAsyncIteration from None


def _drop_none(members: dict[str, Any]) -> dict[str, Any]:
    """The members of a command that were given."""
    return {name: value for name, value in members.items() if value is not None}
