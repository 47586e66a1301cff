"""What happens to a message to the agent, from the host or an extension: it starts a run, waits in the queue, waits for
the next prompt, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pigeon.agent.interfaces import Spoken
from pigeon.agent.scope import Scope
from pigeon.session.activity import NextRun
from pigeon.session.context.system_prompt import SystemPrompt
from pigeon.session.dependencies import Dependencies, ServerContent
from pigeon.session.engine import Engine
from pigeon.session.hooks import HookResult, PromptAdditions, PromptInput, T, wait_for_result, wait_for_run_result
from pigeon.session.queue import MessageQueue, OpenPrompt, QueuedMessage
from pigeon.wire.answers import Accepted, QueueItem, QueueKind, SlashCommand
from pigeon.wire.base import ABSENT, Absent, Json
from pigeon.wire.commands import StreamingBehavior
from pigeon.wire.content import Attachment, ImageContent, ImageInput, TextContent, UserBlock, user_blocks
from pigeon.wire.errors import ABORTED_BEFORE, Aborted, Refusal, SessionBusy, text_for_host
from pigeon.wire.events import MessageEnd, MessageStart
from pigeon.wire.messages import Acceptance, CustomMessage, Disposition, UserMessage
from pigeon.wire.steering import Limits, describe_limit

if TYPE_CHECKING:
    from pigeon.session.client_messages import ClientMessages
    from pigeon.session.policies.final_answer import FinalAnswer

JOB_NOTICE = "job-notice"
NOTHING_NAMED = ServerContent()
NO_ADDITIONS = PromptAdditions([])
HANDLED = Acceptance(disposition="handled", digest="")
DeliverAs = Literal["steer", "followUp", "nextTurn"]
NO_MODEL = (
    "No API key found for the selected model.\n\n"
    "No model is selected. Set a provider's key in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, "
    "GEMINI_API_KEY, ...) or describe a provider in {models_file}, then start again or choose one with set_model. "
    "To try Pigeon without a key: pigeon --mode rpc --model demo"
)
NOT_QUEUED = (
    "A prompt with outputSchema needs a run of its own and cannot be queued. "
    "Send it when the agent has settled, or with abort_and_prompt."
)
QUEUED_LIMITS = (
    'Missing or invalid field "limits": the message joins a run that is going on, which has limits of its own. Send it '
    "when the run has ended, or change the limits of the conversation with set_limits."
)
OTHER_LIMITS = "Set others with set_limits, which counts anew, or begin another conversation."


def make_final_answer(output_schema: Json | Absent) -> FinalAnswer | None:
    """The final answer that a prompt with this schema requires; raises `Refusal` that names an error in the schema."""
    if isinstance(output_schema, Absent):
        return None
    from pigeon.session.policies.final_answer import FinalAnswer

    return FinalAnswer(output_schema)


class HostMessage(Struct, frozen=True):
    """A message from the host as it was sent; `id` is that of the command, which the result of a prompt repeats.

    `client_id` is the host's own id of the message, and `digest` that of its command: both are set, or neither.
    `final_answer` is for a prompt with an output schema, `limits` for one with limits.
    """

    text: str
    images: list[ImageInput] | Absent = ABSENT
    attachments: list[Attachment] | Absent = ABSENT
    id: Json | Absent = ABSENT
    client_id: str | Absent = ABSENT
    digest: str = ""
    final_answer: FinalAnswer | None = None
    limits: Limits | None = None


class Prompting:
    """Accepts messages.

    A run is reserved before `prompt` returns, so a second prompt in the same write is refused, unless an extension
    handles it. Extensions are awaited afterwards; if there is nothing to wait for, the run has started when `prompt`
    returns.

    Many hosts send the next prompt at `agent_end`, although a compaction, another attempt or a continuation follows.
    Such a prompt is accepted and begins the next run. What is queued after it is kept for that run.
    """

    def __init__(
        self, dependencies: Dependencies, engine: Engine, queue: MessageQueue, system_prompt: SystemPrompt
    ) -> None:
        self._dependencies = dependencies
        self._bus = dependencies.bus
        self._transcript = dependencies.transcript
        self._hooks = dependencies.hooks
        self._now = dependencies.now
        self._engine = engine
        self._activity = engine.activity
        self._queue = queue
        self._system_prompt = system_prompt
        self._commands: set[asyncio.Future[bool]] = set()
        self._launches: set[asyncio.Future[None]] = set()
        self._next_turn: list[CustomMessage] = []
        self._client_messages: ClientMessages | None = None

    def prompt(
        self, given: HostMessage, behavior: StreamingBehavior | Absent = ABSENT
    ) -> Awaitable[Accepted] | Accepted:
        """Start a run, or queue as in `behavior` while one is active; raises if neither is possible."""
        known = self.find_earlier_answer(given)
        if known is not None:
            return known
        if self._hooks.has_command(given.text):
            self._run_command(given.text)
            return self._remember_acceptance(given, HANDLED)
        if self._activity.is_running:
            if isinstance(behavior, Absent):
                if self._activity.can_reserve_next_run:
                    blocks = user_blocks(given.text, given.images, given.attachments)
                    self._check_can_run()
                    return start_eagerly(self._accept_for_next_run(given, blocks, self._activity.reserve_next_run()))
                return start_eagerly(self._handle_while_busy(given))
            if given.final_answer is not None:
                raise Refusal(NOT_QUEUED)
            if given.limits is not None:
                raise Refusal(QUEUED_LIMITS)
            return start_eagerly(self._enqueue_prompt(given, "followUp" if behavior == "followUp" else "steering"))
        blocks = user_blocks(given.text, given.images, given.attachments)
        return start_eagerly(self._start_prompt(given, blocks, behavior or None, self._reserve_run()))

    def queue_message(self, given: HostMessage, kind: QueueKind) -> Awaitable[Accepted] | Accepted:
        """Queue a message, even while nothing runs."""
        known = self.find_earlier_answer(given)
        if known is not None:
            return known
        self._refuse_command(given.text)
        return start_eagerly(self._enqueue(given, kind))

    def _refuse_command(self, text: str) -> None:
        if self._hooks.has_command(text):
            name = text.split(None, 1)[0]
            raise Refusal(f'Extension command "{name}" cannot be queued. Send it with prompt, which runs it at once.')

    def deliver_custom_message(self, message: CustomMessage, trigger_turn: bool, deliver_as: DeliverAs) -> None:
        """Deliver an extension's message: now, at the next break of the run, after it, or with the next prompt.

        Never between a tool call and its result.
        """
        if deliver_as == "nextTurn":
            self._next_turn.append(message)
        elif not trigger_turn:
            self._transcript.journal.claim_and_reload_file()
            self._activity.defer_to_run_end(partial(self._announce_custom_message, message))
        elif self._activity.is_running:
            self._queue.add(message, "followUp" if deliver_as == "followUp" else "steering")
        else:
            self._start_own_run([message], self._reserve_run())

    def deliver_user_message(self, message: UserMessage, deliver_as: Literal["steer", "followUp"] | None) -> None:
        """Send an extension's prompt in the user's name; during a run it raises unless it states how to queue."""
        if not self._activity.is_running:
            self._start_own_run([message], self._reserve_run())
        elif deliver_as is None:
            raise SessionBusy
        else:
            self._queue.add(message, "followUp" if deliver_as == "followUp" else "steering")

    def _start_own_run(self, opening: Sequence[Spoken], scope: Scope) -> None:
        """Start a run that no host has asked for, so that hosts take the session for idle."""
        self._engine.start_run(opening, scope)
        self._activity.allow_next_run()

    def list_commands(self) -> list[SlashCommand]:
        """The slash commands that a message may begin with."""
        return [
            *self._hooks.list_commands(),
            *self._dependencies.expander.list_commands(),
            *self._dependencies.tool_servers.list_commands(),
        ]

    @property
    def is_waiting(self) -> bool:
        """True while a command of an extension runs, or a message waits for the next prompt."""
        return bool(self._commands or self._next_turn)

    async def wait_for_commands(self) -> None:
        while self._commands:
            await asyncio.wait(set(self._commands))

    def _run_command(self, text: str) -> None:
        """Run in the background: a command may ask the host something, and the host may wait for the answer to `prompt`
        first."""
        task = asyncio.ensure_future(self._hooks.try_run_command(text))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    def _reserve_run(self) -> Scope:
        """The scope of a new run; raises if the session is busy, if the limits of the conversation are used up, or if
        there is no model."""
        scope = self._activity.begin_run()
        try:
            self._check_can_run()
        except Refusal:
            self._activity.end()
            raise
        return scope

    def _check_can_run(self) -> None:
        """Raise if the limits of the conversation are used up, or if there is no model."""
        limits, models = self._engine.limits, self._dependencies.models
        if limits.active and (reached := limits.find_exhausted_limit()) is not None:
            raise Refusal(f"{describe_limit(reached)}, in this conversation. {OTHER_LIMITS}", code="limit")
        if (problem := models.problem) or models.model is None:
            raise Refusal(problem or NO_MODEL.format(models_file=self._dependencies.models_file))

    async def _start_prompt(
        self, given: HostMessage, blocks: list[UserBlock], behavior: StreamingBehavior | None, scope: Scope
    ) -> Accepted:
        with self._releasing_on_failure():
            message = await self._prepare_message(given, blocks, behavior, scope)
            if message is None:
                self._activity.end()
                return self._remember_acceptance(given, HANDLED)
            return await self._launch_run(given, message, scope)

    async def _accept_for_next_run(self, given: HostMessage, blocks: list[UserBlock], following: NextRun) -> Accepted:
        """Accept a prompt that runs when the agent is free; its place is reserved."""
        self._queue.hold_new_messages()
        try:
            message = await self._prepare_message(given, blocks, None, following.scope)
        except BaseException as error:
            self._give_up_next_run(following)
            if isinstance(error, Aborted):
                raise Refusal(ABORTED_BEFORE) from None
            raise
        if message is None:
            self._give_up_next_run(following)
            return self._remember_acceptance(given, HANDLED)
        accepted = Acceptance(disposition="started", digest=given.digest, run_id=following.run_id)
        if not isinstance(given.client_id, Absent):
            message = replace(message, client_message_id=given.client_id, accepted=accepted)
        self._queue.promise_next_prompt(message)
        self._engine.expect_run()
        launch = asyncio.ensure_future(self._launch_in_turn(given, message, following))
        self._launches.add(launch)
        launch.add_done_callback(self._launches.discard)
        return self._remember_acceptance(given, accepted)

    def _give_up_next_run(self, following: NextRun) -> None:
        self._queue.release_held_messages()
        self._activity.release_next_run(following)

    async def _launch_in_turn(self, given: HostMessage, message: UserMessage, following: NextRun) -> None:
        """Start the run of an accepted prompt in its turn. One that was aborted meanwhile runs too, and ends at once:
        its host waits for that end."""
        try:
            await following.wait_for_turn()
        except Aborted:
            return
        self._queue.release_held_messages()
        scope = following.scope
        additions = NO_ADDITIONS
        try:
            if not scope.cancelled:
                asked = self._hooks.collect_prompt_additions(message, self._system_prompt.text)
                additions = await wait_for_run_result(asked, scope, NO_ADDITIONS)
            self._start_prompted_run(given, message, scope, additions)
        except Exception as error:
            await self._engine.end_unstarted_run(scope, OpenPrompt(given.id), text_for_host(error))

    async def _launch_run(self, given: HostMessage, message: UserMessage, scope: Scope) -> Accepted:
        """Collect additions of extensions and start the run."""
        asked = self._hooks.collect_prompt_additions(message, self._system_prompt.text)
        additions = await _wait_for_hook(asked, scope)
        message, accepted = self._attach_acceptance(given, message, "started")
        self._start_prompted_run(given, message, scope, additions)
        return self._remember_acceptance(given, accepted)

    def _start_prompted_run(
        self, given: HostMessage, message: UserMessage, scope: Scope, additions: PromptAdditions
    ) -> None:
        opening: list[Spoken] = [message, *self._next_turn, *self._make_job_notices(), *additions.messages]
        policies = () if given.final_answer is None else (given.final_answer,)
        self._engine.start_run(opening, scope, additions.system_prompt, policies, given.limits)
        self._next_turn = []
        prompt = OpenPrompt(given.id, given.final_answer is not None)
        prompt.mark_delivered()
        self._queue.prompts.add(prompt)

    def _make_job_notices(self) -> list[CustomMessage]:
        """What has ended in the background since the model was last told."""
        now = self._now()
        return [
            CustomMessage(custom_type=JOB_NOTICE, content=text, display=False, timestamp=now)
            for text in self._dependencies.jobs.take_notices()
        ]

    def start_run_for_jobs(self) -> None:
        """Start a run for what has ended in the background, if none is active; does nothing if it cannot start."""
        if self._activity.is_busy or not self._dependencies.jobs.has_notices:
            return
        with suppress(Refusal):
            scope = self._reserve_run()
            self._start_own_run(self._make_job_notices(), scope)

    @contextmanager
    def _releasing_on_failure(self) -> Iterator[None]:
        """Release a reserved run if anything prevents its start, so that the next prompt can have it."""
        try:
            yield
        except Aborted:
            self._activity.end()
            raise Refusal(ABORTED_BEFORE) from None
        except BaseException:
            self._activity.end()
            raise

    async def _handle_while_busy(self, given: HostMessage) -> Accepted:
        """During a run, a prompt that does not state how to queue can only be handled by an extension."""
        if await self._prepare_in_run(given, None) is None:
            return self._remember_acceptance(given, HANDLED)
        raise SessionBusy

    async def _enqueue(self, given: HostMessage, kind: QueueKind) -> Accepted:
        message = await self._prepare_queueable(given, kind)
        if message is None:
            return self._remember_acceptance(given, HANDLED)
        return self._put_in_queue(given, QueuedMessage(self._dependencies.ids.request_id(), message, kind), message)

    async def _enqueue_prompt(self, given: HostMessage, kind: QueueKind) -> Accepted:
        """Queue a prompt. If the run has ended while extensions handled it, the prompt starts the next run."""
        message = await self._prepare_queueable(given, kind)
        if message is None:
            return self._remember_acceptance(given, HANDLED)
        if self._activity.is_running:
            return self._put_in_queue(
                given, QueuedMessage(self._dependencies.ids.request_id(), message, kind, OpenPrompt(given.id)), message
            )
        scope = self._reserve_run()
        with self._releasing_on_failure():
            return await self._launch_run(given, message, scope)

    def _put_in_queue(self, given: HostMessage, item: QueuedMessage, message: UserMessage) -> Accepted:
        message, accepted = self._attach_acceptance(given, message, "queued", item.id)
        item.set_message(message)
        self._queue.put(item)
        return self._remember_acceptance(given, accepted)

    async def edit_queued(self, id: str, text: str) -> QueueItem:
        """Change the text of a queued message; it is processed and expanded as if it had been sent that way."""
        item = self._queue.find_waiting(id)
        before = item.message
        if not isinstance(before, UserMessage):
            raise Refusal(f'The message "{id}" was put into the queue by an extension and cannot be edited')
        self._refuse_command(text)
        given = HostMessage(text, attachments=before.attachments)
        blocks = [] if isinstance(before.content, str) else before.content
        first = next((block for block in blocks if isinstance(block, TextContent)), None)
        rest = [block for block in blocks if block is not first]
        behavior: StreamingBehavior = "followUp" if item.kind == "followUp" else "steer"
        after = await self._prepare_message(given, [TextContent(text=text), *rest], behavior, None)
        if after is None:
            return self._queue.remove(id)
        return self._queue.edit(id, replace(before, content=after.content))

    def find_earlier_answer(self, given: HostMessage) -> Accepted | None:
        """The answer that the same message got when it first came; raises `Refusal` if it was a different one."""
        if isinstance(given.client_id, Absent):
            return None
        if self._client_messages is None:
            from pigeon.session.client_messages import ClientMessages

            self._client_messages = ClientMessages(self._transcript, self._queue.kept_messages)
        acceptance = self._client_messages.find_acceptance(given.client_id, given.digest)
        return None if acceptance is None else self._to_accepted(acceptance, given.client_id)

    def _attach_acceptance(
        self, given: HostMessage, message: UserMessage, disposition: Disposition, queued_id: str | Absent = ABSENT
    ) -> tuple[UserMessage, Acceptance]:
        """The message with its acceptance, if the host gave it an id, and the acceptance itself."""
        run_id = self._activity.run_id if self._activity.is_running else ABSENT
        accepted = Acceptance(disposition=disposition, digest=given.digest, run_id=run_id, queued_id=queued_id)
        if isinstance(given.client_id, Absent):
            return message, accepted
        return replace(message, client_message_id=given.client_id, accepted=accepted), accepted

    def _remember_acceptance(self, given: HostMessage, acceptance: Acceptance) -> Accepted:
        """The answer to a message, which is remembered if the host gave it an id."""
        if self._client_messages is not None and not isinstance(given.client_id, Absent):
            self._client_messages.remember(given.client_id, replace(acceptance, digest=given.digest))
        return self._to_accepted(acceptance, given.client_id)

    def _to_accepted(self, acceptance: Acceptance, client_id: str | Absent) -> Accepted:
        return Accepted(
            disposition=acceptance.disposition,
            run_id=acceptance.run_id,
            queued_id=acceptance.queued_id,
            client_message_id=client_id,
        )

    async def _prepare_queueable(self, given: HostMessage, kind: QueueKind) -> UserMessage | None:
        """The message to queue, or None if an extension handled it."""
        return await self._prepare_in_run(given, "followUp" if kind == "followUp" else "steer")

    async def _prepare_in_run(self, given: HostMessage, behavior: StreamingBehavior | None) -> UserMessage | None:
        """A message for the active run; an abort of the run also stops the extensions that process it."""
        blocks = user_blocks(given.text, given.images, given.attachments)
        try:
            return await self._prepare_message(given, blocks, behavior, self._activity.scope)
        except Aborted:
            raise Refusal(ABORTED_BEFORE) from None

    async def _prepare_message(
        self, given: HostMessage, blocks: list[UserBlock], behavior: StreamingBehavior | None, scope: Scope | None
    ) -> UserMessage | None:
        """The message after extensions have processed it, `/name` was expanded and named content of tool servers was
        read; None if an extension handled it."""
        images = [block for block in blocks if isinstance(block, ImageContent)]
        heard = await _wait_for_hook(
            self._hooks.transform_input(PromptInput(given.text, images, behavior=behavior)), scope
        )
        if heard is None:
            return None
        rest = blocks[1:]
        if heard.images is not images:
            rest = [*(block for block in rest if isinstance(block, TextContent)), *heard.images]
        text, named = heard.text, NOTHING_NAMED
        if text.startswith("/"):
            await self._dependencies.workspace.wait_until_read()
        if text.startswith("/") or "@" in text:
            named = await _wait_for_hook(self._dependencies.tool_servers.fetch_mentioned_content(text), scope)
            text = self._dependencies.expander.expand(text) if named.text is None else named.text
        return UserMessage(
            content=[TextContent(text=text), *rest, *named.blocks],
            timestamp=self._now(),
            attachments=given.attachments or ABSENT,
        )

    def _announce_custom_message(self, message: CustomMessage) -> None:
        self._bus.post(MessageStart(message=message))
        self._bus.post(MessageEnd(message=message))


def start_eagerly(work: Coroutine[Any, Any, Accepted]) -> Awaitable[Accepted] | Accepted:
    """Run a coroutine at once as far as it gets; returns its result if it has ended, else the rest of it, to be
    awaited.

    Such a coroutine runs outside of any task first, so it may wait for nothing before `_yield_to_task`. The rest runs
    in the task that awaits it, so that this task answers the host before the first step of the started run.
    """
    try:
        work.send(None)
    except StopIteration as end:
        accepted: Accepted = end.value
        return accepted
    return _resume_coroutine(work)


@coroutine
def _resume_coroutine(work: Coroutine[Any, Any, Accepted]) -> Generator[Any, Any, Accepted]:
    """The rest of a started coroutine, which `await` refuses."""
    accepted: Accepted = yield from work
    return accepted


@coroutine
def _yield_to_task() -> Generator[None, None, None]:
    """A bare `yield`: `start_eagerly` gets control back, and the task that awaits the rest resumes it here."""
    yield


async def _wait_for_hook(asked: HookResult[T], scope: Scope | None) -> T:
    """The answer of a hook; any waiting is done in a task."""
    if isinstance(asked, Awaitable):
        await _yield_to_task()
    return await wait_for_result(asked, scope)
