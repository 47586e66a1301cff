"""The record of one conversation: entries that are only ever appended, the tree they form, and the leaf that the next
one hangs on. Everything else about a conversation is derived from its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter, eq
from typing import Any, TypeVar

from pigeon.session.history.entry_line import EntryLine, free_id, line_from_entry
from pigeon.session.history.reading import LoadedSession
from pigeon.session.history.session_file import SessionFile
from pigeon.system import clock
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.entries import MessageEntry, SessionHeader

_E = TypeVar("_E", bound=Any)
_id = attrgetter("id")
_parent_id = attrgetter("parent_id")


class Journal:
    """One conversation on record."""

    def __init__(
        self,
        session_id: str,
        cwd: str,
        header_line: bytes,
        store: SessionFile | None,
        now: Callable[[], int],
        mask: Callable[[bytes], bytes] = lambda line: line,
    ) -> None:
        """`mask` takes out of each new entry what may not be kept."""
        self.session_id = session_id
        self.cwd = cwd
        self._header_line = header_line
        self._store = store
        self._now = now
        self._mask = mask
        self._lines: list[EntryLine] = []
        self._by_id: dict[str, EntryLine] = {}
        self._branch: list[EntryLine] = []
        self._moves = 0

    @property
    def file(self) -> str | None:
        """Where the conversation is kept; none while it lives in memory only."""
        return self._store.path if self._store else None

    @property
    def saved(self) -> bool:
        """True once there is a file."""
        return self._store is not None and self._store.begun

    @property
    def lines(self) -> list[EntryLine]:
        """All entries in the order they were appended; do not change the list."""
        return self._lines

    @property
    def branch(self) -> list[EntryLine]:
        """The path from the root to the leaf; do not change the list."""
        return self._branch

    @property
    def version(self) -> tuple[int, int]:
        """Differs after every change."""
        return len(self._lines), self._moves

    @property
    def leaf_id(self) -> str | None:
        """The entry that the next one hangs on."""
        return self._branch[-1].id if self._branch else None

    def line(self, entry_id: str) -> EntryLine | None:
        """One entry by its id."""
        return self._by_id.get(entry_id)

    def append(self, kind: type[_E], **fields: Any) -> _E:
        """Put one entry on record, as a child of the leaf; it is saved when this returns."""
        entry: _E = kind(id=free_id(self._by_id), parent_id=self.leaf_id, timestamp=clock.iso(self._now()), **fields)
        kept = line_from_entry(entry, self._mask)
        self._lines.append(kept)
        self._by_id[kept.id] = kept
        self._branch.append(kept)
        if self._store is not None and (self._store.begun or kept.type == "message"):
            self._store.append(kept.raw, self.every_line)
        return entry

    def append_message(self, message: Any) -> MessageEntry:
        """Put one message on record."""
        return self.append(MessageEntry, message=message)

    def load(self, loaded: LoadedSession) -> None:
        """Fill an empty journal from a file; the leaf is the last entry."""
        lines = self._lines = loaded.lines
        self._by_id = dict(zip(map(_id, lines), lines, strict=True))
        if lines and self._is_a_line():
            self._branch = lines.copy()
        else:
            self.move_to(lines[-1].id if lines else None)

    def _is_a_line(self) -> bool:
        """True if every entry hangs on the one before it, as in most files: then no path has to be looked for."""
        lines = self._lines
        parents = map(_parent_id, lines[1:])
        return len(self._by_id) == len(lines) and all(map(eq, parents, map(_id, lines)))

    def move_to(self, entry_id: str | None) -> None:
        """Make another entry the leaf; nothing is written."""
        self._moves += 1
        self._branch = self.path_to(entry_id)

    def path_to(self, entry_id: str | None) -> list[EntryLine]:
        """The path from the root to an entry; a broken or circular link ends it."""
        path: list[EntryLine] = []
        seen: set[str] = set()
        while entry_id is not None and entry_id in self._by_id and entry_id not in seen:
            seen.add(entry_id)
            kept = self._by_id[entry_id]
            path.append(kept)
            entry_id = kept.parent_id
        path.reverse()
        return path

    def every_line(self) -> Iterator[bytes]:
        """The whole session as lines of its file."""
        yield self._header_line
        for kept in self._lines:
            yield kept.raw

    def save_all(self) -> None:
        """Write the file now, not with the first message."""
        if self._store is not None and not self._store.begun:
            self._store.append(b"", self.every_line)

    def sync(self) -> None:
        """Make sure that the disk has everything."""
        if self._store is not None:
            self._store.sync()

    def close(self) -> None:
        """Let go of the file."""
        if self._store is not None:
            self._store.close()


def new_header(session_id: str, now_ms: int, cwd: str, parent_session: str | Absent = ABSENT) -> bytes:
    """The first line of a new session."""
    header = SessionHeader(id=session_id, timestamp=clock.iso(now_ms), cwd=cwd, parent_session=parent_session)
    return codec.encode(header)
