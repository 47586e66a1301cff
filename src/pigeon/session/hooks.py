"""Where others may take part in what a session does: each hook is asked at one moment and may change or stop it.

Nothing here raises for a misbehaving participant: whoever provides the hooks reports that, and gives the answer that
changes nothing. The one exception is said where it applies. Every `async` hook may take long (a person may be asked),
so it is awaited where a cancelled scope can end the waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from pigeon.agent.inference import ProviderHooks
from pigeon.wire.answers import BashResult, SlashCommand
from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent
from pigeon.wire.events import CompactionReason
from pigeon.wire.messages import CustomMessage, Message
from pigeon.wire.model import Model

InputSource = Literal["interactive", "rpc", "extension"]
StartReason = Literal["startup", "new", "resume", "fork"]
EndReason = Literal["quit", "new", "resume", "fork"]
ModelSelectSource = Literal["set", "cycle", "restore"]
RunOutcome = Literal["stop", "error", "aborted"]


class PromptInput(Struct, frozen=True):
    """What somebody said, before anything was expanded."""

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
    """Everything that extensions may do to a session; the tools' gate and the vetoes are protocols of their own."""

    def commands(self) -> list[SlashCommand]:
        """Slash commands that `command` handles, for `get_commands`; they come first there."""
        ...

    async def command(self, text: str) -> bool:
        """Run the command that a prompt beginning with a slash names; true if there was one, whatever became of it."""
        ...

    def has_command(self, text: str) -> bool:
        """True if `command` would handle this text; `steer` and `follow_up` refuse such a text."""
        ...

    async def input(self, said: PromptInput) -> PromptInput | None:
        """What to go on with; none when it was handled and nothing more shall happen."""
        ...

    async def before_agent_start(self, prompt: str, images: list[ImageContent], system_prompt: str) -> PromptAdditions:
        """Asked once per prompt, after expansion, before the run begins."""
        ...

    async def context(self, messages: list[Message]) -> list[Message]:
        """The messages for one request; what is on record stays as it is. The given list is not changed."""
        ...

    async def message_end(self, message: Message) -> Message:
        """The message to put on record and announce; always of the same role."""
        ...

    async def user_bash(self, command: str, excluded: bool, cwd: str) -> BashResult | None:
        """A result to use instead of running the command; raises a `Refusal` that says who blocked it."""
        ...

    async def before_compact(self, prepared: CompactionPreparation) -> ExtensionSummary | bool:
        """False to cancel, a summary to use, or true to go on."""
        ...

    async def before_settle(self, outcome: RunOutcome) -> list[CustomMessage]:
        """Messages that start one more run before the agent settles; usually none."""
        ...

    def model_selected(self, model: Model, previous: Model | None, source: ModelSelectSource) -> None:
        """Another model is in force."""
        ...

    async def resources(self, cwd: str) -> ResourcePaths:
        """Further skills and prompt templates; asked at the start and after a change of folder."""
        ...

    async def session_started(self, reason: StartReason, previous: str | None = None) -> None:
        """A conversation is open, and there is a host to talk to; `previous` is the file of the one before."""
        ...

    async def session_ending(self, reason: EndReason, target: str | None = None) -> None:
        """A conversation is about to be left; `target` is the file of the next one."""
        ...


class NoHooks:
    """Takes no part in anything."""

    def commands(self) -> list[SlashCommand]:
        """None."""
        return []

    async def command(self, text: str) -> bool:
        """There is no such command."""
        return False

    def has_command(self, text: str) -> bool:
        """There is no such command."""
        return False

    async def input(self, said: PromptInput) -> PromptInput | None:
        """As it was said."""
        return said

    async def before_agent_start(self, prompt: str, images: list[ImageContent], system_prompt: str) -> PromptAdditions:
        """Nothing besides the prompt."""
        return PromptAdditions([])

    async def context(self, messages: list[Message]) -> list[Message]:
        """As they are."""
        return messages

    async def message_end(self, message: Message) -> Message:
        """As it is."""
        return message

    async def user_bash(self, command: str, excluded: bool, cwd: str) -> BashResult | None:
        """The command runs."""
        return None

    async def before_compact(self, prepared: CompactionPreparation) -> ExtensionSummary | bool:
        """Go on."""
        return True

    async def before_settle(self, outcome: RunOutcome) -> list[CustomMessage]:
        """Settle."""
        return []

    async def provider_request(self, body: bytes) -> bytes:
        """As it is."""
        return body

    async def provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        """As they are."""
        return headers

    def provider_responded(self, status: int, headers: Mapping[str, str]) -> None:
        """Nobody listens."""

    def model_selected(self, model: Model, previous: Model | None, source: ModelSelectSource) -> None:
        """Nobody listens."""

    async def resources(self, cwd: str) -> ResourcePaths:
        """None."""
        return ResourcePaths([], [])

    async def session_started(self, reason: StartReason, previous: str | None = None) -> None:
        """Nobody listens."""

    async def session_ending(self, reason: EndReason, target: str | None = None) -> None:
        """Nobody listens."""
