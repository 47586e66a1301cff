"""Every command a host may send: its arguments, its lane and the shape of its answer, declared once.

Lanes say what a command may wait for; `rpc/lanes.py` runs them. `control` never waits, not even for a host that stopped
reading. `session` commands run one after the other in order of arrival, so `set_model` then `prompt` cannot race.
`beside` commands start in order and finish whenever they finish. `wire/codec.py` makes commands of lines by `BY_NAME`,
and `rpc/router.py` finds the handler by the class.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NoReturn

from pigeon.wire import answers
from pigeon.wire.base import ABSENT, Absent, Intended, Json, Record
from pigeon.wire.content import Attachment, ImageInput
from pigeon.wire.model import Model, ThinkingLevel
from pigeon.wire.steering import TodoPhaseGiven

Lane = Literal["control", "session", "beside"]
Subject = Literal["session", "connection"]


class Command(Record, tag_field="type", kw_only=True):
    """A request from the host. `id` may be any JSON value and is echoed in the response.

    `about` is what its handler works on: the session, or the talk with the host itself. `answer` is the type of the
    `data` of its response: None where that has no data, `NoReturn` for a command that is always refused; `shown` is
    what some dialects have in its place. A `silent` command has no response unless it is refused. In a command a null
    counts as absent, but for the fields in `nullable`.
    """

    lane: ClassVar[Lane] = "session"
    about: ClassVar[Subject] = "session"
    answer: ClassVar[object] = None
    shown: ClassVar[object] = None
    silent: ClassVar[bool] = False
    nullable: ClassVar[frozenset[str]] = frozenset()

    id: Json | Absent = ABSENT


class Hello(Command, tag="hello", kw_only=True):
    """Choose the dialect and features: `deltas` (updates without the message so far), `seq` (numbered events),
    `trust` (`trust_required` when a project waits for a decision), `permissions` (`permission_resolved` when a
    question about permission has ended).

    What is not named stays as it is; features that are not known are left out of the answer.
    """

    lane = "control"
    about = "connection"
    answer = answers.Welcome
    dialect: answers.DialectName | Absent = ABSENT
    features: list[str] | Absent = ABSENT


QueueMode = Literal["all", "one-at-a-time"]
InterruptMode = Literal["immediate", "wait"]
StreamingBehavior = Literal["steer", "followUp"]
ListScope = Literal["project", "all"]


# --- prompting ---------------------------------------------------------------------------------------------------


class _Says(Command, kw_only=True):
    answer = answers.Accepted
    shown = answers.LocalOnly | Absent
    message: str
    images: list[ImageInput] | Absent = ABSENT
    attachments: list[Attachment] | Absent = ABSENT


class Prompt(_Says, tag="prompt", kw_only=True):
    """Start a run with a user message, or queue it while one is active."""

    streaming_behavior: StreamingBehavior | Absent = ABSENT
    locale: str | Absent = ABSENT


class Steer(_Says, tag="steer", kw_only=True):
    """Queue a message for the next break of the running turn."""


class FollowUp(_Says, tag="follow_up", kw_only=True):
    """Queue a message for when the agent would stop."""


class AbortAndPrompt(_Says, tag="abort_and_prompt", kw_only=True):
    """Abort what runs, wait until it has ended, then prompt."""


class Abort(Command, tag="abort", kw_only=True):
    """Cancel the run and everything that belongs to it; answered when the agent is idle."""

    lane = "control"


class ClearQueue(Command, tag="clear_queue", kw_only=True):
    """Take all queued messages back."""

    answer = answers.ClearedQueue


# --- state -------------------------------------------------------------------------------------------------------


class GetState(Command, tag="get_state", kw_only=True):
    """What the session is and does right now."""

    lane = "control"
    answer = answers.State


class GetMessages(Command, tag="get_messages", kw_only=True):
    """The messages of the current context."""

    lane = "beside"
    answer = answers.Messages


class GetLastAssistantText(Command, tag="get_last_assistant_text", kw_only=True):
    """The text of the last answer, null without one."""

    lane = "beside"
    answer = answers.LastAssistantText


class GetSessionStats(Command, tag="get_session_stats", kw_only=True):
    """Counts, tokens and cost of the session."""

    lane = "beside"
    answer = answers.SessionStats


class GetCommands(Command, tag="get_commands", kw_only=True):
    """Slash commands that `prompt` understands."""

    lane = "beside"
    answer = answers.Commands


class GetAvailableCommands(Command, tag="get_available_commands", kw_only=True):
    """`get_commands` under its other name."""

    lane = "beside"
    answer = answers.Commands


class GetIntegrations(Command, tag="get_integrations", kw_only=True):
    """Whether the model can be used, and which services are attached."""

    lane = "beside"
    about = "connection"
    answer = answers.Integrations


# --- models and thinking -----------------------------------------------------------------------------------------


class SetModel(Command, tag="set_model", kw_only=True):
    """Use another model from the next request on."""

    answer = Model
    provider: str
    model_id: str


class CycleModel(Command, tag="cycle_model", kw_only=True):
    """Use the next model; null if there is nothing to cycle."""

    answer = answers.CycledModel | None


class GetAvailableModels(Command, tag="get_available_models", kw_only=True):
    """All models with configured credentials."""

    lane = "beside"
    answer = answers.Models


class SetThinkingLevel(Command, tag="set_thinking_level", kw_only=True):
    """Think more or less; clamped to what the model supports."""

    level: ThinkingLevel


class CycleThinkingLevel(Command, tag="cycle_thinking_level", kw_only=True):
    """The next level; null for a model without thinking."""

    answer = answers.Level | None


class GetAvailableThinkingLevels(Command, tag="get_available_thinking_levels", kw_only=True):
    """The levels of the current model."""

    lane = "beside"
    answer = answers.Levels


# --- modes -------------------------------------------------------------------------------------------------------


class SetSteeringMode(Command, tag="set_steering_mode", kw_only=True):
    """Deliver steering one message at a time, or all at once."""

    mode: QueueMode


class SetFollowUpMode(Command, tag="set_follow_up_mode", kw_only=True):
    """Deliver follow-ups one message at a time, or all at once."""

    mode: QueueMode


class SetInterruptMode(Command, tag="set_interrupt_mode", kw_only=True):
    """`immediate` lets steering skip the remaining tool calls of a turn, `wait` does not."""

    mode: InterruptMode


class SetLocale(Command, tag="set_locale", kw_only=True):
    """The language and region of the person at the host; the model is told, an empty text takes it back."""

    locale: str


class SetAutoCompaction(Command, tag="set_auto_compaction", kw_only=True):
    """Switch automatic compaction."""

    enabled: bool


class SetAutoRetry(Command, tag="set_auto_retry", kw_only=True):
    """Switch automatic retry of transient errors."""

    enabled: bool


class AbortRetry(Command, tag="abort_retry", kw_only=True):
    """Cancel a waiting retry."""

    lane = "control"


class Compact(Command, tag="compact", kw_only=True):
    """Summarize the history now."""

    lane = "beside"
    answer = answers.Compacted
    custom_instructions: str | Absent = ABSENT


# --- shell -------------------------------------------------------------------------------------------------------


class Bash(Command, tag="bash", kw_only=True):
    """Run a shell command; its output is in the context of the next prompt."""

    lane = "beside"
    answer = answers.BashResult
    command: str
    exclude_from_context: bool | Absent = ABSENT


class AbortBash(Command, tag="abort_bash", kw_only=True):
    """Kill the running `bash` commands."""

    lane = "control"


# --- sessions ----------------------------------------------------------------------------------------------------


class NewSession(Command, tag="new_session", kw_only=True):
    """Begin an empty conversation."""

    answer = answers.Cancelled
    parent_session: str | Absent = ABSENT


class SwitchSession(Command, tag="switch_session", kw_only=True):
    """Open another session file."""

    answer = answers.Cancelled
    session_path: str


class Fork(Command, tag="fork", kw_only=True):
    """A new session that ends before the given user message."""

    answer = answers.Forked
    entry_id: str


class Branch(Command, tag="branch", kw_only=True):
    """`fork` under its other name."""

    answer = answers.Forked
    entry_id: str


class Clone(Command, tag="clone", kw_only=True):
    """A new session with the whole active branch."""

    answer = answers.Cancelled


class GetForkMessages(Command, tag="get_fork_messages", kw_only=True):
    """The user messages that `fork` accepts."""

    lane = "beside"
    answer = answers.ForkMessages


class GetBranchMessages(Command, tag="get_branch_messages", kw_only=True):
    """`get_fork_messages` under its other name."""

    lane = "beside"
    answer = answers.ForkMessages


class GetEntries(Command, tag="get_entries", kw_only=True):
    """Session entries in the order they were appended."""

    lane = "beside"
    answer = answers.Entries
    since: str | Absent = ABSENT


class GetTree(Command, tag="get_tree", kw_only=True):
    """Session entries as a tree."""

    lane = "beside"
    answer = answers.Tree


class NavigateTree(Command, tag="navigate_tree", kw_only=True):
    """Go to another entry of the session, with a summary of the branch that is left if `summarize` says so."""

    lane = "beside"
    answer = answers.Navigated
    entry_id: str
    summarize: bool | Absent = ABSENT
    custom_instructions: str | Absent = ABSENT
    label: str | Absent = ABSENT


class ListSessions(Command, tag="list_sessions", kw_only=True):
    """Sessions on disk, newest first, a page at a time."""

    lane = "beside"
    answer = answers.Sessions
    scope: ListScope = "project"
    cursor: str | Absent = ABSENT
    limit: int = 50


class SetSessionName(Command, tag="set_session_name", kw_only=True):
    """Give the session a display name."""

    name: str


class ExportHtml(Command, tag="export_html", kw_only=True):
    """Write the session as a page."""

    lane = "beside"
    answer = answers.Exported
    output_path: str | Absent = ABSENT


# --- the host's side ---------------------------------------------------------------------------------------------


class SetTodos(Command, tag="set_todos", kw_only=True):
    """Replace the plan."""

    answer = answers.TodoPhases
    phases: list[TodoPhaseGiven]


class SetPermissions(Command, tag="set_permissions", kw_only=True):
    """Replace the host's own permission rules, from the next tool call on; they can only tighten those of the user.

    `permissions` has the form of the setting; rules that cannot be understood are refused and change nothing.
    """

    lane = "control"
    answer = answers.Permissions
    permissions: dict[str, Json]


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
    """What a host reports of a call, in progress or finished; blocks of another kind than text or image become text."""

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


# --- trust -------------------------------------------------------------------------------------------------------


class GetTrust(Command, tag="get_trust", kw_only=True):
    """Whether the project of the conversation is trusted, and which of its files wait for that."""

    lane = "control"
    answer = answers.TrustState


class SetTrust(Command, tag="set_trust", kw_only=True):
    """Decide whether the files of the conversation's project are used.

    The decision holds for this process, with `remember` also for later ones (in `trust.json`).
    """

    answer = answers.TrustChange
    trusted: bool
    remember: bool = False


# --- oh-my-pi's own ----------------------------------------------------------------------------------------------


class SetEventFilter(Command, tag="set_event_filter", kw_only=True):
    """Send only events of these types from now on; null for all. Dialogs and the ends of prompts are always sent."""

    lane = "control"
    about = "connection"
    answer = answers.EventFilter
    nullable = frozenset({"events"})
    events: Annotated[Json | Absent, Intended(list[str] | Absent | None)] = ABSENT


class OpenSession(Command, tag="open_session", kw_only=True):
    """Go on with the newest session in a folder, or begin one there; sessions are kept there from then on."""

    answer = answers.OpenedSession
    session_dir: str


class GetMessagesPage(Command, tag="get_messages_page", kw_only=True):
    """Some of the messages, from where the cursor of the page before says."""

    lane = "beside"
    answer = answers.MessagesPage
    cursor: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    limit: Annotated[Json | Absent, Intended(int | Absent)] = ABSENT


class SetSubagentSubscription(Command, tag="set_subagent_subscription", kw_only=True):
    """Which events of helpers are wanted; there are no helpers here, so none ever come."""

    lane = "control"
    answer = answers.SubagentSubscription
    level: Annotated[Json | Absent, Intended(answers.SubagentLevel)] = ABSENT


class GetSubagents(Command, tag="get_subagents", kw_only=True):
    """The helpers that work now: none."""

    lane = "control"
    answer = answers.Subagents


class GetSubagentMessages(Command, tag="get_subagent_messages", kw_only=True):
    """What a helper said; refused, because there are none."""

    lane = "control"
    answer = NoReturn
    subagent_id: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT
    session_file: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT


class GetLoginProviders(Command, tag="get_login_providers", kw_only=True):
    """Providers that can be logged in to: none, keys come from files and variables."""

    lane = "control"
    answer = answers.LoginProviders


class Login(Command, tag="login", kw_only=True):
    """Log in to a provider; refused, because keys come from files and variables."""

    lane = "control"
    answer = NoReturn
    provider_id: Annotated[Json | Absent, Intended(str)] = ABSENT


class SetFastMode(Command, tag="set_fast_mode", kw_only=True):
    """A faster service of a model; it can only be switched off."""

    lane = "control"
    answer = answers.FastMode
    enabled: bool


class Handoff(Command, tag="handoff", kw_only=True):
    """Hand the work to a new conversation; refused: `compact` and `new_session` do the parts of it."""

    lane = "control"
    answer = NoReturn
    custom_instructions: Annotated[Json | Absent, Intended(str | Absent)] = ABSENT


class SetHostUriSchemes(Command, tag="set_host_uri_schemes", kw_only=True):
    """Addresses that the host reads for the model; only the empty list is accepted."""

    lane = "control"
    answer = answers.HostUriSchemes
    schemes: list[Json]


class NegotiateProtocol(Command, tag="negotiate_protocol", kw_only=True):
    """Another framing of long lines; refused, because lines of any length are sent as they are."""

    lane = "control"
    answer = NoReturn
    protocol_version: Annotated[Json | Absent, Intended(int)] = ABSENT


ALL: tuple[type[Command], ...] = (
    Prompt, Steer, FollowUp, AbortAndPrompt, Abort, ClearQueue,
    Hello, GetState, GetMessages, GetLastAssistantText, GetSessionStats, GetCommands, GetIntegrations,
    GetAvailableCommands,
    SetModel, CycleModel, GetAvailableModels, SetThinkingLevel, CycleThinkingLevel, GetAvailableThinkingLevels,
    SetSteeringMode, SetFollowUpMode, SetInterruptMode, SetLocale, SetAutoCompaction, SetAutoRetry, AbortRetry, Compact,
    Bash, AbortBash,
    NewSession, SwitchSession, Fork, Branch, Clone, GetForkMessages, GetBranchMessages, GetEntries, GetTree,
    NavigateTree, ListSessions, SetSessionName, ExportHtml,
    SetPermissions, GetPermissions, GetTrust, SetTrust,
    SetTodos, SetHostTools, HostToolUpdate, HostToolResult, ExtensionUiResponse,
    SetEventFilter, OpenSession, GetMessagesPage, SetSubagentSubscription, GetSubagents, GetSubagentMessages,
    GetLoginProviders, Login, SetFastMode, Handoff, SetHostUriSchemes, NegotiateProtocol,
)  # fmt: skip
OLD_NAMES = {"queue_message": "steer", "reset": "new_session", "set_queue_mode": "set_steering_mode"}
NAMES: dict[type[Command], str] = {command: str(command.__struct_config__.tag) for command in ALL}
BY_NAME: dict[str, type[Command]] = {name: command for command, name in NAMES.items()}
