"""Stand-ins for everything that the loop is given: a provider that plays scripts, tools, a gate, queues, an owner."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockOpened,
    Delta,
    Failure,
    Finished,
    ModelRequest,
    Sampled,
    ToolSpec,
)
from pigeon.agent.interfaces import ArgumentSubject, SendableT, Spoken, Subject, Tool, ToolRun, Watch
from pigeon.agent.scope import RunningCalls, Scope
from pigeon.agent.tool_facts import make_default_facts
from pigeon.wire import codec
from pigeon.wire.content import TextContent, ToolCall, text_of
from pigeon.wire.events import Event, MessageEnd, MessageStart, MessageUpdate, Outbound, ToolOutcome
from pigeon.wire.messages import AssistantMessage, Message, StopReason, ToolResultMessage, UserMessage
from pigeon.wire.model import Model, zero_usage
from support.model_requests import a_model, a_request

Script = list[Delta | Callable[[], Awaitable[object]] | Exception]
Work = Callable[[dict[str, Any], ToolRun], Awaitable[ToolOutcome]]


def says(text: str, *pieces: str, stop: StopReason = "stop") -> Script:
    """An answer of one text, in as many deltas as there are pieces."""
    grown: Script = [BlockGrew(index=0, text=piece) for piece in (text, *pieces)]
    return [BlockOpened(index=0, kind="text"), *grown, BlockClosed(index=0), Finished(stop=stop)]


def calls(*named: tuple[str, dict[str, Any]], stop: StopReason = "toolUse") -> Script:
    """An answer that calls tools; the ids are `1`, `2` and so on."""
    script: Script = []
    for index, (name, arguments) in enumerate(named):
        script += [
            BlockOpened(index=index, kind="toolCall", call_id=str(index + 1), name=name),
            BlockGrew(index=index, text=codec.encode(arguments).decode()),
            BlockClosed(index=index),
        ]
    return [*script, Finished(stop=stop)]


def fails(message: str, **facts: Any) -> Script:
    """An answer that ends in an error."""
    return [Finished(stop="error", failure=Failure(message=message, **facts))]


class ScriptedProvider:
    """A provider that plays one script per request; a callable in a script is awaited, an exception raised."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = deque(scripts)
        self.requests: list[ModelRequest] = []
        self.dropped = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        ended = False
        self.requests.append(request)
        try:
            for step in self._scripts.popleft():
                if isinstance(step, Exception):
                    raise step
                if callable(step):
                    await step()
                else:
                    ended = isinstance(step, Finished)
                    yield step
        finally:
            self.dropped += not ended


class AnyTool:
    """A tool that does what it is told, and notes with which arguments."""

    def __init__(self, name: str, work: Work | None = None, reads_only: bool = False, **properties: Any) -> None:
        self.spec = ToolSpec(name, name, {"type": "object", "properties": properties})
        self.reads_only = reads_only
        self.facts = make_default_facts(name)
        self.seen: list[dict[str, Any]] = []
        self._work = work

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    def resolve_subject(self, arguments: dict[str, Any]) -> ArgumentSubject:
        return ArgumentSubject(arguments)

    async def preview(self, arguments: dict[str, Any], subject: Subject) -> str | None:
        return None

    async def execute(self, arguments: dict[str, Any], run: ToolRun) -> ToolOutcome:
        self.seen.append(arguments)
        return await self._work(arguments, run) if self._work else outcome("done")


def outcome(text: str, **more: Any) -> ToolOutcome:
    return ToolOutcome(content=[TextContent(text=text)], **more)


class QueuedMessage:
    def __init__(self, text: str) -> None:
        self.id = text
        self.message = UserMessage(content=text, timestamp=1)


class Queues:
    """Both queues, one message at a time; `delivered` is noted."""

    def __init__(self, steering: Sequence[str] = (), follow_ups: Sequence[str] = (), interrupts: bool = False) -> None:
        self._interrupts = interrupts
        self.steering = [QueuedMessage(text) for text in steering]
        self.follow_ups = [QueuedMessage(text) for text in follow_ups]

    def should_interrupt(self) -> bool:
        return self._interrupts and bool(self.steering)

    def peek_steering(self) -> list[QueuedMessage]:
        return self.steering[:1]

    def peek_follow_ups(self) -> list[QueuedMessage]:
        return self.follow_ups[:1]

    def try_reserve_item(self, item: object) -> bool:
        return True

    async def mark_delivered(self, item: QueuedMessage) -> None:
        (self.steering if item in self.steering else self.follow_ups).remove(item)


class Owner:
    """Decides what a session would decide."""

    def __init__(self, *tools: AnyTool) -> None:
        self._tools: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
        self.said: list[list[Spoken]] = []
        self.next_watches: list[Watch] = []
        self.asked: list[tuple[str, bool]] = []
        self.retries = False
        self.failures: list[Failure | None] = []
        self.breaks = 0
        self.at_break: Callable[[], object] = lambda: None
        self.crashes: list[Exception] = []
        self.named_tools: list[str] = []
        self.calls = RunningCalls()
        self.deaf = False
        self.one_at_a_time = False
        self.sampled: list[Sampled] = []
        self.call_refusals: list[str | None] = []

    def model(self) -> Model:
        return a_model()

    async def build_request(self) -> ModelRequest:
        if self.crashes:
            raise self.crashes.pop()
        return a_request(a_model())

    def on_tool_named(self, name: str) -> None:
        self.named_tools.append(name)

    def make_watches(self) -> list[Watch]:
        return [self.next_watches.pop(0)] if self.next_watches else []

    async def prepare_message(self, message: SendableT) -> SendableT:
        return message

    def name_machine(self, failure: ToolOutcome) -> ToolOutcome:
        return failure

    async def finalize_message(self, message: Message) -> Message:
        return message

    async def collect_additions(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], ends: bool
    ) -> list[Spoken] | None:
        self.asked.append((text_of(answer.content), ends))
        return self.said.pop(0) if self.said else []

    def can_accept_messages(self) -> bool:
        return not self.deaf

    def record_tokens(self, sampled: Sampled) -> None:
        self.sampled.append(sampled)

    def admit_call(self, call: ToolCall) -> str | None:
        return self.call_refusals.pop(0) if self.call_refusals else None

    def tools(self) -> dict[str, Tool]:
        return self._tools

    def find_unlisted_tool(self, name: str) -> Tool | None:
        return None

    async def announce_tools(self) -> None:
        """Nothing has to be declared."""

    async def before_next_turn(self, scope: Scope) -> None:
        self.breaks += 1
        self.at_break()

    async def on_answer(self, answer: AssistantMessage) -> None:
        return None

    async def should_retry_answer(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        self.failures.append(failure)
        return self.retries


class EventLog:
    def __init__(self) -> None:
        self.events: list[Outbound] = []

    async def __call__(self, event: Outbound) -> None:
        self.events.append(event)

    def of(self, *kinds: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    def outline(self) -> list[str]:
        """One word or two per event, updates left out."""
        return [_outline_of(event) for event in self.events if not isinstance(event, MessageUpdate)]


def _outline_of(event: Outbound) -> str:
    tag = str(event.__struct_config__.tag)
    if isinstance(event, MessageStart | MessageEnd):
        return f"{tag} {event.message.__struct_config__.tag}"
    call = getattr(event, "tool_call_id", "")
    return f"{tag} {call}".rstrip()


def answer_with_calls(*named: tuple[str, dict[str, Any]], stop: StopReason = "toolUse") -> AssistantMessage:
    """A finished answer that calls tools; the ids are `1`, `2` and so on."""
    model = a_model()
    return AssistantMessage(
        content=[ToolCall(id=str(at + 1), name=name, arguments=given) for at, (name, given) in enumerate(named)],
        api=model.api,
        provider=model.provider,
        model=model.id,
        usage=zero_usage(),
        stop_reason=stop,
        timestamp=1,
    )
