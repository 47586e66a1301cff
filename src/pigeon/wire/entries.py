"""Entries of a session file: the header, and the nodes of the tree."""

from __future__ import annotations

from pigeon.wire.base import ABSENT, Absent, Json, Record
from pigeon.wire.content import UserBlock
from pigeon.wire.messages import Message
from pigeon.wire.model import Usage

SESSION_VERSION = 3
# The type of the custom entry with the token ids of an answer, for trajectories.
TOKENS_ENTRY = "pigeon.tokens"
# What a conversation in a store notes of its runs, each with its id and a state, and of the calls that have begun: so
# that after the death of a process it is known what was under way.
RUN_ENTRY = "pigeon.run"
CALL_ENTRY = "pigeon.call"


class SessionHeader(Record, tag_field="type", tag="session", kw_only=True):
    """First line of a session file; not part of the tree. `workspace` is the URL of the machine that `cwd` is on, if
    that is another one."""

    version: int = SESSION_VERSION
    id: str
    timestamp: str
    cwd: str
    parent_session: str | Absent = ABSENT
    workspace: str | Absent = ABSENT


class _Entry(Record, tag_field="type", kw_only=True):
    id: str
    parent_id: str | None
    timestamp: str


class MessageEntry(_Entry, tag="message", kw_only=True):
    """A message of the conversation."""

    message: Message


class ModelChange(_Entry, tag="model_change", kw_only=True):
    """From this entry on, another model is used."""

    provider: str
    model_id: str


class ThinkingLevelChange(_Entry, tag="thinking_level_change", kw_only=True):
    """Another thinking level from here on."""

    thinking_level: str


class CompactionEntry(_Entry, tag="compaction", kw_only=True):
    """A summary that stands for everything before `firstKeptEntryId`."""

    summary: str
    first_kept_entry_id: str
    tokens_before: int
    details: Json | Absent = ABSENT
    usage: Usage | Absent = ABSENT
    from_hook: bool | Absent = ABSENT


class BranchSummaryEntry(_Entry, tag="branch_summary", kw_only=True):
    """A summary of a branch that was left."""

    from_id: str
    summary: str
    details: Json | Absent = ABSENT
    usage: Usage | Absent = ABSENT
    from_hook: bool | Absent = ABSENT


class CustomEntry(_Entry, tag="custom", kw_only=True):
    """State of an extension; the model never sees it."""

    custom_type: str
    data: Json | Absent = ABSENT


class CustomMessageEntry(_Entry, tag="custom_message", kw_only=True):
    """A message of an extension; the model sees its content."""

    custom_type: str
    content: str | list[UserBlock]
    display: bool
    details: Json | Absent = ABSENT


class LabelEntry(_Entry, tag="label", kw_only=True):
    """A bookmark on another entry; without text it is removed."""

    target_id: str
    label: str | Absent = ABSENT


class SessionInfo(_Entry, tag="session_info", kw_only=True):
    """The display name of the session."""

    name: str


class UsageEntry(_Entry, tag="usage", kw_only=True):
    """Tokens spent outside the conversation."""

    kind: str
    provider: str
    model: str
    usage: Usage
    note: str | Absent = ABSENT


class ContextEdit(_Entry, tag="context_edit", kw_only=True):
    """Hides another entry from the context (`null`), or replaces its content."""

    target_id: str
    replacement: Json


Entry = (
    MessageEntry
    | ModelChange
    | ThinkingLevelChange
    | CompactionEntry
    | BranchSummaryEntry
    | CustomEntry
    | CustomMessageEntry
    | LabelEntry
    | SessionInfo
    | UsageEntry
    | ContextEdit
)


class ForeignEntry(Record, kw_only=True):
    """An entry of a type or a shape that Pigeon does not know, with all members that it has in the file."""

    type: str


AnyEntry = Entry | ForeignEntry
