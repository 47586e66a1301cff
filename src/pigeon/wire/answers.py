"""The answers of commands: the `data` of a successful response, and `Response`, the envelope of every answer."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Literal

from pigeon.wire.base import ABSENT, Absent, Intended, Json, Record
from pigeon.wire.choices import VERDICTS, ApprovalMode, DialectName, Feature, SandboxMode, Verdict, WorkspaceKind
from pigeon.wire.entries import AnyEntry, Entry
from pigeon.wire.messages import Disposition, Message
from pigeon.wire.model import Model, Number, Usage
from pigeon.wire.steering import LimitedUse, Limits, TodoPhase


class InputLimits(Record, kw_only=True):
    """The most that Pigeon takes: bytes of a line, and commands that are not answered yet."""

    record_bytes: int
    commands_in_flight: int


class Welcome(Record, kw_only=True):
    """Answer of `hello`: which agent this is, and what is in force from the next line on."""

    name: str
    version: str
    dialect: DialectName
    features: list[Feature]
    limits: InputLimits


class Accepted(Record, kw_only=True):
    """What became of a message: it started a run, waits in the queue, or was handled without a run.

    After `handled` no `agent_settled` follows. `runId` is the run that the message starts or waits for, and `queuedId`
    names it in the queue, for hosts with the feature `attribution`; `clientMessageId` repeats the command's.
    """

    member_features = MappingProxyType({"run_id": "attribution", "queued_id": "attribution"})

    disposition: Disposition
    run_id: str | Absent = ABSENT
    queued_id: str | Absent = ABSENT
    client_message_id: str | Absent = ABSENT


class LocalOnly(Record, kw_only=True):
    """The same in oh-my-pi's form: a message that starts no run."""

    agent_invoked: bool = False


QueueKind = Literal["steering", "followUp"]


class QueueItem(Record, kw_only=True):
    """A queued message: the id by which commands name it, its queue, its text, and the host's own id for it."""

    id: str
    queue: QueueKind
    text: str
    client_message_id: str | Absent = ABSENT


class ClearedQueue(Record, kw_only=True):
    """The texts that were taken back."""

    steering: list[str]
    follow_up: list[str]


class DumpedTool(Record, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: Json


class ContextUsage(Record, kw_only=True):
    """How full the context window is; null right after a compaction, until the provider counts again."""

    tokens: int | None
    context_window: int
    percent: Number | None


HostShellPlace = Literal["inside", "outside"]


class SandboxState(Record, kw_only=True):
    """The sandbox that commands run in: what they may write, whether they reach the network, and what builds it.

    `hostShell` says where the host's own `bash` runs. If the sandbox was turned off, there is only `mode`.
    """

    mode: SandboxMode
    network: bool | Absent = ABSENT
    writable: list[str] | Absent = ABSENT
    host_shell: HostShellPlace | Absent = ABSENT
    builder: str | Absent = ABSENT


class WorkspaceState(Record, kw_only=True):
    """Where the files of the conversation are and its commands run: the `name` of the machine as errors name it, and
    the folder there."""

    kind: WorkspaceKind
    name: str
    path: str
    url: str | Absent = ABSENT


class State(Record, kw_only=True):
    """Answer of `get_state`; `model` is null when there is none. Some members are only for oh-my-pi's clients."""

    later_members = ("interrupt_mode", "queued_message_count", "todo_phases")

    model: Model | None
    thinking_level: str
    is_streaming: bool
    is_compacting: bool
    steering_mode: str
    follow_up_mode: str
    interrupt_mode: str
    session_file: str | Absent = ABSENT
    session_id: str
    session_name: str | Absent = ABSENT
    auto_compaction_enabled: bool
    message_count: int
    pending_message_count: int
    queued_message_count: int
    has_pending_async_work: bool | Absent = ABSENT
    is_settled: bool | Absent = ABSENT
    todo_phases: list[TodoPhase]
    sandbox: SandboxState | Absent = ABSENT
    workspace: WorkspaceState | Absent = ABSENT
    fast_mode_enabled: bool | Absent = ABSENT
    tokens_per_second: float | Absent | None = ABSENT
    fast_mode_active: bool | Absent = ABSENT
    system_prompt: list[str] | Absent = ABSENT
    dump_tools: list[DumpedTool] | Absent = ABSENT
    context_usage: ContextUsage | Absent = ABSENT


class Messages(Record, kw_only=True):
    """Answer of `get_messages`: all complete messages of the conversation."""

    messages: list[Message]


class LastAssistantText(Record, kw_only=True):
    """Answer of `get_last_assistant_text`."""

    text: str | None


class TokenTotals(Record, kw_only=True):
    """Sums over the session; `total` is the sum of the other four."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    total: int


class SessionStats(Record, kw_only=True):
    """Answer of `get_session_stats`."""

    session_file: str | Absent = ABSENT
    session_id: str
    user_messages: int
    assistant_messages: int
    tool_calls: int
    tool_results: int
    total_messages: int
    tokens: TokenTotals
    cost: Number
    context_usage: ContextUsage | Absent = ABSENT


SourceScope = Literal["user", "project", "temporary"]
SourceOrigin = Literal["top-level", "package"]


class SourceInfo(Record, kw_only=True):
    """Where a slash command comes from, in the newer form."""

    path: str
    source: str
    scope: SourceScope
    origin: SourceOrigin
    base_dir: str | Absent = ABSENT


SlashCommandSource = Literal["extension", "prompt", "skill"]
SlashCommandLocation = Literal["user", "project", "path"]


class SlashCommand(Record, kw_only=True):
    """One entry of `get_commands`, with both forms of provenance."""

    name: str
    description: str | Absent = ABSENT
    source: SlashCommandSource
    location: SlashCommandLocation | Absent = ABSENT
    path: str | Absent = ABSENT
    source_info: SourceInfo | Absent = ABSENT


class Commands(Record, kw_only=True):
    """Answer of `get_commands`: the slash commands that `prompt` expands."""

    commands: list[SlashCommand]


ReadinessState = Literal["no_provider", "connected", "auth_error"]
ServiceState = Literal["connected", "unauthenticated", "unavailable"]


class ModelReadiness(Record, kw_only=True):
    """Whether there is a model to talk to."""

    state: ReadinessState
    provider: str | Absent = ABSENT


class Service(Record, kw_only=True):
    """An outside service that the agent is attached to."""

    name: str
    state: ServiceState
    hint: str | Absent = ABSENT


class Integrations(Record, kw_only=True):
    """Answer of `get_integrations`."""

    version: str
    model: ModelReadiness
    services: list[Service]


class CycledModel(Record, kw_only=True):
    """Answer of `cycle_model`: the model and the thinking level in use now."""

    model: Model
    thinking_level: str
    is_scoped: bool


class Models(Record, kw_only=True):
    """Answer of `get_available_models`."""

    models: list[Model]


class Level(Record, kw_only=True):
    """Answer of `cycle_thinking_level`."""

    level: str


class Levels(Record, kw_only=True):
    """Answer of `get_available_thinking_levels`."""

    levels: list[str]


class Compacted(Record, kw_only=True):
    """Answer of `compact`, and the result in `compaction_end`."""

    summary: str
    first_kept_entry_id: str
    tokens_before: int
    estimated_tokens_after: int | Absent = ABSENT
    usage: Usage | Absent = ABSENT
    details: Json | Absent = ABSENT


class BashResult(Record, kw_only=True):
    """Answer of `bash`; `exitCode` is absent when the command was cancelled."""

    later_members = ("total_lines", "total_bytes", "output_lines", "output_bytes")

    output: str
    exit_code: int | Absent = ABSENT
    cancelled: bool
    truncated: bool
    total_lines: int
    total_bytes: int
    output_lines: int
    output_bytes: int
    full_output_path: str | Absent = ABSENT
    artifact_id: str | Absent = ABSENT


class Cancelled(Record, kw_only=True):
    """Whether an extension vetoed the change of session."""

    cancelled: bool


class Forked(Record, kw_only=True):
    """The text of the message that the fork ends before."""

    text: str | Absent = ABSENT
    cancelled: bool


class ForkMessage(Record, kw_only=True):
    """A user message that a fork can end before."""

    entry_id: str
    text: str


class ForkMessages(Record, kw_only=True):
    """Answer of `get_fork_messages`."""

    messages: list[ForkMessage]


class Entries(Record, kw_only=True):
    """Answer of `get_entries`: session entries, and the id of the active leaf."""

    entries: Annotated[list[Entry], Intended(list[AnyEntry])]
    leaf_id: str | None


class TreeNode(Record, kw_only=True):
    """An entry with what was appended to it."""

    entry: Annotated[Entry, Intended(AnyEntry)]
    children: list[TreeNode]
    label: str | Absent = ABSENT
    label_timestamp: str | Absent = ABSENT


class Tree(Record, kw_only=True):
    """Answer of `get_tree`: session entries as a tree, and the id of the active leaf."""

    tree: list[TreeNode]
    leaf_id: str | None


class Navigated(Record, kw_only=True):
    """Answer of `navigate_tree`; `text` is the message that was taken back for editing."""

    cancelled: bool
    leaf_id: str | None
    text: str | Absent = ABSENT
    summary_entry_id: str | Absent = ABSENT


class SessionRow(Record, kw_only=True):
    """One session of `list_sessions`; `inUse`, whether another process writes it, is there with `sessionId` only. A
    session in a database has no `path`: commands that take the path of a session take its `id` then. `workspace` is the
    URL of the machine that `cwd` is on, if that is another one."""

    path: str | Absent = ABSENT
    id: str
    cwd: str
    created: str
    modified: str
    name: str | Absent = ABSENT
    first_message: str | Absent = ABSENT
    parent_session: str | Absent = ABSENT
    workspace: str | Absent = ABSENT
    in_use: bool | Absent = ABSENT

    @property
    def reference(self) -> str:
        """What opens the session: its path, or its id if it has none."""
        return self.id if isinstance(self.path, Absent) else self.path


class Sessions(Record, kw_only=True):
    """Answer of `list_sessions`; `nextCursor` is absent on the last page."""

    sessions: list[SessionRow]
    next_cursor: str | Absent = ABSENT


class Exported(Record, kw_only=True):
    """Answer of `export_html`: the path of the page that was written."""

    path: str


class HtmlPiece(Record, kw_only=True):
    """One entry as a complete HTML element; an answer includes the results of its calls. It may still change if it is
    not `settled`. `markdown` is what was written in a message, if it was asked for."""

    entry_id: str
    html: str
    settled: bool
    markdown: str | Absent = ABSENT


class HtmlPage(Record, kw_only=True):
    """Answer of `get_html`: some entries, oldest first, without those that have nothing to show.

    What comes after the entry `settledId` may still change: an answer whose calls have not all ended. To continue, ask
    for what comes `after` that one, or `before` the entry `firstId`.
    """

    pieces: list[HtmlPiece]
    first_id: str | None
    settled_id: str | None
    leaf_id: str | None
    more_before: bool
    more_after: bool


class RenderedHtml(Record, kw_only=True):
    """Answer of `render_html`: the text, diff or tool call as HTML."""

    html: str


class FoundText(Record, kw_only=True):
    """An entry in which a text was found, with the words around it."""

    entry_id: str
    role: str
    text: str


class FoundFiles(Record, kw_only=True):
    """Paths of files and folders, the best match first."""

    paths: list[str]


class FoundTexts(Record, kw_only=True):
    """Answer of `find_text`; `more` says whether there are others."""

    found: list[FoundText]
    more: bool


class BranchInfo(Record, kw_only=True):
    """A branch: its last entry, what was said first on it, and how many entries belong to it alone."""

    leaf_id: str
    title: str
    entries: int
    active: bool
    timestamp: str


class Branches(Record, kw_only=True):
    """Answer of `get_branches`: the branches of the session that contain messages."""

    branches: list[BranchInfo]


class TodoPhases(Record, kw_only=True):
    """Answer of `set_todos`: the plan as it is now, in phases."""

    todo_phases: list[TodoPhase]


class ToolNames(Record, kw_only=True):
    """Answer of `set_host_tools`: the names of the host's tools."""

    tool_names: list[str]


class SourceRules(Record, kw_only=True):
    """The permission rules of one source, as they were written."""

    deny: list[str]
    ask: list[str]
    allow: list[str]
    default: Verdict
    approval_mode: ApprovalMode

    def by_verdict(self) -> dict[str, list[str]]:
        """The lists of rules, the strictest verdict first."""
        return {verdict: getattr(self, verdict) for verdict in VERDICTS}


class SessionAllowance(Record, kw_only=True):
    """A call that is allowed for the session: in this folder it needs no further approval."""

    tool_name: str
    subject: str
    cwd: str


class LimitsState(Record, kw_only=True):
    """Answer of `get_limits` and `set_limits`: the limits of the conversation and how much of them was used since they
    were set; during a run with limits of its own, those as well."""

    limits: Limits
    used: LimitedUse
    run_limits: Limits | Absent = ABSENT
    run_used: LimitedUse | Absent = ABSENT


class Permissions(Record, kw_only=True):
    """Answer of `get_permissions` and `set_permissions`: what is in force, overall and source by source.

    `default` and `approvalMode` are the strictest of all sources. `timeoutMs` is absent if there is no limit.
    """

    default: Verdict
    approval_mode: ApprovalMode
    timeout_ms: int | Absent = ABSENT
    user: SourceRules
    project: SourceRules
    host: SourceRules
    allowed: list[SessionAllowance]


DecidedBy = Literal["option", "extension", "saved", "setting", "host"]


class TrustState(Record, kw_only=True):
    """Answer of `get_trust`: whether the conversation's project is trusted, and what waits for that.

    `decidedBy` is null until there is a decision; until then, nothing in `waiting` is used.
    """

    cwd: str
    trusted: bool
    decided_by: DecidedBy | None
    waiting: list[str]


class TrustChange(TrustState, kw_only=True):
    """Answer of `set_trust`: the decision, what it changed at once, and what it changes when Pigeon restarts.

    `remembered` says whether the decision was saved, and `problem` why it was not, if that was asked for.
    """

    applied: list[str]
    needs_restart: list[str]
    remembered: bool
    problem: str | Absent = ABSENT


class OpenedSession(Record, kw_only=True):
    """Answer of `open_session`: `resumed` if the folder had a session."""

    cancelled: bool
    resumed: bool
    session_id: str
    session_file: str | Absent = ABSENT


class EventFilter(Record, kw_only=True):
    """Answer of `set_event_filter`: the types that are sent, null for all."""

    events: list[str] | None


class MessagesPage(Record, kw_only=True):
    """Answer of `get_messages_page`; `nextCursor` is absent on the last page."""

    messages: list[Message]
    next_cursor: str | Absent = ABSENT
    total_messages: int


SubagentLevel = Literal["off", "progress", "events"]


class SubagentSubscription(Record, kw_only=True):
    """Answer of `set_subagent_subscription`."""

    level: SubagentLevel


class Subagents(Record, kw_only=True):
    """Answer of `get_subagents`: those that are running."""

    subagents: list[Json]


class SubagentPage(Record, kw_only=True):
    """Answer of `get_subagent_messages`: the entries and messages between two bytes of the file. `reset` says that the
    file is shorter than asked, so that this page begins with its first entry."""

    session_file: str
    from_byte: int
    next_byte: int
    reset: bool
    entries: list[Json]
    messages: list[Json]


class LoginProviders(Record, kw_only=True):
    """Answer of `get_login_providers`."""

    providers: list[Json]


class FastMode(Record, kw_only=True):
    """Answer of `set_fast_mode`: always off, since there is no fast mode."""

    enabled: bool
    active: bool


class HostUriSchemes(Record, kw_only=True):
    """Answer of `set_host_uri_schemes`."""

    schemes: list[str]


class Response(Record, kw_only=True):
    """`data` on success (absent where the command has none), `error` on failure, sometimes with a `code`."""

    id: Json | Absent = ABSENT
    type: Literal["response"] = "response"
    command: str
    success: bool
    data: Json | Absent = ABSENT
    error: str | Absent = ABSENT
    code: str | Absent = ABSENT


def success_response(command: str, data: Json | Absent = ABSENT, id: Json | Absent = ABSENT) -> Response:
    """The response to a command that was carried out or accepted."""
    return Response(id=id, command=command, success=True, data=data)


def failure_response(command: str, error: str, id: Json | Absent = ABSENT, code: str | Absent = ABSENT) -> Response:
    """The response to a command that was refused, with the reason and optionally a code."""
    return Response(id=id, command=command, success=False, error=error, code=code)
