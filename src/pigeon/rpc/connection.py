"""What one client is shown: its dialect, features, event filter, numbers and ids of runs, with keys masked.

A session publishes everything and knows no client; a `Connection` turns that into what this client is sent. Every
client has one: behind a pipe (`rpc/outbox.py`), in this process (`rpc/in_process.py`), of a served conversation
(`frontends/serve/client_session.py`), and with its agent elsewhere (`rpc/relay.py`). Where the session is in the same
process, it is a `SessionConnection` (`rpc/session_connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, get_args

from msgspec.structs import replace

from pigeon.dialects.base import (
    Dialect,
    OutputLine,
    filterable_type_of,
    to_plain_answer_lines,
    with_data,
    with_member,
    with_sequence_number,
)
from pigeon.dialects.choice import switch_dialect
from pigeon.rpc.agent_views import AgentViews
from pigeon.rpc.lanes import MOST_IN_FLIGHT
from pigeon.rpc.prompted_end import PromptedEnd
from pigeon.transport.reader import DEFAULT_CAP
from pigeon.wire import codec
from pigeon.wire.answers import (
    Accepted,
    EventFilter,
    InputLimits,
    Response,
    SubagentLevel,
    SubagentSubscription,
    Welcome,
)
from pigeon.wire.base import ABSENT, Absent, Record, value_or_default
from pigeon.wire.choices import ALL_FEATURES, Feature
from pigeon.wire.codec import value_text
from pigeon.wire.commands import Hello, SetEventFilter, SetSubagentSubscription
from pigeon.wire.dialogs import SelectRequest
from pigeon.wire.errors import Refusal
from pigeon.wire.event_filter import TypeFilter
from pigeon.wire.events import (
    AgentChanged,
    AgentEvent,
    AgentSettled,
    BashExecutionUpdate,
    Event,
    MessageUpdate,
    Outbound,
    PromptResult,
)

NAME = "pigeon"
# The commands that are about the connection alone, wherever the session is.
OWN_COMMANDS = (Hello, SetEventFilter, SetSubagentSubscription)
_T = TypeVar("_T")


class EncodedData:
    """The data of an answer, encoded and masked."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces


class Connection:
    """The form of everything for one client: the initial one, then what `hello` agrees on."""

    def __init__(
        self,
        dialect: Dialect,
        features: Iterable[str] = (),
        mask: Callable[[bytes], bytes] = lambda data: data,
        count: int = 0,
        record_cap: int = DEFAULT_CAP,
        shows_denials: bool = False,
        fixed_dialect: str = "",
        fixed_features: bool = False,
    ) -> None:
        """`mask` masks keys in everything but the updates of an answer, which are the model's own words. `count` events
        were numbered before. With `shows_denials`, denials are shown even without the feature `permissions`.

        With `fixed_dialect`, the text of the refusal, the client cannot change its dialect; with `fixed_features`, it
        keeps the initial ones, whatever it requests.
        """
        self._dialect = dialect
        self._features = _select_known_features(features, dialect)
        self.mask = mask
        self._count = count
        self._record_cap = record_cap
        self._shows_denials = shows_denials
        self._fixed_dialect = fixed_dialect
        self._fixed_features = fixed_features
        self._filter = TypeFilter()
        self._before_change: Callable[[], None] = lambda: None
        self._answers_hello = False
        self._hidden_denial: str | Absent = ABSENT
        self._agents = AgentViews(dialect)
        self._prompted_end = PromptedEnd()

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def features(self) -> list[Feature]:
        return [feature for feature in ALL_FEATURES if feature in self._features]

    @property
    def sends_every_delta(self) -> bool:
        """Whether the client is to get each delta by itself."""
        return "every_delta" in self._features

    def set_change_callback(self, callback: Callable[[], None]) -> None:
        """Set a function to call before each change, so that waiting lines are sent in their original form."""
        self._before_change = callback

    # Requests about the connection

    def answer_own(
        self, command: Hello | SetEventFilter | SetSubagentSubscription
    ) -> Welcome | EventFilter | SubagentSubscription:
        """Answer one of `OWN_COMMANDS`; raises `Refusal`."""
        if isinstance(command, Hello):
            return self.handle_hello(command)
        if isinstance(command, SetEventFilter):
            return self.set_event_filter(command)
        return self.set_subagent_subscription(command)

    def handle_hello(self, command: Hello) -> Welcome:
        """Agree on dialect and features, which apply from the answer on; raises `Refusal`."""
        name = value_or_default(command.dialect, self._dialect.name)
        if self._fixed_dialect and name != self._dialect.name:
            raise Refusal(self._fixed_dialect.format(name))
        features: Iterable[str] = self.features
        if not self._fixed_features and not isinstance(command.features, Absent):
            features = command.features
        self._use_dialect(switch_dialect(self._dialect, name, "deltas" in features), features)
        self._answers_hello = True
        limits = InputLimits(record_bytes=self._record_cap, commands_in_flight=MOST_IN_FLIGHT)
        version = self._dialect.version
        return Welcome(name=NAME, version=version, dialect=self._dialect.name, features=self.features, limits=limits)

    def set_event_filter(self, command: SetEventFilter) -> EventFilter:
        """Send only events of some types, from the next one on; raises `Refusal`."""
        chosen = TypeFilter(command)
        self._before_change()
        self._filter = chosen
        return EventFilter(events=chosen.kinds)

    def set_subagent_subscription(self, command: SetSubagentSubscription) -> SubagentSubscription:
        """Send what oh-my-pi's clients see of started agents, from now on; raises `Refusal`."""
        if isinstance(command.level, Absent) or command.level not in get_args(SubagentLevel):
            raise Refusal(f"Invalid subagent subscription level: {value_text(command.level)}")
        self._before_change()
        self._agents.set_level(command.level)
        return SubagentSubscription(level=command.level)

    def use_all_features(self) -> None:
        """Use all features that `hello` offers in this dialect."""
        self._use_dialect(self._dialect, ALL_FEATURES)

    def _use_dialect(self, dialect: Dialect, features: Iterable[str]) -> None:
        self._before_change()
        self._dialect = dialect
        self._features = _select_known_features(features, dialect)
        self._agents.reset(dialect)

    # Events

    def to_lines(self, event: Outbound) -> list[OutputLine]:
        """The lines of an event in the dialect: none, one or several."""
        if isinstance(event, (AgentEvent, AgentChanged)):
            return self._to_agent_lines(event)
        run_id = self._run_id_of(event)
        # By far the most frequent event. Everyone gets it, and it is not masked.
        is_update = isinstance(event, MessageUpdate)
        shown = event if is_update else self._filter_event(event)
        if shown is None:
            return []
        lines = self._dialect.to_lines(shown if isinstance(shown.run_id, Absent) else replace(shown, run_id=ABSENT))
        if not self._filter.is_open:
            lines = [line for line in lines if self._filter.should_send_kind(filterable_type_of(line.record))]
        if not is_update:
            lines = [replace(line, pieces=tuple(map(self.mask, line.pieces))) for line in lines]
        if run_id is not None:
            lines = [with_member(line, b'"runId":"%s"' % run_id.encode()) for line in lines]
        if "seq" in self._features:
            lines = [with_sequence_number(line, self._assign_number()) for line in lines]
        return lines

    def _to_agent_lines(self, event: AgentEvent | AgentChanged) -> list[OutputLine]:
        """The lines about an agent that was started: those of this client's features, and those that it has subscribed
        to."""
        lines = [
            replace(line, pieces=tuple(map(self.mask, line.pieces))) for line in self._agents.to_subscribed_lines(event)
        ]
        if "agents" in self._features:
            lines += self._to_agent_event_lines(event) if isinstance(event, AgentEvent) else self._to_plain_lines(event)
        lines = [line for line in lines if self._filter.should_send_kind(filterable_type_of(line.record))]
        if "seq" not in self._features:
            return lines
        return [with_sequence_number(line, self._assign_number()) for line in lines]

    def _to_plain_lines(self, event: Outbound) -> list[OutputLine]:
        lines, run_id = self._mask_lines(self._dialect.to_lines(event)), self._run_id_of(event)
        return lines if run_id is None else [with_member(line, b'"runId":"%s"' % run_id.encode()) for line in lines]

    def _to_agent_event_lines(self, event: AgentEvent) -> list[OutputLine]:
        """An event of an agent, with its ids; deltas are not masked, like those of the conversation."""
        inner = event.event
        shown = inner if isinstance(inner, MessageUpdate) else self._filter_by_choice(inner)
        if shown is None:
            return []
        shown = shown if isinstance(shown.run_id, Absent) else replace(shown, run_id=ABSENT)
        lines = self._agents.to_event_lines(event, shown)
        lines = lines if isinstance(inner, MessageUpdate) else self._mask_lines(lines)
        ids = b'"agentId":%s,"parentAgentId":%s' % (codec.encode(event.agent_id), codec.encode(event.parent_agent_id))
        return [with_member(line, ids) for line in lines]

    def to_records(self, event: Outbound) -> Iterator[Any]:
        """The records of an event in the dialect: none, one or several."""
        if isinstance(event, AgentEvent):
            yield from self._to_agent_records(event)
            return
        shown = event if isinstance(event, MessageUpdate) else self._filter_event(event)
        if shown is None:
            return
        run_id = self._run_id_of(event) or ABSENT
        is_update = isinstance(shown, MessageUpdate)
        records: Iterable[Any] = (shown,) if is_update else map(self.mask_record, self._dialect.to_records(shown))
        for record in records:
            if self._filter.should_send_kind(filterable_type_of(record)):
                yield self._add_sequence_number(record if record.run_id == run_id else replace(record, run_id=run_id))

    def _to_agent_records(self, event: AgentEvent) -> Iterator[Any]:
        if "agents" not in self._features:
            return
        inner = event.event
        shown = inner if isinstance(inner, MessageUpdate) else self._filter_by_choice(inner)
        if shown is None:
            return
        records: Iterable[Any] = (shown,)
        if not isinstance(inner, MessageUpdate):
            records = map(self.mask_record, self._agents.to_records(event, shown))
        for record in records:
            if isinstance(record, Event) and self._filter.should_send_kind(filterable_type_of(record)):
                yield self._add_sequence_number(
                    replace(record, run_id=ABSENT, agent_id=event.agent_id, parent_agent_id=event.parent_agent_id)
                )

    def should_send_line(self, line: bytes) -> bool:
        """Whether the filter lets an event through that is encoded already."""
        return self._filter.should_send_line(line)

    def _filter_event(self, event: Outbound) -> Outbound | None:
        """The event without what the client does not know or has not asked for; None if that is all of it."""
        shown = self._prompted_end.to_shown_event(event)
        if shown is None and "attribution" not in self._features:
            return None
        event = event if shown is None or "attribution" in self._features else shown
        if isinstance(event, (AgentSettled, PromptResult)):
            event = self._hide_denial(event)
        return self._filter_by_choice(event)

    def _filter_by_choice(self, event: Outbound) -> Outbound | None:
        """The same by the features and the dialect alone: the runs of started agents are none of the conversation's."""
        if event.dialects is not None and self._dialect.name not in event.dialects:
            return None
        if event.feature is not None and event.feature not in self._features:
            return None
        if isinstance(event, SelectRequest):
            # Before members are removed: the words name the agent for clients that do not get it as a member.
            event = self._dialect.convert_question(event)
        return self._remove_unrequested_members(event)

    def _hide_denial(self, event: AgentSettled | PromptResult) -> AgentSettled | PromptResult:
        """The end of a denied run, or of its prompts, shown as done, for clients without denials."""
        if self._shows_denials or "permissions" in self._features:
            return event
        if isinstance(event, PromptResult):
            if self._hidden_denial and event.run_id == self._hidden_denial and event.status == "error":
                return replace(event, status="completed" if event.agent_invoked else "aborted", error=ABSENT)
            return event
        denied = event.reason == "denied"
        self._hidden_denial = event.run_id if denied else ABSENT
        return replace(event, reason="done") if denied else event

    def _remove_unrequested_members(self, record: _T) -> _T:
        if not isinstance(record, Record) or not record.member_features:
            return record
        hidden = [name for name, feature in record.member_features.items() if feature not in self._features]
        return replace(record, **dict.fromkeys(hidden, ABSENT)) if hidden else record

    def _run_id_of(self, event: Outbound) -> str | None:
        """The run of an event, for clients that want it; output of a client's own command belongs to none."""
        if "attribution" not in self._features or isinstance(event, BashExecutionUpdate):
            return None
        return self._active_run() if isinstance(event.run_id, Absent) else event.run_id

    def _active_run(self) -> str | None:
        return None

    def _add_sequence_number(self, record: Any) -> Any:
        return replace(record, seq=self._assign_number()) if "seq" in self._features else record

    def _assign_number(self) -> int:
        self._count += 1
        return self._count

    # Answers

    def greeting(self) -> list[OutputLine]:
        return self._dialect.make_greeting_lines()

    def to_answer_lines(self, response: Response) -> list[OutputLine]:
        """The answer to a command as lines: none, one or several."""
        # The answer to `hello` itself has the same form in every dialect.
        is_hello, self._answers_hello = self._answers_hello, False
        data = response.data
        if isinstance(data, Accepted) and data.disposition == "started":
            self._prompted_end.on_accepted()
        if isinstance(data, EncodedData):
            lines = self._mask_lines(self._dialect.to_answer_lines(replace(response, data=ABSENT)))
            pieces = self._dialect.convert_encoded_data(response.command, data.pieces) if lines else []
            return [with_data(line, pieces) for line in lines]
        shown = self.filter_answer_data(data)
        response = response if shown is data else replace(response, data=shown)
        return self._mask_lines(
            to_plain_answer_lines(response) if is_hello else self._dialect.to_answer_lines(response)
        )

    def to_refusal_lines(self, response: Response, with_result: bool) -> list[OutputLine]:
        """The refusal of a prompt as lines, with or without the result that a dialect may add."""
        return self._mask_lines(
            self._dialect.to_refusal_lines(response) if with_result else self._dialect.to_answer_lines(response)
        )

    def to_unknown_command_lines(self, response: Response) -> list[OutputLine]:
        """The refusal of an unknown command as lines."""
        return self._mask_lines(self._dialect.to_unknown_command_lines(response))

    def filter_answer_data(self, data: _T) -> _T:
        """The data of an answer without members that the client has not requested."""
        return self._remove_unrequested_members(data)

    def mask_record(self, record: _T) -> _T:
        """A record with masked keys; the same object if it has none."""
        encoded = codec.encode(record)
        masked = self.mask(encoded)
        return record if masked == encoded else codec.convert(codec.decode(masked), type(record))

    def _mask_lines(self, lines: list[OutputLine]) -> list[OutputLine]:
        return [replace(line, pieces=tuple(map(self.mask, line.pieces))) for line in lines]


def _select_known_features(wanted: Iterable[str], dialect: Dialect) -> frozenset[str]:
    """The known ones among the requested features; the dialect decides whether updates are deltas."""
    known = {feature for feature in wanted if feature in ALL_FEATURES and feature != "deltas"}
    return frozenset((*known, "deltas") if dialect.deltas else known)
