"""What hosts ask about a session's entries: totals of tokens and cost (everything billed, on every branch), how full
the context is, the tree, and the display name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pigeon.session.context.conversation import branch_tokens
from pigeon.session.history.entry_line import EntryLine
from pigeon.wire.answers import ContextUsage, SessionStats, TokenTotals, TreeNode
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import ToolCall
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    SessionInfo,
    UsageEntry,
)
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model, Usage, plain_number


def stats_of(
    session_id: str,
    file: str | None,
    lines: Sequence[EntryLine],
    context_usage: ContextUsage | Absent = ABSENT,
) -> SessionStats:
    """The answer of `get_session_stats`."""
    entries = [entry for line in lines if line.role != "system" and (entry := line.entry) is not None]
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    answers = [message for message in messages if isinstance(message, AssistantMessage)]
    spent = [usage for entry in entries if (usage := usage_of(entry)) is not None]
    tokens = TokenTotals(
        input=sum(usage.input for usage in spent),
        output=sum(usage.output for usage in spent),
        cache_read=sum(usage.cache_read for usage in spent),
        cache_write=sum(usage.cache_write for usage in spent),
        total=sum(usage.input + usage.output + usage.cache_read + usage.cache_write for usage in spent),
    )
    return SessionStats(
        session_file=ABSENT if file is None else file,
        session_id=session_id,
        user_messages=sum(isinstance(message, UserMessage) for message in messages),
        assistant_messages=len(answers),
        tool_calls=sum(isinstance(block, ToolCall) for answer in answers for block in answer.content),
        tool_results=sum(isinstance(message, ToolResultMessage) for message in messages),
        total_messages=len(messages),
        tokens=tokens,
        cost=plain_number(sum(usage.cost.total for usage in spent)),
        context_usage=context_usage,
    )


def usage_of(entry: Entry) -> Usage | None:
    """What an entry cost, if it cost anything."""
    usage: Usage | Absent = ABSENT
    if isinstance(entry, MessageEntry):
        if isinstance(entry.message, (AssistantMessage, ToolResultMessage)):
            usage = entry.message.usage
    elif isinstance(entry, (CompactionEntry, BranchSummaryEntry, UsageEntry)):
        usage = entry.usage
    return None if isinstance(usage, Absent) else usage


def context_usage(branch: Sequence[EntryLine], model: Model | None) -> ContextUsage | Absent:
    """How full the model's window is; unknown between a compaction and the next answer."""
    if model is None or model.context_window <= 0:
        return ABSENT
    if _just_compacted(branch):
        return ContextUsage(tokens=None, context_window=model.context_window, percent=None)
    tokens = branch_tokens(branch)
    percent = plain_number(tokens * 100 / model.context_window)
    return ContextUsage(tokens=tokens, context_window=model.context_window, percent=percent)


def _just_compacted(branch: Sequence[EntryLine]) -> bool:
    for line in reversed(branch):
        if line.type == "compaction":
            return True
        if line.role == "assistant":
            return False
    return False


def raw_entry(line: EntryLine) -> Any:
    """The entry for the host, as it is kept."""
    return line.shown()


def tree_of(lines: list[EntryLine]) -> list[TreeNode]:
    """Roots with their children, each list by time; an orphan is a root."""
    labels = _labels(lines)
    nodes = {line.id: _node(line, labels.get(line.id)) for line in lines}
    times = {line.id: line.timestamp for line in lines}
    roots: list[str] = []
    children: dict[str, list[str]] = {}
    for line in lines:
        if line.parent_id is None or line.parent_id == line.id or line.parent_id not in nodes:
            roots.append(line.id)
        else:
            children.setdefault(line.parent_id, []).append(line.id)
    for parent, ids in children.items():
        nodes[parent].children.extend(nodes[child] for child in sorted(ids, key=times.__getitem__))
    return [nodes[root] for root in roots]


def _labels(lines: list[EntryLine]) -> dict[str, LabelEntry]:
    """The last label of each entry; one without a text takes the label away."""
    labels: dict[str, LabelEntry] = {}
    for line in lines:
        entry = line.entry if line.type == "label" else None
        if isinstance(entry, LabelEntry):
            labels[entry.target_id] = entry
    return labels


def _node(line: EntryLine, label: LabelEntry | None) -> TreeNode:
    if label is None or isinstance(label.label, Absent):
        return TreeNode(entry=raw_entry(line), children=[])
    return TreeNode(entry=raw_entry(line), children=[], label=label.label, label_timestamp=label.timestamp)


def clean_name(name: str) -> str:
    """The name on one line; raises when nothing is left."""
    cleaned = re.sub(r"[\r\n]+", " ", name).strip()
    if not cleaned:
        raise Refusal("Session name cannot be empty")
    return cleaned


def name_of(lines: list[EntryLine]) -> str | None:
    """The name that was given last."""
    for line in reversed(lines):
        if line.type == "session_info":
            entry = line.entry
            return (entry.name or None) if isinstance(entry, SessionInfo) else None
    return None
