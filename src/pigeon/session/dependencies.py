"""Everything a session is built from. `app` makes it; the classes of this package get it, or the parts they need.

The protocols here describe what the session needs from packages that it must not import: `resources` expands prompts,
`permissions` knows the permission rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from pigeon.agent.interfaces import Gate, ImagePreparer, ModelProvider, OutputFormats
from pigeon.session.bus import Bus
from pigeon.session.checkpoints import FileCheckpoints, RecordedChanges
from pigeon.session.context.reading_ahead import Preparation
from pigeon.session.context.system_prompt import PromptComposer
from pigeon.session.context.transcript import Transcript
from pigeon.session.history.repository import SessionRepository
from pigeon.session.hooks import Hooks
from pigeon.session.host.dialogs import Dialogs
from pigeon.session.host.host_services import HostServices
from pigeon.session.jobs import Jobs
from pigeon.session.model_choice import ModelChoice
from pigeon.session.plan_state import PlanState
from pigeon.session.policies.run_limits import RunLimits
from pigeon.session.settings import SessionSettings
from pigeon.session.todos import Todos
from pigeon.session.toolset import Toolset
from pigeon.system.ids import RANDOM_IDS, Ids
from pigeon.system.shell.shell import Workplace
from pigeon.wire.agents import AgentInfo, AgentMerged
from pigeon.wire.answers import (
    BranchInfo,
    FoundText,
    HtmlPiece,
    Permissions,
    SandboxState,
    SlashCommand,
    TrustChange,
    TrustState,
)
from pigeon.wire.base import Absent, Json, Record
from pigeon.wire.choices import ApprovalMode
from pigeon.wire.commands import ChangedFile, RenderHtml
from pigeon.wire.commands.agents import SpawnAgent
from pigeon.wire.commands.mcp import McpCompletions, McpResource, McpServers, McpServerState
from pigeon.wire.content import UserBlock
from pigeon.wire.events import AgentChanged
from pigeon.wire.messages import Message, ToolResultMessage
from pigeon.wire.model import Usage
from pigeon.wire.steering import Rule
from pigeon.workspaces.agent_workspace import AgentWorkspace


class PromptExpander(Protocol):
    """Turns `/name arguments` into the text that it stands for."""

    def expand(self, text: str) -> str:
        """The text for the model; unknown names, and text without a leading slash, are returned unchanged."""
        ...

    def list_commands(self) -> list[SlashCommand]: ...


class KeptAllowance(Record, kw_only=True):
    """A call that is allowed for the session, with the hash of its tool's definition at that time."""

    tool_name: str
    subject: str
    cwd: str
    definition: str = ""


class PermissionControl(Protocol):
    """The view of a host on permission rules."""

    def set_host_rules(self, rules: Json) -> None:
        """Raises `Refusal` for rules that cannot be understood."""
        ...

    def set_host_mode(self, mode: ApprovalMode) -> None:
        """Set which calls the host is asked about if no rule decides."""
        ...

    def list_session_allowances(self) -> list[KeptAllowance]:
        """The allowances of the open session."""
        ...

    def restore_allowances(self, calls: Sequence[KeptAllowance]) -> None:
        """Restore what an earlier process was allowed in this session, unless rules now deny it."""
        ...

    def current_permissions(self) -> Permissions: ...

    @property
    def plan_state(self) -> PlanState:
        """Whether the model only reads, and submits a plan."""
        ...

    def leave_plan_mode(self) -> None:
        """The plan was accepted: return to the mode before."""
        ...


class FolderTrust(Protocol):
    """Whether the files of the conversation's project may be used."""

    async def resolve_trust(self, cwd: str) -> None:
        """Decide about a folder before the conversation moves there."""
        ...

    def switch_folder(self, cwd: str) -> None:
        """Move to this folder, using its files as far as they are trusted."""
        ...

    def state(self) -> TrustState: ...

    def set_decision(self, trusted: bool, keep: bool) -> TrustChange:
        """Apply the host's decision about the folder."""
        ...

    def reannounce_pending_decision(self) -> None:
        """Announce again what waits for a decision, after the current command is answered."""
        ...


class ToolServers(Protocol):
    """Programs and services that offer tools, prompts and resources; `mcp` implements it."""

    def skip_startup_delay(self) -> None:
        """Connect servers as soon as there are some, for a host that shows their progress."""
        ...

    def start_connecting(self) -> None:
        """Connect the configured servers in the background; called once the first answer is out."""
        ...

    async def close(self) -> None: ...

    def state(self) -> McpServers: ...

    def set_host_servers(self, servers: dict[str, Json]) -> None:
        """Replace the servers that the host has configured."""
        ...

    def reconnect_server(self, name: str) -> McpServerState:
        """Reconnect a server now; raises `Refusal`."""
        ...

    def resources(self) -> list[McpResource]:
        """The resources that the connected servers offer."""
        ...

    def list_commands(self) -> list[SlashCommand]:
        """The prompts of the servers, as slash commands."""
        ...

    async def complete_message(self, text: str) -> McpCompletions:
        """Completions for the end of a message, as far as servers know any."""
        ...

    def fetch_mentioned_content(self, text: str) -> Awaitable[ServerContent] | ServerContent:
        """What a message requests from servers, at once if that is nothing; raises `Refusal` if it cannot be had."""
        ...


class StartedAgents(Protocol):
    """The agents that this one has started, and those that they have started; `subagents` implements it."""

    def list_agents(self) -> list[AgentInfo]:
        """All of them, in the order of their start, those that have ended included."""
        ...

    def describe_running(self) -> list[AgentChanged]:
        """Those that are running, with what they do, as events would say it."""
        ...

    def list_open_usage(self) -> list[Usage]:
        """What those have used whose end is not recorded: they are running, or an earlier process died with them."""
        ...

    def list_messages(self, agent_id: str) -> list[Message]:
        """The messages of one of them; raises `Refusal` for an unknown one."""
        ...

    async def spawn(self, request: SpawnAgent) -> str:
        """Start one for the host; returns its id, raises `Refusal`."""
        ...

    async def steer(self, agent_id: str, text: str) -> None:
        """Send a message to a running one; raises `Refusal`."""
        ...

    async def abort(self, agent_id: str) -> None:
        """Stop one, with those that it has started, and wait for their end; raises `Refusal` for an unknown one."""
        ...

    def abort_all(self) -> None:
        """Stop those in the background at once; the others hang on the run."""
        ...

    async def stop_all(self) -> None:
        """Stop all of them, and wait for their end."""
        ...

    async def remove_leftovers(self) -> None:
        """Remove what agents have left behind whose process has died."""
        ...

    def leave_conversation(self) -> None:
        """Another conversation is open: its agents are others."""
        ...

    async def merge(self, agent_id: str) -> AgentMerged:
        """Merge the branch of one that worked in a worktree; raises `Refusal`."""
        ...


class ServerContent(Struct, frozen=True):
    """The text that replaces a message whose command is a server's prompt, and the content to add."""

    text: str | None = None
    blocks: tuple[UserBlock, ...] = ()


class SessionPages(Protocol):
    """The conversation as HTML. Lines are raw, because the work is done in threads."""

    def write_page(self, asked: str, file: str, every: list[bytes], branch: list[bytes]) -> str:
        """Write the page of a session and return its path as requested."""
        ...

    def render_pieces(
        self, start: int, window: list[bytes], labels: list[bytes], previous: bytes | None, running: bool, source: bool
    ) -> tuple[list[HtmlPiece], int]:
        """Consecutive entries as HTML, and how many of them will not change any more; with `source` also as written."""
        ...

    def render_html(self, asked: RenderHtml) -> str: ...

    def find_text(self, branch: list[bytes], text: str, most: int) -> tuple[list[FoundText], bool]:
        """The places of a text, newest first, and whether there are more."""
        ...

    def list_branches(self, every: list[bytes], branch: list[str]) -> list[BranchInfo]: ...

    def list_changes(
        self, branch: list[bytes], cwd: str, path: str | None, as_html: bool, recorded: RecordedChanges | None
    ) -> list[ChangedFile]:
        """The changes of files, by name: those that were recorded, and otherwise what results of tools show; with diffs
        only for the file at `path`."""
        ...


class SessionFiles(Protocol):
    """The files of the working directory, for completing their names."""

    def find_files(self, wanted: str, most: int) -> list[str]: ...


class Dependencies(Struct, frozen=True, kw_only=True):
    """Everything from outside that a session needs."""

    settings: SessionSettings
    bus: Bus
    repository: SessionRepository
    trust: FolderTrust
    transcript: Transcript
    dialogs: Dialogs
    workplace: Workplace
    move_to: Callable[[str], Workplace]  # the working directory changes: returns tools for the new folder
    provider: ModelProvider
    output_formats: OutputFormats
    preparation: Preparation
    models: ModelChoice
    models_file: str
    toolset: Toolset
    todos: Todos
    host_services: HostServices
    images: ImagePreparer
    expander: PromptExpander
    system_prompt: PromptComposer
    rules: Callable[[str], list[Rule]]
    hooks: Hooks
    permissions: PermissionControl
    gate: Callable[[], Gate | None]  # what stands before the next tool call
    warm_processes: Callable[[], None]  # starts what shell commands need, while their arguments still arrive
    run_callbacks: Sequence[Callable[[], None]]  # called beside each run's first request
    mask_result: Callable[[ToolResultMessage], ToolResultMessage]  # takes keys out of what a tool returned
    pages: SessionPages
    files: SessionFiles
    tool_servers: ToolServers
    agents: StartedAgents
    jobs: Jobs
    checkpoints: FileCheckpoints
    limits_above: RunLimits | None = None  # of a started agent: those of the agent that has started it
    workspace: AgentWorkspace  # where the files are and commands run
    sandbox: Callable[[], SandboxState | Absent]  # the sandbox of commands; absent if none was requested
    now: Callable[[], int]
    ids: Ids = RANDOM_IDS
    report: Callable[[str], None]
