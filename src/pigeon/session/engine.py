"""The engine of a session: runs from an accepted prompt to `agent_settled`, with everything that may follow a run.

A run is the loop of `agent/run.py`, which asks `session/run_owner.py`; the engine starts it, repeats it after failures,
makes room for it, lets queued messages follow, and reports its end. Anything else that influences a run is a policy
(`session/policies/`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from pigeon.agent.inference import Failure
from pigeon.agent.interfaces import Spoken, UnfinishedAnswer
from pigeon.agent.scope import RunningCalls, Scope
from pigeon.session.activity import Activity
from pigeon.session.compaction.compaction import Compaction
from pigeon.session.context.system_prompt import SystemPrompt
from pigeon.session.continuation import InterruptedRun, find_interrupted_run
from pigeon.session.dependencies import Dependencies
from pigeon.session.history.journal import Journal
from pigeon.session.hooks import wait_for_run_result
from pigeon.session.policies.all import RunPolicies
from pigeon.session.policies.policy import RunEnd, RunPolicy, RunStart
from pigeon.session.policies.run_limits import RunLimits
from pigeon.session.queue import MessageQueue, OpenPrompt
from pigeon.session.retry import Retry
from pigeon.session.run_owner import SessionRunOwner
from pigeon.session.settlement import Settlement, make_prompt_error
from pigeon.wire import codec
from pigeon.wire.entries import RUN_ENTRY, CustomEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.events import AgentEnd, AgentRestarted, AgentSettled, AgentStart, Outbound
from pigeon.wire.messages import CustomMessage
from pigeon.wire.steering import Limits

if TYPE_CHECKING:
    from pigeon.agent.run import RunResult


DIED = "The process of the agent has ended during the run"


class Engine:
    """Starts runs and follows them to their end."""

    def __init__(
        self,
        dependencies: Dependencies,
        queue: MessageQueue,
        system_prompt: SystemPrompt,
        limits: RunLimits,
        compaction: Compaction,
    ) -> None:
        settings, bus = dependencies.settings, dependencies.bus
        self._dependencies = dependencies
        self._queue = queue
        self._system_prompt = system_prompt
        self.limits = limits
        self.policies = RunPolicies(dependencies, limits)
        self.activity = Activity(dependencies.ids.request_id())
        self.retry = Retry(dependencies.transcript, bus, settings.retry, settings.auto_retry)
        self.compaction = compaction
        self._owner = SessionRunOwner(dependencies, self.policies, system_prompt, self.retry, self._compact_if_full)
        self._settlement = Settlement(bus, queue.prompts)
        self._aborts = 0
        self._has_recovered = False
        self._was_denied = False
        self._continues_after_failure = settings.continues_after_failure
        self._looked_at: Journal | None = None

    # Called by commands

    def start_run(
        self,
        opening: Sequence[Spoken],
        scope: Scope,
        system_prompt: str | None = None,
        policies: Sequence[RunPolicy] = (),
        limits: Limits | None = None,
        unfinished: UnfinishedAnswer | None = None,
    ) -> None:
        """Begin a run in the background; it was reserved with this scope. The system prompt, the further policies and
        the limits are for this run only.

        Raises `SessionInUse` if another process writes the session; then nothing was started.
        """
        try:
            if self._dependencies.transcript.journal.claim_and_reload_file(begins=True):
                self.restore_from_branch()
        except Refusal:
            self.activity.end()
            raise
        self._end_interrupted_run()
        self._note_run("active", opening)
        self._owner.begin_run(scope, system_prompt)
        self.policies.begin_run(
            RunStart(scope, limits, self._dependencies.output_formats, self._dependencies.now), policies
        )
        loop = asyncio.get_running_loop()
        self._settlement.add_run(loop.create_task(self._run_and_settle(opening, scope, unfinished), name="pigeon-run"))
        # Behind the run's first step, which sends the request.
        for callback in self._dependencies.run_callbacks:
            loop.call_soon(callback)

    def continue_interrupted_run(self) -> None:
        """Continue the run that the death of a process has left, if there is one; called once there is a host."""
        journal, left = self._dependencies.transcript.journal, self._find_interrupted_run()
        if left is None:
            return
        self._looked_at = journal
        scope = self.activity.begin_run(left.run_id)
        self._dependencies.bus.post(AgentRestarted(run_id=left.run_id, reason=DIED, continued=True))
        self.start_run(left.opening, scope, unfinished=left.answer)

    def _find_interrupted_run(self) -> InterruptedRun | None:
        """What the death of a process has left, if it may be continued now; asked once for each conversation."""
        journal = self._dependencies.transcript.journal
        if not self._dependencies.settings.continues_runs or journal.is_read_only or self._looked_at is journal:
            return None
        left = find_interrupted_run(journal, self._dependencies.now())
        if left is None:
            journal.close_open_calls()
            self._looked_at = journal
        return left

    def _end_interrupted_run(self) -> None:
        """Another run begins first: the one that was left ends without being continued."""
        left = self._find_interrupted_run()
        if left is not None:
            journal = self._looked_at = self._dependencies.transcript.journal
            journal.close_open_calls()
            self._dependencies.bus.post(
                AgentSettled(run_id=left.run_id, aborted=False, reason="error", error_message=DIED)
            )

    def _note_run(self, state: str, opening: Sequence[Spoken] = ()) -> None:
        """Note in a store that a run begins, with its first messages, or ends: an accepted prompt is not lost."""
        journal = self._dependencies.transcript.journal
        if journal.rows is not None or self._dependencies.settings.continues_runs:
            journal.save_all()
            data: dict[str, object] = {"runId": self.activity.run_id, "state": state}
            if opening:
                data["opening"] = [codec.to_plain(message) for message in opening]
            journal.append(CustomEntry, custom_type=RUN_ENTRY, data=data)

    def expect_run(self) -> None:
        """A prompt was accepted whose run begins when the current one has ended."""
        self._settlement.expect_run()

    async def end_unstarted_run(self, scope: Scope, prompt: OpenPrompt, problem: str) -> None:
        """End the run of an accepted prompt that cannot be started, with the reason."""
        task = asyncio.current_task()
        assert task is not None
        self._settlement.add_run(task)
        run_id = self.activity.run_id
        for event in (AgentStart(), AgentEnd(messages=[], will_retry=False)):
            self._dependencies.bus.post(event)
        if self.activity.scope is scope:
            self.activity.end()
        await self._settlement.announce_end(None, RunEnd(problem=problem), False, False, [prompt], run_id)

    def abort(self) -> Awaitable[None] | None:
        """Stop the current work at once; awaiting the result waits for its end. Queues are kept."""
        self._aborts += 1
        self.activity.cancel()
        self._dependencies.agents.abort_all()
        return self.activity.wait_for_end()

    @property
    def abort_count(self) -> int:
        """How often `abort` was called, so that a waiting command can detect a call in the meantime."""
        return self._aborts

    async def abort_and_settle(self) -> None:
        """Stop the current work and what was to come next, and wait for the end."""
        while self.activity.is_busy or self._settlement.has_runs:
            self.activity.cancel()
            await (self.activity.wait_for_end() or self._settlement.wait_until_reported())

    async def wait_until_prompts_reported(self) -> None:
        """Wait until the host was sent the end of every prompt so far."""
        await self._settlement.wait_until_reported()

    @property
    def is_settled(self) -> bool:
        return self._settlement.is_complete

    @property
    def calls(self) -> RunningCalls:
        """The tool calls that run now."""
        return self._owner.calls

    def restore_from_branch(self, *, restore: bool = False) -> None:
        """Switch to another branch or conversation: load its plan and its rules that were given already.

        With `restore` it begins or resumes here, and its tools are restored too.
        """
        branch = self._dependencies.transcript.journal.branch
        self._dependencies.toolset.restore_from_branch(branch, restore=restore)
        self._dependencies.todos.restore_from_branch(branch)
        self.policies.restore_from_branch(branch)

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits of the conversation, even during a run."""
        self.limits.set(limits, self.activity.scope if self.activity.is_running else None)

    def set_keep_unreadable_images(self, keep: bool) -> None:
        """Whether a prompt's data that is no image goes to the model as it is; dialects differ."""
        self._owner.set_keep_unreadable_images(keep)

    def set_continues_after_failure(self, continues: bool) -> None:
        """Whether queued messages follow a run that has failed; dialects differ."""
        self._continues_after_failure = continues

    def warm_up(self) -> None:
        """Load the code and read the files that the first request needs while there is time."""
        import_module("pigeon.agent.run")
        self._system_prompt.text()
        self.policies.warm_up()

    # A run, and what follows it

    async def _run_and_settle(
        self, opening: Sequence[Spoken], scope: Scope, unfinished: UnfinishedAnswer | None
    ) -> None:
        result: RunResult | None = None
        try:
            result = await self._run_until_done(opening, scope, unfinished)
        finally:
            prompts, run_id = self._queue.pop_run_prompts(), self.activity.run_id
            end = self.policies.end_run(scope.cancelled)
            with suppress(Refusal):
                self._note_run("ended")
            try:
                self.activity.end()
            finally:
                self._sync_journal()
                await self._settlement.announce_end(result, end, scope.cancelled, self._was_denied, prompts, run_id)

    async def _run_until_done(
        self, opening: Sequence[Spoken], scope: Scope, unfinished: UnfinishedAnswer | None
    ) -> RunResult:
        """The run, and further ones for queued messages and continuations of extensions, until nothing is left."""
        self._has_recovered = self._was_denied = False
        if unfinished is None:
            await self._compact_if_full(scope)
        result = await self._run_with_retries(scope, opening, unfinished=unfinished)
        while not scope.cancelled and not self.policies.has_ended_run:
            if self._can_continue_after(result) and self._queue.has_deliverable:
                if not self.policies.try_continue_run():
                    break
                if result.has_failed:
                    self._queue.prompts.mark_delivered_failed(make_prompt_error(result))
                result = await self._run_with_retries(scope, (), resumes=True)
            elif more := await self._collect_continuations(result, scope):
                result = await self._run_with_retries(scope, more)
            elif not (self._can_continue_after(result) and self._queue.has_deliverable):
                # Nothing is awaited from here to the end: what is queued later finds that the run is over.
                break
        return result

    def _can_continue_after(self, result: RunResult) -> bool:
        """Whether queued messages follow this run; those of a failed one may have to wait for the next prompt."""
        return not result.has_failed or (self._continues_after_failure and result.answer.stop_reason == "error")

    async def _run_with_retries(
        self,
        scope: Scope,
        opening: Sequence[Spoken],
        resumes: bool = False,
        unfinished: UnfinishedAnswer | None = None,
    ) -> RunResult:
        """One run, retried as far as its failures allow; afterwards there is room for the next one."""
        result = await self._run_once(scope, opening, resumes, unfinished)
        while result.has_failed and not scope.cancelled and await self._try_prepare_rerun(result, scope):
            result = await self._run_once(scope, (), resumes=False)
        if not result.has_failed:
            self._has_recovered = False
            await self._compact_if_full(scope)
        elif result.failure is not None:
            await self.retry.on_give_up(result.failure.message)
        return result

    async def _run_once(
        self, scope: Scope, opening: Sequence[Spoken], resumes: bool, unfinished: UnfinishedAnswer | None = None
    ) -> RunResult:
        from pigeon.agent.run import Run

        given = self._dependencies
        provider, gate = self.policies.wrap_provider(given.provider), self.policies.wrap_gate(given.gate)
        mode, publish = given.settings.tool_mode, self._publish_run_event
        run = Run(provider, self._owner, self._queue, publish, scope, given.now, gate, mode)
        result = await run.run(opening, resumes, unfinished)
        await self.policies.after_loop()
        if result.denied is not None:
            self._was_denied = result.denied
        return result

    def _publish_run_event(self, event: Outbound) -> Awaitable[None]:
        if isinstance(event, AgentEnd):
            self.activity.allow_next_run()
        return self._dependencies.bus.publish(event)

    async def _try_prepare_rerun(self, result: RunResult, scope: Scope) -> bool:
        """Pause before a retry, or make room after an overflow; returns whether to run again."""
        if result.failure is None:
            return False
        if result.will_retry:
            return await self._pause_for_retry(result.failure, scope)
        return result.failure.overflow and await self._recover_from_overflow(scope)

    async def _pause_for_retry(self, failure: Failure, scope: Scope) -> bool:
        with self.activity.pausing_run("retrying"):
            return await self.retry.pause_before_retry(failure, scope)

    async def _recover_from_overflow(self, scope: Scope) -> bool:
        """Compact once after an overflow; a second overflow in a row is reported and ends the run."""
        if not self.compaction.is_enabled:
            return False
        if self._has_recovered:
            await self.compaction.announce_second_overflow()
            return False
        self._has_recovered = True
        with self.activity.pausing_run("compacting"):
            recovered = await self.compaction.recover_from_overflow(scope, self.retry.hide_last_answer)
        if not recovered:
            self.policies.on_context_full()
        return recovered

    async def _compact_if_full(self, scope: Scope) -> None:
        if not scope.cancelled and self.compaction.is_due():
            with self.activity.pausing_run("compacting"):
                await self.compaction.compact_when_full(scope)

    async def _collect_continuations(self, result: RunResult, scope: Scope) -> list[CustomMessage]:
        """The messages with which extensions continue before the agent settles."""
        stopped = result.answer.stop_reason
        asked = self._dependencies.hooks.collect_continuations(stopped if stopped in ("error", "aborted") else "stop")
        return await wait_for_run_result(asked, scope, [])

    def _sync_journal(self) -> None:
        """Sync the session file in a thread; without an event loop the next run does it."""
        with suppress(RuntimeError):
            asyncio.get_running_loop().run_in_executor(None, self._dependencies.transcript.journal.sync)
