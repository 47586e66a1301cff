"""`omp`: oh-my-pi. A ready line, an acknowledgement before a refusal, one `agent_end`, a result for each prompt.

`OhMyPi` has what the whole family shares, `xcsh` and `companion` included. Its clients count one `agent_end` per
accepted prompt. So everything that follows a run automatically (a retry, a compaction, the next run) is reported
between one `agent_start` and one `agent_end`. `Omp` adds the records that its newest clients wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from pigeon.dialects.approval_questions import to_approval_question
from pigeon.dialects.base import Dialect, OutputLine, to_older_event, with_member, without_id
from pigeon.wire.answers import Accepted, BashResult, LocalOnly, Response, SlashCommand, State, success_response
from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.choices import DialectName, ToolOffer
from pigeon.wire.codec import convert, decode, encode
from pigeon.wire.commands import NAMES, Bash, Command, GetAvailableCommands
from pigeon.wire.dialogs import SelectRequest
from pigeon.wire.errors import ABORTED_BEFORE, BUSY, ENTRY_MISSING
from pigeon.wire.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    AvailableCommand,
    AvailableCommandsUpdate,
    CompactionEnd,
    CompactionStart,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Outbound,
    PromptError,
    PromptResult,
    Ready,
    SessionSettled,
)
from pigeon.wire.messages import Message

ABORTED_BASH = "[Command cancelled]\n"
_T = TypeVar("_T")


# The words in which oh-my-pi and xcsh refuse.
REFUSAL_TEXTS = MappingProxyType(
    {BUSY: "Agent is already processing. Use steer() or followUp() to queue messages, or wait for completion."}
)


class OhMyPi(Dialect):
    """What the clients of oh-my-pi, xcsh and the companion protocol have in common."""

    def __init__(self, version: str = "", emit_title: bool = False, deltas: bool = False) -> None:
        super().__init__(version, emit_title, deltas)
        self._begun = False
        self._added: list[Message] = []

    def make_greeting_lines(self) -> list[OutputLine]:
        return [OutputLine((encode(Ready()),))]

    def to_records(self, event: Outbound) -> Iterable[Record]:
        """Row: the end of a run, sent once, when nothing follows automatically."""
        if isinstance(event, AgentStart):
            begun, self._begun = self._begun, True
            return () if begun else (event,)
        if isinstance(event, AgentEnd):
            self._added += event.messages
            return ()
        if isinstance(event, AgentSettled):
            messages, self._added, self._begun = self._added, [], False
            return self.convert_run_end(event, messages)
        return super().to_records(event)

    def convert_run_end(self, event: AgentSettled, messages: list[Message]) -> Iterable[Record]:
        """The end of a run as records of this dialect."""
        return (AgentEnd(messages=messages),)

    def convert_question(self, request: SelectRequest) -> SelectRequest:
        """Row: the words of a question about permission, in which clients look for the tool and the command."""
        return to_approval_question(request)

    def convert_compaction(self, event: CompactionStart | CompactionEnd) -> Iterable[Record]:
        """Row: compaction events under their older name, automatic ones only."""
        return () if event.reason == "manual" else (to_older_event(event),)

    def to_answer_lines(self, response: Response) -> list[OutputLine]:
        """Row: an accepted message, here without data unless no run follows."""
        if isinstance(response.data, Accepted) and response.data.disposition == "handled":
            response = replace(response, data=LocalOnly())
        elif isinstance(response.data, Accepted) and not tells_run_or_message_id(response.data):
            response = replace(response, data=ABSENT)
        return super().to_answer_lines(response)

    def to_refusal_lines(self, response: Response) -> list[OutputLine]:
        """Row: rejected prompt: accepted first, then failed under the same id."""
        return [
            *self.to_answer_lines(success_response(response.command, id=response.id)),
            *self.to_answer_lines(response),
        ]

    def to_unknown_command_lines(self, response: Response) -> list[OutputLine]:
        """Row: unknown command, without id."""
        return self.to_answer_lines(without_id(response))


def tells_run_or_message_id(accepted: Accepted) -> bool:
    """True if the answer has more members than the disposition, because the host requested them."""
    return not (isinstance(accepted.run_id, Absent) and isinstance(accepted.client_message_id, Absent))


class WithCommandOrder(OhMyPi):
    """What oh-my-pi and xcsh do with commands: one after another, `abort` for shell commands too; and their tools."""

    default_offers: ClassVar[tuple[ToolOffer, ...]] = ("agents",)
    continues_after_failure: ClassVar[bool] = True
    runs_commands_in_order: ClassVar[bool] = True
    skips_blank_lines: ClassVar[bool] = True
    abort_ends_bash: ClassVar[bool] = True

    def to_answer_lines(self, response: Response) -> list[OutputLine]:
        """Row: the output of an aborted shell command."""
        if isinstance(response.data, BashResult) and response.data.cancelled:
            response = replace(response, data=replace(response.data, output=ABORTED_BASH + response.data.output))
        return super().to_answer_lines(response)

    def convert_encoded_data(self, command: str, pieces: list[bytes]) -> list[bytes]:
        """Row: the output of a shell command that was aborted in an agent elsewhere."""
        if command != NAMES[Bash]:
            return pieces
        result = convert(decode(b"".join(pieces)), BashResult)
        return [encode(replace(result, output=ABORTED_BASH + result.output))] if result.cancelled else pieces


class Omp(WithCommandOrder):
    """The newest clients of oh-my-pi: a result for each accepted prompt, ids on messages and on every refusal."""

    name: ClassVar[DialectName] = "omp"
    refusal_texts: ClassVar[Mapping[str, str]] = REFUSAL_TEXTS
    asked_first: ClassVar[tuple[Command, ...]] = (GetAvailableCommands(),)

    def __init__(self, version: str = "", emit_title: bool = False, deltas: bool = False) -> None:
        super().__init__(version, emit_title, deltas)
        self._settled = True
        self._messages = 0

    def to_lines(self, event: Outbound) -> list[OutputLine]:
        """Row: `messageId`, shared by the start, the updates and the end of a message."""
        if isinstance(event, MessageStart):
            self._messages += 1
        lines = super().to_lines(event)
        if isinstance(event, (MessageStart, MessageUpdate, MessageEnd)):
            return [with_member(line, b'"messageId":"msg-%d"' % self._messages) for line in lines]
        return lines

    def to_records(self, event: Outbound) -> Iterable[Record]:
        """Rows: the end of each prompt, then that nothing follows; the slash commands."""
        if isinstance(event, (AgentStart, SessionSettled)):
            self._settled = isinstance(event, SessionSettled)
        return super().to_records(event)

    def convert_commands(self, event: Event, read: Callable[[], list[SlashCommand]]) -> Event:
        """Row: other slash commands, all of them in this family's words."""
        return AvailableCommandsUpdate(
            commands=[
                AvailableCommand(
                    name=command.name,
                    source="file" if command.source == "prompt" else command.source,
                    description=command.description,
                )
                for command in read()
            ]
        )

    def convert_state(self, state: _T, read: Callable[[], State]) -> _T | State:
        """Row: the state, whole: there is no work beside the run, no fast mode, and speed is not measured."""
        return replace(
            read(),
            has_pending_async_work=False,
            fast_mode_enabled=False,
            tokens_per_second=None,
            fast_mode_active=False,
        )

    def convert_run_end(self, event: AgentSettled, messages: list[Message]) -> Iterable[Record]:
        """Row: run end; results follow."""
        return (AgentEnd(messages=messages, is_terminal=True, yielded=True),)

    def to_answer_lines(self, response: Response) -> list[OutputLine]:
        """Rows: an accepted prompt gets a result later, unless its answer tells that no run follows; `get_entries`
        after a missing entry."""
        if isinstance(response.data, Accepted) and response.data.disposition == "started":
            self._settled = False
        if response.command == "get_entries" and isinstance(response.error, str):
            missing = response.error.removeprefix(ENTRY_MISSING)
            if missing != response.error:
                response = replace(response, error=f"Unknown entries cursor: {missing}", code="unknown_since")
        return super().to_answer_lines(response)

    def to_refusal_lines(self, response: Response) -> list[OutputLine]:
        """Row: rejected prompt: its acknowledgement promised a result, too."""
        response = self.word_refusal(response)
        text = "" if isinstance(response.error, Absent) else response.error
        aborted = text == ABORTED_BEFORE
        result = PromptResult(
            id=response.id,
            agent_invoked=False,
            status="aborted" if aborted else "error",
            session_settled=self._settled,
            error=ABSENT if aborted else PromptError(message=text, retryable=False),
        )
        return [*super().to_refusal_lines(response), OutputLine((encode(result),), apart=True)]

    def to_unknown_command_lines(self, response: Response) -> list[OutputLine]:
        """Row: unknown command, with its id: the client waits for it."""
        return self.to_answer_lines(response)
