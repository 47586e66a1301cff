"""The engine of a session: runs from an accepted prompt to `agent_settled`, with everything that may follow a run.

One object, because the loop asks the session (`RunOwner`: which request, which tools, what to say next) while the
session decides about the loop (start, retry, compact, stop), and both read the same state of the present run. What is a
thing of its own stands beside it: the state machine (`activity`), `retry`, `compaction`, `navigation`, stream rules and
reminders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from pigeon.agent.inference import Delta, Failure, ModelRequest, Sampled
from pigeon.agent.interfaces import ModelProvider, SendableT, Spoken, Tool, Watch
from pigeon.agent.run import Run, RunResult
from pigeon.agent.scope import RunningCalls, Scope
from pigeon.session.activity import Activity, CompactionClaim
from pigeon.session.compaction.compaction import CANCELLED, Compaction
from pigeon.session.compaction.summarizer import Summarizer
from pigeon.session.context.images import ready_to_send
from pigeon.session.context.transcript import model_messages, without_images
from pigeon.session.dependencies import Dependencies
from pigeon.session.hooks import HookResult, T, result_of
from pigeon.session.limits.loop_guard import LoopGuard
from pigeon.session.limits.run_limits import RunLimits
from pigeon.session.navigation import Navigation, NavigationOptions
from pigeon.session.queue import MessageQueue, OpenPrompt
from pigeon.session.retry import Retry
from pigeon.session.steering.stream_rules import StreamRules
from pigeon.session.steering.todos import FinishGate, Reminders
from pigeon.wire.answers import Compacted, Navigated
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.content import ToolCall, has_images
from pigeon.wire.entries import TOKENS_ENTRY, CustomEntry
from pigeon.wire.errors import ENTRY_MISSING, Aborted, Refusal
from pigeon.wire.events import AgentSettled, EndReason, PromptError, PromptStatus, SessionSettled, ToolsDeclared
from pigeon.wire.messages import AssistantMessage, CustomMessage, Message, ToolResultMessage
from pigeon.wire.model import Model
from pigeon.wire.steering import LimitReached, Limits, Rule, limit_text

if TYPE_CHECKING:
    from pigeon.session.steering.final_answer import FinalAnswer

LOCALE = "The user's locale is {}. Answer in its language unless you are asked for another one."
DENIED = "None of the last tool calls was allowed to run"

STATUS: dict[EndReason, PromptStatus] = {
    "done": "completed",
    "aborted": "aborted",
    "error": "error",
    "limit": "error",
    "denied": "error",
}
NOTICE_TYPE = "limit-notice"


class Requests:
    """The provider as the loop or the summaries see it; `turn` says which of them asks."""

    def __init__(self, provider: ModelProvider, limits: RunLimits, turn: bool) -> None:
        self._provider = provider
        self._limits = limits
        self._turn = turn

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Begin an answer, if the limits allow one more."""
        if not self._limits.active:
            return self._provider.stream(request)
        return self._limits.stream(self._provider, request, self._turn)


class Engine:
    """Starts runs and sees them through. To the loop it is the `RunOwner`: asked anew each time, because models, tools
    and settings may change while a run lasts."""

    def __init__(self, dependencies: Dependencies, queue: MessageQueue) -> None:
        settings, bus, hooks = dependencies.settings, dependencies.bus, dependencies.hooks
        transcript, models = dependencies.transcript, dependencies.models
        retries = settings.retry if settings.auto_retry else None
        self.limits = RunLimits(settings.limits, transcript.journal.session_id)
        summarizer = Summarizer(
            Requests(dependencies.provider, self.limits, turn=False),
            bus.publish,
            retries,
            dependencies.toolset.facts_of,
        )
        self._dependencies = dependencies
        self._transcript = transcript
        self._bus = bus
        self._hooks = hooks
        self._models = models
        self._queue = queue
        self._todos = dependencies.todos
        self._navigation = Navigation(transcript, models, summarizer)
        self._rules = StreamRules(self._load_rules, bus.publish, dependencies.now, dependencies.report)
        self._finish_gate = FinishGate(settings.finish_gate, transcript, dependencies.now)
        self._reminders = Reminders(dependencies.todos, transcript, bus.publish, dependencies.now)
        self._requests = Requests(dependencies.provider, self.limits, turn=True)
        self._loop_guard = LoopGuard(settings.loop_guard)
        self._keep_unreadable_images = settings.keep_unreadable_images
        self._locale = ""
        self._aborts = 0
        self._run_scope = Scope()
        self._run_system_prompt: str | None = None
        self._final_answer: FinalAnswer | None = None
        self._recovered = False
        self._denied = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._untold = 0
        self._syncing: asyncio.Future[None] | None = None
        self.activity = Activity(dependencies.ids.request_id())
        self.calls = RunningCalls()
        self.retry = Retry(transcript, bus, settings.retry, settings.auto_retry)
        self.compaction = Compaction(
            transcript, models, summarizer, bus.publish, hooks, settings.compaction, settings.auto_compaction
        )
        bus.record(self._rules.notes)

    # What commands ask for.

    def start(
        self,
        opening: Sequence[Spoken],
        scope: Scope,
        system_prompt: str | None = None,
        final_answer: FinalAnswer | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Begin a run in the background; it was reserved with this scope. The system prompt, the final answer that the
        host wants and the limits are for this run only.

        Raises `SessionInUse` where another process writes the session; then nothing was begun.
        """
        try:
            if self._transcript.journal.claim(begins=True):
                self.enter_branch()
        except Refusal:
            self.activity.end()
            raise
        self._run_system_prompt = system_prompt
        self._final_answer = final_answer
        if limits is not None or self.limits.active:
            self.limits.begin(limits, scope)
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run_and_settle(opening, scope), name="pigeon-run")
        self._untold += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        loop.call_soon(self._dependencies.run_started)  # behind the run's first step, which sends the request

    def abort(self) -> Awaitable[None] | None:
        """Stop what is going on, at once; awaiting the result waits for its end. Queues stay as they are."""
        self._aborts += 1
        self.activity.cancel()
        return self.activity.ended()

    @property
    def aborts(self) -> int:
        """How often `abort` was called; a command that waits can tell whether it was called in the meantime."""
        return self._aborts

    async def settle(self) -> None:
        """Stop everything, and what was to come next, and wait for the end."""
        while self.activity.busy or self._tasks:
            self.activity.cancel()
            await (self.activity.ended() or self.told_all())

    async def told_all(self) -> None:
        """Wait until the host was told how every prompt of the runs so far has ended."""
        await (asyncio.wait(set(self._tasks)) if self._tasks else asyncio.sleep(0))

    @property
    def settled(self) -> bool:
        """True if no run was started that the host has not heard the end of."""
        return not self._untold

    def compact(self, instructions: str | Absent = ABSENT) -> Awaitable[Compacted]:
        """Summarize the history now; what is going on is stopped before this returns."""
        self._transcript.journal.claim()
        return self._compact(self.activity.claim_compaction(), instructions)

    def navigate(self, entry_id: str, options: NavigationOptions) -> Awaitable[Navigated]:
        """Go to another place in the tree; what is going on is stopped before this returns."""
        if self._transcript.journal.line(entry_id) is None:
            raise Refusal(f"{ENTRY_MISSING}{entry_id}")
        self._transcript.journal.claim()
        return self._navigate(self.activity.claim_compaction(), entry_id, options)

    def enter_branch(self, *, restore: bool = False) -> None:
        """Another branch or another conversation is in use: take its plan and what it was given of the rules.

        With `restore` it begins or goes on here, and its tools are taken, too.
        """
        branch = self._transcript.journal.branch
        self._dependencies.toolset.enter(branch, restore=restore)
        self._todos.enter(branch)
        self._rules.enter(branch)

    def reload_rules(self) -> None:
        """Read the stream rules again when they are next needed."""
        self._rules.reload()

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits of the conversation, also while a run goes on."""
        self.limits.set(limits, self._run_scope if self.activity.in_run else None)

    def set_locale(self, locale: str) -> None:
        """The language of the user, from the next request on; empty for none."""
        self._locale = locale.strip()

    def set_keep_unreadable_images(self, keep: bool) -> None:
        """Whether a prompt's data that is no image goes to the model as it is; dialects differ."""
        self._keep_unreadable_images = keep

    def system_prompt(self) -> str:
        """The system prompt of the next request, unless the run has one of its own."""
        prompt = self._dependencies.system_prompt(self._transcript.journal.cwd)
        return f"{prompt}\n\n{LOCALE.format(self._locale)}" if self._locale else prompt

    def warm_up(self) -> None:
        """Read the files that the first request needs while there is time: those of the system prompt and the rules."""
        self.system_prompt()
        self._rules.warm_up()

    # What the loop asks: the methods of `RunOwner`.

    @property
    def one_at_a_time(self) -> bool:
        """True if the same events must come in the same order each time."""
        return self._dependencies.settings.reproducible

    async def request(self) -> ModelRequest:
        """The next request: context, tools, model and thinking as they are now."""
        context = self._transcript.context
        given = await self._unless_stopped(self._hooks.context(context), context)
        messages = self._transcript.model_messages if given is context else model_messages(given)
        request = ModelRequest(
            model=self.model(),
            system_prompt=self._run_system_prompt or self.system_prompt(),
            messages=without_images(messages) if self._dependencies.settings.block_images else messages,
            tools=self._dependencies.toolset.specs(),
            thinking=self._models.level,
            session_id=self._transcript.journal.session_id,
        )
        return (
            request
            if self._final_answer is None
            else self._final_answer.asked(request, self._dependencies.output_formats)
        )

    def model(self) -> Model:
        """The model that is asked."""
        if self._models.model is None:
            raise Refusal("No model selected")
        return self._models.model

    def tools(self) -> dict[str, Tool]:
        """The tools that can be called now."""
        active = self._dependencies.toolset.callable()
        return active if self._final_answer is None else self._final_answer.tools(active)

    def missing_tool(self, name: str) -> Tool | None:
        """A tool that is there now, or may be in the time that a call can wait; raises `ToolFailed`."""
        return self._dependencies.toolset.missing.tool(name)

    async def declare_tools(self) -> None:
        """Put on record which tools the model has, where the branch does not say so."""
        declaration = self._dependencies.toolset.declaration(self._dependencies.now())
        if declaration is not None:
            await self._bus.publish(ToolsDeclared(message=declaration))

    def watch(self) -> Watch | None:
        """The stream rules, if any of them could match."""
        return self._rules.watch()

    async def prepare(self, message: SendableT) -> SendableT:
        """The message without keys in what a tool returned, and with images that models take. What a tool returned is
        kept even where it is no image: the tool cannot be asked to send it again."""
        if isinstance(message, ToolResultMessage):
            message = cast("SendableT", self._dependencies.mask_result(message))
        if not has_images(message.content):
            return message
        keep = self._keep_unreadable_images or isinstance(message, ToolResultMessage)
        return await ready_to_send(message, self._dependencies.images, keep, self._run_scope)

    async def finalize(self, message: Message) -> Message:
        """Extensions may change a message before it goes on record, unless that takes longer than the run."""
        return await self._unless_stopped(self._hooks.message_end(message), message)

    async def additions(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], ends: bool
    ) -> list[Spoken] | None:
        """A rule that cut the answer; where the run would end a reminder of open tasks or the request to verify; or
        what is wrong with the final answer. None if the model has used up its attempts at that. With it, what the model
        must know of loops and limits if it goes on."""
        said: list[Spoken] | None = await self._rules.additions()
        if not said and ends:
            said = await self._reminders.additions(answer)
        if not said and ends and self.limits.has_room():
            given = self._final_answer is not None and not isinstance(self._final_answer.value, Absent)
            said = self._finish_gate.additions(answer, given)
        if not said and self._final_answer is not None:
            said = self._final_answer.additions(answer, ends, self._dependencies.now())
        if said is None or (ends and not said):
            return said
        return [*said, *self._notices(answer, results)]

    def _notices(self, answer: AssistantMessage, results: Sequence[ToolResultMessage]) -> list[Spoken]:
        looping = self._loop_guard.notes(answer, results, self._transcript.last_user_entry())
        reached = None if looping else self._loop_guard.stops()
        if reached is not None:
            self.limits.stop(reached)
        ending: str | None = None
        if self.limits.active:
            self.limits.add_results(results)
            ending = self.limits.notice()
        now = self._dependencies.now()
        return [
            CustomMessage(custom_type=NOTICE_TYPE, content=text, display=False, timestamp=now)
            for text in (looping, ending)
            if text is not None
        ]

    def takes_messages(self) -> bool:
        """False if a limit keeps the model from hearing another message: then they stay in the queue."""
        return not (self.limits.active and self.limits.blocks())

    def refused_call(self, call: ToolCall) -> str | None:
        """Why a limit keeps the next tool call from being made; none if it may be. The final answer is no call."""
        if not self.limits.active or (self._final_answer is not None and self._final_answer.is_given_by(call)):
            return None
        return self.limits.refused_call()

    async def between_turns(self, scope: Scope) -> None:
        """Compact if the last turn nearly filled the context, unless no further answer may be asked for anyway."""
        if self.takes_messages():
            await self._make_room(scope)

    async def answered(self, answer: AssistantMessage) -> None:
        """A retry that led here has succeeded."""
        if self._final_answer is not None:
            self._final_answer.answered(answer)
        await self.retry.succeeded()

    def keep_tokens(self, sampled: Sampled) -> None:
        """Put the token ids of the last answer on record, for trajectories; no event tells of them."""
        journal = self._transcript.journal
        answer = next((line for line in reversed(journal.branch) if line.role == "assistant"), None)
        if answer is not None:
            data = {
                "messageId": answer.id,
                "promptTokenIds": sampled.prompt_token_ids,
                "tokenIds": sampled.token_ids,
                "logprobs": sampled.logprobs,
            }
            told = {name: value for name, value in data.items() if value}
            journal.append(CustomEntry, custom_type=TOKENS_ENTRY, data=told)

    async def wants_retry(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """True if the answer will be tried again; no pause is made before a request that a limit would refuse."""
        return self.retry.wanted(failure) and self.takes_messages()

    # A run, and what follows it by itself.

    async def _run_and_settle(self, opening: Sequence[Spoken], scope: Scope) -> None:
        result: RunResult | None = None
        try:
            result = await self._run_all(opening, scope)
        finally:
            prompts, run_id = self._queue.end_run(), self.activity.run_id
            limit = self.limits.end(scope.cancelled)
            try:
                self.activity.end()
            finally:
                self._sync()
                await self._tell_end(result, scope.cancelled, limit, prompts, run_id)

    async def _run_all(self, opening: Sequence[Spoken], scope: Scope) -> RunResult:
        """The run, and further ones for what is queued and for what extensions want done, until nothing is left."""
        self._run_scope = scope
        self._recovered = False
        self._denied = False
        await self._make_room(scope)
        result = await self._run(scope, opening)
        while not scope.cancelled and not self._must_end():
            if not result.failed and len(self._queue):
                if not self.takes_messages():
                    break
                result = await self._run(scope, (), resumes=True)
            elif more := await self._continuation(result):
                result = await self._run(scope, more)
            elif result.failed or not len(self._queue):
                # Nothing is awaited from here to the end: what is queued later finds that the run is over.
                break
        return result

    def _must_end(self) -> bool:
        """True if nothing may follow the run: a limit has ended it, or the model gave no final answer that fits."""
        return self.limits.has_ended or (self._final_answer is not None and self._final_answer.failed)

    def _sync(self) -> None:
        """Have the disk confirm the session file, in a thread; without one the next run does."""
        with suppress(RuntimeError):
            self._syncing = asyncio.get_running_loop().run_in_executor(None, self._transcript.journal.sync)

    async def _tell_end(
        self,
        result: RunResult | None,
        cancelled: bool,
        limit: LimitReached | None,
        prompts: list[OpenPrompt],
        run_id: str,
    ) -> None:
        """Say that nothing follows, then how each prompt ended. In between, commands that waited for the end of the
        run are answered, which takes two turns of the event loop; another run may have begun by then."""
        reason: EndReason = "aborted" if cancelled else "error" if result is None or result.failed else "done"
        reason = reason if limit is None else "limit"
        output, problem = self._output() if reason == "done" else (ABSENT, ABSENT)
        if not isinstance(problem, Absent):
            reason = "error"
        elif reason == "done" and isinstance(output, Absent) and self._denied:
            reason = "denied"
        self._bus.post(
            AgentSettled(
                aborted=reason == "aborted",
                reason=reason,
                limit=ABSENT if limit is None else limit,
                output=output,
                error_message=problem,
                run_id=run_id,
            )
        )
        for _ in range(2):
            await asyncio.sleep(0)
        self._untold -= 1
        settled = not self._untold
        problem = DENIED if reason == "denied" else problem
        error = ABSENT if reason in ("done", "aborted") else self._prompt_error(result, problem)
        if limit is not None:
            error = PromptError(message=limit_text(limit), retryable=False)
        self._queue.prompts.tell(prompts, STATUS[reason], settled, error, run_id, output)
        if settled:
            self._bus.post(SessionSettled(run_id=run_id))

    def _output(self) -> tuple[Json | Absent, str | Absent]:
        """The final answer of a run that has come to its end, or why there is none; nothing if none was asked for."""
        final = self._final_answer
        if final is None:
            return ABSENT, ABSENT
        return (ABSENT, final.error) if isinstance(final.value, Absent) else (final.value, ABSENT)

    def _prompt_error(self, result: RunResult | None, problem: str | Absent) -> PromptError:
        if not isinstance(problem, Absent):
            return PromptError(message=problem, retryable=False)
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

    async def _run(self, scope: Scope, opening: Sequence[Spoken], resumes: bool = False) -> RunResult:
        """One run, repeated as often as its failures want and allow; afterwards there is room for the next one."""
        result = await self._run_once(scope, opening, resumes)
        while result.failed and not scope.cancelled and await self._may_repeat(result, scope):
            result = await self._run_once(scope, (), resumes=False)
        if not result.failed:
            self._recovered = False
            await self._make_room(scope)
        elif result.failure is not None:
            await self.retry.gave_up(result.failure.message)
        return result

    async def _run_once(self, scope: Scope, opening: Sequence[Spoken], resumes: bool) -> RunResult:
        given = self._dependencies
        tool_mode = given.settings.tool_mode
        gate = given.gate if self._final_answer is None else self._final_answer.gate(given.gate)
        requests = self._requests
        if self._final_answer is not None:
            requests = Requests(self._final_answer.provider(given.provider), self.limits, turn=True)
        run = Run(requests, self, self._queue, self._bus.publish, scope, given.now, gate, tool_mode)
        result = await run.run(opening, resumes=resumes)
        if (given.settings.unattended or given.permissions.announces) and result.denied is not None:
            self._denied = result.denied
        return result

    async def _may_repeat(self, result: RunResult, scope: Scope) -> bool:
        """After a pause, or after making room for a request that was too long."""
        if result.failure is None:
            return False
        if result.will_retry:
            return await self._pause(result.failure, scope)
        return result.failure.overflow and await self._recover(scope)

    async def _pause(self, failure: Failure, scope: Scope) -> bool:
        self.activity.enter("retrying")
        try:
            return await self.retry.pause(failure, scope)
        finally:
            self.activity.enter("running")

    async def _recover(self, scope: Scope) -> bool:
        """Compact once after an overflow; a second overflow in a row is reported and ends the run."""
        if not self.compaction.enabled:
            return False
        if self._recovered:
            await self.compaction.overflowed_again()
            return False
        self._recovered = True
        self.activity.enter("compacting")
        try:
            recovered = await self.compaction.recover(scope, self.retry.leave_out)
        finally:
            self.activity.enter("running")
        if not recovered:
            self.limits.found_no_room()
        return recovered

    async def _make_room(self, scope: Scope) -> None:
        """Compact if the context is nearly full."""
        if scope.cancelled or not self.compaction.due():
            return
        self.activity.enter("compacting")
        try:
            await self.compaction.automatic(scope)
        finally:
            self.activity.enter("running")

    async def _continuation(self, result: RunResult) -> list[CustomMessage]:
        """What extensions want done before the agent settles."""
        stopped = result.answer.stop_reason
        asked = self._hooks.before_settle(stopped if stopped in ("error", "aborted") else "stop")
        return await self._unless_stopped(asked, [])

    async def _unless_stopped(self, asked: HookResult[T], otherwise: T) -> T:
        """What a hook answers, or something else as soon as the run is stopped."""
        try:
            return await result_of(asked, self._run_scope)
        except Aborted:
            return otherwise

    # Compaction and navigation on request: both claim their turn at once and begin when the run has ended.

    async def _compact(self, claim: CompactionClaim, instructions: str | Absent) -> Compacted:
        scope = await self._taken_up(claim)
        try:
            return await self.compaction.manual(instructions, scope)
        finally:
            self.activity.end()

    async def _navigate(self, claim: CompactionClaim, entry_id: str, options: NavigationOptions) -> Navigated:
        scope = await self._taken_up(claim)
        try:
            arrived = await self._navigation.go(entry_id, options, scope)
            self.enter_branch()
            return arrived
        except Aborted:
            return Navigated(cancelled=True, leaf_id=self._transcript.journal.leaf_id)
        finally:
            self.activity.end()

    async def _taken_up(self, claim: CompactionClaim) -> Scope:
        ended = self.activity.ended()
        if ended is not None:
            await ended
        try:
            return self.activity.begin_compaction(claim)
        except Aborted:
            raise Refusal(CANCELLED) from None

    def _load_rules(self) -> list[Rule]:
        return self._dependencies.rules(self._transcript.journal.cwd)
