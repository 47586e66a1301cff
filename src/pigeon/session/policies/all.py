"""All policies of a conversation, called in order at each moment of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pigeon.agent.inference import ModelRequest
from pigeon.agent.interfaces import ModelProvider, Spoken, Tool, Watch
from pigeon.session.dependencies import Dependencies
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.policies.checkpointing import Checkpointing
from pigeon.session.policies.finish_gate import FinishGate
from pigeon.session.policies.job_notices import JobNotices
from pigeon.session.policies.loop_guard import LoopGuard
from pigeon.session.policies.plan_mode import PlanMode
from pigeon.session.policies.policy import CompletedTurn, NextGate, RunEnd, RunPolicy, RunStart
from pigeon.session.policies.reminders import Reminders
from pigeon.session.policies.run_limits import RunLimits
from pigeon.session.policies.stream_rules import StreamRules
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ToolCall
from pigeon.wire.messages import AssistantMessage, CustomMessage, ToolResultMessage

NOTICE_TYPE = "limit-notice"


class RunPolicies:
    """The policies of one conversation. A run may bring its own, such as a final answer that its prompt requires: they
    come after those that keep the model working, and before those that stop it."""

    def __init__(self, dependencies: Dependencies, limits: RunLimits) -> None:
        settings, transcript = dependencies.settings, dependencies.transcript
        bus, now = dependencies.bus, dependencies.now
        rules = StreamRules(lambda: dependencies.rules(transcript.journal.cwd), bus.publish, now, dependencies.report)
        bus.add_recorder(rules.on_event)
        self._now = now
        self._first: Sequence[RunPolicy] = (
            Checkpointing(dependencies),
            rules,
            *([] if settings.plan_is_seen else [Reminders(dependencies.todos, transcript, bus.publish, now)]),
            JobNotices(dependencies.jobs),
            PlanMode(dependencies),
            FinishGate(settings.finish_gate, transcript, now, limits.can_request_answer),
        )
        self._last: Sequence[RunPolicy] = (
            LoopGuard(settings.loop_guard, transcript, limits.refuse_further_requests),
            limits,
        )
        self._in_order: Sequence[RunPolicy] = (*self._first, *self._last)

    def restore_from_branch(self, branch: Iterable[EntryLine]) -> None:
        for policy in self._in_order:
            policy.restore_from_branch(branch)

    def mark_for_reload(self) -> None:
        for policy in self._in_order:
            policy.mark_for_reload()

    def warm_up(self) -> None:
        for policy in self._in_order:
            policy.warm_up()

    def begin_run(self, start: RunStart, own: Sequence[RunPolicy]) -> None:
        """Begin a run with policies of its `own`."""
        self._in_order = (*self._first, *own, *self._last)
        for policy in self._in_order:
            policy.begin_run(start)

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        """Wrap the loop's provider; the last policy sees each request first."""
        for policy in self._in_order:
            provider = policy.wrap_provider(provider)
        return provider

    def wrap_gate(self, gate: NextGate) -> NextGate:
        for policy in self._in_order:
            gate = policy.wrap_gate(gate)
        return gate

    def change_request(self, request: ModelRequest) -> ModelRequest:
        for policy in self._in_order:
            request = policy.change_request(request)
        return request

    def make_watches(self) -> list[Watch]:
        """What may cut the next answer; usually empty."""
        asked = (policy.make_watch() for policy in self._in_order)
        return [watch for watch in asked if watch is not None]

    def on_answer(self, answer: AssistantMessage) -> None:
        for policy in self._in_order:
            policy.on_answer(answer)

    def change_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        for policy in self._in_order:
            tools = policy.change_tools(tools)
        return tools

    def admit_call(self, call: ToolCall) -> str | None:
        """Returns why a tool call must not be made, or None if all policies admit it."""
        if any(policy.is_own_call(call) for policy in self._in_order):
            return None
        refusals = (policy.admit_call(call) for policy in self._in_order)
        return next((refusal for refusal in refusals if refusal is not None), None)

    async def after_turn(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], ends: bool
    ) -> list[Spoken] | None:
        """The messages to the model before a further turn. With `ends`, the run is over if there are none, and always
        if the result is None."""
        has_output = any(policy.has_output for policy in self._in_order)
        turn = CompletedTurn(answer, results, ends, has_output)
        messages: Sequence[Spoken] = ()
        for policy in self._in_order:
            added = await policy.after_turn(turn)
            if added is None:
                return None
            if added:
                messages = added
                break
        if ends and not messages:
            return []
        notices = [text for policy in self._in_order for text in policy.collect_notices(turn)]
        now = self._now()
        return [
            *messages,
            *(CustomMessage(custom_type=NOTICE_TYPE, content=text, display=False, timestamp=now) for text in notices),
        ]

    async def after_loop(self) -> None:
        for policy in self._in_order:
            await policy.after_loop()

    def try_continue_run(self) -> bool:
        """Returns False if no further answer may be requested; a policy has then ended the run."""
        return all(policy.try_continue_run() for policy in self._in_order)

    def on_context_full(self) -> None:
        for policy in self._in_order:
            policy.on_context_full()

    @property
    def has_ended_run(self) -> bool:
        return any(policy.has_ended_run for policy in self._in_order)

    def end_run(self, cancelled: bool) -> RunEnd:
        """End the run; returns what the policies report about it."""
        reports = [report for policy in self._in_order if (report := policy.end_run(cancelled)) is not None]
        self._in_order = (*self._first, *self._last)
        return RunEnd(
            limit=next((report.limit for report in reports if report.limit is not None), None),
            output=next((report.output for report in reports if report.output is not ABSENT), ABSENT),
            problem=next((report.problem for report in reports if report.problem is not ABSENT), ABSENT),
        )
