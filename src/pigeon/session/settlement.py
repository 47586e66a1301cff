"""The end of a run as reported to the host: `agent_settled`, then how each prompt of the run ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pigeon.session.bus import Bus
from pigeon.session.policies.policy import RunEnd
from pigeon.session.queue import OpenPrompt, OpenPrompts
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.events import AgentSettled, EndReason, PromptError, PromptStatus, SessionSettled
from pigeon.wire.steering import describe_limit

if TYPE_CHECKING:
    from pigeon.agent.run import RunResult

DENIED = "None of the last tool calls was allowed to run"
STATUS: dict[EndReason, PromptStatus] = {
    "done": "completed",
    "aborted": "aborted",
    "error": "error",
    "limit": "error",
    "denied": "error",
}


class Settlement:
    """Tracks the runs whose end was not reported to the host yet, and reports it."""

    def __init__(self, bus: Bus, prompts: OpenPrompts) -> None:
        self._bus = bus
        self._prompts = prompts
        self._runs: set[asyncio.Task[None]] = set()
        self._unsettled = 0
        self._has_expected_run = False

    def expect_run(self) -> None:
        """A prompt was accepted whose run is the next to start."""
        self._unsettled += 1
        self._has_expected_run = True

    def add_run(self, run: asyncio.Task[None]) -> None:
        """Add a started run; `announce_end` ends it."""
        self._unsettled += not self._has_expected_run
        self._has_expected_run = False
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    @property
    def is_complete(self) -> bool:
        return not self._unsettled

    @property
    def has_runs(self) -> bool:
        return bool(self._runs)

    async def wait_until_reported(self) -> None:
        """Wait until the end of every prompt so far was reported to the host."""
        await (asyncio.wait(set(self._runs)) if self._runs else asyncio.sleep(0))

    async def announce_end(
        self,
        result: RunResult | None,
        end: RunEnd,
        cancelled: bool,
        denied: bool,
        prompts: list[OpenPrompt],
        run_id: str,
    ) -> None:
        """Announce `agent_settled`, then how each prompt ended. In between, commands that waited for the end of the run
        are answered, which takes two turns of the event loop; another run may have begun by then."""
        reason, output, problem = _determine_outcome(result, end, cancelled, denied)
        self._bus.post(
            AgentSettled(
                aborted=reason == "aborted",
                reason=reason,
                limit=ABSENT if end.limit is None else end.limit,
                output=output,
                error_message=problem,
                run_id=run_id,
            )
        )
        for _ in range(2):
            await asyncio.sleep(0)
        self._unsettled -= 1
        settled = self.is_complete
        error = ABSENT if reason in ("done", "aborted") else _prompt_error(result, end, reason, problem)
        self._prompts.post_results(prompts, STATUS[reason], settled, error, run_id, output)
        if settled:
            self._bus.post(SessionSettled(run_id=run_id))


def _determine_outcome(
    result: RunResult | None, end: RunEnd, cancelled: bool, denied: bool
) -> tuple[EndReason, Json | Absent, str | Absent]:
    """Why the run ended, with its output, or with the error if a required output is missing."""
    if end.limit is not None:
        return "limit", ABSENT, ABSENT
    if cancelled:
        return "aborted", ABSENT, ABSENT
    if result is None or result.has_failed:
        return "error", ABSENT, ABSENT
    if not isinstance(end.problem, Absent):
        return "error", ABSENT, end.problem
    return "denied" if denied and isinstance(end.output, Absent) else "done", end.output, ABSENT


def _prompt_error(result: RunResult | None, end: RunEnd, reason: EndReason, problem: str | Absent) -> PromptError:
    if end.limit is not None:
        return PromptError(message=describe_limit(end.limit), retryable=False)
    if reason == "denied":
        return PromptError(message=DENIED, retryable=False)
    if not isinstance(problem, Absent):
        return PromptError(message=problem, retryable=False)
    return make_prompt_error(result)


def make_prompt_error(result: RunResult | None) -> PromptError:
    """What a prompt is told of a failed run."""
    if result is None or isinstance(result.answer.error_message, Absent):
        return PromptError(message="The run ended in an error", retryable=False)
    answer, failure = result.answer, result.failure
    return PromptError(
        message=result.answer.error_message,
        provider=answer.provider,
        model=answer.model,
        http_status=ABSENT if failure is None or failure.status is None else failure.status,
        retryable=failure is not None and failure.retryable,
    )
