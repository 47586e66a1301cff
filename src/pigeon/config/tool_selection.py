"""Which tools are meant by a list of names, patterns and changes: `--tools`, `--exclude-tools` and `defaultTools`.

A name stands for itself, `*` in it for any characters. `+name` and `-name` change the previous choice, in order, and
need exact names. `tools/agent_tools.py` applies selections, `layers.py` joins those of two settings files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from pigeon.wire.errors import UsageError

WILDCARD = "*"
NO_TOOL = ""  # the name of no tool: a list with it names tools, none of which exists


class ToolSelection(Struct, frozen=True):
    """Names and patterns, None to keep the previous choice; and changes, True for a tool to add."""

    names: tuple[str, ...] | None = None
    changes: tuple[tuple[bool, str], ...] = ()

    def select_named(self, before: Iterable[str], known: Sequence[str]) -> list[str]:
        """The known tools that the names match, in the order of the names."""
        if self.names is None:
            return list(dict.fromkeys(before))
        return list(dict.fromkeys(tool for name in self.names for tool in known if is_match(name, tool)))

    def apply_changes(self, before: Iterable[str], known: Sequence[str]) -> list[str]:
        """The chosen tools after additions and removals."""
        chosen = list(before)
        for adds, name in self.changes:
            if not adds:
                chosen = [tool for tool in chosen if tool != name]
            elif name in known and name not in chosen:
                chosen.append(name)
        return chosen

    def find_unknown(self, known: Sequence[str]) -> list[str]:
        """The names and patterns that match no tool, as written."""
        names = [name for name in self.names or () if not any(is_match(name, tool) for tool in known)]
        changes = [("+" if adds else "-") + name for adds, name in self.changes if name and name not in known]
        return [name for name in [*names, *changes] if name]


def is_match(pattern: str, tool: str) -> bool:
    """Whether a name or pattern matches this tool."""
    if WILDCARD not in pattern:
        return pattern == tool
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split(WILDCARD)), tool, re.DOTALL) is not None


def selection_of(entries: Iterable[str]) -> ToolSelection:
    """The selection of a list in settings: names first, then the changes; changes alone modify the default."""
    listed = list(entries)
    names = tuple(entry for entry in listed if not is_change(entry))
    changes = tuple((entry[0] == "+", entry[1:]) for entry in listed if is_change(entry))
    return ToolSelection(names if names or not changes else None, changes)


def parse_option_selection(entries: Sequence[str], option: str) -> ToolSelection:
    """The selection of an option: either names or changes; raises `UsageError` that names the option."""
    selection = selection_of(entries)
    if selection.names and selection.changes:
        raise UsageError(f"{option}: tool names cannot be mixed with +name or -name entries")
    pattern = next((entry for entry in entries if is_change(entry) and WILDCARD in entry), None)
    if pattern is not None:
        raise UsageError(f"{option}: +name and -name entries take exact tool names, not patterns: {pattern}")
    return selection


def is_change(entry: str) -> bool:
    """True for `+name` and `-name`."""
    return entry.startswith(("+", "-"))


def join_tool_lists(users: Sequence[str], projects: Sequence[str]) -> list[str]:
    """The lists of two settings files joined: a project's changes are added to the user's list, its names replace
    it."""
    return [*users, *projects] if all(map(is_change, projects)) else list(projects)


def read_tool_names(value: Any, report: Callable[[str], None]) -> list[str]:
    """The list in a settings file; a value that is not a list names no tool, and items that are not names are left
    out."""
    if not isinstance(value, list):
        report("defaultTools must be a list of tool names; until this is fixed, no tool is active")
        return [NO_TOOL]
    if not all(isinstance(entry, str) for entry in value):
        report("defaultTools has entries that are not names; they are ignored")
    return [entry for entry in value if isinstance(entry, str)]
