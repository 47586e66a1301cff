"""The one interface of everything that has a say in a run besides the model and the user.

A policy sees the run at fixed moments: when it begins, before each request, while an answer streams, at each tool call,
after each turn, and at the end. Every method has a default that changes nothing, so a policy defines only what it cares
about. Policies do not know each other; `session/policies/all.py` lists them and asks them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from pigeon.agent.inference import ModelRequest
from pigeon.agent.interfaces import Gate, ModelProvider, OutputFormats, Spoken, Tool, Watch
from pigeon.agent.scope import Scope
from pigeon.session.history.entry_line import EntryLine
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import ToolCall
from pigeon.wire.messages import AssistantMessage, ToolResultMessage
from pigeon.wire.steering import LimitReached, Limits

NextGate = Callable[[], Gate | None]


class RunStart(Struct, frozen=True):
    """What a run begins with; `limits` are those of this run alone, None if it has none of its own."""

    scope: Scope
    limits: Limits | None
    output_formats: OutputFormats
    now: Callable[[], int]


class CompletedTurn(Struct, frozen=True):
    """A turn that is over. The run `ends` with it unless a policy adds something; `has_output` is true if the turn has
    brought what the run was asked to end with."""

    answer: AssistantMessage
    results: Sequence[ToolResultMessage]
    ends: bool
    has_output: bool = False

    @property
    def has_stopped_by_itself(self) -> bool:
        """True if the model ended its answer and called no tool."""
        if self.answer.stop_reason in ("error", "aborted"):
            return False
        return not any(isinstance(block, ToolCall) for block in self.answer.content)


class RunEnd(Struct, frozen=True):
    """What policies report of a run that is over: the limit that ended it, its output, or why it has no output."""

    limit: LimitReached | None = None
    output: Json | Absent = ABSENT
    problem: str | Absent = ABSENT


class RunPolicy:
    """Has a say in runs. The methods stand in the order in which a run calls them."""

    def enter_branch(self, branch: Iterable[EntryLine]) -> None:
        """Another branch or another conversation is in use."""

    def reload(self) -> None:
        """Read files again when they are next needed."""

    def warm_up(self) -> None:
        """Read files that the first request needs, while there is time."""

    def begin_run(self, start: RunStart) -> None:
        """A run begins; its first request follows."""

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        """The provider that the loop asks; a wrapper may refuse, repeat or count requests."""
        return provider

    def wrap_gate(self, gate: NextGate) -> NextGate:
        """What stands before tool calls."""
        return gate

    def change_request(self, request: ModelRequest) -> ModelRequest:
        return request

    def make_watch(self) -> Watch | None:
        """What may cut the next answer, asked once for each; None where nothing could."""
        return None

    def on_answer(self, answer: AssistantMessage) -> None:
        """A good answer is complete, and its calls are about to run."""

    def change_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """The tools that can be called."""
        return tools

    def is_own_call(self, call: ToolCall) -> bool:
        """True if a call is the policy's own, so that no policy is asked whether it may be made."""
        return False

    def admit_call(self, call: ToolCall) -> str | None:
        """Admit and count a tool call, or return why it must not be made; called once for each call."""
        return None

    @property
    def has_output(self) -> bool:
        """True if the model has given what the run was asked to end with."""
        return False

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken] | None:
        """What the model must hear so that the run goes on; None ends the run. The first policy that returns messages,
        or None, decides."""
        return ()

    def collect_notices(self, turn: CompletedTurn) -> Sequence[str]:
        """What the model should know besides, asked of every policy when the run goes on after a turn."""
        return ()

    def try_continue_run(self) -> bool:
        """Returns False if no further answer may be requested, however short; the policy has then ended the run."""
        return True

    def on_context_full(self) -> None:
        """The context overflowed and could not be summarized, so the run ends."""

    @property
    def has_ended_run(self) -> bool:
        """True if nothing may follow in this run."""
        return False

    def end_run(self, cancelled: bool) -> RunEnd | None:
        """The run is over, in order or `cancelled`; None if there is nothing to report."""
        return None
