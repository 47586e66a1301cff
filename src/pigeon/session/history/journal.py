"""The record of one conversation: entries that are only ever appended, the tree they form, and the leaf, the parent of
the next one. Everything else about a conversation is derived from its journal.

One process writes the file of a journal. Another that has it open reads, follows what is appended (`read_appended`),
and takes over when the first has ended (`claim_file`): it reads the rest, answers tool calls that a crash left without
a result, and continues from the last entry. Those calls are not run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pigeon.session.history.entry_line import EntryLine, line_from_bytes, line_from_entry
from pigeon.session.history.reading import InvalidSession, LoadedSession, load_session, read_lines_after, stamp_of
from pigeon.session.history.session_file import SessionFile
from pigeon.session.history.started_agents import read_recorded_agents
from pigeon.system import clock
from pigeon.system.ids import RANDOM_IDS, Ids
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.entries import ContextEdit, MessageEntry, SessionHeader
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage, ToolResultMessage

if TYPE_CHECKING:
    from pigeon.session.history.session_rows import SessionRows

INTERRUPTED = "The tool call was interrupted before it finished. It was not run again."
AGENT_INTERRUPTED = "The agent that it had started has the id {}; resume it to continue with what it knows."
_E = TypeVar("_E", bound=Any)


class Journal:
    """The entries of one conversation, in memory and, once it is saved, in its file."""

    def __init__(
        self,
        session_id: str,
        cwd: str,
        header_line: bytes,
        store: SessionFile | SessionRows | None,
        now: Callable[[], int],
        mask: Callable[[bytes], bytes] = lambda line: line,
        ids: Ids = RANDOM_IDS,
    ) -> None:
        """`mask` masks the keys in each new entry."""
        self.session_id = session_id
        self.cwd = cwd
        self._header_line = header_line
        self._store = store
        self._now = now
        self._mask = mask
        self._ids = ids
        self._lines: list[EntryLine] = []
        self._by_id: dict[str, EntryLine] = {}
        self._branch: list[EntryLine] = []
        self._moves = 0
        self._pending: list[EntryLine] = []
        self._place: tuple[int, int] | None = None
        self._size = 0

    @property
    def file(self) -> str | None:
        """The file of the conversation; None while it is only in memory."""
        return self._store.path if self._store else None

    @property
    def rows(self) -> SessionRows | None:
        """The rows of the conversation, if a store keeps it."""
        return None if self._store is None or isinstance(self._store, SessionFile) else self._store

    @property
    def reference(self) -> str | None:
        """What opens the conversation later: its file, or its id in a store."""
        return self.file if self.rows is None else self.session_id

    @property
    def is_saved(self) -> bool:
        return self._store is not None and self._store.has_begun

    @property
    def is_read_only(self) -> bool:
        """True while, as far as is known, another process writes the file: nothing can be appended then."""
        return self._store is not None and self._store.is_read_only

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
        """A value that differs after every change of the journal."""
        return len(self._lines), self._moves

    @property
    def leaf_id(self) -> str | None:
        """The parent of the next entry."""
        return self._branch[-1].id if self._branch else None

    def find_line(self, entry_id: str) -> EntryLine | None:
        return self._by_id.get(entry_id)

    def append(self, kind: type[_E], **fields: Any) -> _E:
        """Append and save one entry as a child of the leaf.

        Raises `SessionInUse` if another process writes the file.
        """
        if self._store is not None and not self._store.is_writable:
            self.claim_and_reload_file(begins=kind is MessageEntry)
        parent_id = self.leaf_id
        id, timestamp = self._ids.entry_id(self._by_id), clock.to_iso(self._now())
        entry: _E = kind(id=id, parent_id=parent_id, timestamp=timestamp, **fields)
        self._add_line(line_from_entry(entry, self._mask))
        return entry

    def append_message(self, message: Any) -> MessageEntry:
        return self.append(MessageEntry, message=message)

    def claim_and_reload_file(self, begins: bool = False) -> bool:
        """Ensure that this process may append; returns True if entries of other programs were read for that.

        `begins` means that a message comes next: only then is the file created. Raises `SessionInUse`.
        """
        store = self._store
        claimed = "ours" if store is None else store.claim_file(begins)
        if not isinstance(store, SessionFile) or claimed == "ours":
            return False
        if claimed == "changed":
            return self._merge_foreign_lines(store)
        try:
            self._reload_session(store)
        except Refusal:
            store.release()
            raise
        return True

    def close_open_calls(self) -> None:
        """Answer the tool calls that a crash has left without a result; they are not run again."""
        if not self.is_read_only:
            append_missing_results(self, self._now())

    async def wait_until_saved(self) -> None:
        """Wait until a store has confirmed every entry; files have them already."""
        if self.rows is not None:
            await self.rows.wait_until_saved()

    def load_file(self, store: SessionFile, ahead: LoadedSession | None = None, keeps_calls: bool = False) -> None:
        """Fill the journal from its adopted file; raises `Refusal` if it is not a session.

        A session loaded `ahead` is used if the file has not changed since. With `keeps_calls`, calls that a crash has
        left open stay open: the run may be continued.
        """
        if store.is_read_only:
            self._load_session(store, ahead)
        else:
            self._reload_session(store, ahead, keeps_calls)

    def read_appended(self) -> bool:
        """Read what another process has appended so far; returns True if there was anything."""
        store = self._store
        if not isinstance(store, SessionFile) or store.is_writable:
            return False
        place = _file_identity_of(store.path)
        if place is None or place == self._place:
            return place is not None and self._add_appended_lines(*read_lines_after(store.path, self._size))
        with suppress(Refusal):
            self._load_session(store)
            store.switch_to_reading()
            return True
        return False

    def _load_session(self, store: SessionFile, ahead: LoadedSession | None = None) -> LoadedSession:
        """The session in the file, replacing what is known."""
        place = _file_identity_of(store.path)
        loaded = ahead if ahead is not None and ahead.stamp == stamp_of(store.path) else load_session(store.path)
        if loaded is None:
            raise InvalidSession(store.path)
        self._place = place
        if not self._size:
            self._pending = [line for line in self._lines if line.id not in loaded.by_id]
        self.session_id, self._header_line = loaded.header["id"], loaded.header_line
        self.load(loaded)
        self._size = loaded.size
        return loaded

    def _reload_session(
        self, store: SessionFile, ahead: LoadedSession | None = None, keeps_calls: bool = False
    ) -> None:
        """Take over the file: read what others wrote, repair it, and append what has waited."""
        loaded = self._load_session(store, ahead)
        store.repair_file(loaded.needs_newline, loaded.rewritten, self.iterate_lines)
        if not keeps_calls:
            append_missing_results(self, self._now())
        pending, self._pending = self._pending, []
        for line in pending:
            self._add_line(_with_parent(line, self.leaf_id))

    def _add_appended_lines(self, lines: list[EntryLine], size: int) -> bool:
        """Add entries that another process has appended; the last one becomes the leaf."""
        self._size = size
        fresh = [line for line in lines if line.id not in self._by_id]
        for line in fresh:
            follows = line.parent_id == self.leaf_id
            self._lines.append(line)
            self._by_id[line.id] = line
            if follows:
                self._branch.append(line)
            else:
                self.set_leaf(line.id)
        return bool(fresh)

    def _merge_foreign_lines(self, store: SessionFile) -> bool:
        """Read entries that a program without a lock wrote to our file. The leaf only moves to its descendants, so that
        a conversation continues where it was."""
        loaded = load_session(store.path)
        fresh = [line for line in loaded.lines if line.id not in self._by_id] if loaded else []
        for line in fresh:
            self._lines.append(line)
            self._by_id[line.id] = line
            if line.parent_id == self.leaf_id:
                self._branch.append(line)
        return bool(fresh)

    def _add_line(self, line: EntryLine) -> None:
        self._lines.append(line)
        self._by_id[line.id] = line
        self._branch.append(line)
        if self._store is not None and (self._store.has_begun or _is_worth_saving(line)):
            self._store.append(line.raw, self.iterate_lines)

    def load(self, loaded: LoadedSession) -> None:
        """Fill the journal with the entries of a file; the leaf is the last one."""
        lines = self._lines = loaded.lines
        self._by_id = loaded.by_id
        if loaded.is_line:
            self._branch = lines.copy()
            self._moves += 1
        else:
            self.set_leaf(lines[-1].id if lines else None)

    def set_leaf(self, entry_id: str | None) -> None:
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

    def iterate_lines(self) -> Iterator[bytes]:
        """All lines of the session file."""
        yield self._header_line
        for kept in self._lines:
            yield kept.raw

    def save_all(self) -> None:
        """Write the file now instead of with the first message."""
        self.claim_and_reload_file(begins=True)
        if self._store is not None and not self._store.has_begun:
            self._store.append(b"", self.iterate_lines)

    def sync(self) -> None:
        """Make sure that the disk has everything."""
        if self._store is not None:
            self._store.sync()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _is_worth_saving(line: EntryLine) -> bool:
    """True for entries that justify a file: messages, but not the tool declaration before the first one."""
    return line.type == "message" and line.role != "system"


def make_header(
    session_id: str,
    now_ms: int,
    cwd: str,
    parent_session: str | Absent = ABSENT,
    workspace: str | Absent = ABSENT,
) -> bytes:
    """The first line of a new session."""
    header = SessionHeader(
        id=session_id,
        timestamp=clock.to_iso(now_ms),
        cwd=cwd,
        parent_session=parent_session,
        workspace=workspace,
    )
    return codec.encode(header)


def _file_identity_of(path: str) -> tuple[int, int] | None:
    """The identity of the file at a path, or None if there is none."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _with_parent(line: EntryLine, parent_id: str | None) -> EntryLine:
    moved = line_from_bytes(codec.encode({**line.to_plain(), "parentId": parent_id}))
    assert moved is not None
    return moved


def append_missing_results(journal: Journal, now_ms: int, only: Collection[str] | None = None) -> int:
    """Append a result for every open call of the last answer, or `only` for these; returns the number of them."""
    calls = [call for call in find_dangling_calls(journal.branch) if only is None or call.id in only]
    agents = {agent.tool_call_id: agent for agent in read_recorded_agents(journal.lines)} if calls else {}
    for call in calls:
        agent = agents.get(call.id)
        text = INTERRUPTED if agent is None else f"{INTERRUPTED} {AGENT_INTERRUPTED.format(agent.agent_id)}"
        journal.append_message(
            ToolResultMessage(
                tool_call_id=call.id,
                tool_name=call.name,
                content=[TextContent(text=text)],
                details={} if agent is None else {"agentId": agent.agent_id, "sessionId": agent.session_id},
                is_error=True,
                timestamp=now_ms,
            )
        )
    return len(calls)


def find_dangling_calls(branch: list[EntryLine]) -> list[ToolCall]:
    """The calls of the last answer that have no result after it; none are needed for an answer that was withdrawn."""
    answered: set[str] = set()
    taken_back: dict[str, bool] = {}
    for line in reversed(branch):
        if line.role == "user":
            return []
        if line.type == "context_edit":
            edit = line.entry
            if isinstance(edit, ContextEdit):
                taken_back.setdefault(edit.target_id, edit.replacement is None)
        message = None if taken_back.get(line.id) else line.message
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            if message.stop_reason in ("error", "aborted"):
                return []
            calls = [block for block in message.content if isinstance(block, ToolCall)]
            return [call for call in calls if call.id not in answered]
    return []
