"""The commands of the protocol as methods, for code without a loop. Made by `scripts/sdk_commands.py`; do not edit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, TypeVar, cast

from pigeon.wire import commands
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
    Subagents,
    SubagentSubscription,
    TodoPhases,
    ToolNames,
    Tree,
    TrustChange,
    TrustState,
    Welcome,
)
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.commands import (
    Changes,
    HostServicesState,
    HostTool,
    McpCompletions,
    McpResources,
    McpServers,
    McpServerState,
    RenderedCall,
)
from pigeon.wire.content import Attachment, ImageInput
from pigeon.wire.model import Model
from pigeon.wire.steering import Limits, TodoPhaseGiven

_T = TypeVar("_T")


class SyncCommandMethods(ABC):
    """Every command as a method that waits for its answer."""

    @abstractmethod
    def send(self, command: commands.Command) -> Any:
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
        return cast(
            "Accepted",
            self.send(
                commands.AbortAndPrompt(
                    message=message,
                    images=_given(images),
                    attachments=_given(attachments),
                    client_message_id=_given(client_message_id),
                    output_schema=_given(output_schema),
                    limits=_given(limits),
                )
            ),
        )

    def abort(self, *, tool_call_id: str | None = None) -> None:
        """Cancel the run and everything that belongs to it; answered when the agent is idle. With `toolCallId`,
        stop only that call and continue the turn; answered when the call has ended.
        """
        self.send(commands.Abort(tool_call_id=_given(tool_call_id)))

    def clear_queue(self) -> ClearedQueue:
        """Take back all queued messages."""
        return cast("ClearedQueue", self.send(commands.ClearQueue()))

    def remove_queued(self, queued_id: str) -> QueueItem:
        """Take back one queued message."""
        return cast("QueueItem", self.send(commands.RemoveQueued(queued_id=queued_id)))

    def edit_queued(self, queued_id: str, message: str) -> QueueItem:
        """Change the text of a queued message; its images and its place in the queue stay."""
        return cast("QueueItem", self.send(commands.EditQueued(queued_id=queued_id, message=message)))

    def promote_queued(self, queued_id: str) -> QueueItem:
        """Deliver a queued message next: it becomes the first of the steering messages."""
        return cast("QueueItem", self.send(commands.PromoteQueued(queued_id=queued_id)))

    def get_state(self) -> State:
        """The current state of the session."""
        return cast("State", self.send(commands.GetState()))

    def get_messages(self) -> Messages:
        """The messages of the current context."""
        return cast("Messages", self.send(commands.GetMessages()))

    def get_messages_page(self, *, cursor: str | None = None, limit: int | None = None) -> MessagesPage:
        """One page of the messages, from the cursor of the previous page on."""
        return cast("MessagesPage", self.send(commands.GetMessagesPage(cursor=_given(cursor), limit=_given(limit))))

    def get_last_assistant_text(self) -> LastAssistantText:
        """The text of the last answer; null if there is none."""
        return cast("LastAssistantText", self.send(commands.GetLastAssistantText()))

    def get_session_stats(self) -> SessionStats:
        """Counts, tokens and cost of the session."""
        return cast("SessionStats", self.send(commands.GetSessionStats()))

    def get_commands(self) -> Commands:
        """Slash commands that `prompt` understands."""
        return cast("Commands", self.send(commands.GetCommands()))

    def get_available_commands(self) -> Commands:
        """`get_commands` under its other name."""
        return cast("Commands", self.send(commands.GetAvailableCommands()))

    def get_integrations(self) -> Integrations:
        """Whether the model can be used, and which services are attached."""
        return cast("Integrations", self.send(commands.GetIntegrations()))

    def set_model(self, provider: str, model_id: str) -> Model:
        """Use another model from the next request on."""
        return cast("Model", self.send(commands.SetModel(provider=provider, model_id=model_id)))

    def cycle_model(self) -> CycledModel | None:
        """Use the next model; null if there is nothing to cycle."""
        return cast("CycledModel | None", self.send(commands.CycleModel()))

    def get_available_models(self) -> Models:
        """All models with configured credentials."""
        return cast("Models", self.send(commands.GetAvailableModels()))

    def set_thinking_level(self, level: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]) -> None:
        """Set the thinking level; it is clamped to what the model supports."""
        self.send(commands.SetThinkingLevel(level=level))

    def cycle_thinking_level(self) -> Level | None:
        """Use the next thinking level; null for a model without thinking."""
        return cast("Level | None", self.send(commands.CycleThinkingLevel()))

    def get_available_thinking_levels(self) -> Levels:
        """The thinking levels of the current model."""
        return cast("Levels", self.send(commands.GetAvailableThinkingLevels()))

    def set_fast_mode(self, enabled: bool) -> FastMode:
        """A model's faster service; it can only be turned off."""
        return cast("FastMode", self.send(commands.SetFastMode(enabled=enabled)))

    def get_login_providers(self) -> LoginProviders:
        """Providers that can be logged in to: none; keys come from files and variables."""
        return cast("LoginProviders", self.send(commands.GetLoginProviders()))

    def login(self, provider_id: str) -> None:
        """Log in to a provider; refused, because keys come from files and variables."""
        self.send(commands.Login(provider_id=provider_id))

    def set_steering_mode(self, mode: Literal["all", "one-at-a-time"]) -> None:
        """Deliver steering one message at a time, or all at once."""
        self.send(commands.SetSteeringMode(mode=mode))

    def set_follow_up_mode(self, mode: Literal["all", "one-at-a-time"]) -> None:
        """Deliver follow-ups one message at a time, or all at once."""
        self.send(commands.SetFollowUpMode(mode=mode))

    def set_interrupt_mode(self, mode: Literal["immediate", "wait"]) -> None:
        """`immediate` lets steering skip the remaining tool calls of a turn, `wait` does not."""
        self.send(commands.SetInterruptMode(mode=mode))

    def set_locale(self, locale: str) -> None:
        """Tell the model the language and region of the person at the host; an empty text clears it."""
        self.send(commands.SetLocale(locale=locale))

    def set_auto_compaction(self, enabled: bool) -> None:
        """Turn automatic compaction on or off."""
        self.send(commands.SetAutoCompaction(enabled=enabled))

    def set_auto_retry(self, enabled: bool) -> None:
        """Turn the automatic retry of transient errors on or off."""
        self.send(commands.SetAutoRetry(enabled=enabled))

    def set_limits(self, limits: Limits) -> LimitsState:
        """Replace the limits of the conversation; use counts from here on, and an empty object removes them."""
        return cast("LimitsState", self.send(commands.SetLimits(limits=limits)))

    def get_limits(self) -> LimitsState:
        """The limits in force, and how much of them has been used."""
        return cast("LimitsState", self.send(commands.GetLimits()))

    def abort_retry(self) -> None:
        """Cancel a waiting retry."""
        self.send(commands.AbortRetry())

    def compact(self, *, custom_instructions: str | None = None) -> Compacted:
        """Summarize the history now."""
        return cast("Compacted", self.send(commands.Compact(custom_instructions=_given(custom_instructions))))

    def handoff(self, *, custom_instructions: str | None = None) -> None:
        """Hand the work to a new conversation; refused: use `compact` and `new_session`."""
        self.send(commands.Handoff(custom_instructions=_given(custom_instructions)))

    def bash(self, command: str, *, exclude_from_context: bool | None = None) -> BashResult:
        """Run a shell command; its output becomes context of the next prompt."""
        return cast(
            "BashResult", self.send(commands.Bash(command=command, exclude_from_context=_given(exclude_from_context)))
        )

    def abort_bash(self) -> None:
        """Kill the running `bash` commands."""
        self.send(commands.AbortBash())

    def set_subagent_subscription(self, level: Literal["off", "progress", "events"]) -> SubagentSubscription:
        """Choose which events of subagents to receive; Pigeon has no subagents, so none ever come."""
        return cast("SubagentSubscription", self.send(commands.SetSubagentSubscription(level=level)))

    def get_subagents(self) -> Subagents:
        """The subagents at work: none."""
        return cast("Subagents", self.send(commands.GetSubagents()))

    def get_subagent_messages(self, *, subagent_id: str | None = None, session_file: str | None = None) -> None:
        """What a subagent said; refused, because there are none."""
        self.send(commands.GetSubagentMessages(subagent_id=_given(subagent_id), session_file=_given(session_file)))

    def new_session(self, *, parent_session: str | None = None) -> Cancelled:
        """Start an empty conversation."""
        return cast("Cancelled", self.send(commands.NewSession(parent_session=_given(parent_session))))

    def switch_session(self, session_path: str) -> Cancelled:
        """Open another session file."""
        return cast("Cancelled", self.send(commands.SwitchSession(session_path=session_path)))

    def open_session(self, session_dir: str) -> OpenedSession:
        """Continue the newest session in a folder, or start one there; sessions are kept there from then on."""
        return cast("OpenedSession", self.send(commands.OpenSession(session_dir=session_dir)))

    def fork(self, entry_id: str) -> Forked:
        """Branch off into a new session that ends before the given user message."""
        return cast("Forked", self.send(commands.Fork(entry_id=entry_id)))

    def branch(self, entry_id: str) -> Forked:
        """`fork` under its other name."""
        return cast("Forked", self.send(commands.Branch(entry_id=entry_id)))

    def clone(self) -> Cancelled:
        """Copy the whole active branch into a new session."""
        return cast("Cancelled", self.send(commands.Clone()))

    def get_fork_messages(self) -> ForkMessages:
        """The user messages that `fork` accepts."""
        return cast("ForkMessages", self.send(commands.GetForkMessages()))

    def get_branch_messages(self) -> ForkMessages:
        """`get_fork_messages` under its other name."""
        return cast("ForkMessages", self.send(commands.GetBranchMessages()))

    def get_entries(self, *, since: str | None = None) -> Entries:
        """Session entries in the order they were appended."""
        return cast("Entries", self.send(commands.GetEntries(since=_given(since))))

    def get_tree(self) -> Tree:
        """Session entries as a tree."""
        return cast("Tree", self.send(commands.GetTree()))

    def navigate_tree(
        self,
        entry_id: str,
        *,
        summarize: bool | None = None,
        custom_instructions: str | None = None,
        label: str | None = None,
    ) -> Navigated:
        """Go to another entry of the session; with `summarize`, the branch that is left is summarized."""
        return cast(
            "Navigated",
            self.send(
                commands.NavigateTree(
                    entry_id=entry_id,
                    summarize=_given(summarize),
                    custom_instructions=_given(custom_instructions),
                    label=_given(label),
                )
            ),
        )

    def list_sessions(
        self,
        *,
        scope: Literal["project", "all"] = "project",
        cursor: str | None = None,
        limit: int = 50,
        session_id: str | None = None,
    ) -> Sessions:
        """Sessions on disk, newest first, a page at a time; with `sessionId`, the one with exactly this id, if
        there is one.
        """
        return cast(
            "Sessions",
            self.send(
                commands.ListSessions(scope=scope, cursor=_given(cursor), limit=limit, session_id=_given(session_id))
            ),
        )

    def delete_session(self, session_path: str) -> SessionRow:
        """Move a session to the trash; `pigeon sessions undelete` restores it. One that a process is writing, such
        as the one that is open here, cannot be deleted.
        """
        return cast("SessionRow", self.send(commands.DeleteSession(session_path=session_path)))

    def set_session_name(self, name: str) -> None:
        """Give the session a display name."""
        self.send(commands.SetSessionName(name=name))

    def export_html(self, *, output_path: str | None = None) -> Exported:
        """Write the session as an HTML page."""
        return cast("Exported", self.send(commands.ExportHtml(output_path=_given(output_path))))

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
        return cast(
            "HtmlPage",
            self.send(
                commands.GetHtml(
                    before=_given(before), after=_given(after), around=_given(around), limit=limit, source=source
                )
            ),
        )

    def render_html(
        self, *, markdown: str | None = None, diff: str | None = None, call: RenderedCall | None = None
    ) -> RenderedHtml:
        """One text as HTML: `markdown`, a `diff`, or the `call` of a tool that has no result yet."""
        return cast(
            "RenderedHtml",
            self.send(commands.RenderHtml(markdown=_given(markdown), diff=_given(diff), call=_given(call))),
        )

    def find_text(self, text: str, *, limit: int = 100) -> FoundTexts:
        """The entries of the active branch that contain a text, ignoring case, newest first."""
        return cast("FoundTexts", self.send(commands.FindText(text=text, limit=limit)))

    def find_files(self, *, text: str = "", limit: int = 20) -> FoundFiles:
        """Files and folders in the working directory whose paths have these letters in this order, the best match
        first.

        Paths are relative to that directory, and those of folders end with a slash. Left out is what git
        ignores, and what the tool `find` would not show: what permission rules deny or ask about, and what the
        sandbox hides. It is for completing names: in a large project, it lists what has been found so far.
        """
        return cast("FoundFiles", self.send(commands.FindFiles(text=text, limit=limit)))

    def get_branches(self) -> Branches:
        """The branches of the session, the active one first; `navigate_tree` goes to their `leafId`."""
        return cast("Branches", self.send(commands.GetBranches()))

    def get_changes(self, *, path: str | None = None, format: Literal["patch", "html"] = "patch") -> Changes:
        """The files that tools have changed on the active branch, each with all changes put together.

        With `path`, only this file, and with its diffs: as unified diffs, or as HTML. What commands have
        changed is not among them.
        """
        return cast("Changes", self.send(commands.GetChanges(path=_given(path), format=format)))

    def hello(
        self,
        *,
        dialect: Literal["pi", "pi-latest", "omp", "xcsh", "companion"] | None = None,
        features: list[str] | None = None,
    ) -> Welcome:
        """Choose the dialect and features: `deltas` (updates without the message so far), `seq` (numbered events),
        `trust` (`trust_required` when a project waits for a decision), `permissions` (`permission_resolved`
        when a permission question has ended), `attribution` (`runId` on events and answers, ids of queued
        messages), `mcp` (`mcp_server_changed` when the state of a tool server changes), `selection`
        (`selection_changed` when a command has chosen a model or another branch).

        What is not named stays as it is; unknown features are left out of the answer.
        """
        return cast("Welcome", self.send(commands.Hello(dialect=_given(dialect), features=_given(features))))

    def set_event_filter(self, *, events: list[str] | None = None) -> EventFilter:
        """Send only events of these types from now on; null for all. Dialogs and the ends of prompts are always
        sent.
        """
        return cast("EventFilter", self.send(commands.SetEventFilter(events=events)))

    def negotiate_protocol(self, protocol_version: int) -> None:
        """Another framing of long lines; refused, because lines of any length are sent as they are."""
        self.send(commands.NegotiateProtocol(protocol_version=protocol_version))

    def set_todos(self, phases: list[TodoPhaseGiven]) -> TodoPhases:
        """Replace the plan."""
        return cast("TodoPhases", self.send(commands.SetTodos(phases=phases)))

    def set_permissions(self, permissions: dict[str, Any]) -> Permissions:
        """Replace the host's own permission rules, from the next tool call on; they can only tighten the user's.

        `permissions` has the form of the setting; rules that cannot be understood are refused and change
        nothing.
        """
        return cast("Permissions", self.send(commands.SetPermissions(permissions=permissions)))

    def set_approval_mode(self, mode: Literal["always-ask", "write", "yolo"]) -> Permissions:
        """Set which tool calls need approval where no rule decides, from the next tool call on; the stricter of
        this mode and that of the settings applies.
        """
        return cast("Permissions", self.send(commands.SetApprovalMode(mode=mode)))

    def get_permissions(self) -> Permissions:
        """The permission rules in force, and what was allowed for this session."""
        return cast("Permissions", self.send(commands.GetPermissions()))

    def set_host_tools(self, tools: list[HostTool]) -> ToolNames:
        """Replace the tools that the host runs."""
        return cast("ToolNames", self.send(commands.SetHostTools(tools=tools)))

    def set_host_uri_schemes(self, schemes: list[Any]) -> HostUriSchemes:
        """URI schemes that the host reads for the model; only the empty list is accepted."""
        return cast("HostUriSchemes", self.send(commands.SetHostUriSchemes(schemes=schemes)))

    def get_trust(self) -> TrustState:
        """Whether the conversation's project is trusted, and which of its files wait for that."""
        return cast("TrustState", self.send(commands.GetTrust()))

    def set_trust(self, trusted: bool, *, remember: bool = False) -> TrustChange:
        """Decide whether the files of the conversation's project are used.

        The decision holds for this process, with `remember` also for later ones (in `trust.json`).
        """
        return cast("TrustChange", self.send(commands.SetTrust(trusted=trusted, remember=remember)))

    def set_host_services(
        self,
        *,
        read_files: bool = False,
        write_files: bool = False,
        run_commands: bool = False,
        tell_changes: bool = False,
        roots: list[str] | None = None,
    ) -> HostServicesState:
        """Set what the host does for the tools `read`, `write`, `edit` and `bash`, from the next call on: whether
        it reads and writes the files of the workspace (`roots`, by default the working directory), runs
        commands, and is told of changed files.

        Each call is a `host_file_read`, `host_file_write` or `host_command_run`, answered with
        `host_service_result`. Rules and paths are checked first.
        """
        return cast(
            "HostServicesState",
            self.send(
                commands.SetHostServices(
                    read_files=read_files,
                    write_files=write_files,
                    run_commands=run_commands,
                    tell_changes=tell_changes,
                    roots=_given(roots),
                )
            ),
        )

    def host_service_result(
        self,
        *,
        content: str | None = None,
        output: str | None = None,
        truncated: bool | None = None,
        exit_code: int | None = None,
        error: str | None = None,
        final: bool | None = None,
    ) -> None:
        """The answer to a request that `set_host_services` allowed, not answered itself: the `content` of a file
        that was read, the `output` and `exitCode` of a command (null if a signal ended it), or an `error`. With
        `final` a file that cannot be read is not read from the disk instead.
        """
        self.send(
            commands.HostServiceResult(
                content=_given(content),
                output=_given(output),
                truncated=_given(truncated),
                exit_code=_given(exit_code),
                error=_given(error),
                final=_given(final),
            )
        )

    def get_mcp_servers(self) -> McpServers:
        """The configured tool servers and the state of each."""
        return cast("McpServers", self.send(commands.GetMcpServers()))

    def set_mcp_servers(self, servers: dict[str, Any]) -> McpServers:
        """Replace the tool servers that the host has set; those from files stay as they are.

        Each is an object as in `mcp.json`: `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type`
        (`http` or `sse`). The answer says what is wrong with one that cannot be used. They are connected in the
        background.
        """
        return cast("McpServers", self.send(commands.SetMcpServers(servers=servers)))

    def connect_mcp_server(self, name: str) -> McpServerState:
        """Reconnect a tool server at once, with a new sign-in if it needs one; answered before that is done."""
        return cast("McpServerState", self.send(commands.ConnectMcpServer(name=name)))

    def get_mcp_resources(self) -> McpResources:
        """What tool servers offer for reading. A message refers to it as `@server:uri`."""
        return cast("McpResources", self.send(commands.GetMcpResources()))

    def complete_mcp(self, text: str) -> McpCompletions:
        """Completions for the end of a message that refers to something of a tool server.

        `text` is the message up to the cursor. After `@` they are what can be read, as `server:uri`; after a
        slash, the prompts of servers (`mcp__server__prompt`), and after such a prompt, values of its arguments.
        Servers that can complete are asked, for at most two seconds.
        """
        return cast("McpCompletions", self.send(commands.CompleteMcp(text=text)))


def _given(value: _T | None) -> _T | Absent:
    return ABSENT if value is None else value
