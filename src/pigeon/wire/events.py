"""Events, which the agent sends to its host without a request. Each docstring tells when.

Inside the process a `MessageUpdate` carries the delta only. Dialects that show the message so far (`message` and
`partial`) or number messages (`messageId`) add these members in their projection, and so does the outbox with the
`seq` of hosts that asked for it; they are declared here because hosts read them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from pigeon.wire.agents import AgentInfo, AgentWork, JobInfo
from pigeon.wire.answers import Compacted, QueueItem, State
from pigeon.wire.base import ABSENT, Absent, Json, Outgoing, Record
from pigeon.wire.choices import Searched
from pigeon.wire.commands.mcp import McpServerState
from pigeon.wire.commands.undo import FileAndChange
from pigeon.wire.content import ToolCall, UserBlock
from pigeon.wire.dialogs import DialogRequest
from pigeon.wire.entries import Entry
from pigeon.wire.messages import AssistantMessage, Message, SystemMessage, ToolResultMessage
from pigeon.wire.model import Model, Usage
from pigeon.wire.steering import LimitReached, Rule, TodoTask

CompactionReason = Literal["manual", "threshold", "overflow", "idle"]
# What a tool does; the `plan` is that of the conversation.
ToolKind = Literal["read", "search", "edit", "execute", "plan", "agent", "other"]


class ToolOutcome(Record, kw_only=True):
    """The result of a tool, or its cumulative progress."""

    content: list[UserBlock]
    details: Json | Absent = ABSENT
    usage: Usage | Absent = ABSENT
    terminate: bool | Absent = ABSENT


# --- the stream of one answer --------------------------------------------------------------------------------------


class _Streaming(Record, tag_field="type", kw_only=True):
    content_index: int
    partial: AssistantMessage | Absent = ABSENT


class TextStart(_Streaming, tag="text_start", kw_only=True):
    """A text block of the answer begins."""


class TextDelta(_Streaming, tag="text_delta", kw_only=True):
    """More text of a block that `text_start` began."""

    delta: str


class TextEnd(_Streaming, tag="text_end", kw_only=True):
    """The text block is complete; `content` is all of its text."""

    content: str


class ThinkingStart(_Streaming, tag="thinking_start", kw_only=True):
    """A thinking block of the answer begins."""


class ThinkingDelta(_Streaming, tag="thinking_delta", kw_only=True):
    """More text of a block that `thinking_start` began."""

    delta: str


class ThinkingEnd(_Streaming, tag="thinking_end", kw_only=True):
    """The thinking block is complete; `content` is all of its text."""

    content: str


class ToolcallStart(_Streaming, tag="toolcall_start", kw_only=True):
    """A tool call of the answer begins; its arguments follow."""

    later_members = ("id", "tool_name")

    id: str
    tool_name: str


class ToolcallDelta(_Streaming, tag="toolcall_delta", kw_only=True):
    """More raw JSON of the arguments; may be empty."""

    delta: str


class ToolcallEnd(_Streaming, tag="toolcall_end", kw_only=True):
    """The tool call is complete, with all of its arguments."""

    tool_call: ToolCall


StreamEvent = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolcallStart
    | ToolcallDelta
    | ToolcallEnd
)


# --- the loop ------------------------------------------------------------------------------------------------------


class Event(Outgoing, tag_field="type", kw_only=True):
    """Anything that is sent without a request; `seq` numbers it for hosts with that feature.

    `runId` is for hosts with the feature `attribution`: the run in which it happened, or whose end it reports.
    `agentId` is for hosts with the feature `agents`: the agent that it is about, one that was started by the agent
    `parentAgentId`. Events of the conversation itself have neither.
    """

    always_sent = False

    seq: int | Absent = ABSENT
    run_id: str | Absent = ABSENT
    agent_id: str | Absent = ABSENT
    parent_agent_id: str | Absent = ABSENT


class AgentStart(Event, tag="agent_start", kw_only=True):
    """A run begins; `agent_end` marks its end."""


class AgentEnd(Event, tag="agent_end", kw_only=True):
    """A run ends, with the messages it added; with `willRetry`, another attempt follows on its own.

    `isTerminal` and `yielded` are oh-my-pi's words for: nothing follows.
    """

    messages: list[Message]
    will_retry: bool | Absent = ABSENT
    is_terminal: bool | Absent = ABSENT
    yielded: bool | Absent = ABSENT


EndReason = Literal["done", "aborted", "error", "limit", "denied"]
PromptStatus = Literal["completed", "aborted", "error"]


class AgentSettled(Event, tag="agent_settled", kw_only=True):
    """Nothing more will happen on its own: the one record that ends an accepted prompt and says why it ended.

    After a prompt with `outputSchema` it has `output`, a value that fits the schema, or, if the model gave none, the
    reason `error` and an `errorMessage`. `limit` is present if the reason is `limit`.

    `denied` means that none of the run's last tool calls was allowed to run. Unattended agents report it, and hosts
    with the feature `permissions` are told; others get `done`.
    """

    aborted: bool = False
    reason: EndReason = "done"
    output: Json | Absent = ABSENT
    error_message: str | Absent = ABSENT
    limit: LimitReached | Absent = ABSENT


class PromptError(Record, kw_only=True):
    """Why a prompt failed, and with which provider and model, if known."""

    message: str
    provider: str | Absent = ABSENT
    model: str | Absent = ABSENT
    http_status: int | Absent = ABSENT
    retryable: bool


class PromptResult(Event, tag="prompt_result", kw_only=True):
    """How an accepted prompt ended; sent exactly once for each, after the `agent_end` of its run.

    A completed prompt that had an `outputSchema` has `output`, a value that fits it.
    """

    dialects = ("omp",)
    always_sent = True

    id: Json | Absent = ABSENT
    agent_invoked: bool
    status: PromptStatus
    session_settled: bool
    error: PromptError | Absent = ABSENT
    output: Json | Absent = ABSENT


class SessionSettled(Event, tag="session_settled", kw_only=True):
    """oh-my-pi's word for: nothing more will happen on its own. Sent after the results of the prompts."""

    dialects = ("omp",)
    always_sent = True


CommandSource = Literal["skill", "extension", "file"]


class AvailableCommand(Record, kw_only=True):
    """A slash command that a message may start with; a prompt template is a `file`."""

    name: str
    source: CommandSource
    description: str | Absent = ABSENT


class AvailableCommandsUpdate(Event, tag="available_commands_update", kw_only=True):
    """The slash commands, for oh-my-pi's clients: sent after the start, with another session, when they change."""

    dialects = ("omp",)

    commands: list[AvailableCommand]


class CommandsChanged(Event, tag="commands_changed", kw_only=True):
    """There are other slash commands. Only inside the process: a list takes reading files, so it is made for the
    dialects that show one (`AvailableCommandsUpdate`)."""

    dialects = ()


class TurnStart(Event, tag="turn_start", kw_only=True):
    """A turn begins: one answer and its tools."""


class TurnEnd(Event, tag="turn_end", kw_only=True):
    """A turn ends, with the answer and all its tool results."""

    message: AssistantMessage
    tool_results: list[ToolResultMessage]


class MessageStart(Event, tag="message_start", kw_only=True):
    """A message begins; an answer is still empty here."""

    message: Message
    message_id: str | Absent = ABSENT


class MessageUpdate(Event, tag="message_update", kw_only=True):
    """The answer that is streaming grows by one stream event."""

    later_members = ("usage",)

    message: AssistantMessage | Absent = ABSENT
    usage: Usage
    assistant_message_event: StreamEvent
    message_id: str | Absent = ABSENT


class MessageEnd(Event, tag="message_end", kw_only=True):
    """A message is complete and recorded. `explanation`, for hosts with the feature `explanations`, says in a sentence
    for people why an answer failed, if its `errorMessage` has the words of the model's server."""

    member_features = MappingProxyType({"explanation": "explanations"})

    message: Message
    message_id: str | Absent = ABSENT
    explanation: str | Absent = ABSENT


class ToolExecutionStart(Event, tag="tool_execution_start", kw_only=True):
    """A tool call begins; nothing has been touched yet. `args` are as the model sent them."""

    tool_call_id: str
    tool_name: str
    args: Json


class ToolCallStarted(ToolExecutionStart, tag="tool_execution_start", kw_only=True):
    """The same inside the process, with what the tool declares about the call; dialects show `to_plain_event`."""

    kind: ToolKind
    title: str

    def to_plain_event(self) -> ToolExecutionStart:
        """The event in the form for clients."""
        return ToolExecutionStart(
            tool_call_id=self.tool_call_id, tool_name=self.tool_name, args=self.args, run_id=self.run_id, seq=self.seq
        )


class ToolExecutionUpdate(Event, tag="tool_execution_update", kw_only=True):
    """Progress of a tool; `partialResult` holds everything so far."""

    tool_call_id: str
    tool_name: str
    args: Json
    partial_result: ToolOutcome


class ToolExecutionEnd(Event, tag="tool_execution_end", kw_only=True):
    """A tool call has ended; `durationMs` is how long the tool itself ran, if it did."""

    tool_call_id: str
    tool_name: str
    result: ToolOutcome
    is_error: bool
    duration_ms: int | Absent = ABSENT


# --- the session ---------------------------------------------------------------------------------------------------


class QueueUpdate(Event, tag="queue_update", kw_only=True):
    """The queues changed; both are listed in full. `items`, for hosts with the feature `attribution`, has the messages
    of both with their ids, in the order in which each queue delivers them."""

    member_features = MappingProxyType({"items": "attribution"})

    steering: list[str]
    follow_up: list[str]
    items: list[QueueItem] | Absent = ABSENT


class CompactionStart(Event, tag="compaction_start", kw_only=True):
    """The history is being summarized."""

    reason: CompactionReason


class CompactionEnd(Event, tag="compaction_end", kw_only=True):
    """Compaction has ended, with a result, an error, or because it was aborted; `explanation` is that of
    `message_end`."""

    member_features = MappingProxyType({"explanation": "explanations"})

    reason: CompactionReason
    result: Compacted | Absent = ABSENT
    aborted: bool
    will_retry: bool
    error_message: str | Absent = ABSENT
    explanation: str | Absent = ABSENT


class AutoCompactionStart(Event, tag="auto_compaction_start", kw_only=True):
    """An automatic compaction begins, under its older name."""

    reason: CompactionReason


class AutoCompactionEnd(Event, tag="auto_compaction_end", kw_only=True):
    """An automatic compaction has ended, under its older name; `result` is null when it was aborted."""

    result: Compacted | Absent | None = ABSENT
    aborted: bool
    will_retry: bool
    error_message: str | Absent = ABSENT


class AutoRetryStart(Event, tag="auto_retry_start", kw_only=True):
    """A transient error is retried after a pause; `explanation` is that of `message_end`."""

    member_features = MappingProxyType({"explanation": "explanations"})

    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str
    explanation: str | Absent = ABSENT


class AutoRetryEnd(Event, tag="auto_retry_end", kw_only=True):
    """Retrying has ended, successfully or not."""

    success: bool
    attempt: int
    final_error: str | Absent = ABSENT


class SummarizationRetryScheduled(Event, tag="summarization_retry_scheduled", kw_only=True):
    """A summary request failed and will be tried again."""

    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str


SummarySource = Literal["compaction", "branchSummary"]


class SummarizationRetryAttemptStart(Event, tag="summarization_retry_attempt_start", kw_only=True):
    """A summary request is tried again."""

    source: SummarySource
    reason: CompactionReason | Absent = ABSENT


class SummarizationRetryFinished(Event, tag="summarization_retry_finished", kw_only=True):
    """No summary request is being retried any more."""


class SessionInfoChanged(Event, tag="session_info_changed", kw_only=True):
    """The session was named; without `name`, its name was removed."""

    name: str | Absent = ABSENT


class FilesRestored(Event, tag="files_restored", kw_only=True):
    """Files were brought back to what they were: by `undo` or `redo`, or with a move in the conversation. `checkpoint`
    is the oldest one that it was about."""

    checkpoint: str
    files: list[FileAndChange]


class ThinkingLevelChanged(Event, tag="thinking_level_changed", kw_only=True):
    """The thinking level has changed; it has both names that clients read."""

    later_members = ("thinking_level",)

    level: str
    thinking_level: str


class EntryAppended(Event, tag="entry_appended", kw_only=True):
    """An entry that no other event shows was recorded."""

    entry: Entry


class BashExecutionUpdate(Event, tag="bash_execution_update", kw_only=True):
    """More output of a `bash` command; repeats that command's id."""

    id: Json | Absent = ABSENT
    delta: str


class HostToolCall(Outgoing, tag_field="type", tag="host_tool_call", kw_only=True):
    """Sent when the model calls a host tool; the host answers with `host_tool_result` under this id."""

    seq: int | Absent = ABSENT
    run_id: str | Absent = ABSENT
    id: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Json]


class HostToolCancel(Outgoing, tag_field="type", tag="host_tool_cancel", kw_only=True):
    """Sent when an open call is no longer needed."""

    seq: int | Absent = ABSENT
    run_id: str | Absent = ABSENT
    id: str
    target_id: str


class _ServiceRequest(Outgoing, tag_field="type", kw_only=True):
    seq: int | Absent = ABSENT
    run_id: str | Absent = ABSENT
    id: str


class HostFileRead(_ServiceRequest, tag="host_file_read", kw_only=True):
    """A tool needs the text of a file that the host serves; answered with `host_service_result` under this id. With an
    `encoding` the answer has its bytes in that form, as `data`."""

    tool_call_id: str | Absent = ABSENT
    path: str
    encoding: Literal["base64"] | Absent = ABSENT


class HostFileWrite(_ServiceRequest, tag="host_file_write", kw_only=True):
    """A tool writes this to a file that the host serves; answered with `host_service_result` under this id. It is a
    text, or bytes in base64 as `data`."""

    tool_call_id: str | Absent = ABSENT
    path: str
    content: str | Absent = ABSENT
    data: str | Absent = ABSENT


class HostFileStat(_ServiceRequest, tag="host_file_stat", kw_only=True):
    """Asks what there is at a path of the host; with `follow` what a link leads to. Answered with
    `host_service_result`."""

    path: str
    follow: bool


class HostFileList(_ServiceRequest, tag="host_file_list", kw_only=True):
    """Asks for the names in a folder of the host; answered with `host_service_result`."""

    path: str


class HostSearch(_ServiceRequest, tag="host_search", kw_only=True):
    """Asks for the lines of files below a folder that match a regular expression (`text`), or for the paths that match
    a glob (`files`); answered with `host_service_result`, by paths relative to the folder."""

    path: str
    what: Searched
    pattern: str
    ignore_case: bool | Absent = ABSENT
    literal: bool | Absent = ABSENT
    glob: str | Absent = ABSENT
    limit: int | Absent = ABSENT


class HostCommandRun(_ServiceRequest, tag="host_command_run", kw_only=True):
    """A tool has the host run a command, a program with its arguments; answered with `host_service_result`.

    `env` has the variables that differ from those Pigeon was started with; the command must not see an empty one.
    """

    tool_call_id: str | Absent = ABSENT
    command: list[str]
    cwd: str
    env: dict[str, str]


class HostServiceCancel(_ServiceRequest, tag="host_service_cancel", kw_only=True):
    """The request `targetId` is no longer needed; stop its command, if any, and report the output soon."""

    target_id: str


class FileChanged(Event, tag="file_changed", kw_only=True):
    """A tool has changed a file; only for hosts that asked for it with `set_host_services`.

    Texts that are too long are left out, and so is the old text of a file that was `created`.
    """

    tool_call_id: str
    path: str
    created: bool
    old_text: str | Absent = ABSENT
    new_text: str | Absent = ABSENT


PermissionOutcome = Literal["once", "session", "denied", "timeout", "aborted", "disconnected"]


class PermissionResolved(Event, tag="permission_resolved", kw_only=True):
    """The permission question with this id has ended, once each; only for hosts with the feature `permissions`.

    The call was allowed `once` or for the `session`, or the answer was anything else (`denied`); or no answer came in
    time (`timeout`), the run was `aborted`, or the host has `disconnected`.
    """

    feature = "permissions"

    id: str
    tool_call_id: str
    outcome: PermissionOutcome


class AgentRestarted(Event, tag="agent_restarted", kw_only=True):
    """The agent's process has died, and another one continues the session; only from `pigeon serve`, and for a run that
    is `continued` (`--continue-runs`).

    Unless it is, what was under way has ended: a run with its `agent_settled`, questions with their cancellation. A
    continued run goes on after this event, under the same id, and has its end later.
    """

    dialects = ("pi-latest",)

    reason: str
    continued: bool | Absent = ABSENT


class GapSnapshot(Record, kw_only=True):
    """A conversation after event number `seq`; `runId` is the active run, and `questions` are the dialogs and calls of
    host tools that wait for an answer.

    A message that is not finished is not part of it: its events follow.
    """

    seq: int
    run_id: str | None
    state: State
    messages: list[Message]
    questions: list[Json]


class Gap(Event, tag="gap", kw_only=True):
    """The events that follow number `after` are no longer kept: here is the conversation as it is now instead.

    Only from `pigeon serve`, to a client that was away for too long.
    """

    dialects = ("pi-latest",)

    after: int
    snapshot: GapSnapshot


class ToolsDeclared(Event, tag="tools_declared", kw_only=True):
    """The model has other tools from here on; dialects that show system messages make a start and an end of it."""

    message: SystemMessage


class TtsrTriggered(Event, tag="ttsr_triggered", kw_only=True):
    """A stream rule matched: the stream is cut and resumes with the rule."""

    rules: list[Rule]


class TodoReminder(Event, tag="todo_reminder", kw_only=True):
    """The agent stopped with open tasks and is reminded of them."""

    todos: list[TodoTask]
    attempt: int
    max_attempts: int


class TodoAutoClear(Event, tag="todo_auto_clear", kw_only=True):
    """A finished task was removed from the plan."""


class ExtensionError(Event, tag="extension_error", kw_only=True):
    """An extension raised; the run goes on."""

    extension_path: str
    event: str
    error: str


class TrustRequired(Event, tag="trust_required", kw_only=True):
    """The project has files that are not used until it is trusted; only for hosts with the feature `trust`.

    Sent after `hello`, when the conversation moves to such a folder, and when more such files appear.
    """

    feature = "trust"

    cwd: str
    waiting: list[str]


class SelectionChanged(Event, tag="selection_changed", kw_only=True):
    """A command has chosen a model or another place in the session; only for hosts with the feature `selection`.

    For hosts that share a conversation: `model` and `leafId` are what is chosen now, `by` is the command.
    """

    feature = "selection"

    by: str
    model: Model | None
    leaf_id: str | None


class AgentChanged(Event, tag="agent_changed", kw_only=True):
    """An agent was started, is at work on something else, or has ended; only for hosts with the feature `agents`."""

    feature = "agents"

    agent: AgentInfo
    work: AgentWork


class AgentEvent(Event, tag="agent_event", kw_only=True):
    """An event of an agent that was started. Only inside the process: clients with the feature `agents` get the event
    itself, with both ids, and oh-my-pi's a `subagent_event`."""

    dialects = ()

    event: Json


class JobChanged(Event, tag="job_changed", kw_only=True):
    """A command or agent in the background has begun or ended; only for hosts with the feature `agents`."""

    feature = "agents"

    job: JobInfo


class SubagentLifecycle(Event, tag="subagent_lifecycle", kw_only=True):
    """oh-my-pi's word for: an agent has begun or ended. For clients that have subscribed."""

    dialects = ("omp", "xcsh")

    payload: Json


class SubagentProgress(Event, tag="subagent_progress", kw_only=True):
    """What an agent is doing, as oh-my-pi says it. For clients that have subscribed."""

    dialects = ("omp", "xcsh")

    payload: Json


class SubagentEvent(Event, tag="subagent_event", kw_only=True):
    """An event of an agent, as oh-my-pi says it. For clients that have subscribed to events."""

    dialects = ("omp", "xcsh")

    payload: Json


class McpServerChanged(Event, tag="mcp_server_changed", kw_only=True):
    """A tool server's state has changed, or what it offers; only for hosts with the feature `mcp`.

    One that is no longer configured is `removed`.
    """

    feature = "mcp"

    server: McpServerState
    removed: bool | Absent = ABSENT


class ErrorEvent(Event, tag="error", kw_only=True):
    """A failure, in the dialect that has no responses."""

    dialects = ("companion",)

    error: str


class Ready(Event, tag="ready", kw_only=True):
    """First line of the dialects whose clients wait for it."""

    dialects = ("omp", "xcsh")

    version: str | Absent = ABSENT


ALL: tuple[type[Record], ...] = (
    AgentStart, AgentEnd, AgentSettled, PromptResult, SessionSettled, AvailableCommandsUpdate,
    TurnStart, TurnEnd,
    MessageStart, MessageUpdate, MessageEnd,
    ToolExecutionStart, ToolExecutionUpdate, ToolExecutionEnd, QueueUpdate,
    CompactionStart, CompactionEnd, AutoCompactionStart, AutoCompactionEnd, AutoRetryStart, AutoRetryEnd,
    SummarizationRetryScheduled, SummarizationRetryAttemptStart, SummarizationRetryFinished,
    SessionInfoChanged, FilesRestored, ThinkingLevelChanged, EntryAppended, BashExecutionUpdate,
    TtsrTriggered, TodoReminder, TodoAutoClear, ExtensionError, TrustRequired, SelectionChanged,
    AgentChanged, JobChanged, SubagentLifecycle, SubagentProgress, SubagentEvent,
    McpServerChanged, AgentRestarted, Gap, ErrorEvent, Ready,
    HostToolCall, HostToolCancel, HostFileRead, HostFileWrite, HostFileStat, HostFileList, HostSearch,
    HostCommandRun, HostServiceCancel, FileChanged,
    PermissionResolved,
)  # fmt: skip
ServiceRequest = HostFileRead | HostFileWrite | HostCommandRun | HostServiceCancel
# What is asked only of a host that is the workspace.
WorkspaceRequest = HostFileStat | HostFileList | HostSearch
Outbound = Event | HostToolCall | HostToolCancel | ServiceRequest | WorkspaceRequest | DialogRequest
