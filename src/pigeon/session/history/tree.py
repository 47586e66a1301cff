"""The entries of a session as a tree, for hosts that show it."""

from __future__ import annotations

from typing import Any

from pigeon.session.history.entry_line import Kept
from pigeon.wire.answers import TreeNode
from pigeon.wire.base import Absent
from pigeon.wire.entries import LabelEntry


def raw_entry(line: Kept) -> Any:
    """The entry for the host, as it is kept."""
    return line.shown()


def tree_of(lines: list[Kept]) -> list[TreeNode]:
    """Roots with their children, each list by time; an orphan is a root."""
    nodes = {line.id: TreeNode(entry=raw_entry(line), children=[]) for line in lines}
    times = {line.id: line.timestamp for line in lines}
    roots: list[str] = []
    children: dict[str, list[str]] = {}
    for line in lines:
        if line.parent_id is None or line.parent_id == line.id or line.parent_id not in nodes:
            roots.append(line.id)
        else:
            children.setdefault(line.parent_id, []).append(line.id)
    for parent, ids in children.items():
        nodes[parent].children = [nodes[child] for child in sorted(ids, key=times.__getitem__)]
    _put_labels(lines, nodes)
    return [nodes[root] for root in roots]


def _put_labels(lines: list[Kept], nodes: dict[str, TreeNode]) -> None:
    for line in lines:
        entry = line.entry if line.type == "label" else None
        if isinstance(entry, LabelEntry) and entry.target_id in nodes:
            node = nodes[entry.target_id]
            node.label = entry.label
            node.label_timestamp = node.label if isinstance(node.label, Absent) else entry.timestamp
