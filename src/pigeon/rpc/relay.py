"""Connects a host to an agent elsewhere: the host speaks its own dialect, which is translated for the agent.

The agent is a conversation of `pigeon serve`, which sends every client the same events: `pi-latest` with all features.
The host's own `Connection` puts them into its dialect, as if the agent were in this process: commands are read and
answered by the server of `--mode rpc` (`rpc/server.py`), which forwards them to the agent (`RemoteCommands`), and
events go through its outbox. Results of prompts, which only oh-my-pi's clients know, are derived from the ends of runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pigeon.dialects.base import Dialect
from pigeon.rpc.connection import OWN_COMMANDS, Connection, EncodedData
from pigeon.rpc.lanes import Finish
from pigeon.rpc.outbox import Outbox
from pigeon.rpc.server import Server
from pigeon.transport.reader import Frame
from pigeon.transport.writer import LineSink
from pigeon.wire import codec
from pigeon.wire.answers import Accepted, Commands, State
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import (
    AbortAndPrompt,
    ClearQueue,
    Command,
    FollowUp,
    GetState,
    Hello,
    Prompt,
    RemoveQueued,
    SetEventFilter,
    SetSubagentSubscription,
    Steer,
)
from pigeon.wire.errors import Refusal
from pigeon.wire.events import (
    AgentEnd,
    AgentEvent,
    AgentSettled,
    AgentStart,
    CommandsChanged,
    Event,
    MessageEnd,
    MessageStart,
    Outbound,
    PromptError,
    PromptResult,
    QueueUpdate,
    SessionSettled,
)
from pigeon.wire.messages import AssistantMessage

_SAYS = (Prompt, Steer, FollowUp, AbortAndPrompt)
_FAILED = "The run ended in an error"


class _Answer(Struct):
    """The agent's answer to a forwarded command."""

    id: str = ""
    success: bool = False
    error: str = ""
    code: str | None = None
    data: msgspec.Raw | Absent = ABSENT


class _Waiting(Struct, frozen=True):
    command: Command
    finish: Finish


class RemoteCommands:
    """Forwards commands to the agent; `own` answers those that concern only the host's connection."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        own: Callable[[Hello | SetEventFilter | SetSubagentSubscription], Any],
        answered: Callable[[Command, Any], Any],
    ) -> None:
        """`answered` may change the data of a successful answer."""
        self._write = write
        self._own = own
        self._answered = answered
        self._waiting: dict[str, _Waiting] = {}
        self._count = 0
        self._none_waits = asyncio.Event()
        self._none_waits.set()

    def submit(self, command: Command, finish: Finish, taken: Callable[[Any], Any] | None = None) -> None:
        """Take a command; `finish` gets its answer or its failure when the line of the answer comes."""
        if isinstance(command, OWN_COMMANDS):
            try:
                answer = self._own(command)
            except Refusal as refusal:
                finish(None, refusal)
            else:
                finish(answer, None)
        elif command.silent:
            self._write(codec.encode(command) + b"\n")
            finish(None, None)
        else:
            self._count += 1
            id = f"attach-{self._count}"
            self._waiting[id] = _Waiting(command, finish)
            self._none_waits.clear()
            self._write(codec.encode(replace(command, id=id)) + b"\n")

    def on_answer(self, line: bytes) -> None:
        """Finish the command that this response of the agent answers."""
        answer = msgspec.json.decode(line, type=_Answer)
        waiting = self._waiting.pop(answer.id, None)
        if waiting is None:
            return
        if not answer.success:
            waiting.finish(None, Refusal(answer.error, answer.code))
        else:
            waiting.finish(self._answered(waiting.command, _decode_data(waiting.command, answer.data)), None)
        if not self._waiting:
            self._none_waits.set()

    async def wait_until_drained(self) -> None:
        """Wait until every command has its answer."""
        await self._none_waits.wait()


class Relay:
    """One host. `write` sends a line to the agent; `decoded` converts an event to a record, or to another object if it
    is unknown."""

    def __init__(
        self,
        sink: LineSink,
        dialect: Dialect,
        write: Callable[[bytes], None],
        decoded: Callable[[dict[str, Json]], Any],
    ) -> None:
        self._decoded = decoded
        self._connection = Connection(dialect)
        self._outbox = Outbox(sink, self._connection)
        self._commands = RemoteCommands(write, self._connection.answer_own, self._track_and_adapt_answer)
        self._server = Server(self._commands, self._outbox, lambda: self._dialect)
        self._in_run = False
        self._last_answer: AssistantMessage | None = None
        self._prompts = OpenPromptIds()

    def send_greeting(self) -> None:
        """Send the greeting of the dialect."""
        self._outbox.greet()
        for command in self._dialect.asked_first:
            self._commands.submit(command, self._on_commands_answer)

    def handle_frames(self, frames: list[Frame]) -> Awaitable[None] | None:
        return self._server.handle_frames(frames)

    def wait_if_full(self) -> Awaitable[None] | None:
        """Returns an awaitable while the host is behind, otherwise None."""
        return self._outbox.wait_if_full()

    async def wait_until_drained(self) -> None:
        await self._commands.wait_until_drained()

    def on_agent_data(self, data: bytes) -> None:
        """Handle whole lines of the agent: responses and events."""
        for line in data.split(b"\n"):
            if line:
                self._handle_agent_line(line)

    def _handle_agent_line(self, line: bytes) -> None:
        value = codec.decode(line)
        if value.get("type") == "response":
            self._commands.on_answer(line)
            return
        event = self._decoded(value)
        if isinstance(event, Outbound.__args__):
            for one in self._to_published_events(replace(event, seq=ABSENT)):
                self._outbox.send_event(one)
        elif (later := self._dialect.convert_later_event(line)) is not None:
            self._outbox.forward_line(later)

    # Events

    @property
    def _dialect(self) -> Dialect:
        return self._connection.dialect

    def _to_published_events(self, event: Any) -> list[Any]:
        """The events that an agent in this process would have published instead: none, one or several."""
        if isinstance(event, Event) and not isinstance(event.agent_id, Absent):
            inner = replace(event, agent_id=ABSENT, parent_agent_id=ABSENT)
            return [AgentEvent(event=inner, agent_id=event.agent_id, parent_agent_id=event.parent_agent_id)]
        if isinstance(event, QueueUpdate):
            self._prompts.set_queue([*event.steering, *event.follow_up])
        elif isinstance(event, (MessageStart, MessageEnd)):
            if isinstance(event.message, AssistantMessage):
                self._last_answer = event.message if isinstance(event, MessageEnd) else None
            return [event] if self._dialect.filter_messages([event.message]) else []
        elif isinstance(event, AgentStart):
            self._in_run = True
        elif isinstance(event, AgentEnd):
            self._in_run = False
            return [replace(event, messages=self._dialect.filter_messages(event.messages))]
        elif isinstance(event, AgentSettled):
            return self._to_run_end_events(event)
        return [event]

    def _to_run_end_events(self, event: AgentSettled) -> list[Any]:
        """The end of a run with the results of its prompts; a run that a dead agent left open gets a complete end."""
        ends: list[Any] = [AgentEnd(messages=[], run_id=event.run_id)] if self._in_run else []
        self._in_run = False
        results = self._prompts.resolve_all(event, self._prompt_error_of(event))
        return [*ends, event, *results, SessionSettled(run_id=event.run_id)]

    def _prompt_error_of(self, event: AgentSettled) -> PromptError:
        failed = self._last_answer
        if not isinstance(event.error_message, Absent):
            return PromptError(message=event.error_message, retryable=False)
        if failed is None or isinstance(failed.error_message, Absent):
            return PromptError(message=_FAILED, retryable=False)
        return PromptError(message=failed.error_message, provider=failed.provider, model=failed.model, retryable=False)

    # Commands

    def _track_and_adapt_answer(self, command: Command, data: Any) -> Any:
        """The data of an answer in the form for this host."""
        if isinstance(data, Accepted):
            if isinstance(command, (Prompt, AbortAndPrompt)) and data.disposition != "handled":
                self._prompts.add(command, data)
            return data
        if isinstance(command, RemoveQueued):
            self._withdraw_queued_prompts(command.queued_id)
        elif isinstance(command, ClearQueue):
            self._withdraw_queued_prompts(None)
        if isinstance(command, GetState) and isinstance(data, EncodedData):
            return self._dialect.convert_state(data, lambda: _to_settled_state(data))
        return data

    def _withdraw_queued_prompts(self, queued_id: str | None) -> None:
        for result in self._prompts.withdraw_queued(queued_id):
            self._outbox.send_event(result)

    def _on_commands_answer(self, data: Any, error: BaseException | None) -> None:
        if error is None and isinstance(data, EncodedData):
            listed = codec.convert(_decode_pieces(data), Commands).commands
            self._outbox.send_event(self._dialect.convert_commands(CommandsChanged(), lambda: listed))


class _OpenPrompt(Struct, frozen=True):
    id: Json | Absent
    text: str
    wants_output: bool
    queued_id: str | Absent


class OpenPromptIds:
    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._open: list[_OpenPrompt] = []

    def set_queue(self, texts: list[str]) -> None:
        """Replace the texts of the queued messages."""
        self._waiting = texts

    def add(self, command: Prompt | AbortAndPrompt, accepted: Accepted) -> None:
        wants = not isinstance(command.output_schema, Absent)
        self._open.append(_OpenPrompt(command.id, command.message, wants, accepted.queued_id))

    def resolve_all(self, end: AgentSettled, error: PromptError) -> list[PromptResult]:
        """Close all prompts at the end of a run, and return their results."""
        taken, self._open = self._open, []
        return [self._make_result(prompt, end, error) for prompt in taken]

    def withdraw_queued(self, queued_id: str | None) -> list[PromptResult]:
        """Close prompts that were removed from the queue, one or all, and return their results."""
        gone = [one for one in self._open if one.queued_id and queued_id in (None, one.queued_id)]
        self._open = [one for one in self._open if one not in gone]
        return [PromptResult(id=one.id, agent_invoked=False, status="aborted", session_settled=False) for one in gone]

    def _make_result(self, prompt: _OpenPrompt, end: AgentSettled, error: PromptError) -> PromptResult:
        delivered = not (prompt.queued_id and prompt.text in self._waiting)
        failed = end.reason not in ("done", "aborted")
        completed = end.reason == "done" and delivered
        return PromptResult(
            id=prompt.id,
            agent_invoked=delivered,
            status="error" if failed else "completed" if completed else "aborted",
            session_settled=True,
            error=error if failed else ABSENT,
            output=end.output if prompt.wants_output else ABSENT,
            run_id=end.run_id,
        )


def _decode_data(command: Command, data: msgspec.Raw | Absent) -> Any:
    if isinstance(data, Absent):
        return ABSENT
    if isinstance(command, _SAYS):
        return msgspec.json.decode(data, type=Accepted)
    return EncodedData([bytes(data)])


def _to_settled_state(data: EncodedData) -> State:
    state = codec.convert(_decode_pieces(data), State)
    return replace(state, is_settled=not state.is_streaming)


def _decode_pieces(data: EncodedData) -> Any:
    return codec.decode(b"".join(data.pieces))
