# Made by `scripts/sdk_commands.py`; do not edit.

from abc import ABC, abstractmethod
from typing import Any, Literal

from pigeon.wire.agents import AgentList, AgentMerged, AgentMessages, AgentStarted, JobList, JobOutput
from pigeon.wire.answers import (
    Accepted,
    BashResult,
    Branches,
    Cancelled,
    ClearedQueue,
    Commands,
    Compacted,
    CycledModel,
    Entries,
    EventFilter,
    Exported,
    FastMode,
    Forked,
    ForkMessages,
    FoundFiles,
    FoundTexts,
    HostUriSchemes,
    HtmlPage,
    Integrations,
    LastAssistantText,
    Level,
    Levels,
    LimitsState,
    LoginProviders,
    Messages,
    MessagesPage,
    Models,
    Navigated,
    OpenedSession,
    Permissions,
    QueueItem,
    RenderedHtml,
    SessionRow,
    Sessions,
    SessionStats,
    State,
    SubagentPage,
    Subagents,
    SubagentSubscription,
    TodoPhases,
    ToolNames,
    Tree,
    TrustChange,
    TrustState,
    Welcome,
)
from pigeon.wire.commands import Command, HostTool, RenderedCall
from pigeon.wire.commands.changes import Changes
from pigeon.wire.commands.mcp import McpCompletions, McpResources, McpServers, McpServerState
from pigeon.wire.commands.services import HostFileStatus, HostFolderEntry, HostMatch, HostServicesState
from pigeon.wire.commands.undo import Checkpoints, RestoredFiles, UndoPreview
from pigeon.wire.content import Attachment, ImageInput
from pigeon.wire.model import Model
from pigeon.wire.steering import Limits, TodoPhaseGiven

class CommandMethods(ABC):
    """Every command as a method."""

    @abstractmethod
    async def send(self, command: Command) -> Any:
        """Send a command; returns its answer, raises a `Refusal` where it is refused."""
    async def abort_and_prompt(
        self,
        message: str,
        *,
        images: list[ImageInput] | None = None,
        attachments: list[Attachment] | None = None,
        client_message_id: str | None = None,
        output_schema: dict[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> Accepted:
        """Abort what is running, wait until it has ended, then prompt; `outputSchema` and `limits` as for
        `prompt`.
        """
    async def abort(self, *, tool_call_id: str | None = None) -> None:
        """Cancel the run and everything that belongs to it; answered when the agent is idle. With `toolCallId`,
        stop only that call and continue the turn; answered when the call has ended.
        """
    async def clear_queue(self) -> ClearedQueue:
        """Take back all queued messages."""
    async def remove_queued(self, queued_id: str) -> QueueItem:
        """Take back one queued message."""
    async def edit_queued(self, queued_id: str, message: str) -> QueueItem:
        """Change the text of a queued message; its images and its place in the queue stay."""
    async def promote_queued(self, queued_id: str) -> QueueItem:
        """Deliver a queued message next: it becomes the first of the steering messages."""
    async def get_state(self) -> State:
        """The current state of the session."""
    async def get_messages(self) -> Messages:
        """The messages of the current context."""
    async def get_messages_page(self, *, cursor: str | None = None, limit: int | None = None) -> MessagesPage:
        """One page of the messages, from the cursor of the previous page on."""
    async def get_last_assistant_text(self) -> LastAssistantText:
        """The text of the last answer; null if there is none."""
    async def get_session_stats(self) -> SessionStats:
        """Counts, tokens and cost of the session."""
    async def get_commands(self) -> Commands:
        """Slash commands that `prompt` understands."""
    async def get_available_commands(self) -> Commands:
        """`get_commands` under its other name."""
    async def get_integrations(self) -> Integrations:
        """Whether the model can be used, and which services are attached."""
    async def set_model(self, provider: str, model_id: str) -> Model:
        """Use another model from the next request on."""
    async def cycle_model(self) -> CycledModel | None:
        """Use the next model; null if there is nothing to cycle."""
    async def get_available_models(self) -> Models:
        """All models with configured credentials."""
    async def set_thinking_level(
        self, level: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
    ) -> None:
        """Set the thinking level; it is clamped to what the model supports."""
    async def cycle_thinking_level(self) -> Level | None:
        """Use the next thinking level; null for a model without thinking."""
    async def get_available_thinking_levels(self) -> Levels:
        """The thinking levels of the current model."""
    async def set_fast_mode(self, enabled: bool) -> FastMode:
        """A model's faster service; it can only be turned off."""
    async def get_login_providers(self) -> LoginProviders:
        """Providers that can be logged in to: none; keys come from files and variables."""
    async def login(self, provider_id: str) -> None:
        """Log in to a provider; refused, because keys come from files and variables."""
    async def set_steering_mode(self, mode: Literal["all", "one-at-a-time"]) -> None:
        """Deliver steering one message at a time, or all at once."""
    async def set_follow_up_mode(self, mode: Literal["all", "one-at-a-time"]) -> None:
        """Deliver follow-ups one message at a time, or all at once."""
    async def set_interrupt_mode(self, mode: Literal["immediate", "wait"]) -> None:
        """`immediate` lets steering skip the remaining tool calls of a turn, `wait` does not."""
    async def set_locale(self, locale: str) -> None:
        """Tell the model the language and region of the person at the host; an empty text clears it."""
    async def set_auto_compaction(self, enabled: bool) -> None:
        """Turn automatic compaction on or off."""
    async def set_auto_retry(self, enabled: bool) -> None:
        """Turn the automatic retry of transient errors on or off."""
    async def set_limits(self, limits: Limits) -> LimitsState:
        """Replace the limits of the conversation; use counts from here on, and an empty object removes them."""
    async def get_limits(self) -> LimitsState:
        """The limits in force, and how much of them has been used."""
    async def abort_retry(self) -> None:
        """Cancel a retry that is waiting for its delay to pass."""
    async def compact(self, *, custom_instructions: str | None = None) -> Compacted:
        """Summarize the history of the conversation now."""
    async def handoff(self, *, custom_instructions: str | None = None) -> None:
        """Hand the work to a new conversation; refused: use `compact` and `new_session`."""
    async def bash(self, command: str, *, exclude_from_context: bool | None = None) -> BashResult:
        """Run a shell command; its output becomes context of the next prompt."""
    async def abort_bash(self) -> None:
        """Kill the running `bash` commands."""
    async def set_subagent_subscription(self, level: Literal["off", "progress", "events"]) -> SubagentSubscription:
        """Choose which frames about started agents to receive, in the dialects of oh-my-pi."""
    async def get_subagents(self) -> Subagents:
        """The started agents that are at work, in oh-my-pi's words."""
    async def get_subagent_messages(
        self, *, subagent_id: str | None = None, session_file: str | None = None, from_byte: int | None = None
    ) -> SubagentPage:
        """The session of a started agent from a byte of its file on, in oh-my-pi's words."""
    async def new_session(self, *, parent_session: str | None = None) -> Cancelled:
        """Start an empty conversation."""
    async def switch_session(self, session_path: str) -> Cancelled:
        """Open another session file in place of the current one."""
    async def open_session(self, session_dir: str) -> OpenedSession:
        """Continue the newest session in a folder, or start one there; sessions are kept there from then on."""
    async def fork(
        self, entry_id: str, *, restore: Literal["conversation", "files", "both"] = "conversation"
    ) -> Forked:
        """Branch off into a new session that ends before the given user message.

        With `restore`, the files are brought back to what they were then as well ("both"), or they alone
        ("files").
        """
    async def branch(self, entry_id: str) -> Forked:
        """`fork` under its other name."""
    async def clone(self) -> Cancelled:
        """Copy the whole active branch into a new session."""
    async def get_fork_messages(self) -> ForkMessages:
        """The user messages that `fork` accepts."""
    async def get_branch_messages(self) -> ForkMessages:
        """`get_fork_messages` under its other name."""
    async def get_entries(self, *, since: str | None = None) -> Entries:
        """Session entries in the order they were appended."""
    async def get_tree(self, *, flat: bool | None = None) -> Tree:
        """All entries of the session as a tree, which nests as deep as the conversation is long. With `flat` the
        same nodes come in one list, parents first, each with empty `children`.
        """
    async def navigate_tree(
        self,
        entry_id: str,
        *,
        summarize: bool | None = None,
        custom_instructions: str | None = None,
        label: str | None = None,
        restore: Literal["conversation", "files", "both"] = "conversation",
    ) -> Navigated:
        """Go to another entry of the session; with `summarize`, the branch that is left is summarized.

        With `restore`, the files are brought back to what they were there as well ("both"), or they alone
        ("files"). What others have changed is left as it is.
        """
    async def list_sessions(
        self,
        *,
        scope: Literal["project", "all"] = "project",
        cursor: str | None = None,
        limit: int = 50,
        session_id: str | None = None,
        agents: bool = False,
        search: str | None = None,
    ) -> Sessions:
        """Sessions on disk, newest first, a page at a time; with `sessionId`, the one with exactly this id, if
        there is one, and with `search`, those with a message that has all these words (there is no further page
        then in a store). Those of started agents are left out unless `agents` is true.
        """
    async def delete_session(self, session_path: str) -> SessionRow:
        """Move a session to the trash; `pigeon sessions undelete` restores it. One that a process is writing, such
        as the one that is open here, cannot be deleted.
        """
    async def set_session_name(self, name: str) -> None:
        """Give the session a display name."""
    async def export_html(self, *, output_path: str | None = None) -> Exported:
        """Write the session as an HTML page."""
    async def get_html(
        self,
        *,
        before: str | None = None,
        after: str | None = None,
        around: str | None = None,
        limit: int = 30,
        source: bool = False,
    ) -> HtmlPage:
        """Entries of the active branch as HTML, for programs that show the conversation.

        These are the newest ones, or those `before`, `after` or `around` an entry of the branch; `limit` counts
        entries, and tool results come with their calls. With `source`, messages also come as the text that was
        written.
        """
    async def render_html(
        self, *, markdown: str | None = None, diff: str | None = None, call: RenderedCall | None = None
    ) -> RenderedHtml:
        """One text as HTML: `markdown`, a `diff`, or the `call` of a tool that has no result yet."""
    async def find_text(self, text: str, *, limit: int = 100) -> FoundTexts:
        """The entries of the active branch that contain a text, ignoring case, newest first."""
    async def find_files(self, *, text: str = "", limit: int = 20) -> FoundFiles:
        """Files and folders in the working directory whose paths have these letters in this order, the best match
        first.

        Paths are relative to that directory, and those of folders end with a slash. Left out is what git
        ignores, and what the tool `find` would not show: what permission rules deny or ask about, and what the
        sandbox hides. It is for completing names: in a large project, it lists what has been found so far.
        """
    async def get_branches(self) -> Branches:
        """The branches of the session, the active one first; `navigate_tree` goes to their `leafId`."""
    async def get_changes(self, *, path: str | None = None, format: Literal["patch", "html"] = "patch") -> Changes:
        """The files that the agent has changed on the active branch, each with all changes put together.

        With `path`, only this file, and with its diffs: as unified diffs, or as HTML. Where there are
        checkpoints (`get_checkpoints`), changes of commands and of started agents are among them, and what was
        undone, or changed by others, is not.
        """
    async def get_checkpoints(self) -> Checkpoints:
        """The checkpoints of the conversation: one for each prompt, and for each started agent, that has changed
        files.
        """
    async def preview_undo(self, *, checkpoint: str | None = None, files: list[str] | None = None) -> UndoPreview:
        """What `undo` with the same arguments would do."""
    async def undo(
        self, *, checkpoint: str | None = None, files: list[str] | None = None, force: bool = False
    ) -> RestoredFiles:
        """Bring files back to what they were before a prompt: that of a `checkpoint`, or the newest one that is
        not undone.

        All later prompts are undone, too. `files` are paths in the workspace, folders included; without them it
        is about all files that the agent has changed. What others have changed since is left as it is, unless
        `force` is true.
        """
    async def redo(self, *, force: bool = False) -> RestoredFiles:
        """Take back the last `undo`, with what `force` has overwritten; possible until the next prompt."""
    async def hello(
        self,
        *,
        dialect: Literal["pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion"] | None = None,
        features: list[str] | None = None,
    ) -> Welcome:
        """Choose the dialect and the features: what is only sent to clients that ask for it; docs/protocol.md
        lists them.

        What is not named stays as it is; unknown features are left out of the answer.
        """
    async def set_event_filter(self, *, events: list[str] | None = None) -> EventFilter:
        """Send only events of these types from now on; null for all. Dialogs and the ends of prompts are always
        sent.
        """
    async def negotiate_protocol(self, protocol_version: int) -> None:
        """Another framing of long lines; refused, because lines of any length are sent as they are."""
    async def set_todos(self, phases: list[TodoPhaseGiven]) -> TodoPhases:
        """Replace the plan that host and model share."""
    async def set_permissions(self, permissions: dict[str, Any]) -> Permissions:
        """Replace the host's own permission rules, from the next tool call on; they can only tighten the user's.

        `permissions` has the form of the setting; rules that cannot be understood are refused and change
        nothing.
        """
    async def set_approval_mode(self, mode: Literal["plan", "always-ask", "write", "yolo"]) -> Permissions:
        """Set which tool calls need approval where no rule decides, from the next tool call on; the stricter of
        this mode and that of the settings applies.
        """
    async def get_permissions(self) -> Permissions:
        """The permission rules in force, and what was allowed for this session."""
    async def set_host_tools(self, tools: list[HostTool]) -> ToolNames:
        """Replace the tools that the host runs."""
    async def set_host_uri_schemes(self, schemes: list[Any]) -> HostUriSchemes:
        """URI schemes that the host reads for the model; only the empty list is accepted."""
    async def get_trust(self) -> TrustState:
        """Whether the conversation's project is trusted, and which of its files wait for that."""
    async def set_trust(self, trusted: bool, *, remember: bool = False) -> TrustChange:
        """Decide whether the files of the conversation's project are used.

        The decision holds for this process, with `remember` also for later ones (in `trust.json`).
        """
    async def set_host_services(
        self,
        *,
        read_files: bool = False,
        write_files: bool = False,
        run_commands: bool = False,
        tell_changes: bool = False,
        gives_bytes: bool = False,
        gives_stat: bool = False,
        gives_list: bool = False,
        gives_search: bool = False,
        roots: list[str] | None = None,
    ) -> HostServicesState:
        """Set what the host does for the tools `read`, `write`, `edit` and `bash`, from the next call on: whether
        it reads and writes the files of the workspace (`roots`, by default the working directory), runs
        commands, and is told of changed files.

        With `--workspace host:/path` all files are the host's, and it also gives their `bytes`, `stat`, folders
        (`list`) and what a `search` finds.

        Each call is a `host_file_read`, `host_file_write` or `host_command_run`, answered with
        `host_service_result`. Rules and paths are checked first.
        """
    async def host_service_result(
        self,
        *,
        content: str | None = None,
        data: str | None = None,
        version: str | None = None,
        stat: HostFileStatus | None = None,
        entries: list[HostFolderEntry] | None = None,
        matches: list[HostMatch] | None = None,
        paths: list[str] | None = None,
        output: str | None = None,
        truncated: bool | None = None,
        exit_code: int | None = None,
        error: str | None = None,
        final: bool | None = None,
    ) -> None:
        """The answer to a request that `set_host_services` allowed, not answered itself: the `content` of a file
        that was read (or its `data` in base64), the `version` of one that was written, a `stat`, `entries`,
        `matches` or `paths`, the `output` and `exitCode` of a command (null if a signal ended it), or an
        `error`. With `final` a file that cannot be read is not read from the disk instead.
        """
    async def get_mcp_servers(self) -> McpServers:
        """The configured tool servers and the state of each."""
    async def set_mcp_servers(self, servers: dict[str, Any]) -> McpServers:
        """Replace the tool servers that the host has set; those from files stay as they are.

        Each is an object as in `mcp.json`: `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type`
        (`http` or `sse`). The answer says what is wrong with one that cannot be used. They are connected in the
        background.
        """
    async def connect_mcp_server(self, name: str) -> McpServerState:
        """Reconnect a tool server at once, with a new sign-in if it needs one; answered before that is done."""
    async def get_mcp_resources(self) -> McpResources:
        """What tool servers offer for reading. A message refers to it as `@server:uri`."""
    async def complete_mcp(self, text: str) -> McpCompletions:
        """Completions for the end of a message that refers to something of a tool server.

        `text` is the message up to the cursor. After `@` they are what can be read, as `server:uri`; after a
        slash, the prompts of servers (`mcp__server__prompt`), and after such a prompt, values of its arguments.
        Servers that can complete are asked, for at most two seconds.
        """
    async def spawn_agent(
        self,
        message: str,
        *,
        agent: str | None = None,
        title: str | None = None,
        resume: str | None = None,
        isolation: Literal["none", "worktree"] = "none",
        output_schema: Any | None = None,
        limits: Limits | None = None,
    ) -> AgentStarted:
        """Start an agent of its own context for a message, as the tool `task` does; answered when it is accepted.

        It works in the background: with the feature `agents`, all of its events come with its `agentId`.
        `resume` continues one that has ended. Its last event is `agent_settled`.
        """
    async def get_agents(self) -> AgentList:
        """All agents that were started in this conversation, by whichever of them, in the order of their start."""
    async def get_agent_messages(self, agent_id: str) -> AgentMessages:
        """The messages of one agent's own conversation."""
    async def steer_agent(self, agent_id: str, message: str) -> None:
        """Send a message to one running agent, which gets it at its next break."""
    async def abort_agent(self, agent_id: str) -> None:
        """Stop one agent and those that it has started; answered when they have ended. The others go on."""
    async def merge_agent(self, agent_id: str) -> AgentMerged:
        """Merge the branch of an agent that worked in a worktree; with conflicts nothing changes."""
    async def get_jobs(self) -> JobList:
        """The commands and agents in the background, those that have ended included; those of the conversation
        come first, then those of its agents, as long as these are running.
        """
    async def get_job_output(self, job_id: str, *, after: int = 0) -> JobOutput:
        """The output of a job from the position `after` on, which is the `next` of an earlier answer."""
    async def stop_job(self, job_id: str) -> None:
        """Stop a job with everything that it has started; answered when it has ended."""
    async def background_tool(self, tool_call_id: str) -> None:
        """Send a running command to the background: its call ends with the output so far and the id of the job."""

class SyncCommandMethods(ABC):
    """Every command as a method that waits for its answer."""

    @abstractmethod
    def send(self, command: Command) -> Any:
        """Send a command; returns its answer, raises a `Refusal` where it is refused."""
    def abort_and_prompt(
        self,
        message: str,
        *,
        images: list[ImageInput] | None = None,
        attachments: list[Attachment] | None = None,
        client_message_id: str | None = None,
        output_schema: dict[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> Accepted:
        """Abort what is running, wait until it has ended, then prompt; `outputSchema` and `limits` as for
        `prompt`.
        """
    def abort(self, *, tool_call_id: str | None = None) -> None:
        """Cancel the run and everything that belongs to it; answered when the agent is idle. With `toolCallId`,
        stop only that call and continue the turn; answered when the call has ended.
        """
    def clear_queue(self) -> ClearedQueue:
        """Take back all queued messages."""
    def remove_queued(self, queued_id: str) -> QueueItem:
        """Take back one queued message."""
    def edit_queued(self, queued_id: str, message: str) -> QueueItem:
        """Change the text of a queued message; its images and its place in the queue stay."""
    def promote_queued(self, queued_id: str) -> QueueItem:
        """Deliver a queued message next: it becomes the first of the steering messages."""
    def get_state(self) -> State:
        """The current state of the session."""
    def get_messages(self) -> Messages:
        """The messages of the current context."""
    def get_messages_page(self, *, cursor: str | None = None, limit: int | None = None) -> MessagesPage:
        """One page of the messages, from the cursor of the previous page on."""
    def get_last_assistant_text(self) -> LastAssistantText:
        """The text of the last answer; null if there is none."""
    def get_session_stats(self) -> SessionStats:
        """Counts, tokens and cost of the session."""
    def get_commands(self) -> Commands:
        """Slash commands that `prompt` understands."""
    def get_available_commands(self) -> Commands:
        """`get_commands` under its other name."""
    def get_integrations(self) -> Integrations:
        """Whether the model can be used, and which services are attached."""
    def set_model(self, provider: str, model_id: str) -> Model:
        """Use another model from the next request on."""
    def cycle_model(self) -> CycledModel | None:
        """Use the next model; null if there is nothing to cycle."""
    def get_available_models(self) -> Models:
        """All models with configured credentials."""
    def set_thinking_level(self, level: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]) -> None:
        """Set the thinking level; it is clamped to what the model supports."""
    def cycle_thinking_level(self) -> Level | None:
        """Use the next thinking level; null for a model without thinking."""
    def get_available_thinking_levels(self) -> Levels:
        """The thinking levels of the current model."""
    def set_fast_mode(self, enabled: bool) -> FastMode:
        """A model's faster service; it can only be turned off."""
    def get_login_providers(self) -> LoginProviders:
        """Providers that can be logged in to: none; keys come from files and variables."""
    def login(self, provider_id: str) -> None:
        """Log in to a provider; refused, because keys come from files and variables."""
    def set_steering_mode(self, mode: Literal["all", "one-at-a-time"]) -> None:
        """Deliver steering one message at a time, or all at once."""
    def set_follow_up_mode(self, mode: Literal["all", "one-at-a-time"]) -> None:
        """Deliver follow-ups one message at a time, or all at once."""
    def set_interrupt_mode(self, mode: Literal["immediate", "wait"]) -> None:
        """`immediate` lets steering skip the remaining tool calls of a turn, `wait` does not."""
    def set_locale(self, locale: str) -> None:
        """Tell the model the language and region of the person at the host; an empty text clears it."""
    def set_auto_compaction(self, enabled: bool) -> None:
        """Turn automatic compaction on or off."""
    def set_auto_retry(self, enabled: bool) -> None:
        """Turn the automatic retry of transient errors on or off."""
    def set_limits(self, limits: Limits) -> LimitsState:
        """Replace the limits of the conversation; use counts from here on, and an empty object removes them."""
    def get_limits(self) -> LimitsState:
        """The limits in force, and how much of them has been used."""
    def abort_retry(self) -> None:
        """Cancel a retry that is waiting for its delay to pass."""
    def compact(self, *, custom_instructions: str | None = None) -> Compacted:
        """Summarize the history of the conversation now."""
    def handoff(self, *, custom_instructions: str | None = None) -> None:
        """Hand the work to a new conversation; refused: use `compact` and `new_session`."""
    def bash(self, command: str, *, exclude_from_context: bool | None = None) -> BashResult:
        """Run a shell command; its output becomes context of the next prompt."""
    def abort_bash(self) -> None:
        """Kill the running `bash` commands."""
    def set_subagent_subscription(self, level: Literal["off", "progress", "events"]) -> SubagentSubscription:
        """Choose which frames about started agents to receive, in the dialects of oh-my-pi."""
    def get_subagents(self) -> Subagents:
        """The started agents that are at work, in oh-my-pi's words."""
    def get_subagent_messages(
        self, *, subagent_id: str | None = None, session_file: str | None = None, from_byte: int | None = None
    ) -> SubagentPage:
        """The session of a started agent from a byte of its file on, in oh-my-pi's words."""
    def new_session(self, *, parent_session: str | None = None) -> Cancelled:
        """Start an empty conversation."""
    def switch_session(self, session_path: str) -> Cancelled:
        """Open another session file in place of the current one."""
    def open_session(self, session_dir: str) -> OpenedSession:
        """Continue the newest session in a folder, or start one there; sessions are kept there from then on."""
    def fork(self, entry_id: str, *, restore: Literal["conversation", "files", "both"] = "conversation") -> Forked:
        """Branch off into a new session that ends before the given user message.

        With `restore`, the files are brought back to what they were then as well ("both"), or they alone
        ("files").
        """
    def branch(self, entry_id: str) -> Forked:
        """`fork` under its other name."""
    def clone(self) -> Cancelled:
        """Copy the whole active branch into a new session."""
    def get_fork_messages(self) -> ForkMessages:
        """The user messages that `fork` accepts."""
    def get_branch_messages(self) -> ForkMessages:
        """`get_fork_messages` under its other name."""
    def get_entries(self, *, since: str | None = None) -> Entries:
        """Session entries in the order they were appended."""
    def get_tree(self, *, flat: bool | None = None) -> Tree:
        """All entries of the session as a tree, which nests as deep as the conversation is long. With `flat` the
        same nodes come in one list, parents first, each with empty `children`.
        """
    def navigate_tree(
        self,
        entry_id: str,
        *,
        summarize: bool | None = None,
        custom_instructions: str | None = None,
        label: str | None = None,
        restore: Literal["conversation", "files", "both"] = "conversation",
    ) -> Navigated:
        """Go to another entry of the session; with `summarize`, the branch that is left is summarized.

        With `restore`, the files are brought back to what they were there as well ("both"), or they alone
        ("files"). What others have changed is left as it is.
        """
    def list_sessions(
        self,
        *,
        scope: Literal["project", "all"] = "project",
        cursor: str | None = None,
        limit: int = 50,
        session_id: str | None = None,
        agents: bool = False,
        search: str | None = None,
    ) -> Sessions:
        """Sessions on disk, newest first, a page at a time; with `sessionId`, the one with exactly this id, if
        there is one, and with `search`, those with a message that has all these words (there is no further page
        then in a store). Those of started agents are left out unless `agents` is true.
        """
    def delete_session(self, session_path: str) -> SessionRow:
        """Move a session to the trash; `pigeon sessions undelete` restores it. One that a process is writing, such
        as the one that is open here, cannot be deleted.
        """
    def set_session_name(self, name: str) -> None:
        """Give the session a display name."""
    def export_html(self, *, output_path: str | None = None) -> Exported:
        """Write the session as an HTML page."""
    def get_html(
        self,
        *,
        before: str | None = None,
        after: str | None = None,
        around: str | None = None,
        limit: int = 30,
        source: bool = False,
    ) -> HtmlPage:
        """Entries of the active branch as HTML, for programs that show the conversation.

        These are the newest ones, or those `before`, `after` or `around` an entry of the branch; `limit` counts
        entries, and tool results come with their calls. With `source`, messages also come as the text that was
        written.
        """
    def render_html(
        self, *, markdown: str | None = None, diff: str | None = None, call: RenderedCall | None = None
    ) -> RenderedHtml:
        """One text as HTML: `markdown`, a `diff`, or the `call` of a tool that has no result yet."""
    def find_text(self, text: str, *, limit: int = 100) -> FoundTexts:
        """The entries of the active branch that contain a text, ignoring case, newest first."""
    def find_files(self, *, text: str = "", limit: int = 20) -> FoundFiles:
        """Files and folders in the working directory whose paths have these letters in this order, the best match
        first.

        Paths are relative to that directory, and those of folders end with a slash. Left out is what git
        ignores, and what the tool `find` would not show: what permission rules deny or ask about, and what the
        sandbox hides. It is for completing names: in a large project, it lists what has been found so far.
        """
    def get_branches(self) -> Branches:
        """The branches of the session, the active one first; `navigate_tree` goes to their `leafId`."""
    def get_changes(self, *, path: str | None = None, format: Literal["patch", "html"] = "patch") -> Changes:
        """The files that the agent has changed on the active branch, each with all changes put together.

        With `path`, only this file, and with its diffs: as unified diffs, or as HTML. Where there are
        checkpoints (`get_checkpoints`), changes of commands and of started agents are among them, and what was
        undone, or changed by others, is not.
        """
    def get_checkpoints(self) -> Checkpoints:
        """The checkpoints of the conversation: one for each prompt, and for each started agent, that has changed
        files.
        """
    def preview_undo(self, *, checkpoint: str | None = None, files: list[str] | None = None) -> UndoPreview:
        """What `undo` with the same arguments would do."""
    def undo(
        self, *, checkpoint: str | None = None, files: list[str] | None = None, force: bool = False
    ) -> RestoredFiles:
        """Bring files back to what they were before a prompt: that of a `checkpoint`, or the newest one that is
        not undone.

        All later prompts are undone, too. `files` are paths in the workspace, folders included; without them it
        is about all files that the agent has changed. What others have changed since is left as it is, unless
        `force` is true.
        """
    def redo(self, *, force: bool = False) -> RestoredFiles:
        """Take back the last `undo`, with what `force` has overwritten; possible until the next prompt."""
    def hello(
        self,
        *,
        dialect: Literal["pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion"] | None = None,
        features: list[str] | None = None,
    ) -> Welcome:
        """Choose the dialect and the features: what is only sent to clients that ask for it; docs/protocol.md
        lists them.

        What is not named stays as it is; unknown features are left out of the answer.
        """
    def set_event_filter(self, *, events: list[str] | None = None) -> EventFilter:
        """Send only events of these types from now on; null for all. Dialogs and the ends of prompts are always
        sent.
        """
    def negotiate_protocol(self, protocol_version: int) -> None:
        """Another framing of long lines; refused, because lines of any length are sent as they are."""
    def set_todos(self, phases: list[TodoPhaseGiven]) -> TodoPhases:
        """Replace the plan that host and model share."""
    def set_permissions(self, permissions: dict[str, Any]) -> Permissions:
        """Replace the host's own permission rules, from the next tool call on; they can only tighten the user's.

        `permissions` has the form of the setting; rules that cannot be understood are refused and change
        nothing.
        """
    def set_approval_mode(self, mode: Literal["plan", "always-ask", "write", "yolo"]) -> Permissions:
        """Set which tool calls need approval where no rule decides, from the next tool call on; the stricter of
        this mode and that of the settings applies.
        """
    def get_permissions(self) -> Permissions:
        """The permission rules in force, and what was allowed for this session."""
    def set_host_tools(self, tools: list[HostTool]) -> ToolNames:
        """Replace the tools that the host runs."""
    def set_host_uri_schemes(self, schemes: list[Any]) -> HostUriSchemes:
        """URI schemes that the host reads for the model; only the empty list is accepted."""
    def get_trust(self) -> TrustState:
        """Whether the conversation's project is trusted, and which of its files wait for that."""
    def set_trust(self, trusted: bool, *, remember: bool = False) -> TrustChange:
        """Decide whether the files of the conversation's project are used.

        The decision holds for this process, with `remember` also for later ones (in `trust.json`).
        """
    def set_host_services(
        self,
        *,
        read_files: bool = False,
        write_files: bool = False,
        run_commands: bool = False,
        tell_changes: bool = False,
        gives_bytes: bool = False,
        gives_stat: bool = False,
        gives_list: bool = False,
        gives_search: bool = False,
        roots: list[str] | None = None,
    ) -> HostServicesState:
        """Set what the host does for the tools `read`, `write`, `edit` and `bash`, from the next call on: whether
        it reads and writes the files of the workspace (`roots`, by default the working directory), runs
        commands, and is told of changed files.

        With `--workspace host:/path` all files are the host's, and it also gives their `bytes`, `stat`, folders
        (`list`) and what a `search` finds.

        Each call is a `host_file_read`, `host_file_write` or `host_command_run`, answered with
        `host_service_result`. Rules and paths are checked first.
        """
    def host_service_result(
        self,
        *,
        content: str | None = None,
        data: str | None = None,
        version: str | None = None,
        stat: HostFileStatus | None = None,
        entries: list[HostFolderEntry] | None = None,
        matches: list[HostMatch] | None = None,
        paths: list[str] | None = None,
        output: str | None = None,
        truncated: bool | None = None,
        exit_code: int | None = None,
        error: str | None = None,
        final: bool | None = None,
    ) -> None:
        """The answer to a request that `set_host_services` allowed, not answered itself: the `content` of a file
        that was read (or its `data` in base64), the `version` of one that was written, a `stat`, `entries`,
        `matches` or `paths`, the `output` and `exitCode` of a command (null if a signal ended it), or an
        `error`. With `final` a file that cannot be read is not read from the disk instead.
        """
    def get_mcp_servers(self) -> McpServers:
        """The configured tool servers and the state of each."""
    def set_mcp_servers(self, servers: dict[str, Any]) -> McpServers:
        """Replace the tool servers that the host has set; those from files stay as they are.

        Each is an object as in `mcp.json`: `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type`
        (`http` or `sse`). The answer says what is wrong with one that cannot be used. They are connected in the
        background.
        """
    def connect_mcp_server(self, name: str) -> McpServerState:
        """Reconnect a tool server at once, with a new sign-in if it needs one; answered before that is done."""
    def get_mcp_resources(self) -> McpResources:
        """What tool servers offer for reading. A message refers to it as `@server:uri`."""
    def complete_mcp(self, text: str) -> McpCompletions:
        """Completions for the end of a message that refers to something of a tool server.

        `text` is the message up to the cursor. After `@` they are what can be read, as `server:uri`; after a
        slash, the prompts of servers (`mcp__server__prompt`), and after such a prompt, values of its arguments.
        Servers that can complete are asked, for at most two seconds.
        """
    def spawn_agent(
        self,
        message: str,
        *,
        agent: str | None = None,
        title: str | None = None,
        resume: str | None = None,
        isolation: Literal["none", "worktree"] = "none",
        output_schema: Any | None = None,
        limits: Limits | None = None,
    ) -> AgentStarted:
        """Start an agent of its own context for a message, as the tool `task` does; answered when it is accepted.

        It works in the background: with the feature `agents`, all of its events come with its `agentId`.
        `resume` continues one that has ended. Its last event is `agent_settled`.
        """
    def get_agents(self) -> AgentList:
        """All agents that were started in this conversation, by whichever of them, in the order of their start."""
    def get_agent_messages(self, agent_id: str) -> AgentMessages:
        """The messages of one agent's own conversation."""
    def steer_agent(self, agent_id: str, message: str) -> None:
        """Send a message to one running agent, which gets it at its next break."""
    def abort_agent(self, agent_id: str) -> None:
        """Stop one agent and those that it has started; answered when they have ended. The others go on."""
    def merge_agent(self, agent_id: str) -> AgentMerged:
        """Merge the branch of an agent that worked in a worktree; with conflicts nothing changes."""
    def get_jobs(self) -> JobList:
        """The commands and agents in the background, those that have ended included; those of the conversation
        come first, then those of its agents, as long as these are running.
        """
    def get_job_output(self, job_id: str, *, after: int = 0) -> JobOutput:
        """The output of a job from the position `after` on, which is the `next` of an earlier answer."""
    def stop_job(self, job_id: str) -> None:
        """Stop a job with everything that it has started; answered when it has ended."""
    def background_tool(self, tool_call_id: str) -> None:
        """Send a running command to the background: its call ends with the output so far and the id of the job."""
