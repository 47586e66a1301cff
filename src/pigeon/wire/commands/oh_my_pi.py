"""Commands that only oh-my-pi has."""

from __future__ import annotations

from typing import Annotated, NoReturn

from pigeon.wire import answers
from pigeon.wire.base import ABSENT, Absent, Intended, Json
from pigeon.wire.commands.base import Command


class SetEventFilter(Command, tag="set_event_filter", kw_only=True):
    """Send only events of these types from now on; null for all. Dialogs and the ends of prompts are always sent."""

    lane = "control"
    about = "connection"
    answer = answers.EventFilter
    nullable = frozenset({"events"})
    events: Annotated[Json | Absent, Intended(list[str] | Absent | None)] = ABSENT


class OpenSession(Command, tag="open_session", kw_only=True):
    """Continue the newest session in a folder, or start one there; sessions are kept there from then on."""

    answer = answers.OpenedSession
    session_dir: str


class GetMessagesPage(Command, tag="get_messages_page", kw_only=True):
    """One page of the messages, from the cursor of the previous page on."""

    lane = "beside"
    answer = answers.MessagesPage
    cursor: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    limit: Annotated[Json | Absent, Intended(int | Absent)] = ABSENT


class SetSubagentSubscription(Command, tag="set_subagent_subscription", kw_only=True):
    """Choose which events of subagents to receive; Pigeon has no subagents, so none ever come."""

    lane = "control"
    answer = answers.SubagentSubscription
    level: Annotated[Json | Absent, Intended(answers.SubagentLevel)] = ABSENT


class GetSubagents(Command, tag="get_subagents", kw_only=True):
    """The subagents at work: none."""

    lane = "control"
    answer = answers.Subagents


class GetSubagentMessages(Command, tag="get_subagent_messages", kw_only=True):
    """What a subagent said; refused, because there are none."""

    lane = "control"
    answer = NoReturn
    subagent_id: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    session_file: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT


class GetLoginProviders(Command, tag="get_login_providers", kw_only=True):
    """Providers that can be logged in to: none; keys come from files and variables."""

    lane = "control"
    answer = answers.LoginProviders


class Login(Command, tag="login", kw_only=True):
    """Log in to a provider; refused, because keys come from files and variables."""

    lane = "control"
    answer = NoReturn
    provider_id: Annotated[Json | Absent, Intended(str)] = ABSENT


class SetFastMode(Command, tag="set_fast_mode", kw_only=True):
    """A model's faster service; it can only be turned off."""

    lane = "control"
    answer = answers.FastMode
    enabled: bool


class Handoff(Command, tag="handoff", kw_only=True):
    """Hand the work to a new conversation; refused: use `compact` and `new_session`."""

    lane = "control"
    answer = NoReturn
    custom_instructions: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT


class SetHostUriSchemes(Command, tag="set_host_uri_schemes", kw_only=True):
    """URI schemes that the host reads for the model; only the empty list is accepted."""

    lane = "control"
    answer = answers.HostUriSchemes
    schemes: list[Json]


class NegotiateProtocol(Command, tag="negotiate_protocol", kw_only=True):
    """Another framing of long lines; refused, because lines of any length are sent as they are."""

    lane = "control"
    answer = NoReturn
    protocol_version: Annotated[Json | Absent, Intended(int)] = ABSENT


OH_MY_PI: tuple[type[Command], ...] = (
    SetEventFilter, OpenSession, GetMessagesPage, SetSubagentSubscription, GetSubagents, GetSubagentMessages,
    GetLoginProviders, Login, SetFastMode, Handoff, SetHostUriSchemes, NegotiateProtocol,
)  # fmt: skip
