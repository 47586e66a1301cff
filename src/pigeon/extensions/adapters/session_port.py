"""What extensions may do with a session, as the session offers it: three small protocols, one for each kind of thing.

All of them are called on the protocol's event loop only, one call at a time; an extension reaches them through its
context, which carries the calls over from the extension's own thread. A call that cannot be carried out raises a
`Refusal` whose text goes to the extension.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from pigeon.agent.inference import Delta, ModelRequest
from pigeon.agent.interfaces import Tool
from pigeon.wire.answers import ContextUsage, SlashCommand
from pigeon.wire.base import Json
from pigeon.wire.content import UserBlock
from pigeon.wire.messages import CustomMessage, Message
from pigeon.wire.model import Model, ThinkingLevel

DeliverAs = Literal["steer", "followUp", "nextTurn"]


class Streamer(Protocol):
    """Answers requests to an extension's own models."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Begin an answer."""
        ...


class SessionFacts(Struct, frozen=True):
    """Which conversation this is."""

    session_id: str
    file: str | None
    name: str | None
    cwd: str
    leaf_id: str | None


class ExecResult(Struct, frozen=True):
    """How a program ended; `killed` when its time was over or it was stopped."""

    stdout: str
    stderr: str
    code: int
    killed: bool = False


class Conversation(Protocol):
    """The conversation: read it, add to it."""

    def facts(self) -> SessionFacts:
        """Which conversation this is, now."""
        ...

    def entries(self, branch_only: bool) -> list[dict[str, Json]]:
        """All entries, or those of the active branch, as in the session file; the caller may change the list."""
        ...

    def messages(self) -> list[Message]:
        """What the model would see now; the caller does not change it."""
        ...

    def send_message(self, message: CustomMessage, trigger_turn: bool, deliver_as: DeliverAs) -> None:
        """`nextTurn` waits for the next prompt; in a run it is queued (or, without a turn, put after this one); else
        it is put on record and told, and starts a run if `trigger_turn`."""
        ...

    def send_user_message(
        self, content: str | list[UserBlock], deliver_as: Literal["steer", "followUp"] | None
    ) -> None:
        """Always a turn; raises while a run is active and `deliver_as` is none."""
        ...

    def append_entry(self, custom_type: str, data: Json) -> str:
        """State of an extension, on record and not for the model; returns the entry's id."""
        ...

    def set_name(self, name: str) -> None:
        """The display name of the session."""
        ...

    def set_label(self, entry_id: str, label: str | None) -> None:
        """A bookmark on an entry; none removes it."""
        ...


class Equipment(Protocol):
    """Tools, models, and programs."""

    def active_tools(self) -> list[str]:
        """Names of the tools that the model has."""
        ...

    def all_tools(self) -> list[tuple[str, str]]:
        """Name and description of every tool."""
        ...

    def set_active_tools(self, names: list[str]) -> None:
        """The tools of the next turn; unknown names are left out."""
        ...

    def add_tool(self, tool: Tool) -> None:
        """Register a tool and make it active, as far as the command line allows; replaces a built-in one."""
        ...

    def checked(self, tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """The arguments checked against the tool's schema; raises `ToolFailed`."""
        ...

    def model(self) -> Model | None:
        """The model that answers."""
        ...

    def models(self) -> list[Model]:
        """The models that can be chosen."""
        ...

    def set_model(self, provider: str, model_id: str) -> bool:
        """Choose a model; false when it cannot be used."""
        ...

    def thinking(self) -> ThinkingLevel:
        """How hard the model thinks."""
        ...

    def set_thinking(self, level: ThinkingLevel) -> None:
        """How hard it shall think, as far as the model can."""
        ...

    def add_provider(self, name: str, entry: Mapping[str, Any], streamer: Streamer | None) -> None:
        """A provider in the form of `models.json`; with a streamer it answers by itself under the api `name`."""
        ...

    def remove_provider(self, name: str) -> None:
        """Forget a provider that was added."""
        ...

    async def exec(self, argv: list[str], cwd: str | None, timeout: float | None) -> ExecResult:
        """Run a program without a shell; cancelling the call ends it."""
        ...


class Controls(Protocol):
    """What is going on: look at it, stop it, begin something else."""

    def is_idle(self) -> bool:
        """True while nothing runs."""
        ...

    def has_pending_messages(self) -> bool:
        """True while messages are queued."""
        ...

    def abort(self) -> None:
        """Stop the run; does not wait."""
        ...

    def shutdown(self) -> None:
        """End the process with code 0 after the command in progress, at the latest when the run has settled."""
        ...

    def context_usage(self) -> ContextUsage | None:
        """How full the window is; none when nobody knows."""
        ...

    def system_prompt(self) -> str:
        """What the model is told about its job now."""
        ...

    def commands(self) -> list[SlashCommand]:
        """All slash commands."""
        ...

    async def compact(self, instructions: str | None) -> None:
        """Summarize the history now."""
        ...

    async def until_idle(self) -> None:
        """Wait until nothing runs."""
        ...

    async def new_session(self, parent: str | None) -> bool:
        """Begin an empty conversation; false if that was vetoed."""
        ...

    async def switch_session(self, path: str) -> bool:
        """Open another conversation; false if that was vetoed."""
        ...

    async def fork(self, entry_id: str) -> bool:
        """Go on before a user message, in a new conversation; false if that was vetoed."""
        ...


class SessionPort(Struct, frozen=True):
    """A session as its extensions see it."""

    conversation: Conversation
    equipment: Equipment
    controls: Controls
