"""`pigeon sessions` for a database, and `pigeon sessions copy` between any two stores."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from pigeon.app.stores import name_process
from pigeon.cli.commands.sessions import (
    export_file,
    parse_limit,
    print_conversation,
    print_rows,
)
from pigeon.cli.commands.store import AnyStore, open_named_store
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import format_table, print_line, print_to_stderr
from pigeon.session.history.entry_line import line_from_entry
from pigeon.session.history.listing import title_of
from pigeon.session.history.reading import parse_session
from pigeon.session.history.stored import row_of_stored
from pigeon.session.history.views import clean_name
from pigeon.store.postgres import PostgresStore
from pigeon.store.protocol import Lease, SessionExists, StoredSession
from pigeon.system import clock
from pigeon.system.ids import RANDOM_IDS
from pigeon.transport import exit_codes
from pigeon.wire.answers import SessionRow
from pigeon.wire.entries import SessionInfo
from pigeon.wire.errors import Refusal, StartupError, UsageError

LEASE_SECONDS = 30
_MOST_NAMED = 20
_LINES_AT_ONCE = 500
_BYTES_AT_ONCE = 4 << 20


def run_stored_sessions(call: CommandCall) -> int:
    """One of the actions on sessions in a database; raises `StartupError`."""

    async def run(store: AnyStore) -> int:
        assert isinstance(store, PostgresStore)
        sessions = _StoredSessions(call, store)
        actions: dict[str, Callable[[], Awaitable[int]]] = {
            "list": sessions.print_newest,
            "search": sessions.search,
            "show": sessions.show,
            "export": sessions.export,
            "rename": sessions.rename,
            "delete": sessions.delete,
            "undelete": sessions.undelete,
            "trash": sessions.print_trash,
        }
        return await actions[call.action]()

    return _run_with_store(call, run)


def _run_with_store(call: CommandCall, work: Callable[[AnyStore], Awaitable[int]]) -> int:
    async def run() -> int:
        store = open_named_store(call)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except Refusal as refusal:
        raise StartupError(str(refusal)) from None


class _StoredSessions:
    """The actions of one call on one store."""

    def __init__(self, call: CommandCall, store: PostgresStore) -> None:
        self._call = call
        self._store = store

    async def print_newest(self) -> int:
        rows, _ = await self._store.list(cwd=self._folder, limit=parse_limit(self._call.options.get("limit")))
        if not rows and not self._call.has_option("json"):
            print_to_stderr(f"There are no sessions in {self._store.address}{self._elsewhere}")
            return exit_codes.OK
        return self._print(rows)

    async def search(self) -> int:
        text, limit = " ".join(self._call.words), parse_limit(self._call.options.get("limit"))
        rows = await self._store.search(text, cwd=self._folder, limit=limit)
        if not rows and not self._call.has_option("json"):
            print_to_stderr(f'No session has a message with "{text}"{self._elsewhere}')
            return exit_codes.FAILED
        return self._print(rows)

    async def show(self) -> int:
        session_id = await self._find(self._call.words[0])
        header, *lines = await self._store.read(session_id)
        print_conversation(self._call, parse_session(header, lines, session_id), None)
        return exit_codes.OK

    async def export(self) -> int:
        session_id = await self._find(self._call.words[0])
        lines = await self._store.read(session_id)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, session_id)
            await asyncio.to_thread(_write_lines, path, lines)
            await asyncio.to_thread(export_file, self._call, path)
        return exit_codes.OK

    async def rename(self) -> int:
        name = clean_name(" ".join(self._call.words[1:]))
        session_id = await self._find(self._call.words[0])
        async with _owning(self._store, session_id) as lease:
            header, *lines = await self._store.read(session_id)
            loaded = parse_session(header, lines, session_id)
            entry = SessionInfo(
                id=RANDOM_IDS.entry_id(loaded.by_id),
                parent_id=loaded.lines[-1].id if loaded.lines else None,
                timestamp=clock.to_iso(clock.now_ms()),
                name=name,
            )
            line = line_from_entry(entry, lambda raw: raw).raw
            await self._store.append(session_id, [line], epoch=lease.epoch, position=len(lines))
        print_line(f"{session_id} is now called {name}")
        return exit_codes.OK

    async def delete(self) -> int:
        session_id = await self._find(self._call.words[0])
        row = await self._store.find(session_id)
        async with _owning(self._store, session_id) as lease:
            await self._store.delete(session_id, epoch=lease.epoch)
        print_line(f"Deleted {title_of(row_of_stored(row)) if row else session_id} ({session_id})")
        print_line(f"Undo: pigeon sessions undelete {session_id} --store URL")
        return exit_codes.OK

    async def undelete(self) -> int:
        asked = self._call.word_at(0)
        gone = [row for row, _ in await self._store.list_deleted() if row.session_id.startswith(asked)]
        if not gone:
            raise StartupError(f"There is no {asked} in the trash" if asked else "The trash is empty")
        if asked and len(gone) > 1 and all(row.session_id != asked for row in gone):
            raise StartupError(f"{asked} is the beginning of several ids; `pigeon sessions trash` lists them")
        one = next((row for row in gone if row.session_id == asked), gone[0])
        await self._store.restore(one.session_id)
        print_line(f"Brought back {title_of(row_of_stored(one))} ({one.session_id})")
        return exit_codes.OK

    async def print_trash(self) -> int:
        gone = await self._store.list_deleted()
        if not gone and not self._call.has_option("json"):
            print_to_stderr("The trash is empty.")
            return exit_codes.OK
        if self._call.has_option("json"):
            return self._print([row for row, _ in gone])
        rows = [(row.session_id, at[:16].replace("T", " "), title_of(row_of_stored(row))) for row, at in gone]
        print_line(format_table([("id", "deleted", "session"), *rows]))
        return exit_codes.OK

    @property
    def _folder(self) -> str | None:
        return None if self._call.has_option("all") else self._call.environment.cwd or "/"

    @property
    def _elsewhere(self) -> str:
        return "." if self._call.has_option("all") else " that is of this folder; --all includes the others."

    def _print(self, rows: list[StoredSession]) -> int:
        shown: list[SessionRow] = [row_of_stored(row) for row in rows]
        print_rows(self._call, shown, ())
        return exit_codes.OK

    async def _find(self, reference: str) -> str:
        """The id that a reference is, or is the beginning of."""
        if not reference.strip():
            raise UsageError("The ID of the session is empty. `pigeon sessions` lists the ids")
        found = await self._store.find_by_prefix(reference, _MOST_NAMED)
        if any(row.session_id == reference for row in found):
            return reference
        if not found:
            raise StartupError(f"There is no session {reference} in {self._store.address}")
        if len(found) > 1:
            listed = "\n".join(f"  {row.session_id}  {title_of(row_of_stored(row))}" for row in found)
            raise StartupError(f"'{reference}' is the beginning of several sessions:\n{listed}")
        return found[0].session_id


@asynccontextmanager
async def _owning(store: AnyStore, session_id: str) -> AsyncIterator[Lease]:
    """The lease of a session that no other process has; raises `StartupError`."""
    lease = await store.acquire(session_id, name_process(), LEASE_SECONDS)
    if lease is None:
        raise StartupError(f"Another process is writing the session {session_id}. End it first")
    try:
        yield lease
    finally:
        await store.release(lease)


def _write_lines(path: str, lines: list[bytes]) -> None:
    with open(path, "xb") as file:
        file.write(b"".join(line + b"\n" for line in lines))


def copy_sessions(call: CommandCall) -> int:
    """Copy sessions to another store, line by line as they are; what is there already stays."""
    target_address = call.options.get("to")
    if not target_address:
        raise UsageError("pigeon sessions copy needs --to URL, the store that gets the copies")
    if bool(call.word_at(0)) == call.has_option("all"):
        raise UsageError("pigeon sessions copy needs either the ID of a session or --all")

    async def run(source: AnyStore) -> int:
        target = open_named_store(call, target_address)
        try:
            return await _copy_all(call, source, target)
        finally:
            await target.close()

    return _run_with_store(call, run)


async def _copy_all(call: CommandCall, source: AnyStore, target: AnyStore) -> int:
    if isinstance(target, PostgresStore):
        await target.open()
    wanted = [call.words[0]] if call.word_at(0) else await _list_ids(source)
    copied = entries = refused = 0
    for session_id in wanted:
        try:
            added = await _copy(source, target, session_id)
        except StartupError as error:
            if len(wanted) == 1:
                raise
            print_to_stderr(str(error))
            refused += 1
            continue
        copied += 1
        entries += added
    print_line(f"Copied {copied} sessions to {target.address}, with {entries} entries that were not there")
    return exit_codes.FAILED if refused else exit_codes.OK


async def _list_ids(store: AnyStore) -> list[str]:
    """The ids of all sessions; what was changed last comes last, so that it is the newest in the copy, too."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        rows, cursor = await store.list(limit=200, cursor=cursor)
        found += [row.session_id for row in rows]
        if cursor is None:
            return found[::-1]


async def _copy(source: AnyStore, target: AnyStore, session_id: str) -> int:
    """Copy what the target lacks; returns the number of entries. Raises `StartupError` if it has another session."""
    header, *lines = await source.read(session_id)
    try:
        await target.create(session_id, header)
        there: list[bytes] = []
    except SessionExists:
        there_header, *there = await target.read(session_id)
        if there_header != header or there != lines[: len(there)]:
            raise StartupError(
                f"The session {session_id} in {target.address} has other entries; it was left as it is"
            ) from None
    if len(there) == len(lines):
        return 0
    async with _owning(target, session_id) as lease:
        position = len(there)
        while position < len(lines):
            batch = _take_batch(lines, position)
            if isinstance(target, PostgresStore):
                await target.append(session_id, batch, epoch=lease.epoch, position=position, audited=False)
            else:
                await target.append(session_id, batch, epoch=lease.epoch, position=position)
            position += len(batch)
    return len(lines) - len(there)


def _take_batch(lines: list[bytes], start: int) -> list[bytes]:
    size, end = 0, start
    while end < len(lines) and end - start < _LINES_AT_ONCE and (end == start or size < _BYTES_AT_ONCE):
        size += len(lines[end])
        end += 1
    return lines[start:end]
