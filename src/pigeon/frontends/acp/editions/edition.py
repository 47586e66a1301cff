"""How one version of the protocol writes what Pigeon has to say: an `Edition` for each, chosen by `initialize`.

The rest of the package is written in the terms of this interface, so that no other module asks which version is spoken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from pigeon.frontends.acp.editions.tool_views import ToolView
from pigeon.frontends.acp.incoming import ClientCapabilities
from pigeon.frontends.acp.rpc_errors import RpcError
from pigeon.wire.base import Json, value_or_default
from pigeon.wire.commands import SetHostServices
from pigeon.wire.model import Usage

Speaker = Literal["user", "agent", "thought"]
StopWord = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
Update = dict[str, Json]


class OptionChoice(Struct, frozen=True):
    """One value that an option of a session can have."""

    value: str
    name: str
    description: str | None = None


class ConfigOption(Struct, frozen=True):
    """Something that a person can choose for a session; `category` is the protocol's word for what it is about."""

    id: str
    name: str
    description: str
    category: str
    current: str
    choices: Sequence[OptionChoice]


class CommandView(Struct, frozen=True):
    """A slash command as it is announced to the editor."""

    name: str
    description: str
    hint: str | None = None


class PlanTask(Struct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed", "cancelled"]


class SessionStart(Struct, frozen=True):
    """What the client gets when a session is opened."""

    options: Sequence[ConfigOption]
    commands: Sequence[CommandView]
    session_id: str | None = None


class TokenSum(Struct, frozen=True):
    """The tokens of all answers of a run."""

    input: int = 0
    output: int = 0
    thinking: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0

    def plus(self, usage: Usage) -> TokenSum:
        """The sum with one more answer."""
        return TokenSum(
            self.input + usage.input,
            self.output + usage.output,
            self.thinking + value_or_default(usage.reasoning, 0),
            self.cache_read + usage.cache_read,
            self.cache_write + usage.cache_write,
            self.total + usage.total_tokens,
        )


class PromptEnd(Struct, frozen=True):
    """How a prompt ended: its stop reason, or the error that ended it; `usage` counts the tokens of its run."""

    stop: StopWord
    error: RpcError | None = None
    usage: TokenSum | None = None


class Edition(ABC):
    """What one version writes. `client` is what the editor can do."""

    version: ClassVar[int]
    # Whether commands that Pigeon runs itself are shown in terminals of their own.
    has_terminals: ClassVar[bool]

    def __init__(self, client: ClientCapabilities) -> None:
        self.client = client

    @property
    def can_show_forms(self) -> bool:
        """True if the client shows forms to a person."""
        return self.client.elicitation is not None and self.client.elicitation.form is not None

    @abstractmethod
    def host_services(self) -> SetHostServices: ...

    @property
    def _can_set_up_in_terminal(self) -> bool:
        """True if the client can run the agent in a terminal for a person."""
        auth = self.client.auth
        return auth is not None and auth.terminal not in (None, False)

    # Answers

    @abstractmethod
    def initialization_result(self, version: str) -> dict[str, Json]: ...

    @abstractmethod
    def session_result(self, start: SessionStart) -> dict[str, Json]: ...

    @abstractmethod
    def option_records(self, options: Sequence[ConfigOption]) -> list[Json]: ...

    @abstractmethod
    def permission_params(self, view: ToolView, title: str, options: list[Json]) -> dict[str, Json]:
        """The params of session/request_permission, without the session id."""

    # Updates: each method returns what this version sends for an occasion, which may be nothing.

    @abstractmethod
    def chunk_updates(self, speaker: Speaker, message_id: str, block: dict[str, Json]) -> list[Update]:
        """Returns the updates that append a block to a message."""

    @abstractmethod
    def user_message_updates(self, message_id: str, blocks: list[dict[str, Json]]) -> list[Update]:
        """The updates for a message of the user that has become part of the conversation."""

    @abstractmethod
    def tool_call_updates(self, view: ToolView) -> list[Update]:
        """The updates for a tool call that begins or has changed."""

    @abstractmethod
    def command_output_updates(
        self, call_id: str, command: str | None, cwd: str, text: str, before: str
    ) -> list[Update]:
        """The output so far of a command that Pigeon runs itself; `before` is the part that was shown already."""

    @abstractmethod
    def command_end_updates(self, call_id: str, code: int | None) -> list[Update]:
        """The updates for the end of a command that was shown."""

    @abstractmethod
    def plan_updates(self, tasks: Sequence[PlanTask]) -> list[Update]:
        """Returns the updates that replace the whole plan."""

    @abstractmethod
    def option_updates(self, options: Sequence[ConfigOption], mode_changed: bool) -> list[Update]:
        """Returns the updates for options that have new values."""

    @abstractmethod
    def state_updates(self, state: Literal["running", "requires_action"]) -> list[Update]:
        """Returns the updates that report whether the session runs or waits."""

    @abstractmethod
    def idle_updates(self, end: PromptEnd | None) -> list[Update]:
        """The updates when the session waits for a prompt; `end` is how the last one ended."""

    @abstractmethod
    def notice_updates(self, severity: str, title: str) -> list[Update]:
        """The updates for a notice to the person."""

    @abstractmethod
    def compaction_updates(self, id: str, status: str, summary: str | None, error: str | None) -> list[Update]:
        """The updates while the history is being summarized, and when that has ended."""

    # The same in both versions

    def command_updates(self, commands: Sequence[CommandView]) -> list[Update]:
        return [
            make_update("available_commands_update", availableCommands=[self._command_record(one) for one in commands])
        ]

    @abstractmethod
    def _command_record(self, command: CommandView) -> dict[str, Json]: ...

    def info_updates(self, title: str | None, updated: str | None = None) -> list[Update]:
        return [
            {
                "sessionUpdate": "session_info_update",
                "title": title,
                **({} if updated is None else {"updatedAt": updated}),
            }
        ]

    def usage_updates(self, used: int, size: int, cost: float) -> list[Update]:
        """The updates about how full the context is, and what the session has cost."""
        return [make_update("usage_update", used=used, size=size, cost={"amount": cost, "currency": "USD"})]


def make_update(session_update: str, /, **members: Json) -> Update:
    """An update with these members, without those that are `None`."""
    return {"sessionUpdate": session_update, **{name: value for name, value in members.items() if value is not None}}


def usage_member(tokens: TokenSum | None) -> dict[str, Json]:
    """The tokens of a run, as a member of the answer that ends it; empty if no model was asked."""
    if tokens is None or not tokens.total:
        return {}
    return {
        "usage": {
            "totalTokens": tokens.total,
            "inputTokens": tokens.input,
            "outputTokens": tokens.output,
            "thoughtTokens": tokens.thinking,
            "cachedReadTokens": tokens.cache_read,
            "cachedWriteTokens": tokens.cache_write,
        }
    }


def option_members(option: ConfigOption, id_name: str) -> dict[str, Json]:
    """An option; the versions differ in the name of its id."""
    return {
        id_name: option.id,
        "name": option.name,
        "description": option.description,
        "category": option.category,
        "type": "select",
        "currentValue": option.current,
        "options": [_choice_record(choice) for choice in option.choices],
    }


def _choice_record(choice: OptionChoice) -> dict[str, Json]:
    about = {} if choice.description is None else {"description": choice.description}
    return {"value": choice.value, "name": choice.name, **about}
