"""What a program receives: the events of a conversation, and the result of a run that is built from them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from pigeon.sdk.output import OutputType
from pigeon.sdk.records import UnknownEvent
from pigeon.wire.agents import UNFINISHED, AgentInfo
from pigeon.wire.answers import State
from pigeon.wire.base import ABSENT, Absent, value_or_default
from pigeon.wire.content import text_of
from pigeon.wire.events import (
    AgentChanged,
    AgentSettled,
    AgentStart,
    CompactionEnd,
    MessageEnd,
    Outbound,
    StreamEvent,
)
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage
from pigeon.wire.model import Usage, sum_usage, zero_usage
from pigeon.wire.steering import describe_limit

ConversationEvent = Outbound | StreamEvent | UnknownEvent
Ended = Literal["done", "limit", "aborted", "error", "denied"]
OutputT = TypeVar("OutputT")
MOST_RECENT = 4
_KEPT = (AgentStart, MessageEnd, CompactionEnd, AgentChanged, AgentSettled)
CUT_OFF = "The answer was cut off: it reached the model's longest output"
NO_OUTPUT = "The agent gave no output: no run was started, or it does not know outputSchema"


class Result(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """How a run ended, and its results.

    Attributes:
        text: the text of the last answer
        output: the value that was requested with `output=`, in that type; `None` unless `ended` is `done`
        messages: every message of the run in order, including the prompt and the messages added to it
        usage: tokens and cost of this run alone, including retries and compactions
        ended: `done`, `limit`, `aborted`, `error` or `denied`
        error: why, if `ended` is `error` or `limit`, in a sentence for people; the words of a model server are in the
            `error_message` of the last message
        session_id: the id of the session that the run is part of
        session_file: the file in which it is kept; `None` if nothing is kept
        run_id: the id of the run; `None` from agents whose runs have none

    Example:
        import pigeon

        result = pigeon.run_sync("list the files", model="demo")
        if result.ended == "done":
            print(result.text)
        else:
            print(result.ended, result.error)
        print(result.usage.output, "tokens,", result.usage.cost.total, "US dollars")
    """

    text: str
    output: OutputT | None
    messages: list[Message]
    usage: Usage
    ended: Ended
    error: str | None
    session_id: str
    session_file: str | None
    run_id: str | None = None


class RunRecord:
    """The parts of a run that are kept while its events go by."""

    def __init__(self, wanted: OutputType | None = None) -> None:
        self._wanted = wanted
        self.messages: list[Message] = []
        self.usage = zero_usage()
        self._settled: AgentSettled | None = None
        self._explanation = ""
        self._output: Any = None
        self._unusable: str | None = None if wanted is None else NO_OUTPUT

    def add_event(self, event: ConversationEvent) -> None:
        """Keep what the result of the run needs of one of its events."""
        if isinstance(event, MessageEnd):
            self.messages.append(event.message)
            if isinstance(event.message, AssistantMessage):
                self._explanation = value_or_default(event.explanation, "")
            if isinstance(event.message, AssistantMessage | ToolResultMessage):
                self._add_usage(event.message.usage)
        elif isinstance(event, CompactionEnd):
            self._add_usage(getattr(event.result, "usage", ABSENT))
        elif isinstance(event, AgentChanged):
            self._add_background_agent(event.agent)
        elif isinstance(event, AgentSettled):
            self._settled = event
            self._convert_and_store_output(event.output)

    def with_output(self, wanted: OutputType | None) -> RunRecord:
        """The same run for a caller with this `output=`."""
        record = RunRecord(wanted)
        record.messages, record.usage, record._explanation = list(self.messages), self.usage, self._explanation
        if self._settled is not None:
            record.add_event(self._settled)
        return record

    @property
    def settled_event(self) -> AgentSettled | None:
        """The end of the run, once it is over."""
        return self._settled

    def make_result(self, state: State) -> Result[Any]:
        """The result of the run, with the session that it was part of."""
        return self.make_result_of_session(state.session_id, value_or_default(state.session_file, None))

    def make_result_of_session(self, session_id: str, session_file: str | None) -> Result[Any]:
        """The same for a run of this session."""
        return Result(
            text=self.text,
            output=self._output if self.end_reason == "done" else None,
            messages=self.messages,
            usage=self.usage,
            ended=self.end_reason,
            error=self.error,
            session_id=session_id,
            session_file=session_file,
            run_id=None if self._settled is None else value_or_default(self._settled.run_id, None),
        )

    @property
    def text(self) -> str:
        """The text of the last answer."""
        answer = self._last_answer
        return "" if answer is None else text_of(answer.content)

    @property
    def end_reason(self) -> Ended:
        """Why the run ended; some agents report it only in the last answer."""
        settled, answer = self._settled, self._last_answer
        if settled is not None and settled.aborted:
            return "aborted"
        if settled is not None and settled.reason != "done":
            return settled.reason
        if answer is not None and answer.stop_reason in ("error", "aborted"):
            return "error" if answer.stop_reason == "error" else "aborted"
        return "done" if self._unusable is None else "error"

    @property
    def error(self) -> str | None:
        """The error, if one ended the run."""
        answer, settled = self._last_answer, self._settled
        if settled is not None and not isinstance(settled.limit, Absent):
            return describe_limit(settled.limit)
        if self.end_reason != "error":
            return None
        if self._settled is not None and not isinstance(self._settled.error_message, Absent):
            return self._settled.error_message
        text = None if answer is None else value_or_default(answer.error_message, None)
        return self._explanation or text or self._unusable or "The run ended in an error"

    @property
    def _last_answer(self) -> AssistantMessage | None:
        return _find_last_answer(self.messages)

    def _convert_and_store_output(self, output: Any) -> None:
        """Store the output in the requested type, or why it does not fit."""
        if self._wanted is None or isinstance(output, Absent):
            return
        try:
            self._output = self._wanted.convert_output(output)
            self._unusable = None
        except Exception as error:  # a type may run its own checks, and raise anything
            self._unusable = f"The output fits its schema, but not its type: {error}"

    def _add_background_agent(self, agent: AgentInfo) -> None:
        """Count an agent that has ended and that no call waits for; the others come with the results of their calls,
        and those of agents with these."""
        if agent.background is True and agent.depth == 1 and agent.status not in UNFINISHED:
            self._add_usage(agent.usage)

    def _add_usage(self, usage: Usage | Absent) -> None:
        # Counts of other agents need not be numbers.
        if isinstance(usage, Usage):
            with suppress(TypeError, AttributeError):
                self.usage = sum_usage(self.usage, usage)


class RecentRuns:
    """The last runs of a conversation by id, so that callers that came late still get all of a run."""

    def __init__(self) -> None:
        self._runs: dict[str, RunRecord] = {}

    def add_event(self, event: ConversationEvent, run_id: str | Absent) -> None:
        """Add an event to the record of its run."""
        if isinstance(run_id, str) and isinstance(event, _KEPT):
            if run_id not in self._runs:
                self._runs[run_id] = RunRecord()
                if len(self._runs) > MOST_RECENT:
                    del self._runs[next(iter(self._runs))]
            self._runs[run_id].add_event(event)

    def get(self, run_id: str | Absent | None) -> RunRecord | None:
        """The record of a run, or None if it is too old."""
        return self._runs.get(run_id) if isinstance(run_id, str) else None


def is_cut_off(messages: Sequence[Message]) -> bool:
    """Whether the last answer ended because the model had to stop, not because it chose to."""
    answer = _find_last_answer(messages)
    return answer is not None and answer.stop_reason == "length"


def _find_last_answer(messages: Sequence[Message]) -> AssistantMessage | None:
    return next((message for message in reversed(messages) if isinstance(message, AssistantMessage)), None)
