"""The truth: entries that are only ever appended, a tree, a leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pigeon.system import clock, ids
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.entries import Entry, MessageEntry, SessionHeader

_E = TypeVar("_E", bound=Any)


class Journal:
    """One conversation on record."""

    def __init__(self, cwd: str, now: Callable[[], int] = clock.now_ms, parent_session: str | Absent = ABSENT) -> None:
        self._now = now
        started = now()
        self.header = SessionHeader(
            id=ids.session_id(started), timestamp=clock.iso(started), cwd=cwd, parent_session=parent_session
        )
        self._entries: list[Entry] = []
        self._by_id: dict[str, Entry] = {}
        self._branch: list[Entry] = []

    @property
    def session_id(self) -> str:
        """The id of this conversation."""
        return self.header.id

    @property
    def file(self) -> str | None:
        """Where the conversation is kept; none while it lives in memory only."""
        return None

    @property
    def entries(self) -> list[Entry]:
        """All entries in the order they were appended; do not change the list."""
        return self._entries

    @property
    def branch(self) -> list[Entry]:
        """The path from the root to the leaf; do not change the list."""
        return self._branch

    @property
    def version(self) -> int:
        """Grows with every change."""
        return len(self._entries)

    @property
    def leaf_id(self) -> str | None:
        """The entry that the next one hangs on."""
        return self._branch[-1].id if self._branch else None

    def append(self, kind: type[_E], **fields: Any) -> _E:
        """Put one entry on record, as a child of the leaf."""
        entry: _E = kind(id=self._free_id(), parent_id=self.leaf_id, timestamp=clock.iso(self._now()), **fields)
        self._entries.append(entry)
        self._by_id[entry.id] = entry
        self._branch.append(entry)
        return entry

    def append_message(self, message: Any) -> MessageEntry:
        """Put one message on record."""
        return self.append(MessageEntry, message=message)

    def _free_id(self) -> str:
        for _ in range(100):
            candidate = ids.short_id()
            if candidate not in self._by_id:
                return candidate
        return ids.dialog_id()
