"""Limits of runs and conversations: what may be used, what was used, and the end of a run that would exceed them.

While there are limits, `LimitedRequests` checks each request of the loop and of summaries with `RunLimits`, which
counts what it used, so retries, compactions and summaries count like answers. A request that cannot fit is not sent:
its answer is an error that names the limit, and the engine ends the run with it. A started answer is not cut, so a
limit is exceeded by one answer at most; only `seconds` end a run at any point, by its scope.

`RunLimits.active` is an attribute on purpose: without limits nothing here runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import asdict, replace

from pigeon.agent.inference import BlockGrew, Delta, Failure, Finished, Metered, ModelRequest
from pigeon.agent.interfaces import ModelProvider
from pigeon.agent.scope import Scope
from pigeon.session.policies.policy import CompletedTurn, RunEnd, RunPolicy, RunStart
from pigeon.wire import codec
from pigeon.wire.answers import LimitsState
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import ToolCall
from pigeon.wire.messages import ToolResultMessage
from pigeon.wire.model import Cost, Number, Usage, plain_number, price_usage, zero_usage
from pigeon.wire.steering import (
    LIMIT_FIELDS,
    LIMIT_UNITS,
    LimitedUse,
    LimitName,
    LimitReached,
    Limits,
    describe_limit,
    format_limit,
)
from pigeon.wire.tokens import characters_of, estimated_tokens

LITTLE = 0.2
ROUNDING = 1e-9
FEWEST_ANSWER_TOKENS = 1
_NAMES: tuple[LimitName, ...] = ("turns", "cost", "tokens", "seconds", "toolCalls")
NOTICE = """<notice>
Little is left of what you may use: {left}. When it is used up, you are stopped. Bring the work to a good state now, say
what is done and what is not, and begin nothing new.
</notice>"""
SHORTEST_ANSWER = LimitedUse(turns=1, tokens=1, cost=2 * ROUNDING)


class Account:
    """Limits, and their use since they were set."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.is_limited = any(not isinstance(value, Absent) for value in asdict(limits).values())
        self._used = LimitedUse()
        self._since: float | None = None
        self._clocks = 0
        self._told = False

    def start_clock(self) -> None:
        """Count the seconds while any run continues: that of the conversation, or of an agent that it has started."""
        self._clocks += 1
        self._since = asyncio.get_running_loop().time() if self._since is None else self._since

    def stop_clock(self) -> None:
        self._clocks -= 1
        if not self._clocks:
            self._used, self._since = self.current_use(), None

    def current_use(self) -> LimitedUse:
        running = 0.0 if self._since is None else asyncio.get_running_loop().time() - self._since
        return replace(self._used, seconds=plain_number(round(self._used.seconds + running, 3)))

    def restore_use(self, used: LimitedUse) -> None:
        self._used = used

    def add(self, usage: Usage, turns: int = 0, tool_calls: int = 0) -> None:
        self._used = replace(
            self._used,
            turns=self._used.turns + turns,
            cost=plain_number(self._used.cost + usage.cost.total),
            tokens=self._used.tokens + usage.total_tokens,
            tool_calls=self._used.tool_calls + tool_calls,
        )

    @property
    def is_untouched(self) -> bool:
        return self._used == LimitedUse()

    def find_limit(self, name: str) -> Number | None:
        allowed: Number | Absent = getattr(self.limits, LIMIT_FIELDS[name])
        return None if isinstance(allowed, Absent) else allowed

    def seconds_left(self) -> float | None:
        """How long a run may still take, or None without such a limit."""
        allowed = self.find_limit("seconds")
        return None if allowed is None else allowed - self.current_use().seconds

    def find_exceeded_limit(self, names: Sequence[LimitName], needed: LimitedUse) -> LimitReached | None:
        """The first of these limits that the needed amount would exceed."""
        used = self.current_use()
        for name in names:
            allowed, field = self.find_limit(name), LIMIT_FIELDS[name]
            if allowed is None:
                continue
            reached = getattr(used, field)
            if reached + getattr(needed, field) > allowed + ROUNDING or (name == "seconds" and reached >= allowed):
                return LimitReached(name=name, allowed=allowed, reached=reached)
        return None

    def collect_warnings(self) -> list[str]:
        """The limits of which little is left, each once."""
        if self._told:
            return []
        used, little = self.current_use(), []
        for name in _NAMES:
            allowed = self.find_limit(name)
            if allowed is None:
                continue
            left = allowed - getattr(used, LIMIT_FIELDS[name])
            last_one = left == 1 and isinstance(allowed, int) and name in ("turns", "toolCalls")
            if 0 < left <= allowed * LITTLE + ROUNDING or last_one:
                little.append(f"{format_limit(left)} of {format_limit(allowed)} {LIMIT_UNITS[name]}")
        self._told = bool(little)
        return little


class RequestMeter:
    """The usage of one request: as counted by the provider, or estimated if it did not count."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._characters = 0
        self._counted: Usage | None = None
        self._rate = 1.0
        self._whole = False

    def add_delta(self, delta: Delta) -> None:
        if isinstance(delta, Metered):
            counted = price_usage(delta.usage, self._request.model.cost, delta.rate)
            # A server that does not count reports zero.
            self._counted, self._rate = (counted if counted.total_tokens else None), delta.rate
        elif isinstance(delta, BlockGrew):
            self._characters += len(delta.text)
        elif isinstance(delta, Finished):
            self._whole = delta.failure is None

    def usage(self) -> Usage:
        """The usage so far; zero for a request that failed before any answer came."""
        counted = self._counted
        if counted is not None and self._whole:
            return counted
        if counted is None and not self._characters and not self._whole:
            return zero_usage()
        usage = counted or Usage(input=estimate_input_tokens(self._request), cost=Cost())
        output = max(usage.output, estimated_tokens(self._characters))
        return price_usage(replace(usage, output=output), self._request.model.cost, self._rate)


class RunLimits(RunPolicy):
    """The limits in force in one session: those of the conversation, those of the run if it has any, and for a started
    agent those `above` it, which everything it uses counts for, too."""

    def __init__(self, limits: Limits, session_id: str = "", above: RunLimits | None = None) -> None:
        self._conversation = Account(limits)
        self._conversations = {session_id: self._conversation}
        self._session_id = session_id
        self._above = above
        self._run: Account | None = None
        self._timed: list[Account] = []
        self._counted_calls: set[str] = set()
        self._scope: Scope | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping: LimitReached | None = None
        self._ended_by: LimitReached | None = None
        self._summary_refused: LimitReached | None = None
        self._expired = False
        self._cached: tuple[str, int] = ("", 0)
        self.active = False
        self._update_active()

    # Called by commands and prompts

    def set(self, limits: Limits, scope: Scope | None) -> None:
        """Replace the limits of the conversation, counting from now; the scope is that of the active run, if any.

        They apply from the next request on, `seconds` at once.
        """
        self._conversation = Account(limits)
        self._conversations = {self._session_id: self._conversation}
        self._update_active()
        if scope is not None:
            self._start_timing(scope)

    def enter_conversation(self, session_id: str) -> None:
        """Switch to another conversation: the same limits, with its own use since they were set."""
        limits = self._conversation.limits
        if self._conversation.is_untouched:
            del self._conversations[self._session_id]
        self._session_id = session_id
        self._conversation = self._conversations.setdefault(session_id, Account(limits))

    def restore_use(self, used: LimitedUse) -> None:
        """Restore what an earlier process of this conversation has used."""
        self._conversation.restore_use(used)

    def state(self) -> LimitsState:
        """The limits and their use for hosts."""
        run = self._run
        return LimitsState(
            limits=self._conversation.limits,
            used=self._conversation.current_use(),
            run_limits=ABSENT if run is None else run.limits,
            run_used=ABSENT if run is None else run.current_use(),
        )

    def find_exhausted_limit(self) -> LimitReached | None:
        """The limit of the conversation that is used up, so that no run may begin."""
        needed = LimitedUse(turns=1, tokens=1, cost=2 * ROUNDING, tool_calls=1)
        found = self._conversation.find_exceeded_limit(_NAMES, needed)
        return found if found is not None or self._above is None else self._above.find_exhausted_limit()

    def count_agent_call(self, call_id: str) -> None:
        """Do not count the usage in the result of this call: the agent that it ran has counted it already."""
        self._counted_calls.add(call_id)

    # A run

    def begin_run(self, start: RunStart) -> None:
        """Count from here on, with the limits of the run if it has any."""
        if start.limits is None and not self.active:
            return
        self._run = None if start.limits is None else Account(start.limits)
        self._stopping, self._ended_by, self._expired = None, None, False
        self._summary_refused = None
        self._update_active()
        self._start_timing(start.scope)

    def end_run(self, cancelled: bool) -> RunEnd | None:
        """The limit that ended the run, or None if something else did."""
        ended_by = self._ended_by if self._expired or not cancelled else None
        for account in self._timed:
            account.stop_clock()
        self._timed = []
        if self._timer is not None:
            self._timer.cancel()
        self._run, self._scope, self._timer = None, None, None
        self._stopping, self._ended_by, self._expired = None, None, False
        self._update_active()
        return None if ended_by is None else RunEnd(limit=ended_by)

    def refuse_further_requests(self, reached: LimitReached) -> None:
        """Allow no further request in this run, for a reason that is not counted here."""
        self._stopping = reached
        self._update_active()

    def try_continue_run(self) -> bool:
        """Returns False, and records the limit as the end of the run, if no further answer may be requested, however
        short."""
        if not self.active:
            return True
        if not self._expired:
            self._ended_by = self._find_exceeded_limit(turn=True, needed=SHORTEST_ANSWER)
        return self._ended_by is None

    def on_context_full(self) -> None:
        """If a limit refused the summary that would have made room, it has ended the run."""
        if not self._expired:
            self._ended_by = self._summary_refused

    def can_request_answer(self) -> bool:
        """True if a further answer may be requested; unlike `try_continue_run`, this ends nothing."""
        return self._ended_by is None and self._find_exceeded_limit(turn=True, needed=SHORTEST_ANSWER) is None

    @property
    def has_ended_run(self) -> bool:
        """True if a limit has ended the run."""
        return self._ended_by is not None

    def admit_call(self, call: ToolCall) -> str | None:
        """Count a tool call and return None, or return why it must not be made; after a refusal the run ends."""
        if not self.active:
            return None
        for account in self._accounts():
            reached = account.find_exceeded_limit(("toolCalls",), LimitedUse(tool_calls=1))
            if reached is not None:
                self.refuse_further_requests(reached)
                return f"The tool was not run. {describe_limit(reached)}"
        for account in self._accounts():
            account.add(zero_usage(), tool_calls=1)
        return None

    def collect_notices(self, turn: CompletedTurn) -> Sequence[str]:
        """Warnings about limits of which little is left, each once; none if nothing is left."""
        if not self.active:
            return ()
        self._add_results_usage(turn.results)
        if self._find_exceeded_limit(turn=True, needed=LimitedUse(turns=1, tokens=1)) is not None:
            return ()
        little = [text for account in self._own_accounts() for text in account.collect_warnings()]
        return (NOTICE.format(left=", ".join(dict.fromkeys(little))),) if little else ()

    def _add_results_usage(self, results: Sequence[ToolResultMessage]) -> None:
        """Count the usage of tools that asked a model themselves."""
        for result in results:
            if not isinstance(result.usage, Absent) and result.tool_call_id not in self._counted_calls:
                for account in self._accounts():
                    account.add(result.usage)

    # A request

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        return LimitedRequests(provider, self, is_turn=True)

    def wrap_summary_provider(self, provider: ModelProvider) -> ModelProvider:
        """The provider for summaries, which use tokens and cost but are not turns."""
        return LimitedRequests(provider, self, is_turn=False)

    async def stream(self, provider: ModelProvider, request: ModelRequest, turn: bool) -> AsyncIterator[Delta]:
        """The provider's answer, counted, or, if it cannot fit, an error without sending anything."""
        from pigeon.agent.answer import close_stream

        reached = self._find_refusal(request, turn)
        if not turn:
            self._summary_refused = reached
        elif not self._expired:
            self._ended_by = reached
        if reached is not None:
            yield Finished(stop="error", failure=Failure(message=describe_limit(reached), code="limit"))
            return
        accounts, meter, deltas = self._accounts(), RequestMeter(request), provider.stream(request)
        for account in accounts:
            account.add(zero_usage(), turns=int(turn))
        try:
            async for delta in deltas:
                meter.add_delta(delta)
                yield delta
        finally:
            usage = meter.usage()
            for account in accounts:
                account.add(usage)
            if turn:
                self._cached = (request.model.reference, usage.cache_read + usage.cache_write)
            await close_stream(deltas)

    def _find_refusal(self, request: ModelRequest, turn: bool) -> LimitReached | None:
        needed = LimitedUse(turns=1, tokens=1)
        if any(account.find_limit("cost") or account.find_limit("tokens") for account in self._accounts()):
            least = self._estimate_minimum(request)
            needed = LimitedUse(turns=1, tokens=least.total_tokens, cost=least.cost.total or 2 * ROUNDING)
        return self._find_exceeded_limit(turn, needed)

    def _estimate_minimum(self, request: ModelRequest) -> Usage:
        """The least that a request uses: its prompt, at the cached price as far as the provider has it cached, and the
        shortest answer."""
        prompt = estimate_input_tokens(request)
        model, cached = self._cached
        cached = min(cached, prompt) if model == request.model.reference and request.cache != "none" else 0
        usage = Usage(input=prompt - cached, cache_read=cached, output=FEWEST_ANSWER_TOKENS, cost=Cost())
        return price_usage(usage, request.model.cost)

    def _find_exceeded_limit(self, turn: bool, needed: LimitedUse) -> LimitReached | None:
        if self._stopping is not None and turn:
            return self._stopping
        names: tuple[LimitName, ...] = ("turns", "cost", "tokens", "seconds") if turn else ("cost", "tokens")
        found = (account.find_exceeded_limit(names, needed) for account in self._accounts())
        return next((reached for reached in found if reached is not None), None)

    def _own_accounts(self) -> list[Account]:
        return [account for account in (self._run, self._conversation) if account is not None and account.is_limited]

    def _accounts(self) -> list[Account]:
        return self._own_accounts() if self._above is None else [*self._own_accounts(), *self._above._accounts()]

    def _update_active(self) -> None:
        # Those above a started agent may get limits at any time.
        self.active = (
            self._conversation.is_limited
            or self._run is not None
            or self._stopping is not None
            or self._above is not None
        )

    # Seconds

    def _start_timing(self, scope: Scope) -> None:
        """Count the seconds of the run from here on, and end it in time."""
        self._scope = scope
        before, self._timed = self._timed, self._accounts()
        for account in self._timed:
            account.start_clock()
        for account in before:
            account.stop_clock()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = [seconds for account in self._accounts() if (seconds := account.seconds_left()) is not None]
        if left:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, min(left)), self._on_time_up)

    def _on_time_up(self) -> None:
        self._timer = None
        found = (account.find_exceeded_limit(("seconds",), LimitedUse()) for account in self._accounts())
        reached = next((one for one in found if one is not None), None)
        if reached is None:
            self._set_timer()
        elif self._scope is not None and not self._scope.cancelled:
            self._ended_by, self._expired = reached, True
            self._scope.cancel()


class LimitedRequests:
    """A provider whose requests are counted and refused by limits, while there are any."""

    def __init__(self, provider: ModelProvider, limits: RunLimits, is_turn: bool) -> None:
        self._provider = provider
        self._limits = limits
        self._is_turn = is_turn

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        if not self._limits.active:
            return self._provider.stream(request)
        return self._limits.stream(self._provider, request, self._is_turn)


def estimate_input_tokens(request: ModelRequest) -> int:
    """Our estimate of a request's tokens: system prompt, tools, output format, messages."""
    tools = sum(len(spec.description) + len(codec.encode(spec.parameters)) for spec in request.tools)
    output = 0 if request.output is None else len(codec.encode(request.output.schema))
    return estimated_tokens(len(request.system_prompt) + tools + output + sum(map(characters_of, request.messages)))
