"""What happens, as extensions hear of it: one record per event.

The docstring says when it comes and what a handler may return; without such a word the return value is ignored.
Handlers run in the order in which extensions were loaded and handlers registered. Everything in an event is a copy:
changing it changes nothing, except where the docstring says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent, UserBlock
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage
from pigeon.wire.model import Model, Usage


@dataclass(slots=True)
class Event:
    """Anything that an extension can listen to."""

    name: ClassVar[str]
    # Observers hear of it afterwards and cannot hold anybody up; the others are asked, and waited for.
    observed: ClassVar[bool] = False


@dataclass(slots=True)
class ProjectTrust(Event):
    """Before anything of the project is read; return `Trust`. Only extensions from outside the project hear it."""

    name = "project_trust"
    cwd: str


@dataclass(slots=True)
class ResourcesDiscover(Event):
    """Skills and prompts are collected; return `Resources` to add some."""

    name = "resources_discover"
    cwd: str


@dataclass(slots=True)
class SessionStart(Event):
    """A conversation is open; the place to start what needs one."""

    name = "session_start"
    observed = True
    reason: Literal["startup", "new", "resume", "fork"]
    previous_file: str | None = None


@dataclass(slots=True)
class SessionShutdown(Event):
    """A conversation is left, or the process ends; the place to stop what `session_start` started."""

    name = "session_shutdown"
    reason: Literal["quit", "new", "resume", "fork"]
    target_file: str | None = None


@dataclass(slots=True)
class SessionInfoChanged(Event):
    """The session was named; without a name it was cleared."""

    name = "session_info_changed"
    observed = True
    session_name: str | None = None


@dataclass(slots=True)
class SessionBeforeSwitch(Event):
    """Another conversation was asked for; return `Cancel` to stay."""

    name = "session_before_switch"
    reason: Literal["new", "resume"]
    target_file: str | None = None


@dataclass(slots=True)
class SessionBeforeFork(Event):
    """A fork (or branch, or clone) was asked for; return `Cancel` to stay."""

    name = "session_before_fork"
    entry_id: str
    position: Literal["before", "at"]


@dataclass(slots=True)
class SessionBeforeCompact(Event):
    """The history is about to be summarized; return `Cancel` or a `Summary`; the last one counts."""

    name = "session_before_compact"
    reason: str
    first_kept_entry_id: str
    tokens_before: int
    messages: list[Message]
    kept_messages: list[Message]
    instructions: str | None = None
    previous_summary: str | None = None
    will_retry: bool = False


@dataclass(slots=True)
class SessionCompact(Event):
    """The history was summarized."""

    name = "session_compact"
    observed = True
    reason: str
    summary: str
    first_kept_entry_id: str
    tokens_before: int
    will_retry: bool = False


@dataclass(slots=True)
class SessionCompactFailed(Event):
    """The history could not be summarized."""

    name = "session_compact_failed"
    observed = True
    reason: str
    aborted: bool
    error: str | None = None


@dataclass(slots=True)
class Input(Event):
    """Somebody said something; return `Transform` or `Handled`. Each handler sees what the one before made of it."""

    name = "input"
    text: str
    images: list[ImageContent]
    source: Literal["interactive", "rpc", "extension"]
    behavior: Literal["steer", "followUp"] | None = None


@dataclass(slots=True)
class BeforeAgentStart(Event):
    """A prompt was accepted and expanded; return `Begin`. The last system prompt counts, all notes are said."""

    name = "before_agent_start"
    prompt: str
    images: list[ImageContent]
    system_prompt: str


@dataclass(slots=True)
class AgentStart(Event):
    """A run begins."""

    name = "agent_start"
    observed = True


@dataclass(slots=True)
class AgentEnd(Event):
    """A run ends, with the messages it added."""

    name = "agent_end"
    observed = True
    messages: list[Message]
    will_retry: bool = False


@dataclass(slots=True)
class AgentBeforeSettle(Event):
    """Nothing more is to be done; return `GoOn` for one more run. There is a limit to how often."""

    name = "agent_before_settle"
    outcome: Literal["stop", "error", "aborted"]


@dataclass(slots=True)
class AgentSettled(Event):
    """Nothing more will happen by itself."""

    name = "agent_settled"
    observed = True


@dataclass(slots=True)
class TurnStart(Event):
    """A turn begins; they are counted from 0 in each run."""

    name = "turn_start"
    observed = True
    index: int


@dataclass(slots=True)
class TurnEnd(Event):
    """A turn ends."""

    name = "turn_end"
    observed = True
    index: int
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


@dataclass(slots=True)
class MessageStart(Event):
    """A message begins; an answer is still empty here."""

    name = "message_start"
    observed = True
    message: Message


@dataclass(slots=True)
class MessageUpdate(Event):
    """An answer grows. While an extension is behind, deltas of a block come together in one, or are left out."""

    name = "message_update"
    observed = True
    kind: str
    index: int
    delta: str = ""


@dataclass(slots=True)
class MessageEnd(Event):
    """A message is complete; return `Replace` with another one of the same role before it is put on record."""

    name = "message_end"
    message: Message


@dataclass(slots=True)
class ModelContext(Event):
    """A request is about to be made; change `messages` in place or return `Messages`. Nothing on record changes."""

    name = "context"
    messages: list[Message]


@dataclass(slots=True)
class BeforeProviderRequest(Event):
    """The body of a request is ready; return `Replace` with another one."""

    name = "before_provider_request"
    payload: Any


@dataclass(slots=True)
class BeforeProviderHeaders(Event):
    """The headers of a request are ready; change them in place, none deletes one."""

    name = "before_provider_headers"
    headers: dict[str, str | None]


@dataclass(slots=True)
class AfterProviderResponse(Event):
    """A provider began to answer."""

    name = "after_provider_response"
    observed = True
    status: int
    headers: dict[str, str]


@dataclass(slots=True)
class ToolExecutionStart(Event):
    """A tool call begins."""

    name = "tool_execution_start"
    observed = True
    tool: str
    call_id: str
    args: dict[str, Json]


@dataclass(slots=True)
class ToolExecutionUpdate(Event):
    """Progress of a tool, with everything so far."""

    name = "tool_execution_update"
    observed = True
    tool: str
    call_id: str
    partial: ToolOutcome


@dataclass(slots=True)
class ToolExecutionEnd(Event):
    """A tool call has ended."""

    name = "tool_execution_end"
    observed = True
    tool: str
    call_id: str
    result: ToolOutcome
    is_error: bool


@dataclass(slots=True)
class ToolCall(Event):
    """A tool is about to run; change `args` in place, or return `Block`. The arguments are checked again afterwards.

    A handler that raises or takes too long blocks the call.
    """

    name = "tool_call"
    tool: str
    call_id: str
    args: dict[str, Json]


@dataclass(slots=True)
class ToolResult(Event):
    """A tool has run; return `Override`. Each handler sees what the one before made of it."""

    name = "tool_result"
    tool: str
    call_id: str
    args: dict[str, Json]
    content: list[UserBlock]
    details: Any
    is_error: bool
    usage: Usage | None = None


@dataclass(slots=True)
class UserBash(Event):
    """The host runs a shell command; return `BashOutput` or `Block`. A handler that raises blocks it."""

    name = "user_bash"
    command: str
    exclude_from_context: bool
    cwd: str


@dataclass(slots=True)
class ModelSelect(Event):
    """Another model is in force."""

    name = "model_select"
    observed = True
    model: Model
    previous: Model | None
    source: Literal["set", "cycle", "restore"]


@dataclass(slots=True)
class ThinkingLevelSelect(Event):
    """Another thinking level is in force."""

    name = "thinking_level_select"
    observed = True
    level: str
    previous: str | None


ALL: tuple[type[Event], ...] = (
    ProjectTrust, ResourcesDiscover, SessionStart, SessionShutdown, SessionInfoChanged, SessionBeforeSwitch,
    SessionBeforeFork, SessionBeforeCompact, SessionCompact, SessionCompactFailed, Input, BeforeAgentStart,
    AgentStart, AgentEnd, AgentBeforeSettle, AgentSettled, TurnStart, TurnEnd, MessageStart, MessageUpdate, MessageEnd,
    ModelContext, BeforeProviderRequest, BeforeProviderHeaders, AfterProviderResponse,
    ToolExecutionStart, ToolExecutionUpdate, ToolExecutionEnd, ToolCall, ToolResult, UserBash,
    ModelSelect, ThinkingLevelSelect,
)  # fmt: skip
BY_NAME: dict[str, type[Event]] = {kind.name: kind for kind in ALL} | {"session_before_branch": SessionBeforeFork}
