"""The tree of a session as branches: the active one, and every other as a row of entries with the entry it leaves from.

Nothing here is recursive: a tree may be tens of thousands of entries deep, and have as many branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from pigeon.wire.entries import Entry

_SILENT = frozenset(
    ("label", "session_info", "usage", "context_edit", "custom", "model_change", "thinking_level_change")
)


class Line(Protocol):
    """An entry of a session before it is read."""

    type: str
    id: str
    parent_id: str | None
    role: str

    def parse_uncached(self) -> Entry | None:
        """The record, not kept; None for an unknown form."""
        ...

    def to_plain(self) -> Any:
        """The entry as dicts and lists."""
        ...


class BranchRow(Struct):
    """A row of entries by their numbers; `leaves` is the entry that it leaves from, None for one with its own root.
    `number` is 0 for the active branch."""

    number: int
    leaves: int | None
    entries: list[int]


def branches_of(lines: Sequence[Line], active_ids: Sequence[str]) -> list[BranchRow]:
    """The active branch first, then the others in the order in which they began; those without content are left out.

    An entry without an earlier parent begins a branch, even in a broken file.
    """
    by_id = {line.id: number for number, line in enumerate(lines)}
    active = BranchRow(0, None, [by_id[id] for id in active_ids if id in by_id])
    branch_of: dict[int, BranchRow] = dict.fromkeys(active.entries, active)
    branches = [active]
    # For each entry, the nearest one at or above it that has its own place on the page.
    places: list[int | None] = []
    for number, line in enumerate(lines):
        above = by_id.get(line.parent_id) if line.parent_id is not None else None
        above = above if above is not None and above < number else None
        places.append(number if _is_shown_separately(line) else places[above] if above is not None else None)
        if number in branch_of:
            continue
        branch = branch_of[above] if above is not None else None
        if branch is None or branch is active or branch.entries[-1] != above:
            branch = BranchRow(len(branches), places[above] if above is not None else None, [])
            branches.append(branch)
        branch.entries.append(number)
        branch_of[number] = branch
    spoken = [branch for branch in branches[1:] if any(_is_shown(lines[number]) for number in branch.entries)]
    for number, branch in enumerate(spoken, 1):
        branch.number = number
    return [active, *spoken]


def _is_shown_separately(line: Line) -> bool:
    """True for entries with their own place; a result is shown with its call."""
    return _is_shown(line) and line.role != "toolResult"


def _is_shown(line: Line) -> bool:
    return line.type not in _SILENT and line.role != "system"
