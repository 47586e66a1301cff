"""The interface of everything that influences a run besides the model and the user.

A policy sees the run at fixed moments: when it begins, before each request, while an answer streams, at each tool call,
after each turn, and at the end. Every method has a default that changes nothing, so a policy defines only the ones it
needs. Policies do not know each other; `session/policies/all.py` lists them and calls them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from pigeon.agent.inference import ModelRequest
from pigeon.agent.interfaces import Gate, ModelProvider, OutputFormats, PreparedCall, Spoken, Tool, Watch
from pigeon.agent.scope import Scope
from pigeon.session.history.entry_line import EntryLine
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import ToolCall
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import AssistantMessage, ToolResultMessage
from pigeon.wire.steering import LimitReached, Limits

NextGate = Callable[[], Gate | None]


class RunStart(Struct, frozen=True):
    """How a run begins; `limits` are those of this run alone, or None."""

    scope: Scope
    limits: Limits | None
    output_formats: OutputFormats
    now: Callable[[], int]


class CompletedTurn(Struct, frozen=True):
    """A turn that is over. The run `ends` with it unless a policy adds something; `has_output` is True if the turn
    produced the output that the run must end with."""

    answer: AssistantMessage
    results: Sequence[ToolResultMessage]
    ends: bool
    has_output: bool = False

    @property
    def has_stopped_by_itself(self) -> bool:
        """True if the model ended its answer without calling a tool."""
        if self.answer.stop_reason in ("error", "aborted"):
            return False
        return not any(isinstance(block, ToolCall) for block in self.answer.content)


class RunEnd(Struct, frozen=True):
    """What policies report about a finished run: the limit that ended it, its output, or why it has no output."""

    limit: LimitReached | None = None
    output: Json | Absent = ABSENT
    problem: str | Absent = ABSENT


class GateExceptTool:
    """Admits a policy's own tool, and passes everything else to another gate."""

    def __init__(self, inner: Gate, tool: Tool) -> None:
        self._inner = inner
        self._tool = tool

    async def before_call(self, prepared: PreparedCall) -> None:
        if prepared.tool is not self._tool:
            await self._inner.before_call(prepared)

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        if call.name == self._tool.spec.name:
            return outcome, is_error
        return await self._inner.after_call(call, outcome, is_error)


class RunPolicy:
    """Influences runs. The methods are in the order in which a run calls them."""

    def restore_from_branch(self, branch: Iterable[EntryLine]) -> None:
        """Called when another branch or conversation is in use."""

    def mark_for_reload(self) -> None:
        """Read files again when they are next needed."""

    def warm_up(self) -> None:
        """Read files that the first request needs, while there is time."""

    def begin_run(self, start: RunStart) -> None:
        """Called when a run begins, before its first request."""

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        """Wraps the loop's provider; a wrapper may refuse, repeat or count requests."""
        return provider

    def wrap_gate(self, gate: NextGate) -> NextGate:
        """Wraps the gate before tool calls."""
        return gate

    def change_request(self, request: ModelRequest) -> ModelRequest:
        return request

    def make_watch(self) -> Watch | None:
        """What may cut the next answer, called once for each; None if nothing could."""
        return None

    def on_answer(self, answer: AssistantMessage) -> None:
        """Called when a good answer is complete, before its calls run."""

    def change_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """Adds or removes callable tools."""
        return tools

    def is_own_call(self, call: ToolCall) -> bool:
        """True for a call of the policy's own tool, which other policies do not admit or count."""
        return False

    def admit_call(self, call: ToolCall) -> str | None:
        """Admit and count a tool call, or return why it must not be made; called once for each call."""
        return None

    @property
    def has_output(self) -> bool:
        return False

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken] | None:
        """Messages to the model with which the run continues; None ends the run. The first policy that returns
        messages, or None, decides."""
        return ()

    def collect_notices(self, turn: CompletedTurn) -> Sequence[str]:
        """Further notices for the model, collected from every policy when the run continues after a turn."""
        return ()

    async def after_loop(self) -> None:
        """Called when the loop has ended, whatever ended it, before anything follows in the same run."""

    def try_continue_run(self) -> bool:
        """Returns False if no further answer may be requested, however short; the policy has then ended the run."""
        return True

    def on_context_full(self) -> None:
        """Called when the context overflowed and could not be summarized, which ends the run."""

    @property
    def has_ended_run(self) -> bool:
        """True if nothing may follow in this run."""
        return False

    def end_run(self, cancelled: bool) -> RunEnd | None:
        """Called when the run is over, in order or `cancelled`; returns None if there is nothing to report."""
        return None
