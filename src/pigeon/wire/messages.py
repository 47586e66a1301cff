"""Messages: the roles of a conversation.

Timestamps are epoch milliseconds. `user`, `assistant` and `toolResult` go to the model as they are; the others belong
to the agent and are converted (or left out) when a request is built.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.content import AssistantBlock, Attachment, UserBlock
from pigeon.wire.model import Usage

Disposition = Literal["started", "queued", "handled"]
StopReason = Literal["stop", "length", "toolUse", "error", "aborted", "pending", "deferred"]


class Acceptance(Record, kw_only=True):
    """How a message with a `clientMessageId` was answered: what became of it, in which run, and the digest of its
    command. It is kept with the message, so that the same command gets the same answer after a restart."""

    disposition: Disposition
    digest: str
    run_id: str | Absent = ABSENT
    queued_id: str | Absent = ABSENT


class UserMessage(Record, tag_field="role", tag="user", kw_only=True):
    """What the user said, at once or from the queue; `clientMessageId` is the host's own id for it, if it gave one."""

    content: str | list[UserBlock]
    timestamp: int
    attachments: list[Attachment] | Absent = ABSENT
    client_message_id: str | Absent = ABSENT
    accepted: Acceptance | Absent = ABSENT


class AssistantMessage(Record, tag_field="role", tag="assistant", kw_only=True):
    """One answer of the model; `timestamp` is when its stream began.

    `thinkingLevel`, the level that was asked for, and `durationMs` are known once the answer is complete.
    """

    content: list[AssistantBlock]
    api: str
    provider: str
    model: str
    usage: Usage
    stop_reason: StopReason
    error_message: str | Absent = ABSENT
    timestamp: int
    response_id: str | Absent = ABSENT
    response_model: str | Absent = ABSENT
    raw_stop_reason: str | Absent = ABSENT
    thinking_level: str | Absent = ABSENT
    duration_ms: int | Absent = ABSENT


class NestedCall(Record, kw_only=True):
    """A call that a tool made itself."""

    name: str = ""
    arguments: Json = None


class NestedCalls(Record, kw_only=True):
    """The calls that a tool made itself; Pigeon's tools make none, but files of other agents may have some."""

    calls: list[NestedCall] = field(default_factory=list)
    complete: bool | Absent = ABSENT


class ToolResultMessage(Record, tag_field="role", tag="toolResult", kw_only=True):
    """The outcome of one tool call, linked by `toolCallId`."""

    tool_call_id: str
    tool_name: str
    content: list[UserBlock]
    details: Json | Absent = ABSENT
    is_error: bool
    timestamp: int
    usage: Usage | Absent = ABSENT
    duration_ms: int | Absent = ABSENT
    nested_calls: NestedCalls | Absent = ABSENT


class BashExecutionMessage(Record, tag_field="role", tag="bashExecution", kw_only=True):
    """A shell command that the host ran through the `bash` command."""

    command: str
    output: str
    exit_code: int | Absent = ABSENT
    cancelled: bool
    truncated: bool
    full_output_path: str | Absent = ABSENT
    timestamp: int
    exclude_from_context: bool | Absent = ABSENT


class CustomMessage(Record, tag_field="role", tag="custom", kw_only=True):
    """A message that an extension put into the conversation."""

    custom_type: str
    content: str | list[UserBlock]
    display: bool
    details: Json | Absent = ABSENT
    timestamp: int


class BranchSummaryMessage(Record, tag_field="role", tag="branchSummary", kw_only=True):
    """What happened on a branch that the conversation came back from."""

    summary: str
    from_id: str
    timestamp: int


class ToolDeclaration(Record, kw_only=True):
    """A tool as a system message declares it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Json


class ToolReference(Record, kw_only=True):
    """A tool that the model no longer has."""

    name: str


class SystemMessage(Record, tag_field="role", tag="system", kw_only=True):
    """Which tools the model has from here on: those added and those removed.

    All system messages of a branch together give the tools that are active when it is opened again. `content` and
    `sections` are texts that other agents of the family keep there.
    """

    content: str | list[UserBlock] = ""
    sections: dict[str, str | None] | Absent = ABSENT
    timestamp: int
    tools_added: list[ToolDeclaration] | Absent = ABSENT
    tools_removed: list[ToolReference] | Absent = ABSENT


class CompactionSummaryMessage(Record, tag_field="role", tag="compactionSummary", kw_only=True):
    """A summary of the history that a compaction replaced."""

    summary: str
    tokens_before: int
    timestamp: int


Message = (
    UserMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | CustomMessage
    | BranchSummaryMessage
    | CompactionSummaryMessage
    | SystemMessage
)
