"""The session from the loop's point of view (`RunOwner` of `agent/interfaces.py`): requests, tools, and additions after
a turn. Queried each time, because models, tools and settings may change during a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from msgspec.structs import replace

from pigeon.agent.inference import Failure, ModelRequest, Sampled
from pigeon.agent.interfaces import SendableT, Spoken, Tool, Watch
from pigeon.agent.scope import RunningCalls, Scope
from pigeon.session.context.system_prompt import SystemPrompt
from pigeon.session.context.transcript import strip_images, to_model_messages
from pigeon.session.dependencies import Dependencies
from pigeon.session.hooks import wait_for_run_result
from pigeon.session.policies.all import RunPolicies
from pigeon.session.retry import Retry
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.entries import TOKENS_ENTRY, CustomEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.events import ToolOutcome, ToolsDeclared
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage
from pigeon.wire.model import Model


class SessionRunOwner:
    """Answers the queries of the loop; `make_room` compacts if the context is nearly full."""

    def __init__(
        self,
        dependencies: Dependencies,
        policies: RunPolicies,
        system_prompt: SystemPrompt,
        retry: Retry,
        make_room: Callable[[Scope], Awaitable[None]],
    ) -> None:
        self._dependencies = dependencies
        self._policies = policies
        self._system_prompt = system_prompt
        self._retry = retry
        self._make_room = make_room
        self._keep_unreadable_images = dependencies.settings.keep_unreadable_images
        self._scope = Scope()
        self._own_prompt: str | None = None
        self.calls = RunningCalls()

    def begin_run(self, scope: Scope, system_prompt: str | None) -> None:
        """Begin a run, with a system prompt for this run only if it has one."""
        self._scope = scope
        self._own_prompt = system_prompt

    def set_keep_unreadable_images(self, keep: bool) -> None:
        """Whether a prompt's data that is no image goes to the model as it is; dialects differ."""
        self._keep_unreadable_images = keep

    @property
    def one_at_a_time(self) -> bool:
        """True if calls must come in the same order each time, as when a recording is made or played."""
        return self._dependencies.settings.one_call_at_a_time

    def name_machine(self, failure: ToolOutcome) -> ToolOutcome:
        """The result of a failed call, with the machine of the workspace, if that is another one."""
        machine = self._dependencies.workspace.machine
        texts = [block for block in failure.content if isinstance(block, TextContent)]
        if machine is None or any(machine in block.text for block in texts):
            return failure
        return replace(failure, content=[*failure.content, TextContent(text=f"[on {machine}]")])

    async def announce_tools(self) -> None:
        """Record the model's tools, unless the branch already declares them."""
        declaration = self._dependencies.toolset.make_declaration(self._dependencies.now)
        if declaration is not None:
            await self._dependencies.bus.publish(ToolsDeclared(message=declaration))

    async def build_request(self) -> ModelRequest:
        """The next request: the current context, tools, model and thinking level."""
        await self._dependencies.workspace.wait_until_read()
        given, transcript = self._dependencies, self._dependencies.transcript
        context = transcript.context
        changed = await wait_for_run_result(given.hooks.transform_context(context), self._scope, context)
        messages = transcript.model_messages if changed is context else to_model_messages(changed)
        return self._policies.change_request(
            ModelRequest(
                model=self.model(),
                system_prompt=self._own_prompt or self._system_prompt.text(),
                messages=strip_images(messages) if given.settings.block_images else messages,
                tools=given.toolset.specs(),
                thinking=given.models.level,
                session_id=transcript.journal.session_id,
            )
        )

    def model(self) -> Model:
        if self._dependencies.models.model is None:
            raise Refusal("No model selected")
        return self._dependencies.models.model

    def make_watches(self) -> Sequence[Watch]:
        return self._policies.make_watches()

    def on_tool_named(self, name: str) -> None:
        """Prepare for a command while its arguments arrive; answers without one need no process."""
        if self._dependencies.toolset.facts_of(name).command:
            self._dependencies.warm_processes()
            self._dependencies.checkpoints.prepare()

    async def prepare_message(self, message: SendableT) -> SendableT:
        """The message with masked keys in tool results, and with images that models accept. Data of a tool is kept even
        if it is not an image, because the tool cannot send it again."""
        if isinstance(message, ToolResultMessage):
            message = cast("SendableT", self._dependencies.mask_result(message))
        from pigeon.session.context.images import prepare_images

        keep = self._keep_unreadable_images or isinstance(message, ToolResultMessage)
        return await prepare_images(message, self._dependencies.images, keep, self._scope)

    async def finalize_message(self, message: Message) -> Message:
        """Let extensions change a message before it is recorded, unless that takes longer than the run."""
        return await wait_for_run_result(self._dependencies.hooks.transform_message(message), self._scope, message)

    async def on_answer(self, answer: AssistantMessage) -> None:
        """Note that a retry has succeeded."""
        self._policies.on_answer(answer)
        await self._retry.on_success()

    def record_tokens(self, sampled: Sampled) -> None:
        """Record the token ids of the last answer, for trajectories; no event has them."""
        journal = self._dependencies.transcript.journal
        answer = next((line for line in reversed(journal.branch) if line.role == "assistant"), None)
        if answer is not None:
            data = {
                "messageId": answer.id,
                "promptTokenIds": sampled.prompt_token_ids,
                "tokenIds": sampled.token_ids,
                "logprobs": sampled.logprobs,
            }
            known = {name: value for name, value in data.items() if value}
            journal.append(CustomEntry, custom_type=TOKENS_ENTRY, data=known)

    def tools(self) -> dict[str, Tool]:
        return self._policies.change_tools(self._dependencies.toolset.callable_tools())

    def find_unlisted_tool(self, name: str) -> Tool | None:
        """A tool that exists now, or may appear while a call can wait; raises `ToolFailed`."""
        return self._dependencies.toolset.missing.find_tool(name)

    def admit_call(self, call: ToolCall) -> str | None:
        """Returns why a tool call must not be made, or None if the policies admit it."""
        return self._policies.admit_call(call)

    async def collect_additions(
        self, answer: AssistantMessage, results: Sequence[ToolResultMessage], ends: bool
    ) -> list[Spoken] | None:
        """Messages of policies before a further turn."""
        return await self._policies.after_turn(answer, results, ends)

    def can_accept_messages(self) -> bool:
        """False if a limit keeps the model from receiving another message: then messages stay in the queue."""
        return self._policies.try_continue_run()

    async def before_next_turn(self, scope: Scope) -> None:
        """Compact if the last turn nearly filled the context, unless no further answer may be requested anyway."""
        if self._policies.try_continue_run():
            await self._make_room(scope)

    async def should_retry_answer(self, answer: AssistantMessage, failure: Failure | None) -> bool:
        """True if the answer will be tried again; there is no pause before a request that a limit would refuse."""
        return self._retry.should_retry(failure) and self._policies.try_continue_run()
