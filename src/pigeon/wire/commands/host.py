"""Commands about the host: what it understands, what it decides, and the tools that it runs."""

from __future__ import annotations

from typing import Annotated

from pigeon.wire import answers
from pigeon.wire.base import ABSENT, Absent, Intended, Json, Record
from pigeon.wire.commands.base import Command
from pigeon.wire.steering import TodoPhaseGiven


class Hello(Command, tag="hello", kw_only=True):
    """Choose the dialect and features: `deltas` (updates without the message so far), `seq` (numbered events),
    `trust` (`trust_required` when a project waits for a decision), `permissions` (`permission_resolved` when a
    permission question has ended), `attribution` (`runId` on events and answers, ids of queued messages), `mcp`
    (`mcp_server_changed` when the state of a tool server changes), `selection` (`selection_changed` when a command has
    chosen a model or another branch).

    What is not named stays as it is; unknown features are left out of the answer.
    """

    lane = "control"
    about = "connection"
    answer = answers.Welcome
    dialect: answers.DialectName | Absent = ABSENT
    features: list[str] | Absent = ABSENT


class SetTodos(Command, tag="set_todos", kw_only=True):
    """Replace the plan."""

    answer = answers.TodoPhases
    phases: list[TodoPhaseGiven]


class SetPermissions(Command, tag="set_permissions", kw_only=True):
    """Replace the host's own permission rules, from the next tool call on; they can only tighten the user's.

    `permissions` has the form of the setting; rules that cannot be understood are refused and change nothing.
    """

    lane = "control"
    answer = answers.Permissions
    permissions: dict[str, Json]


class SetApprovalMode(Command, tag="set_approval_mode", kw_only=True):
    """Set which tool calls need approval where no rule decides, from the next tool call on; the stricter of this mode
    and that of the settings applies."""

    lane = "control"
    answer = answers.Permissions
    mode: answers.ApprovalMode


class GetPermissions(Command, tag="get_permissions", kw_only=True):
    """The permission rules in force, and what was allowed for this session."""

    lane = "control"
    answer = answers.Permissions


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
    """What a host reports about a call, in progress or finished; blocks other than text and images become text."""

    content: list[Json]
    details: Json | Absent = ABSENT


class SetHostTools(Command, tag="set_host_tools", kw_only=True):
    """Replace the tools that the host runs."""

    answer = answers.ToolNames
    tools: list[HostTool]


class HostToolUpdate(Command, tag="host_tool_update", kw_only=True):
    """Progress of an open host tool call; not answered."""

    lane = "control"
    silent = True
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    partial_result: HostToolOutcome


class HostToolResult(Command, tag="host_tool_result", kw_only=True):
    """End of an open host tool call; not answered."""

    lane = "control"
    silent = True
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    result: HostToolOutcome
    is_error: bool | Absent = ABSENT


class ExtensionUiResponse(Command, tag="extension_ui_response", kw_only=True):
    """The answer to a dialog; not answered itself."""

    lane = "control"
    silent = True
    id: Annotated[Json | Absent, Intended(str)] = ABSENT
    value: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    confirmed: Annotated[Json | Absent, Intended(bool | Absent)] = ABSENT
    cancelled: Annotated[Json | Absent, Intended(bool | Absent)] = ABSENT
    timed_out: Annotated[Json | Absent, Intended(bool | Absent)] = ABSENT


class GetTrust(Command, tag="get_trust", kw_only=True):
    """Whether the conversation's project is trusted, and which of its files wait for that."""

    lane = "control"
    answer = answers.TrustState


class SetTrust(Command, tag="set_trust", kw_only=True):
    """Decide whether the files of the conversation's project are used.

    The decision holds for this process, with `remember` also for later ones (in `trust.json`).
    """

    answer = answers.TrustChange
    trusted: bool
    remember: bool = False


HOST: tuple[type[Command], ...] = (
    Hello, SetTodos, SetPermissions, SetApprovalMode, GetPermissions, SetHostTools, HostToolUpdate,
    HostToolResult, ExtensionUiResponse, GetTrust, SetTrust,
)  # fmt: skip
