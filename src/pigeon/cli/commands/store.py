"""`pigeon store`: the place where conversations are kept, as a person or a deployment looks after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from pigeon.app.stores import find_store_address, make_store
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import print_line
from pigeon.session.history.entry_line import line_from_bytes
from pigeon.session.history.file_store import FileStore
from pigeon.store.postgres import PostgresStore
from pigeon.store.protocol import StoredSession
from pigeon.transport import exit_codes
from pigeon.wire import codec
from pigeon.wire.entries import RUN_ENTRY, CustomEntry
from pigeon.wire.errors import BadRecord, Refusal, StartupError, UsageError

AnyStore = FileStore | PostgresStore
_PAGE = 200


def run_store(call: CommandCall) -> int:
    """Run one of the actions; raises `StartupError` for an unusable store."""
    actions: dict[str, Callable[[AnyStore, CommandCall], Awaitable[int]]] = {
        "check": _check,
        "init": _init,
        "migrate": _migrate,
        "dump": _dump,
        "audit": _print_audit,
    }

    async def run() -> int:
        store = open_named_store(call)
        try:
            return await actions[call.action](store, call)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except Refusal as refusal:
        raise StartupError(str(refusal)) from None


def open_named_store(call: CommandCall, asked: str | None = None) -> AnyStore:
    """The store that a call names."""
    environment = call.environment
    address = find_store_address(asked or call.options.get("store"), environment)
    return make_store(address, environment, environment.agent_dir())


async def _check(store: AnyStore, call: CommandCall) -> int:
    if isinstance(store, FileStore):
        print_line(f"Sessions are files in {store.folder}, on this machine alone.")
        print_line("Entries are written before they are announced, and on the disk at the end of each run.")
        return exit_codes.OK
    await store.open()
    began = time.perf_counter()
    said = await store.describe_guarantees()
    took = (time.perf_counter() - began) * 1000
    version = await store.read_version()
    print_line(f"{store.address}: version {version}, answers in {took:.1f} ms")
    for sentence in said:
        print_line(f"{sentence}.")
    return exit_codes.OK


async def _init(store: AnyStore, call: CommandCall) -> int:
    if isinstance(store, FileStore):
        print_line(f"Sessions are files in {store.folder}; there is nothing to create.")
        return exit_codes.OK
    before, after = await store.migrate(create=True)
    if before is None:
        print_line(f"Created the store in {store.address}, version {after}")
    else:
        _print_migration(store, before, after)
    return exit_codes.OK


async def _migrate(store: AnyStore, call: CommandCall) -> int:
    if isinstance(store, FileStore):
        print_line(f"Sessions are files in {store.folder}; there is nothing to migrate.")
        return exit_codes.OK
    before, after = await store.migrate()
    _print_migration(store, before, after)
    return exit_codes.OK


def _print_migration(store: PostgresStore, before: int | None, after: int) -> None:
    done = f"has version {after} already" if before == after else f"was brought from version {before} to {after}"
    print_line(f"The store in {store.address} {done}")


async def _dump(store: AnyStore, call: CommandCall) -> int:
    """Every row as an object; the entry stands in it with its own bytes."""
    if not call.has_option("jsonl"):
        raise UsageError("pigeon store dump needs --jsonl, the one format that there is")
    wanted = call.options.get("session")
    async for row in _sessions_of(store, wanted):
        about = {"kind": "session", "sessionId": row.session_id, "cwd": row.cwd, "name": row.name, "user": None}
        _print_record(about)
        runs: dict[str, str] = {}
        async for position, epoch, node, line in _rows_of(store, row.session_id):
            _note_run(runs, line)
            head = {"kind": "entry", "sessionId": row.session_id, "position": position, "epoch": epoch, "node": node}
            _print_bytes(codec.encode(head)[:-1] + b',"entry":' + _to_json(line) + b"}")
        for run_id, state in runs.items():
            _print_record({"kind": "run", "sessionId": row.session_id, "runId": run_id, "state": state})
    for lease, expires in await store.list_leases(wanted):
        _print_record(
            {
                "kind": "lease",
                "sessionId": lease.session_id,
                "node": lease.owner,
                "epoch": lease.epoch,
                "expiresAt": expires,
            }
        )
    return exit_codes.OK


async def _sessions_of(store: AnyStore, wanted: str | None) -> AsyncIterator[StoredSession]:
    if wanted is not None:
        found = await store.find(wanted)
        if found is None:
            raise StartupError(f"There is no session {wanted} in the store")
        yield found
        return
    cursor: str | None = None
    while True:
        rows, cursor = await store.list(limit=_PAGE, cursor=cursor)
        for row in rows:
            yield row
        if cursor is None:
            return


async def _rows_of(store: AnyStore, session_id: str) -> AsyncIterator[tuple[int, int, str, bytes]]:
    if isinstance(store, PostgresStore):
        async for row in store.read_rows(session_id):
            yield row
        return
    leases = await store.list_leases(session_id)
    epoch, node = (leases[0][0].epoch, leases[0][0].owner) if leases else (0, "")
    for position, line in enumerate((await store.read(session_id))[1:]):
        yield position, epoch, node, line


def _note_run(runs: dict[str, str], line: bytes) -> None:
    """Note the state of a run, if the line tells of one; the last one counts."""
    found = line_from_bytes(line) if RUN_ENTRY.encode() in line else None
    entry = found.entry if found is not None else None
    if isinstance(entry, CustomEntry) and entry.custom_type == RUN_ENTRY and isinstance(entry.data, dict):
        runs[str(entry.data.get("runId"))] = str(entry.data.get("state"))


def _to_json(line: bytes) -> bytes:
    """A line with its own bytes, if those are JSON; else as a text."""
    try:
        codec.decode_stored(line)
        line.decode()
    except (BadRecord, UnicodeDecodeError):
        return codec.encode(line.decode("utf-8", "replace"))
    return line.strip()


async def _print_audit(store: AnyStore, call: CommandCall) -> int:
    if not call.has_option("jsonl"):
        raise UsageError("pigeon store audit needs --jsonl, the one format that there is")
    if isinstance(store, FileStore):
        raise StartupError("Session files have no audit log; a store in PostgreSQL has one")
    async for record in store.read_audit():
        _print_record(record)
    return exit_codes.OK


def _print_record(record: object) -> None:
    _print_bytes(codec.encode(record))


def _print_bytes(line: bytes) -> None:
    print_line(line.decode())
