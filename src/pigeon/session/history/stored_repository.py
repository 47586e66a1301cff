"""The journals of an agent whose conversations a store keeps: the counterpart of `SessionRepository` for ids instead of
paths."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from pigeon.session.history.entry_line import EntryLine
from pigeon.session.history.journal import Journal
from pigeon.session.history.reading import LoadedSession, parse_session
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.session_rows import Ownership, SessionRows, StoredRows, open_stored_rows
from pigeon.session.history.stored import row_of_stored
from pigeon.store.protocol import SessionNotFound
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.errors import Refusal

NOT_FILES = "Conversations are kept in a store; {} is for session files"


class StoredRepository(SessionRepository):
    """Creates and opens journals whose rows are in a store; started agents keep theirs in memory."""

    def __init__(self, own: Ownership, *parts: Any) -> None:
        super().__init__(*parts)
        self._own = own

    async def open_store(self) -> None:
        """Check that the store can be used; raises `PigeonError`."""
        opening = getattr(self._own.store, "open", None)
        if opening is not None:
            await opening()

    async def has_session(self, session_id: str) -> bool:
        return await self._find_row(session_id) is not None

    async def find_workspace(self, reference: str) -> str | None:
        """The workspace of a session, if it is another machine; None for an unknown session, too."""
        with suppress(Refusal):
            header, *_ = await self._own.store.read(await self.find_session_id(reference))
            workspace = codec.decode_stored(header).get("workspace")
            return workspace if isinstance(workspace, str) else None
        return None

    async def fork(self, reference: str, cwd: str, session_id: str | None) -> Journal:
        """A copy of a session, which may be open elsewhere."""
        if session_id is not None and await self.has_session(session_id):
            raise Refusal(f"Session already exists with id '{session_id}'")
        source = await self.find_session_id(reference)
        header, *lines = await self._own.store.read(source)
        return self.copy(parse_session(header, lines, source).lines, cwd, source, session_id)

    def create_journal(self, cwd: str, parent: str | Absent = ABSENT, session_id: str | None = None) -> Journal:
        """An empty conversation; it is in the store from the first run on."""
        now = self._now()
        name = session_id or self._ids.session_id(now)
        return self._make_journal(name, cwd, self._make_header(name, now, cwd, parent), SessionRows(self._own, name))

    async def prepare_session(self, path: str, current: Journal | None = None) -> StoredRows:
        """Become the owner of a session and read it; raises `Refusal` for an unknown one."""
        session_id = await self.find_session_id(path)
        if current is not None and current.session_id == session_id and current.rows is not None:
            await current.rows.finish()
        return await open_stored_rows(self._own, session_id)

    async def find_session_id(self, reference: str) -> str:
        """The id that a reference is, or is the beginning of; raises `Refusal`."""
        find = getattr(self._own.store, "find_by_prefix", None)
        if find is None:
            return reference
        found = [row.session_id for row in await find(reference, 20)]
        if reference in found or len(found) == 1:
            return reference if reference in found else str(found[0])
        if found:
            listed = "\n".join(f"  {one}" for one in found)
            raise Refusal(f"'{reference}' is the beginning of several sessions; give more of the id of one:\n{listed}")
        raise SessionNotFound(f"No session found matching '{reference}' in the store")

    def open(self, path: str, cwd: str, current: Journal | None = None, ahead: Any = None) -> Journal:
        """The conversation that `prepare_session` has read."""
        assert isinstance(ahead, StoredRows)
        rows = SessionRows(self._own, ahead.session_id, ahead)
        where = ahead.loaded.header.get("cwd")
        where = where if isinstance(where, str) and where else cwd
        try:
            self._check_workspace(ahead.loaded.header.get("workspace"), ahead.session_id)
        except Refusal:
            rows.close()
            raise
        if self._workspace is None and not os.path.isdir(where):
            rows.close()
            raise Refusal(
                f"Stored session working directory does not exist: {where}\n"
                f"Session: {ahead.session_id}\nCurrent working directory: {cwd}"
            )
        journal = self._make_journal(ahead.session_id, where, ahead.loaded.header_line, rows)
        journal.load(ahead.loaded)
        if not self._keeps_open_calls:
            journal.close_open_calls()
        if rows.is_read_only:
            self.report(str(rows.make_refusal()))
        return journal

    def resolve_path(self, path: str) -> str:
        return path

    def find_newest(self, folder: str) -> tuple[str, str | None]:
        raise Refusal(NOT_FILES.format("open_session"))

    def is_file_of(self, path: str, journal: Journal) -> bool:
        return path == journal.session_id

    def copy(
        self,
        lines: Iterable[EntryLine],
        cwd: str,
        parent: str | Absent,
        session_id: str | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Journal:
        """A new conversation with these entries; stored at once if it contains a message."""
        kept = list(lines)
        journal = self.create_journal(cwd, parent, session_id)
        journal.load(LoadedSession({}, b"", kept, needs_newline=False, rewritten=False))
        if any(line.type == "message" for line in kept):
            journal.save_all()
        return journal

    async def list_sessions(
        self,
        cwd: str | None,
        *,
        limit: int,
        cursor: str | None = None,
        search: str | None = None,
        session_id: str | None = None,
        agents: bool = False,
    ) -> tuple[list[SessionRow], str | None]:
        """A page of the sessions of one working directory, or of all."""
        store = self._own.store
        if session_id is not None:
            found = await self._find_row(session_id)
            return ([] if found is None else [found]), None
        if search is not None:
            return [row_of_stored(row) for row in await store.search(search, cwd=cwd, limit=limit)], None
        rows, following = await store.list(cwd=cwd, limit=limit, cursor=cursor)
        return [row_of_stored(row) for row in rows], following

    async def _find_row(self, session_id: str) -> SessionRow | None:
        find = getattr(self._own.store, "find", None)
        if find is not None:
            found = await find(session_id)
            return None if found is None else row_of_stored(found)
        cursor: str | None = None
        while True:
            rows, cursor = await self._own.store.list(limit=200, cursor=cursor)
            match = next((row for row in rows if row.session_id == session_id), None)
            if match is not None or cursor is None:
                return None if match is None else row_of_stored(match)

    async def delete_session(self, reference: str) -> SessionRow:
        """Delete a session that no process has open; raises `Refusal`."""
        session_id = await self.find_session_id(reference)
        row = await self._find_row(session_id)
        # Another owner's name: a session that this process has open is in use, too.
        lease = await self._own.store.acquire(session_id, f"{self._own.owner} (delete)", self._own.seconds)
        if lease is None or row is None:
            raise Refusal(f"A process is writing this session: {session_id}. End it first")
        await self._own.store.delete(session_id, epoch=lease.epoch)
        return row

    async def close_store(self) -> None:
        """Wait for what is being closed, and close the store if it was opened by its address."""
        while self._own.closing:
            await asyncio.wait(set(self._own.closing))
        if self._own.closes_store:
            close = getattr(self._own.store, "close", None)
            if close is not None:
                await close()

    def _make_journal(self, session_id: str, cwd: str, header: bytes, rows: SessionRows) -> Journal:
        return Journal(session_id, cwd, header, rows, self._now, self._mask, self._ids)
