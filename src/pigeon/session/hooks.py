"""What extensions may do to a session: `Hooks` is the one interface, each method asked at one moment.

`extensions/adapters/hooks` implements it for loaded extensions, `NoHooks` for none; the session does not distinguish
them. A method that may take long (a person may be asked) returns a `HookResult`: the answer itself, or an awaitable of
it. So the same code serves both, and without extensions nothing yields to the event loop.

A failing extension is reported by the implementation, which then returns the answer that changes nothing; the one
exception is `intercept_user_bash`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from pigeon.agent.scope import Scope
from pigeon.wire.answers import BashResult, SlashCommand
from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent
from pigeon.wire.errors import Aborted
from pigeon.wire.events import CompactionReason
from pigeon.wire.messages import CustomMessage, Message, UserMessage
from pigeon.wire.model import Model

InputSource = Literal["interactive", "rpc", "extension"]
StartReason = Literal["startup", "new", "resume", "fork"]
EndReason = Literal["quit", "new", "resume", "fork"]
ModelSelectSource = Literal["set", "cycle", "restore"]
RunOutcome = Literal["stop", "error", "aborted"]
T = TypeVar("T")
HookResult: TypeAlias = Awaitable[T] | T


async def wait_for_result(asked: HookResult[T], scope: Scope | None = None) -> T:
    """The answer of a hook; raises `Aborted` if the scope is cancelled while waiting for it."""
    if not isinstance(asked, Awaitable):
        return asked
    return await (asked if scope is None else scope.wait(asked))


async def wait_for_run_result(asked: HookResult[T], scope: Scope, otherwise: T) -> T:
    """The answer of a hook that a run waits for, or `otherwise` as soon as the run is stopped."""
    try:
        return await wait_for_result(asked, scope)
    except Aborted:
        return otherwise


class PromptInput(Struct, frozen=True):
    """The text and images of a prompt, before anything was expanded."""

    text: str
    images: list[ImageContent]
    source: InputSource = "rpc"
    behavior: Literal["steer", "followUp"] | None = None


class PromptAdditions(Struct, frozen=True):
    """What a run begins with besides the prompt; the system prompt is for this run only, and None keeps the
    usual one."""

    messages: list[CustomMessage]
    system_prompt: str | None = None


class CompactionPreparation(Struct, frozen=True):
    """What is about to be summarized."""

    reason: CompactionReason
    first_kept_entry_id: str
    tokens_before: int
    messages: list[Message]
    kept_messages: list[Message]
    instructions: str | None = None
    previous_summary: str | None = None
    will_retry: bool = False


class ExtensionSummary(Struct, frozen=True):
    """A summary that is used instead of one by a model."""

    summary: str
    first_kept_entry_id: str | None = None
    tokens_before: int | None = None
    details: Json = None


class ResourcePaths(Struct, frozen=True):
    """Folders or files with further resources."""

    skills: list[str]
    prompts: list[str]


class Hooks(Protocol):
    """Everything that extensions may do to a session; `Gate` is for tools, `ProviderHooks` for requests."""

    def list_commands(self) -> list[SlashCommand]:
        """The slash commands that `run_command` handles, for `get_commands`, which lists them first."""
        ...

    def has_command(self, text: str) -> bool:
        """True if `try_run_command` would run a command for this text; `steer` and `follow_up` refuse such a text."""
        ...

    async def try_run_command(self, text: str) -> bool:
        """Run the command that a prompt with a leading slash names; returns False if there is none."""
        ...

    def transform_input(self, said: PromptInput) -> HookResult[PromptInput | None]:
        """The input to continue with, or None if an extension has handled it."""
        ...

    def collect_prompt_additions(
        self, prompt: UserMessage, system_prompt: Callable[[], str]
    ) -> HookResult[PromptAdditions]:
        """What extensions add to a prompt; called once per prompt, after expansion, before the run begins."""
        ...

    def transform_context(self, messages: list[Message]) -> HookResult[list[Message]]:
        """The messages for one request: the given list itself if nothing was changed, which costs the least."""
        ...

    def transform_message(self, message: Message) -> HookResult[Message]:
        """The message to record and announce; its role never changes."""
        ...

    def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> HookResult[BashResult | None]:
        """A result to use instead of running the command; raises `Refusal` that names who blocked it."""
        ...

    def decide_compaction(self, prepared: CompactionPreparation) -> HookResult[ExtensionSummary | bool]:
        """Returns False to cancel the compaction, a summary to use, or True to go on."""
        ...

    def collect_continuations(self, outcome: RunOutcome) -> HookResult[list[CustomMessage]]:
        """Messages that start one more run before the agent settles; usually none."""
        ...

    def should_refuse_switch(self, reason: Literal["new", "resume"], target: str | None) -> HookResult[bool]:
        """True if an extension refuses to switch to a new or another conversation."""
        ...

    def should_refuse_fork(self, entry_id: str, position: Literal["before", "at"]) -> HookResult[bool]:
        """True if an extension refuses a fork or a copy."""
        ...

    def on_session_started(self, reason: StartReason, previous: str | None = None) -> HookResult[None]:
        """Called when a conversation is open and there is a host; `previous` is the file of the one before."""
        ...

    def on_session_ending(self, reason: EndReason, target: str | None = None) -> HookResult[None]:
        """Called before a conversation is left; `target` is the file of the next one."""
        ...

    def on_model_selected(self, model: Model, previous: Model | None, source: ModelSelectSource) -> None:
        """Called when the model has changed."""
        ...

    def find_resources(self, cwd: str) -> HookResult[ResourcePaths]:
        """Further skills and prompt templates; called at the start."""
        ...


class NoHooks:
    """No extensions: every answer is available at once and changes nothing."""

    def list_commands(self) -> list[SlashCommand]:
        return []

    def has_command(self, text: str) -> bool:
        return False

    async def try_run_command(self, text: str) -> bool:
        return False

    def transform_input(self, said: PromptInput) -> PromptInput:
        return said

    def collect_prompt_additions(self, prompt: UserMessage, system_prompt: Callable[[], str]) -> PromptAdditions:
        return PromptAdditions([])

    def transform_context(self, messages: list[Message]) -> list[Message]:
        return messages

    def transform_message(self, message: Message) -> Message:
        return message

    def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> None:
        """Returns None, so that the command runs unchanged."""

    def decide_compaction(self, prepared: CompactionPreparation) -> bool:
        """Returns True: the compaction goes on."""
        return True

    def collect_continuations(self, outcome: RunOutcome) -> list[CustomMessage]:
        """Returns no messages: the agent settles."""
        return []

    def should_refuse_switch(self, reason: Literal["new", "resume"], target: str | None) -> bool:
        return False

    def should_refuse_fork(self, entry_id: str, position: Literal["before", "at"]) -> bool:
        return False

    def on_session_started(self, reason: StartReason, previous: str | None = None) -> None:
        """Does nothing: there are no extensions to notify."""

    def on_session_ending(self, reason: EndReason, target: str | None = None) -> None:
        """Does nothing: there are no extensions to notify."""

    def on_model_selected(self, model: Model, previous: Model | None, source: ModelSelectSource) -> None:
        """Does nothing: there are no extensions to notify."""

    def find_resources(self, cwd: str) -> ResourcePaths:
        return ResourcePaths([], [])
