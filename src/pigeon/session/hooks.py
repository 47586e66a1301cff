"""What extensions may do to a session: `Hooks` is the one interface, each method asked at one moment.

`extensions/adapters/hooks` implements it for loaded extensions, `NoHooks` for none; nothing in the session asks which
of the two it has. A method that may take long (a person may be asked) gives a `HookResult`: the answer itself, or an
awaitable of it. So one piece of code serves both, and without extensions nothing gives way to the event loop.

A failing extension is reported by the implementation, which then gives the answer that changes nothing; the one
exception is `user_bash`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from pigeon.agent.inference import ProviderHooks
from pigeon.agent.scope import Scope
from pigeon.wire.answers import BashResult, SlashCommand
from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent
from pigeon.wire.errors import Aborted
from pigeon.wire.events import CompactionReason
from pigeon.wire.messages import CustomMessage, Message
from pigeon.wire.model import Model

InputSource = Literal["interactive", "rpc", "extension"]
StartReason = Literal["startup", "new", "resume", "fork"]
EndReason = Literal["quit", "new", "resume", "fork"]
ModelSelectSource = Literal["set", "cycle", "restore"]
RunOutcome = Literal["stop", "error", "aborted"]
T = TypeVar("T")
HookResult: TypeAlias = Awaitable[T] | T


async def result_of(asked: HookResult[T], scope: Scope | None = None) -> T:
    """The answer of a hook; raises `Aborted` if it has to be waited for and the scope is cancelled meanwhile."""
    if not isinstance(asked, Awaitable):
        return asked
    return await (asked if scope is None else scope.wait(asked))


async def result_of_run(asked: HookResult[T], scope: Scope, otherwise: T) -> T:
    """The answer of a hook that a run waits for, or something else as soon as the run is stopped."""
    try:
        return await result_of(asked, scope)
    except Aborted:
        return otherwise


class PromptInput(Struct, frozen=True):
    """The text and images of a prompt, before anything was expanded."""

    text: str
    images: list[ImageContent]
    source: InputSource = "rpc"
    behavior: Literal["steer", "followUp"] | None = None


class PromptAdditions(Struct, frozen=True):
    """What a run begins with besides the prompt; the system prompt is for this run only, none leaves it alone."""

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
    """A summary that is used instead of asking a model."""

    summary: str
    first_kept_entry_id: str | None = None
    tokens_before: int | None = None
    details: Json = None


class ResourcePaths(Struct, frozen=True):
    """Folders or files with further resources."""

    skills: list[str]
    prompts: list[str]


class Hooks(ProviderHooks, Protocol):
    """Everything that extensions may do to a session and its requests; what they do to tools is their `Gate`."""

    def commands(self) -> list[SlashCommand]:
        """Slash commands that `command` handles, for `get_commands`; they come first there."""
        ...

    def has_command(self, text: str) -> bool:
        """True if `command` would handle this text; `steer` and `follow_up` refuse such a text."""
        ...

    async def command(self, text: str) -> bool:
        """Run the command that a prompt beginning with a slash names; true if there was one, whatever became of it."""
        ...

    def input(self, said: PromptInput) -> HookResult[PromptInput | None]:
        """What to go on with; none when it was handled and nothing more shall happen."""
        ...

    def before_agent_start(
        self, prompt: str, images: list[ImageContent], system_prompt: Callable[[], str]
    ) -> HookResult[PromptAdditions]:
        """Asked once per prompt, after expansion, before the run begins."""
        ...

    def context(self, messages: list[Message]) -> HookResult[list[Message]]:
        """The messages for one request: the given list itself if nothing was changed, which costs the least."""
        ...

    def message_end(self, message: Message) -> HookResult[Message]:
        """The message to put on record and announce; always of the same role."""
        ...

    def user_bash(self, command: str, excluded: bool, cwd: str) -> HookResult[BashResult | None]:
        """A result to use instead of running the command; raises a `Refusal` that says who blocked it."""
        ...

    def before_compact(self, prepared: CompactionPreparation) -> HookResult[ExtensionSummary | bool]:
        """False to cancel, a summary to use, or true to go on."""
        ...

    def before_settle(self, outcome: RunOutcome) -> HookResult[list[CustomMessage]]:
        """Messages that start one more run before the agent settles; usually none."""
        ...

    def before_switch(self, reason: Literal["new", "resume"], target: str | None) -> HookResult[bool]:
        """True to refuse a new or another conversation."""
        ...

    def before_fork(self, entry_id: str, position: Literal["before", "at"]) -> HookResult[bool]:
        """True to refuse a fork or a copy."""
        ...

    def session_started(self, reason: StartReason, previous: str | None = None) -> HookResult[None]:
        """A conversation is open, and there is a host to talk to; `previous` is the file of the one before."""
        ...

    def session_ending(self, reason: EndReason, target: str | None = None) -> HookResult[None]:
        """A conversation is about to be left; `target` is the file of the next one."""
        ...

    def model_selected(self, model: Model, previous: Model | None, source: ModelSelectSource) -> None:
        """Another model is in force."""
        ...

    def resources(self, cwd: str) -> HookResult[ResourcePaths]:
        """Further skills and prompt templates; asked at the start."""
        ...


class NoHooks:
    """No extensions: every answer is there at once and changes nothing."""

    def commands(self) -> list[SlashCommand]:
        """None."""
        return []

    def has_command(self, text: str) -> bool:
        """There is no such command."""
        return False

    async def command(self, text: str) -> bool:
        """There is no such command."""
        return False

    def input(self, said: PromptInput) -> PromptInput:
        """As it was said."""
        return said

    def before_agent_start(
        self, prompt: str, images: list[ImageContent], system_prompt: Callable[[], str]
    ) -> PromptAdditions:
        """Nothing besides the prompt."""
        return PromptAdditions([])

    def context(self, messages: list[Message]) -> list[Message]:
        """As they are."""
        return messages

    def message_end(self, message: Message) -> Message:
        """As it is."""
        return message

    def user_bash(self, command: str, excluded: bool, cwd: str) -> None:
        """The command runs."""

    def before_compact(self, prepared: CompactionPreparation) -> bool:
        """Go on."""
        return True

    def before_settle(self, outcome: RunOutcome) -> list[CustomMessage]:
        """Settle."""
        return []

    def before_switch(self, reason: Literal["new", "resume"], target: str | None) -> bool:
        """Never refused."""
        return False

    def before_fork(self, entry_id: str, position: Literal["before", "at"]) -> bool:
        """Never refused."""
        return False

    def session_started(self, reason: StartReason, previous: str | None = None) -> None:
        """Nothing to tell."""

    def session_ending(self, reason: EndReason, target: str | None = None) -> None:
        """Nothing to tell."""

    def model_selected(self, model: Model, previous: Model | None, source: ModelSelectSource) -> None:
        """Nothing to tell."""

    def resources(self, cwd: str) -> ResourcePaths:
        """None."""
        return ResourcePaths([], [])

    async def provider_request(self, body: bytes) -> bytes:
        """As it is."""
        return body

    async def provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        """As they are."""
        return headers

    def provider_responded(self, status: int, headers: Mapping[str, str]) -> None:
        """Nothing to tell."""
