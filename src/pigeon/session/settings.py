"""The settings of one session: a frozen record that `app` makes from the user's files and gives to the session.

A host may change some of them by commands; those changes go to the object that uses the setting (such as
`MessageQueue.set_steering_mode`), last for the process, and never reach this record or the files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct, field

from pigeon.agent.inference import Failure
from pigeon.agent.interfaces import ToolMode
from pigeon.system.clock import sleep_ms
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire.commands import InterruptMode, QueueMode
from pigeon.wire.model import Model
from pigeon.wire.steering import Limits

RETRY_JITTER = 0.2


class RetryPolicy(Struct, frozen=True):
    """How often a failed request is repeated, and how long to wait before each repetition.

    `chance`, from 0 to 1, picks a pause within its range. `sleep` waits for so many milliseconds, or not at all in a
    replay.
    """

    max_retries: int = 3
    base_delay_ms: int = 2000
    max_delay_ms: int = 60000
    sleep: Callable[[float], Awaitable[None]] = sleep_ms
    chance: Callable[[], float] = RANDOM_IDS.random_fraction

    def wanted_delay_ms(self, tried: int, failure: Failure) -> int:
        """The pause after so many attempts: what the server asks for, else twice as long each time."""
        if failure.retry_after_ms is not None and failure.retry_after_ms > 0:
            return failure.retry_after_ms
        return min(self.base_delay_ms << tried, self.max_delay_ms)

    def jittered_delay_ms(self, tried: int, failure: Failure) -> int:
        """The same with jitter, so that many agents do not return at once; never less than the server asks for."""
        wanted = self.wanted_delay_ms(tried, failure)
        sooner = 0.0 if failure.retry_after_ms is not None and failure.retry_after_ms > 0 else RETRY_JITTER
        share = 1 - sooner + self.chance() * (sooner + RETRY_JITTER)
        return min(round(wanted * share), max(wanted, self.max_delay_ms))


class CompactionPolicy(Struct, frozen=True):
    """How much room to leave for the answer, and how much of the recent conversation to keep; per model if given."""

    reserve_tokens: int | None = None
    keep_tokens: int | None = None
    per_model: dict[str, dict[str, int]] = {}

    def reserved_tokens(self, model: Model) -> int:
        """Tokens kept free; by default at most a fifth of the window."""
        own = self._setting_for(model, "reserveTokens", self.reserve_tokens)
        return min(16384, model.context_window // 5) if own is None else min(own, model.context_window // 2)

    def kept_tokens(self, model: Model) -> int:
        """Recent tokens that are not summarized; by default at most 30 % of the window."""
        own = self._setting_for(model, "keepRecentTokens", self.keep_tokens)
        return min(20000, model.context_window * 3 // 10) if own is None else own

    def _setting_for(self, model: Model, name: str, otherwise: int | None) -> int | None:
        return self.per_model.get(model.reference, {}).get(name, otherwise) if self.per_model else otherwise

    def threshold(self, model: Model) -> int:
        """The context size above which to compact."""
        return model.context_window - self.reserved_tokens(model)


class LoopGuardPolicy(Struct, frozen=True):
    """The number of identical tool calls in a row after which the model is warned, and the run ends; `warn` 0 switches
    it off."""

    warn: int = 5
    stop: int = 10


class SessionSettings(Struct, frozen=True, kw_only=True):
    """The initial settings of a session; a `reproducible` one does nothing in parallel that could end in any order, and
    with `one_call_at_a_time` the calls of an answer run one after another.

    Where a person sees the plan, the model is not reminded of it: it may have stopped to ask.
    """

    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"
    interrupt_mode: InterruptMode = "immediate"
    tool_mode: ToolMode = "ordered"
    block_images: bool = False
    keep_unreadable_images: bool = True
    continues_after_failure: bool = False
    continues_runs: bool = False
    unattended: bool = False
    several_clients: bool = False
    plan_is_seen: bool = False
    reproducible: bool = False
    one_call_at_a_time: bool = False
    finish_gate: bool = False
    auto_retry: bool = True
    retry: RetryPolicy = RetryPolicy()
    auto_compaction: bool = True
    compaction: CompactionPolicy = CompactionPolicy()
    limits: Limits = field(default_factory=Limits)
    loop_guard: LoopGuardPolicy = LoopGuardPolicy()
