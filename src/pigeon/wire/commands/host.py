"""Commands about the host: what it understands, what it decides, and the tools that it runs."""

from __future__ import annotations

from typing import Annotated, NoReturn

from pigeon.wire import answers
from pigeon.wire.base import ABSENT, Absent, Intended, Json, Record
from pigeon.wire.choices import ApprovalMode, DialectName
from pigeon.wire.commands.base import Command
from pigeon.wire.steering import TodoPhaseGiven


class Hello(Command, tag="hello", kw_only=True):
    """Choose the dialect and the features: what is only sent to clients that ask for it; docs/protocol.md lists them.

    What is not named stays as it is; unknown features are left out of the answer.
    """

    lane = "control"
    about = "connection"
    answer = answers.Welcome
    required_scope = "read"
    effect = "sets"
    dialect: DialectName | Absent = ABSENT
    features: list[str] | Absent = ABSENT


class SetEventFilter(Command, tag="set_event_filter", kw_only=True):
    """Send only events of these types from now on; null for all. Dialogs and the ends of prompts are always sent."""

    lane = "control"
    about = "connection"
    answer = answers.EventFilter
    nullable = frozenset({"events"})
    required_scope = "read"
    effect = "sets"
    events: Annotated[Json | Absent, Intended(list[str] | Absent | None)] = ABSENT


class NegotiateProtocol(Command, tag="negotiate_protocol", kw_only=True):
    """Another framing of long lines; refused, because lines of any length are sent as they are."""

    lane = "control"
    answer = NoReturn
    required_scope = "read"
    protocol_version: Annotated[Json | Absent, Intended(int)] = ABSENT


class SetTodos(Command, tag="set_todos", kw_only=True):
    """Replace the plan that host and model share."""

    answer = answers.TodoPhases
    required_scope = "talk"
    effect = "sets"
    outlives_worker = True
    phases: list[TodoPhaseGiven]


class SetPermissions(Command, tag="set_permissions", kw_only=True):
    """Replace the host's own permission rules, from the next tool call on; they can only tighten the user's.

    `permissions` has the form of the setting; rules that cannot be understood are refused and change nothing.
    """

    lane = "control"
    answer = answers.Permissions
    required_scope = "admin"
    effect = "sets"
    outlives_worker = True
    permissions: dict[str, Json]


class SetApprovalMode(Command, tag="set_approval_mode", kw_only=True):
    """Set which tool calls need approval where no rule decides, from the next tool call on; the stricter of this mode
    and that of the settings applies."""

    lane = "control"
    answer = answers.Permissions
    required_scope = "admin"
    effect = "sets"
    mode: ApprovalMode


class GetPermissions(Command, tag="get_permissions", kw_only=True):
    """The permission rules in force, and what was allowed for this session."""

    lane = "control"
    answer = answers.Permissions
    required_scope = "read"
    effect = "reads"


class HostTool(Record, kw_only=True):
    """A tool as the host offers it; `parameters` is a JSON Schema object.

    Nothing is typed here because a definition that does not fit is refused by its place in the list or by its name.
    """

    name: Annotated[Json | Absent, Intended(str)] = ABSENT
    description: Annotated[Json | Absent, Intended(str)] = ABSENT
    parameters: Annotated[Json | Absent, Intended(dict[str, Json])] = ABSENT
    label: Annotated[Json | Absent, Intended(str | Absent | None)] = ABSENT
    hidden: Annotated[Json | Absent, Intended(bool | Absent | None)] = ABSENT
    read_only: Annotated[Json | Absent, Intended(bool | Absent | None)] = ABSENT


class HostToolOutcome(Record, kw_only=True):
    """What a host reports about a call, in progress or finished; blocks other than text and images become text. A
    finished one with `isError` has failed, as in results of MCP."""

    content: list[Json]
    details: Json | Absent = ABSENT
    is_error: Annotated[Json | Absent, Intended(bool | Absent)] = ABSENT


class SetHostTools(Command, tag="set_host_tools", kw_only=True):
    """Replace the tools that the host runs."""

    answer = answers.ToolNames
    required_scope = "admin"
    effect = "sets"
    outlives_worker = True
    tools: list[HostTool]


class SetHostUriSchemes(Command, tag="set_host_uri_schemes", kw_only=True):
    """URI schemes that the host reads for the model; only the empty list is accepted."""

    lane = "control"
    answer = answers.HostUriSchemes
    required_scope = "admin"
    effect = "sets"
    schemes: list[Json]


class HostToolUpdate(Command, tag="host_tool_update", kw_only=True):
    """Progress of an open host tool call; not answered."""

    lane = "control"
    silent = True
    required_scope = "admin"
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    partial_result: HostToolOutcome


class HostToolResult(Command, tag="host_tool_result", kw_only=True):
    """End of an open host tool call; not answered."""

    lane = "control"
    silent = True
    required_scope = "admin"
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    result: HostToolOutcome
    is_error: bool | Absent = ABSENT


class ExtensionUiResponse(Command, tag="extension_ui_response", kw_only=True):
    """The answer to a dialog; not answered itself."""

    lane = "control"
    silent = True
    required_scope = "talk"
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    value: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    confirmed: Annotated[Json | Absent, Intended(bool | Absent)] = ABSENT
    cancelled: Annotated[Json | Absent, Intended(bool | Absent)] = ABSENT
    timed_out: Annotated[Json | Absent, Intended(bool | Absent)] = ABSENT


class GetTrust(Command, tag="get_trust", kw_only=True):
    """Whether the conversation's project is trusted, and which of its files wait for that."""

    lane = "control"
    answer = answers.TrustState
    required_scope = "read"
    effect = "reads"


class SetTrust(Command, tag="set_trust", kw_only=True):
    """Decide whether the files of the conversation's project are used.

    The decision holds for this process, with `remember` also for later ones (in `trust.json`).
    """

    answer = answers.TrustChange
    required_scope = "admin"
    effect = "sets"
    outlives_worker = True
    trusted: bool
    remember: bool = False


HOST: tuple[type[Command], ...] = (
    Hello, SetEventFilter, NegotiateProtocol, SetTodos, SetPermissions, SetApprovalMode, GetPermissions, SetHostTools,
    SetHostUriSchemes, HostToolUpdate, HostToolResult, ExtensionUiResponse, GetTrust, SetTrust,
)  # fmt: skip
