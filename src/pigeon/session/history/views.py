"""What hosts query about a session's entries: the entries themselves, totals of tokens and cost (everything billed, on
every branch), how full the context is, the tree, and the display name.

A session may have hundreds of thousands of entries in one chain. So long answers are made a piece at a time, without
recursion, and an empty piece marks work that has nothing to show yet (`rpc/outbox.py` pauses between pieces).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from pigeon.session.context.transcript import estimate_branch_tokens
from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.started_agents import is_result_of_agent, read_agent_record
from pigeon.wire import codec
from pigeon.wire.agents import UNFINISHED
from pigeon.wire.answers import ContextUsage, SessionStats, TokenTotals
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import ToolCall
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    SessionInfo,
    UsageEntry,
)
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from pigeon.wire.model import Model, Usage, plain_number, sum_usage, zero_usage


class SessionTotals:
    """Counts entries, one after the other, for `get_session_stats`."""

    def __init__(self, open_usage: Iterable[Usage] = ()) -> None:
        """`open_usage` is what no entry has yet."""
        self._roles: Counter[type] = Counter()
        self._tool_calls = 0
        self._input = self._output = self._cache_read = self._cache_write = 0
        self._cost: float = 0
        for usage in open_usage:
            self._add_usage(usage)

    def add(self, line: EntryLine) -> None:
        """Count one more; system messages are not part of the conversation."""
        entry = None if line.role == "system" else line.parse_uncached()
        if entry is None:
            return
        if isinstance(entry, MessageEntry):
            message = entry.message
            self._roles[type(message)] += 1
            if isinstance(message, AssistantMessage):
                self._tool_calls += sum(isinstance(block, ToolCall) for block in message.content)
        usage = usage_of(entry)
        if usage is not None:
            self._add_usage(usage)

    def _add_usage(self, usage: Usage) -> None:
        self._input += usage.input
        self._output += usage.output
        self._cache_read += usage.cache_read
        self._cache_write += usage.cache_write
        self._cost += usage.cost.total

    def to_stats(
        self, session_id: str, file: str | None, context_usage: ContextUsage | Absent = ABSENT
    ) -> SessionStats:
        return SessionStats(
            session_file=ABSENT if file is None else file,
            session_id=session_id,
            user_messages=self._roles[UserMessage],
            assistant_messages=self._roles[AssistantMessage],
            tool_calls=self._tool_calls,
            tool_results=self._roles[ToolResultMessage],
            total_messages=self._roles.total(),
            tokens=TokenTotals(
                input=self._input,
                output=self._output,
                cache_read=self._cache_read,
                cache_write=self._cache_write,
                total=self._input + self._output + self._cache_read + self._cache_write,
            ),
            cost=plain_number(self._cost),
            context_usage=context_usage,
        )


def stats_of(session_id: str, file: str | None, lines: Iterable[EntryLine]) -> SessionStats:
    """The totals of these entries."""
    totals = SessionTotals()
    for line in lines:
        totals.add(line)
    return totals.to_stats(session_id, file)


def encode_stats(
    session_id: str,
    file: str | None,
    lines: Iterable[EntryLine],
    usage: ContextUsage | Absent,
    open_usage: Iterable[Usage] = (),
) -> Iterator[bytes]:
    """The answer of `get_session_stats`; pieces are empty until the last entry was counted."""
    totals = SessionTotals(open_usage)
    for line in lines:
        totals.add(line)
        yield b""
    yield codec.encode(totals.to_stats(session_id, file, usage))


def usage_of(entry: Entry) -> Usage | None:
    """The usage of an entry, if it has any. That of a started agent is counted where its end is recorded, because not
    every agent has a call that waits for it; so it is not counted with the result of the call."""
    usage: Usage | Absent = ABSENT
    if isinstance(entry, MessageEntry):
        if isinstance(entry.message, AssistantMessage) or (
            isinstance(entry.message, ToolResultMessage) and not is_result_of_agent(entry.message)
        ):
            usage = entry.message.usage
    elif isinstance(entry, CustomEntry):
        agent = read_agent_record(entry)
        usage = ABSENT if agent is None or agent.status in UNFINISHED else agent.usage
    elif isinstance(entry, (CompactionEntry, BranchSummaryEntry, UsageEntry)):
        usage = entry.usage
    return None if isinstance(usage, Absent) else usage


def total_usage(lines: Iterable[EntryLine]) -> Usage:
    """The usage of all entries together."""
    found = (None if line.role == "system" else line.parse_uncached() for line in lines)
    used = (usage_of(entry) for entry in found if entry is not None)
    return reduce(sum_usage, (one for one in used if one is not None), zero_usage())


def context_usage(branch: Sequence[EntryLine], model: Model | None) -> ContextUsage | Absent:
    """How full the model's window is; unknown between a compaction and the next answer."""
    if model is None or model.context_window <= 0:
        return ABSENT
    if _is_just_compacted(branch):
        return ContextUsage(tokens=None, context_window=model.context_window, percent=None)
    tokens = estimate_branch_tokens(branch)
    percent = plain_number(tokens * 100 / model.context_window)
    return ContextUsage(tokens=tokens, context_window=model.context_window, percent=percent)


def _is_just_compacted(branch: Sequence[EntryLine]) -> bool:
    for line in reversed(branch):
        if line.type == "compaction":
            return True
        if line.role == "assistant":
            return False
    return False


def encode_entries(lines: Iterable[EntryLine], leaf_id: str | None) -> Iterator[bytes]:
    """The answer of `get_entries`: each entry as stored."""
    yield b'{"entries":'
    yield from encode_list(codec.encode(line.to_host_json()) for line in lines)
    yield b',"leafId":' + codec.encode(leaf_id) + b"}"


def encode_list(items: Iterable[bytes]) -> Iterator[bytes]:
    """A JSON array of encoded items; an empty item marks work and is passed on."""
    before = b"["
    for item in items:
        yield before + item if item else b""
        before = b"," if item else before
    yield b"]" if before == b"," else b"[]"


def encode_tree(lines: Iterable[EntryLine], leaf_id: str | None, flat: bool = False) -> Iterator[bytes]:
    """The answer of `get_tree`: roots with their children, each list by time; an orphan is a root. A `flat` one lists
    the same nodes in the same order, all without children."""
    labels: dict[str, LabelEntry] = {}
    nodes: dict[str, EntryLine] = {}
    for line in lines:
        # An id that occurs twice in a broken file is one node, or the tree could have more nodes than the file has
        # bytes.
        nodes[line.id] = line
        entry = line.entry if line.type == "label" else None
        if isinstance(entry, LabelEntry):
            labels[entry.target_id] = entry
        yield b""
    roots: list[EntryLine] = []
    # Most entries have one child: a list for each would give the garbage collector hundreds of thousands of objects.
    children: dict[str, EntryLine | list[EntryLine]] = {}
    for line in nodes.values():
        if line.parent_id is None or line.parent_id == line.id or line.parent_id not in nodes:
            roots.append(line)
        elif isinstance(there := children.get(line.parent_id), list):
            there.append(line)
        else:
            children[line.parent_id] = line if there is None else [there, line]
        yield b""
    yield b'{"tree":'
    yield from _encode_nodes(roots, children, labels, flat)
    yield b',"leafId":' + codec.encode(leaf_id) + b"}"


def _encode_nodes(
    roots: list[EntryLine],
    children: dict[str, EntryLine | list[EntryLine]],
    labels: dict[str, LabelEntry],
    flat: bool,
) -> Iterator[bytes]:
    """The nodes as nested JSON. `closings` has the closing text of each open node; `lists` the open lists of several
    nodes, each with the number of nodes open around it."""
    closings: list[bytes] = []
    lists = [(0, iter(roots))]
    comma = b""
    yield b"["
    while lists:
        around, rest = lists[-1]
        while len(closings) > around:
            yield closings.pop()
            comma = b","
        node: EntryLine | list[EntryLine] | None = next(rest, None)
        if node is None:
            lists.pop()
        while isinstance(node, EntryLine):
            yield comma + b'{"entry":' + codec.encode(node.to_host_json()) + b',"children":['
            closing = b"]" + _encode_label(labels.get(node.id)) + b"}"
            if flat:
                yield closing
            else:
                closings.append(closing)
            comma = b"," if flat else b""
            node = children.get(node.id)
        if node is not None:
            lists.append((len(closings), iter(sorted(node, key=_timestamp_of))))
    yield b"]"


def _timestamp_of(line: EntryLine) -> str:
    return line.timestamp


def _encode_label(label: LabelEntry | None) -> bytes:
    """The last label of an entry; an empty label removes it."""
    if label is None or isinstance(label.label, Absent):
        return b""
    return b',"label":' + codec.encode(label.label) + b',"labelTimestamp":' + codec.encode(label.timestamp)


def clean_name(name: str) -> str:
    """The name in one line; raises if nothing is left."""
    cleaned = re.sub(r"[\r\n]+", " ", name).strip()
    if not cleaned:
        raise Refusal("Session name cannot be empty")
    return cleaned


def session_name_of(lines: list[EntryLine]) -> str | None:
    """The name that was given last."""
    return name_of_info(next((line for line in reversed(lines) if line.type == "session_info"), None))


def name_of_info(info: EntryLine | None) -> str | None:
    """The name that an entry gives to its session."""
    entry = info.entry if info is not None else None
    return (entry.name or None) if isinstance(entry, SessionInfo) else None
