"""Files that were brought back to what they were, in one line."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMED = 8


def describe_restored(names: Sequence[str]) -> str:
    """The files that an undo or a redo has brought back."""
    return f"Restored: {name_some(names)}"


def name_some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
