"""PostgreSQL as a session store.

Every call is one round trip and one transaction, sent as text, so that it works behind any pooler: no prepared
statements, no state of a connection, time limits per statement. The clock of the database alone decides which leases
have ended. A call that fails because the database restarts, fails over or is slow is made again for some seconds; all
calls can be repeated without doing anything twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pigeon.store.addresses import EMBEDDED, hide_password, mask_secrets
from pigeon.store.lines import check_line, read_entry_facts, read_header_facts, split_words
from pigeon.store.protocol import (
    Lease,
    PositionMismatch,
    SessionExists,
    SessionNotFound,
    StaleEpoch,
    StoredSession,
    StoreUnavailable,
)
from pigeon.store.schema import check_version, read_migrations
from pigeon.system import clock
from pigeon.system.extras import require_extra
from pigeon.wire.errors import Refusal, StartupError

MOST_CONNECTIONS = 8
MOST_WORD_BYTES = 400_000
STATEMENT_SECONDS = 10
LOCK_SECONDS = 5
# Longer than the database may take: then the connection hangs, and a new one may not.
ANSWER_SECONDS = 15
PATIENCE_SECONDS = 10.0
_POOL_SECONDS = 5.0
# Each call that finds no connection tries again; the pool itself would wait longer and longer.
_RECONNECT_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# Read-only (a failover), cannot connect now, too many connections, deadlocks, time limits of locks and statements.
_PASSING = ("25006", "57P01", "57P02", "57P03", "53300", "40001", "40P01", "55P03", "57014")
_CONNECTING = {"connect_timeout": 5, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_LIMITS = f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; "
_COLUMNS = """s.session_id, s.cwd, s.name, s.entries, s.created, extract(epoch FROM s.modified_at), s.first_message,
    s.parent_session, CASE WHEN l.expires_at > now() THEN coalesce(l.owner, '') ELSE '' END, s.modified_at::text"""
# Inside the class, `list` is the method.
_Rows = list[tuple[Any, ...]]
_Lines = list[bytes]
_Sessions = list[StoredSession]
_Leases = list[Lease]
Failures = list[BaseException]
_FROM = "FROM pigeon_sessions s LEFT JOIN pigeon_leases l USING (session_id)"


class PostgresStore:
    """Sessions as rows of a PostgreSQL database.

    Args:
        url: `postgresql://user:password@host/database`, with several hosts and every option that PostgreSQL knows; or
            `pgserver:DIR` for an embedded server with its data in this folder
        patience: for how many seconds a call is repeated while the database cannot be reached

    Example:
        import asyncio

        import pigeon

        async def list_names(url: str) -> list[str]:
            async with pigeon.PostgresStore(url) as store:
                found, _ = await store.list(limit=10)
                return [session.name for session in found]
    """

    def __init__(self, url: str, *, patience: float = PATIENCE_SECONDS) -> None:
        self._url = url
        self._patience = patience
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._server: str | None = None

    @property
    def address(self) -> str:
        """The address, without its password."""
        return hide_password(self._url)

    async def __aenter__(self) -> PostgresStore:
        await self.open()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()

    # The database

    async def open(self) -> None:
        """Connect, and check that there is a store of a known version; raises `StartupError` with the remedy."""
        await self._ready_pool()

    async def close(self) -> None:
        """Close the connections of this event loop; an embedded server ends with its last user."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close(timeout=2)
        if self._server is not None and self._url.startswith(EMBEDDED) and not self._pools:
            from pigeon.store.embedded import stop_embedded_server

            self._server = None
            await asyncio.to_thread(stop_embedded_server, self._url.removeprefix(EMBEDDED))

    async def read_version(self) -> int | None:
        """The version of the store in the database; None if there is none. Raises `StartupError`."""
        async with await self._connect() as connection:
            return await _read_version(connection)

    async def migrate(self, *, create: bool = False) -> tuple[int | None, int]:
        """Bring the store to this program's version, and create it if asked; returns the version before and after.

        Raises `StartupError` for a database without a store, and for a store of a newer program.
        """
        async with await self._connect() as connection:
            await self._check_encoding(connection)
            before = await _read_version(connection)
            if before is None and not create:
                check_version(None, self.address)
            after = before or 0
            if before is not None and before > max(read_migrations()):
                check_version(before, self.address)
                return before, before
            for version, script in read_migrations().items():
                if version > after:
                    await self._apply(connection, version, script)
                    after = version
            return before, after

    async def describe_guarantees(self) -> Sequence[str]:
        """What this database promises about rows that it has confirmed, one sentence each."""
        row = await self._fetch_one(
            "SELECT current_setting('synchronous_commit'), current_setting('fsync'), "
            "(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')), "
            "current_setting('full_page_writes')"
        )
        commit, fsync, standbys, pages = row or ("", "", 0, "")
        if fsync != "on" or commit == "off":
            return [
                f"Entries that were announced can be lost when the database server crashes (fsync = {fsync}, "
                f"synchronous_commit = {commit}); set both to on"
            ]
        said = ["Entries that were announced survive a crash of the database server"]
        if pages != "on":
            said.append("Pages may be torn by a power failure (full_page_writes = off)")
        if standbys and commit in ("on", "remote_apply"):
            said.append(f"They survive a failover to one of {standbys} synchronous standbys")
        else:
            said.append("They can be lost in a failover: there is no synchronous standby")
        return said

    # What every store does

    async def create(self, session_id: str, header: bytes) -> None:
        """Create a session without entries; raises `SessionExists`."""
        check_line(header)
        _check_id(session_id)
        facts = read_header_facts(header)
        failures: Failures = []
        row = await self._fetch_one(
            "DELETE FROM pigeon_entries WHERE session_id = %(id)s AND EXISTS (SELECT FROM pigeon_sessions "
            "WHERE session_id = %(id)s AND deleted_at IS NOT NULL); "
            "WITH made AS (INSERT INTO pigeon_sessions (session_id, header, cwd, created, parent_session) "
            "VALUES (%(id)s, %(header)s, %(cwd)s, %(created)s, %(parent)s) ON CONFLICT (session_id) DO UPDATE SET "
            "header = excluded.header, cwd = excluded.cwd, created = excluded.created, name = '', first_message = '', "
            "parent_session = excluded.parent_session, entries = 0, modified_at = clock_timestamp(), deleted_at = NULL "
            "WHERE pigeon_sessions.deleted_at IS NOT NULL RETURNING session_id), "
            "noted AS (INSERT INTO pigeon_audit (action, session_id) SELECT 'session.create', session_id FROM made) "
            "SELECT 1 FROM made",
            {
                "id": session_id,
                "header": header,
                "cwd": facts.cwd,
                "created": facts.created,
                "parent": facts.parent_session,
            },
            failures,
        )
        # After a lost answer, the session that is there may be the one of the first attempt.
        if row is None and not (failures and await self._is_untouched(session_id, header)):
            raise SessionExists(f"There is a session {session_id} already")

    async def acquire(self, session_id: str, owner: str, seconds: float, *, known_epoch: int = 0) -> Lease | None:
        """Become the owner; `known_epoch` is the newest one that the caller has seen, and the new one is greater."""
        row = await self._fetch_one(
            "WITH taken AS (INSERT INTO pigeon_leases (session_id, owner, epoch, expires_at) "
            "SELECT session_id, %(owner)s, %(known)s + 1, now() + make_interval(secs => %(seconds)s) "
            "FROM pigeon_sessions WHERE session_id = %(id)s AND deleted_at IS NULL "
            "ON CONFLICT (session_id) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, "
            "epoch = greatest(pigeon_leases.epoch, %(known)s) + 1 WHERE pigeon_leases.owner IS NULL "
            "OR pigeon_leases.owner = excluded.owner OR pigeon_leases.expires_at <= now() RETURNING epoch) "
            "SELECT (SELECT epoch FROM taken), "
            "EXISTS (SELECT FROM pigeon_sessions WHERE session_id = %(id)s AND deleted_at IS NULL)",
            {"id": session_id, "owner": owner, "known": known_epoch, "seconds": float(seconds)},
        )
        assert row is not None
        if not row[1]:
            raise SessionNotFound(f"There is no session {session_id} in the store")
        return None if row[0] is None else Lease(session_id, owner, row[0])

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Extend a lease from now on; also one that has ended, as long as the session has no other owner."""
        return lease in await self.renew_all([lease], seconds)

    async def renew_all(self, leases: Sequence[Lease], seconds: float) -> _Leases:
        """Extend several leases by one statement; returns those that still hold."""
        rows = await self._fetch(
            "UPDATE pigeon_leases l SET expires_at = now() + make_interval(secs => %(seconds)s) "
            "FROM unnest(%(ids)s::text[], %(owners)s::text[], %(epochs)s::bigint[]) AS kept (session_id, owner, epoch) "
            "WHERE l.session_id = kept.session_id AND l.owner = kept.owner AND l.epoch = kept.epoch "
            "RETURNING l.session_id",
            {
                "seconds": float(seconds),
                "ids": [lease.session_id for lease in leases],
                "owners": [lease.owner for lease in leases],
                "epochs": [lease.epoch for lease in leases],
            },
        )
        renewed = {row[0] for row in rows}
        return [lease for lease in leases if lease.session_id in renewed]

    async def release(self, lease: Lease) -> None:
        """Give the lease up before its end."""
        await self._fetch(
            "UPDATE pigeon_leases SET owner = NULL, expires_at = now() "
            "WHERE session_id = %s AND owner = %s AND epoch = %s RETURNING 1",
            (lease.session_id, lease.owner, lease.epoch),
        )

    async def append(
        self, session_id: str, lines: Sequence[bytes], *, epoch: int, position: int, audited: bool = True
    ) -> int:
        """Add these entries, all or none; returns the position behind them. What is copied is not `audited`."""
        for line in lines:
            check_line(line)
        facts = [read_entry_facts(line) for line in lines]
        names = [fact.name for fact in facts if fact.name is not None]
        row = await self._fetch_one(
            "SELECT pigeon_append(%s, %s, %s, %s::bytea[], %s::text[], %s::text[], %s::text[], %s, %s)",
            (
                session_id,
                epoch,
                position,
                [*lines],
                [_join_words(fact.text) for fact in facts],
                [fact.custom_type for fact in facts],
                [fact.action for fact in facts if audited and fact.action],
                names[-1] if names else None,
                next((fact.prompt for fact in facts if fact.prompt), ""),
            ),
        )
        assert row is not None
        outcome, _, there = str(row[0]).partition(" ")
        if outcome == "missing":
            raise SessionNotFound(f"There is no session {session_id} in the store")
        if outcome == "stale":
            raise StaleEpoch(f"Another process has taken over the session {session_id}")
        if outcome == "mismatch":
            raise PositionMismatch(
                f"The session {session_id} has {there} entries, and these were to follow the first {position}"
            )
        return position + len(lines)

    async def read(self, session_id: str, after: int = 0) -> _Lines:
        """The header and all entries, or the entries behind the first `after` ones."""
        rows = await self._fetch(
            "SELECT -1, header FROM pigeon_sessions WHERE session_id = %(id)s AND deleted_at IS NULL UNION ALL "
            "(SELECT position, line FROM pigeon_entries WHERE session_id = %(id)s AND position >= %(after)s) "
            "ORDER BY 1",
            {"id": session_id, "after": after},
        )
        if not rows or rows[0][0] != -1:
            raise SessionNotFound(f"There is no session {session_id} in the store")
        lines = [bytes(row[1]) for row in rows]
        return lines[1:] if after > 0 else lines

    async def list(
        self, *, cwd: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[_Sessions, str | None]:
        """Sessions of one working directory or of all, those changed last first, and where the next page begins."""
        at, _, last = (cursor or "").partition("/")
        rows = await self._fetch(
            f"SELECT {_COLUMNS} {_FROM} WHERE s.deleted_at IS NULL "
            + ("AND s.cwd = %(cwd)s " if cwd is not None else "")
            + ("AND (s.modified_at, s.session_id) < (%(at)s::timestamptz, %(last)s) " if cursor else "")
            + "ORDER BY s.modified_at DESC, s.session_id DESC LIMIT %(limit)s",
            {"cwd": cwd, "at": at, "last": last, "limit": limit + 1},
        )
        found = [_to_stored(row) for row in rows[:limit]]
        return found, f"{rows[limit - 1][-1]}/{rows[limit - 1][0]}" if len(rows) > limit and found else None

    async def search(self, text: str, *, cwd: str | None = None, limit: int = 50) -> _Sessions:
        """Sessions with a message that has all words of the text, those changed last first."""
        words = split_words(text)
        if not words:
            return []
        rows = await self._fetch(
            f"SELECT {_COLUMNS} {_FROM} WHERE s.deleted_at IS NULL "
            + ("AND s.cwd = %(cwd)s " if cwd is not None else "")
            + "AND s.session_id IN (SELECT session_id FROM pigeon_entries WHERE words @@ %(query)s::tsquery) "
            "ORDER BY s.modified_at DESC, s.session_id DESC LIMIT %(limit)s",
            {"cwd": cwd, "query": " & ".join(f"'{word}':*" for word in words), "limit": limit},
        )
        return [_to_stored(row) for row in rows]

    async def delete(self, session_id: str, *, epoch: int) -> None:
        """Delete a session; `restore` brings it back until another is created with its id."""
        row = await self._fetch_one(
            "WITH held AS (SELECT epoch, owner FROM pigeon_leases WHERE session_id = %(id)s FOR NO KEY UPDATE), "
            "gone AS (UPDATE pigeon_sessions SET deleted_at = now() WHERE session_id = %(id)s AND deleted_at IS NULL "
            "AND EXISTS (SELECT FROM held WHERE epoch = %(epoch)s) RETURNING 1), "
            "freed AS (UPDATE pigeon_leases SET owner = NULL, expires_at = now() WHERE session_id = %(id)s "
            "AND EXISTS (SELECT FROM gone)), "
            "noted AS (INSERT INTO pigeon_audit (action, session_id, node) SELECT 'session.delete', %(id)s, "
            "(SELECT coalesce(owner, '') FROM held) FROM gone) "
            "SELECT EXISTS (SELECT FROM gone), "
            "EXISTS (SELECT FROM pigeon_sessions WHERE session_id = %(id)s AND deleted_at IS NULL)",
            {"id": session_id, "epoch": epoch},
        )
        assert row is not None
        if not row[1]:
            raise SessionNotFound(f"There is no session {session_id} in the store")
        if not row[0]:
            raise StaleEpoch(f"Another process has taken over the session {session_id}")

    # What only this store does

    async def find(self, session_id: str) -> StoredSession | None:
        """The session with this id, if there is one."""
        row = await self._fetch_one(
            f"SELECT {_COLUMNS} {_FROM} WHERE s.deleted_at IS NULL AND s.session_id = %s", (session_id,)
        )
        return None if row is None else _to_stored(row)

    async def find_by_prefix(self, beginning: str, most: int) -> _Sessions:
        """The sessions whose ids begin like this."""
        rows = await self._fetch(
            f"SELECT {_COLUMNS} {_FROM} WHERE s.deleted_at IS NULL AND starts_with(s.session_id, %s) "
            "ORDER BY s.modified_at DESC LIMIT %s",
            (beginning, most),
        )
        return [_to_stored(row) for row in rows]

    async def list_deleted(self) -> Sequence[tuple[StoredSession, str]]:
        """The deleted sessions that can be restored, most recently deleted first, and when each was deleted."""
        rows = await self._fetch(
            f"SELECT extract(epoch FROM s.deleted_at), {_COLUMNS} {_FROM} WHERE s.deleted_at IS NOT NULL "
            "ORDER BY s.deleted_at DESC"
        )
        return [(_to_stored(row[1:]), _to_iso(row[0])) for row in rows]

    async def restore(self, session_id: str) -> None:
        """Bring a deleted session back; raises `SessionNotFound`."""
        row = await self._fetch_one(
            "UPDATE pigeon_sessions SET deleted_at = NULL WHERE session_id = %s AND deleted_at IS NOT NULL RETURNING 1",
            (session_id,),
        )
        if row is None:
            raise SessionNotFound(f"There is no deleted session {session_id} in the store")

    async def list_leases(self, session_id: str | None = None) -> Sequence[tuple[Lease, str]]:
        """The living leases, and when each ends."""
        rows = await self._fetch(
            "SELECT session_id, owner, epoch, extract(epoch FROM expires_at) FROM pigeon_leases "
            "WHERE owner IS NOT NULL AND expires_at > now() AND (%(id)s::text IS NULL OR session_id = %(id)s) "
            "ORDER BY session_id",
            {"id": session_id},
        )
        return [(Lease(row[0], row[1], row[2]), _to_iso(row[3])) for row in rows]

    async def read_audit(self, most: int = 1000) -> AsyncIterator[dict[str, Any]]:
        """The audit log in order of time: what was done, when, where and by whom; never what was said."""
        after = 0
        while True:
            rows = await self._fetch(
                'SELECT number, extract(epoch FROM at), "user", action, session_id, address, node FROM pigeon_audit '
                "WHERE number > %s ORDER BY number LIMIT %s",
                (after, most),
            )
            for _, at, user, action, session_id, address, node in rows:
                yield {
                    "at": _to_iso(at),
                    "user": user,
                    "action": action,
                    "sessionId": session_id,
                    "address": address,
                    "node": node,
                }
            if len(rows) < most:
                return
            after = rows[-1][0]

    async def read_rows(self, session_id: str, most: int = 1000) -> AsyncIterator[tuple[int, int, str, bytes]]:
        """Position, epoch, node and line of each entry, in order."""
        after = -1
        while True:
            rows = await self._fetch(
                "SELECT position, epoch, node, line FROM pigeon_entries WHERE session_id = %s AND position > %s "
                "ORDER BY position LIMIT %s",
                (session_id, after, most),
            )
            for position, epoch, node, line in rows:
                yield position, epoch, node, bytes(line)
            if len(rows) < most:
                return
            after = rows[-1][0]

    # Calls

    async def _fetch_one(
        self, query: str, values: Any = (), failures: Failures | None = None
    ) -> tuple[Any, ...] | None:
        rows = await self._fetch(query, values, failures)
        return rows[0] if rows else None

    async def _fetch(self, query: str, values: Any = (), failures: Failures | None = None) -> _Rows:
        """The rows of the last statement; repeated while the database is away. Attempts that have failed are added to
        `failures`."""
        import psycopg
        from psycopg_pool import PoolTimeout

        give_up = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            pool = await self._ready_pool()
            try:
                async with asyncio.timeout(ANSWER_SECONDS), pool.connection() as connection:
                    return await _execute(connection, query, values)
            except (psycopg.Error, PoolTimeout, TimeoutError) as error:
                if not _is_passing(error):
                    raise Refusal(f"The session store refuses: {self._describe(error)}") from None
                if failures is not None:
                    failures.append(error)
                if time.monotonic() + pause > give_up:
                    raise StoreUnavailable(
                        f"The session store {self.address} cannot be used now: {self._describe(error)}"
                    ) from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _ready_pool(self) -> Any:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is not None:
            return pool
        async with self._opening.setdefault(loop, asyncio.Lock()):
            pool = self._pools.get(loop)
            if pool is None:
                if self._url.startswith(EMBEDDED):
                    await self.migrate(create=True)
                check_version(await self.read_version(), self.address)
                pool = self._pools[loop] = await self._open_pool()
            return pool

    async def _open_pool(self) -> Any:
        from psycopg_pool import AsyncConnectionPool

        pool: Any = AsyncConnectionPool(
            await self._find_server(),
            kwargs=_connection_settings(await self._find_server()),
            min_size=1,
            max_size=MOST_CONNECTIONS,
            reconnect_timeout=_RECONNECT_SECONDS,
            timeout=min(_POOL_SECONDS, max(self._patience, 0.1)),
            open=False,
        )
        await pool.open()
        return pool

    async def _connect(self) -> Any:
        """A connection of its own, tried once; raises `StartupError`."""
        server = await self._find_server()
        import psycopg

        try:
            return await psycopg.AsyncConnection.connect(server, **_connection_settings(server))
        except psycopg.ProgrammingError:
            raise StartupError(f"The address of the store cannot be understood: {self.address}") from None
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise StartupError(f"The store {self.address} cannot be reached: {self._describe(error)}") from None

    async def _find_server(self) -> str:
        """The address of the server, which is started if it is the embedded one."""
        if self._server is None:
            require_extra("postgres", "A store in PostgreSQL")
            _silence_pool()
            self._server = self._url
            if self._url.startswith(EMBEDDED):
                from pigeon.store.embedded import start_embedded_server

                self._server = await asyncio.to_thread(start_embedded_server, self._url.removeprefix(EMBEDDED))
        return self._server

    async def _check_encoding(self, connection: Any) -> None:
        rows = await _execute(connection, "SELECT current_setting('server_encoding')", ())
        if rows[0][0] != "UTF8":
            raise StartupError(f"The database must have the encoding UTF8; {self.address} has {rows[0][0]}")

    async def _apply(self, connection: Any, version: int, script: str) -> None:
        """One version, in one transaction; does nothing if another process was faster."""
        import psycopg

        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('pigeon_schema'))")
                if (await _read_version(connection) or 0) >= version:
                    return
                if version == 1:
                    await connection.execute(
                        "CREATE TABLE pigeon_schema (version integer NOT NULL); "
                        "CREATE UNIQUE INDEX pigeon_schema_one_row ON pigeon_schema ((true)); "
                        "INSERT INTO pigeon_schema VALUES (0)"
                    )
                await connection.execute(script.encode())
                await connection.execute("UPDATE pigeon_schema SET version = %s", (version,))
        except psycopg.Error as error:
            raise StartupError(
                f"The store in {self.address} cannot be brought to version {version}: {self._describe(error)}"
            ) from None

    async def _is_untouched(self, session_id: str, header: bytes) -> bool:
        """Whether a session with this header was created and nothing else."""
        row = await self._fetch_one(
            "SELECT 1 FROM pigeon_sessions WHERE session_id = %(id)s AND header = %(header)s AND entries = 0 "
            "AND NOT EXISTS (SELECT FROM pigeon_leases WHERE session_id = %(id)s)",
            {"id": session_id, "header": header},
        )
        return row is not None

    def _describe(self, error: BaseException) -> str:
        """What went wrong, in one line and without the password."""
        if isinstance(error, TimeoutError):
            return f"it has not answered for {ANSWER_SECONDS} seconds"
        if type(error).__name__ == "PoolTimeout":
            return "it accepts no connection"
        text = str(error).strip().split("\n")[0]
        return mask_secrets(text, self._url) or type(error).__name__


async def _execute(connection: Any, query: str, values: Any) -> list[tuple[Any, ...]]:
    """The rows of the last statement of a text that is one transaction."""
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(_LIMITS + query, values)
            rows: list[tuple[Any, ...]] = []
            while True:
                if cursor.description is not None:
                    rows = await cursor.fetchall()
                if not cursor.nextset():
                    return rows
    except BaseException as error:
        # What is connected to a server that only reads, or that ends, is no use any more.
        if getattr(error, "sqlstate", None) in ("25006", "57P01"):
            await connection.close()
        raise


async def _read_version(connection: Any) -> int | None:
    # Not to_regclass: it may not see yet what another program has just created.
    query = "SELECT FROM pg_class WHERE relname = 'pigeon_schema' AND relkind = 'r' AND pg_table_is_visible(oid)"
    rows = await _execute(connection, f"SELECT EXISTS ({query})", ())
    if not rows[0][0]:
        return None
    found = await _execute(connection, "SELECT version FROM pigeon_schema", ())
    return int(found[0][0]) if found else None


def _connection_settings(server: str) -> dict[str, Any]:
    """What is set for every connection, unless the address says otherwise."""
    import psycopg
    from psycopg import AsyncClientCursor
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(server)
    except psycopg.ProgrammingError:
        given = {}
    defaults = {name: value for name, value in _CONNECTING.items() if name not in given}
    named = {} if "application_name" in given else {"application_name": "pigeon"}
    return {
        "autocommit": True,
        "cursor_factory": AsyncClientCursor,
        "prepare_threshold": None,
        "client_encoding": "utf8",
        **defaults,
        **named,
    }


def _silence_pool() -> None:
    """The pool logs each failed attempt to connect; those are reported by the calls."""
    import logging

    logger = logging.getLogger("psycopg")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _is_passing(error: BaseException) -> bool:
    """True for a failure that may be over when the same is tried again."""
    import psycopg

    state = getattr(error, "sqlstate", None)
    if isinstance(error, psycopg.Error) and state is not None:
        return state in _PASSING or state.startswith("08")
    return not isinstance(error, psycopg.Error) or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


def _check_id(session_id: str) -> None:
    if not session_id or "\0" in session_id or len(session_id) > 500:
        raise Refusal("The id of a session is a text of 1 to 500 characters without NUL")


def _join_words(text: str) -> str:
    words = split_words(text)
    joined = " ".join(words)
    return joined if len(joined) < MOST_WORD_BYTES // 4 else joined[: MOST_WORD_BYTES // 4].rpartition(" ")[0]


def _to_stored(row: Sequence[Any]) -> StoredSession:
    session_id, cwd, name, entries, created, modified, first, parent, owner = row[:9]
    return StoredSession(session_id, cwd, name, entries, created, _to_iso(modified), first, parent, owner)


def _to_iso(seconds: Any) -> str:
    return clock.to_iso(int(seconds * 1000))
