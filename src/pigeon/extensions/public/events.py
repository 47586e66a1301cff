"""The events for extensions: one record per event, which is the event's only declaration.

`pigeon.extensions` exports every class defined here, `Extension.on` knows them by `name`, the dispatcher checks what a
handler returns against `returns`, and the tables of docs/extensions.md are made from the docstrings: the first
paragraph tells when the event comes, the second what a handler may do. An event is sent from one place in `adapters/`:
a hook, or a row of the table in `event_forwarding.py`.

Handlers run in the order in which extensions were loaded and handlers registered. Everything in an event is a copy:
changing it changes nothing, except where the docstring says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pigeon.extensions.public import results as r
from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent, UserBlock
from pigeon.wire.events import ToolOutcome
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage
from pigeon.wire.model import Model, Usage


@dataclass(slots=True)
class Event:
    """An event that an extension can listen to."""

    name: ClassVar[str]
    # Other names that `Extension.on` understands.
    aliases: ClassVar[tuple[str, ...]] = ()
    # True: extensions are notified without waiting for them. False: their handlers are called and awaited.
    told: ClassVar[bool] = False
    # What a handler that is awaited may return besides None; if this is empty, its return value is ignored.
    returns: ClassVar[tuple[type, ...]] = ()


@dataclass(slots=True)
class ProjectTrust(Event):
    """Before anything of a project is read; only extensions from outside the project get it.

    `Trust(trusted, remember)`; the first answer counts.
    """

    name = "project_trust"
    returns = (r.Trust,)
    cwd: str


@dataclass(slots=True)
class ResourcesDiscover(Event):
    """Skills and prompts are collected.

    `Resources(skills, prompts)`: further files and folders.
    """

    name = "resources_discover"
    returns = (r.Resources,)
    cwd: str


@dataclass(slots=True)
class SessionStart(Event):
    """A conversation is open; the place to start anything that needs one."""

    name = "session_start"
    told = True
    reason: Literal["startup", "new", "resume", "fork"]
    previous_file: str | None = None


@dataclass(slots=True)
class SessionShutdown(Event):
    """A conversation is left, or the process ends; the place to stop whatever `session_start` started.

    Nothing; there is little time, half a second at the end of the process.
    """

    name = "session_shutdown"
    reason: Literal["quit", "new", "resume", "fork"]
    target_file: str | None = None


@dataclass(slots=True)
class SessionInfoChanged(Event):
    """The session was named; without a name, its name was removed."""

    name = "session_info_changed"
    told = True
    session_name: str | None = None


@dataclass(slots=True)
class SessionBeforeSwitch(Event):
    """`new_session` or `switch_session` was requested.

    `Cancel()`: stay.
    """

    name = "session_before_switch"
    returns = (r.Cancel,)
    reason: Literal["new", "resume"]
    target_file: str | None = None


@dataclass(slots=True)
class SessionBeforeFork(Event):
    """`fork`, `branch` or `clone` was requested.

    `Cancel()`: stay.
    """

    name = "session_before_fork"
    aliases = ("session_before_branch",)
    returns = (r.Cancel,)
    entry_id: str
    position: Literal["before", "at"]


@dataclass(slots=True)
class SessionBeforeCompact(Event):
    """The history is about to be summarized.

    `Cancel()`, or `Summary(summary, ...)` instead of asking a model; the last one counts.
    """

    name = "session_before_compact"
    returns = (r.Cancel, r.Summary)
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
    """The history was summarized successfully."""

    name = "session_compact"
    told = True
    reason: str
    summary: str
    first_kept_entry_id: str
    tokens_before: int
    will_retry: bool = False


@dataclass(slots=True)
class SessionCompactFailed(Event):
    """The history could not be summarized."""

    name = "session_compact_failed"
    told = True
    reason: str
    aborted: bool
    error: str | None = None


@dataclass(slots=True)
class Input(Event):
    """A message arrived; nothing is expanded yet. Each handler gets the result of the previous one.

    `Transform(text, images)`, or `Handled()`: nothing more happens.
    """

    name = "input"
    returns = (r.Handled, r.Transform)
    text: str
    images: list[ImageContent]
    source: Literal["interactive", "rpc", "extension"]
    behavior: Literal["steer", "followUp"] | None = None


@dataclass(slots=True)
class BeforeAgentStart(Event):
    """A prompt was accepted and expanded.

    `Begin(note, system_prompt)`: a message beside the prompt, another system prompt for this run. All notes are sent,
    the last system prompt counts.
    """

    name = "before_agent_start"
    returns = (r.Begin,)
    prompt: str
    images: list[ImageContent]
    system_prompt: str


@dataclass(slots=True)
class AgentStart(Event):
    """A run begins; its turns and messages follow."""

    name = "agent_start"
    told = True


@dataclass(slots=True)
class AgentEnd(Event):
    """A run ends, with the messages it added."""

    name = "agent_end"
    told = True
    messages: list[Message]
    will_retry: bool = False


@dataclass(slots=True)
class AgentBeforeSettle(Event):
    """The agent has nothing more to do.

    `GoOn(note)`: one more run; at most 25 for one prompt.
    """

    name = "agent_before_settle"
    returns = (r.GoOn,)
    outcome: Literal["stop", "error", "aborted"]


@dataclass(slots=True)
class AgentSettled(Event):
    """Nothing more will happen without new input."""

    name = "agent_settled"
    told = True


@dataclass(slots=True)
class TurnStart(Event):
    """A turn begins; turns are counted from 0 in each run."""

    name = "turn_start"
    told = True
    index: int


@dataclass(slots=True)
class TurnEnd(Event):
    """A turn ends, with its answer and its tool results."""

    name = "turn_end"
    told = True
    index: int
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


@dataclass(slots=True)
class MessageStart(Event):
    """A message begins; an answer is still empty here."""

    name = "message_start"
    told = True
    message: Message


@dataclass(slots=True)
class MessageUpdate(Event):
    """An answer grows. While an extension is behind, deltas of a block are merged or left out."""

    name = "message_update"
    told = True
    kind: str
    index: int
    delta: str = ""


@dataclass(slots=True)
class MessageEnd(Event):
    """A message is complete and about to be recorded.

    `Replace(message)` with another one of the same role.
    """

    name = "message_end"
    returns = (r.Replace,)
    message: Message


@dataclass(slots=True)
class ModelContext(Event):
    """Before each request.

    `Messages(list)`, or change the list in place; only this request changes.
    """

    name = "context"
    returns = (r.Messages,)
    messages: list[Message]


@dataclass(slots=True)
class BeforeProviderRequest(Event):
    """The body of a request is ready.

    `Replace(payload)`.
    """

    name = "before_provider_request"
    returns = (r.Replace,)
    payload: Any


@dataclass(slots=True)
class BeforeProviderHeaders(Event):
    """The headers of a request are ready.

    Change them in place; `None` deletes one.
    """

    name = "before_provider_headers"
    headers: dict[str, str | None]


@dataclass(slots=True)
class AfterProviderResponse(Event):
    """A provider has begun to answer a request."""

    name = "after_provider_response"
    told = True
    status: int
    headers: dict[str, str]


@dataclass(slots=True)
class ToolExecutionStart(Event):
    """A tool call begins, with the arguments of the call."""

    name = "tool_execution_start"
    told = True
    tool: str
    call_id: str
    args: dict[str, Json]


@dataclass(slots=True)
class ToolExecutionUpdate(Event):
    """Progress of a tool, with everything so far."""

    name = "tool_execution_update"
    told = True
    tool: str
    call_id: str
    partial: ToolOutcome


@dataclass(slots=True)
class ToolExecutionEnd(Event):
    """A tool call has ended, with its result."""

    name = "tool_execution_end"
    told = True
    tool: str
    call_id: str
    result: ToolOutcome
    is_error: bool


@dataclass(slots=True)
class ToolCall(Event):
    """Before a tool runs.

    `Block(reason, terminate)`, or change `args` in place; they are checked again. **A handler that raises or takes too
    long blocks the call.**
    """

    name = "tool_call"
    returns = (r.Block,)
    tool: str
    call_id: str
    args: dict[str, Json]


@dataclass(slots=True)
class ToolResult(Event):
    """After a tool ran. Each handler gets the result of the previous one.

    `Override(content, details, is_error, usage)`: given members replace the original ones.
    """

    name = "tool_result"
    returns = (r.Override,)
    tool: str
    call_id: str
    args: dict[str, Json]
    content: list[UserBlock]
    details: Any
    is_error: bool
    usage: Usage | None = None


@dataclass(slots=True)
class UserBash(Event):
    """The host runs a shell command.

    `BashOutput(output, exit_code)`, or `Block(reason)`; a handler that raises blocks it.
    """

    name = "user_bash"
    returns = (r.Block, r.BashOutput)
    command: str
    exclude_from_context: bool
    cwd: str


@dataclass(slots=True)
class ModelSelect(Event):
    """Another model was selected for the session."""

    name = "model_select"
    told = True
    model: Model
    previous: Model | None
    source: Literal["set", "cycle", "restore"]


@dataclass(slots=True)
class ThinkingLevelSelect(Event):
    """Another thinking level was selected."""

    name = "thinking_level_select"
    told = True
    level: str
    previous: str | None


ALL: tuple[type[Event], ...] = tuple(
    kind for kind in list(vars().values()) if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
BY_NAME: dict[str, type[Event]] = {name: kind for kind in ALL for name in (kind.name, *kind.aliases)}
