"""What only PostgreSQL has to do: versions, restarts and failover of the database, two machines, hidden passwords."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

import pytest

import pigeon
from pigeon.store.postgres import PostgresStore
from pigeon.store.schema import program_version
from pigeon.wire.errors import Refusal, StartupError
from support.postgres import make_store, run_sql

HEADER = b'{"type":"session","version":3,"id":"a","timestamp":"2026-11-19T10:00:00.000Z","cwd":"/work"}'
LINES = [b'{"type":"custom","id":"%d","parentId":null}' % number for number in range(40)]


async def begin(store: PostgresStore, session_id: str = "a", owner: str = "one") -> pigeon.Lease:
    await store.create(session_id, HEADER)
    lease = await store.acquire(session_id, owner, 600)
    assert lease is not None
    return lease


def end_connections(url: str) -> None:
    """What a restart of the database does to its clients."""
    run_sql(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


async def test_a_database_without_a_store_is_refused_with_the_remedy(postgres_url: str) -> None:
    with pytest.raises(StartupError, match="pigeon store init"):
        await PostgresStore(postgres_url).open()
    with pytest.raises(StartupError, match="pigeon store init"):
        await PostgresStore(postgres_url).migrate()


async def test_creating_a_store_again_changes_nothing(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    assert await store.migrate(create=True) == (None, program_version())
    assert await store.migrate(create=True) == (program_version(), program_version())
    assert await store.migrate() == (program_version(), program_version())
    assert run_sql(postgres_url, "SELECT version FROM pigeon_schema") == [(program_version(),)]


async def test_two_programs_may_create_a_store_at_once(postgres_url: str) -> None:
    done = await asyncio.gather(*(PostgresStore(postgres_url).migrate(create=True) for _ in range(4)))
    assert {after for _, after in done} == {program_version()}


async def test_an_older_store_is_refused_with_both_versions_and_the_remedy(postgres_url: str) -> None:
    await make_store(postgres_url)
    run_sql(postgres_url, "UPDATE pigeon_schema SET version = 0")
    with pytest.raises(StartupError, match=rf"version 0.*{program_version()}.*pigeon store migrate"):
        await PostgresStore(postgres_url).open()


async def test_the_next_version_works_and_a_later_one_is_refused(postgres_url: str) -> None:
    ours = program_version()
    await make_store(postgres_url)
    run_sql(postgres_url, "UPDATE pigeon_schema SET version = %s", ours + 1)
    async with PostgresStore(postgres_url) as store:
        await begin(store)
    run_sql(postgres_url, "UPDATE pigeon_schema SET version = %s", ours + 2)
    for work in (PostgresStore(postgres_url).open(), PostgresStore(postgres_url).migrate()):
        with pytest.raises(StartupError, match=rf"version {ours + 2}.*{ours}.*newer pigeon"):
            await work


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3cret-word@127.0.0.1:1/db",
        "postgresql://ada:s3cret-word@127.0.0.1:1/db?connect_timeout=nonsense",
        "postgresql://ada:s3cret-word@[broken/db",
        "postgresql://ada@127.0.0.1:1/db?password=s3cret-word",
        "postgresql://ada:s3cret-word%zz@127.0.0.1:1/db",
    ],
)
async def test_an_unusable_address_is_one_sentence_without_the_password(url: str) -> None:
    with pytest.raises(StartupError) as failure:
        await PostgresStore(url).open()
    assert "s3cret" not in str(failure.value)
    assert "\n" not in str(failure.value)
    assert "s3cret" not in PostgresStore(url).address


async def test_an_old_owner_can_write_nothing_when_it_comes_back(postgres_url: str) -> None:
    async with await make_store(postgres_url) as mine, PostgresStore(postgres_url) as theirs:
        old = await begin(mine)
        await mine.append("a", LINES[:2], epoch=old.epoch, position=0)
        await mine.renew(old, 0)
        new = await theirs.acquire("a", "two", 600)
        assert new is not None
        with pytest.raises(pigeon.StaleEpoch):
            await mine.append("a", LINES[2:3], epoch=old.epoch, position=2)
        assert not await mine.renew(old, 600)
        await mine.release(old)
        assert await mine.acquire("a", "one", 600) is None
        await theirs.append("a", LINES[2:3], epoch=new.epoch, position=2)
        assert [row[1:3] async for row in theirs.read_rows("a")] == [
            (old.epoch, "one"),
            (old.epoch, "one"),
            (new.epoch, "two"),
        ]


async def test_a_lease_that_ended_is_renewed_while_nobody_else_has_it(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        assert await store.renew(lease, 0)
        assert await store.list_leases() == []
        assert await store.renew(lease, 600)
        assert [one for one, _ in await store.list_leases()] == [lease]


async def test_an_epoch_never_goes_back_even_if_the_database_has_forgotten(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        await begin(store)
        lease = await store.acquire("a", "one", 600, known_epoch=17)
        assert lease is not None
        assert lease.epoch == 18


async def test_nothing_is_lost_or_doubled_while_connections_end_all_the_time(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        position = 0
        for line in LINES:
            ending = (
                asyncio.create_task(asyncio.to_thread(end_connections, postgres_url)) if position % 4 == 0 else None
            )
            position = await store.append("a", [line], epoch=lease.epoch, position=position)
            if ending is not None:
                await ending
        assert await store.read("a") == [HEADER, *LINES]


async def test_a_database_that_only_reads_is_asked_again(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        name = run_sql(postgres_url, "SELECT current_database()")[0][0]
        run_sql(postgres_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        end_connections(postgres_url)
        append = asyncio.create_task(store.append("a", LINES[:1], epoch=lease.epoch, position=0))
        await asyncio.sleep(0)
        elsewhere = postgres_url.replace(name, "postgres")
        run_sql(elsewhere, f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        assert await append == 1


async def test_a_database_that_stays_away_is_reported(postgres_url: str) -> None:
    async with await make_store(postgres_url, patience=0.2) as store:
        await begin(store)
        name = run_sql(postgres_url, "SELECT current_database()")[0][0]
        other = postgres_url.replace(name, "postgres")
        run_sql(other, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        run_sql(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name)
        with pytest.raises(pigeon.StoreUnavailable):
            await store.read("a")
        run_sql(other, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        read: list[bytes] = []
        while not read:
            with suppress(pigeon.StoreUnavailable):
                read = await store.read("a")
        assert read == [HEADER]


async def test_no_state_of_a_connection_is_relied_on(postgres_url: str) -> None:
    """A pooler may give every transaction another connection: nothing is set, prepared, locked or listened to."""
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        await store.append("a", LINES[:1], epoch=lease.epoch, position=0)
        await store.search("anything")
        pool = await store._ready_pool()
        async with pool.connection() as connection:
            for query in (
                "SELECT count(*) FROM pg_prepared_statements",
                "SELECT count(*) FROM pg_listening_channels()",
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
                "SELECT count(*) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout') "
                "AND setting <> reset_val",
            ):
                assert await (await connection.execute(query)).fetchone() == (0,), query


async def test_several_hosts_may_be_named(postgres_url: str) -> None:
    await make_store(postgres_url)
    folder = postgres_url.partition("host=")[2]
    name = postgres_url.rpartition("/test_")[2].partition("?")[0]
    url = f"postgresql://postgres@/test_{name}?host=/nowhere,{folder}&target_session_attrs=read-write"
    async with PostgresStore(url) as store:
        assert await store.list() == ([], None)


async def test_a_deleted_session_can_be_restored_until_its_id_is_used_again(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        await store.append("a", LINES[:2], epoch=lease.epoch, position=0)
        await store.delete("a", epoch=lease.epoch)
        assert [row.session_id for row, _ in await store.list_deleted()] == ["a"]
        await store.restore("a")
        assert await store.read("a") == [HEADER, *LINES[:2]]
        again = await store.acquire("a", "one", 600)
        assert again is not None
        await store.delete("a", epoch=again.epoch)
        new = await begin(store)
        assert new.epoch > again.epoch
        assert await store.read("a") == [HEADER]
        with pytest.raises(pigeon.SessionNotFound):
            await store.restore("a")


async def test_the_audit_log_says_what_was_done_and_nothing_of_what_was_said(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        prompt = b'{"type":"message","id":"1","parentId":null,"message":{"role":"user","content":"a secret plan"}}'
        for _ in range(2):
            await store.append("a", [prompt, LINES[0]], epoch=lease.epoch, position=0)
        await store.delete("a", epoch=lease.epoch)
        log = [row async for row in store.read_audit(most=2)]
        assert [(row["action"], row["sessionId"], row["node"]) for row in log] == [
            ("session.create", "a", None),
            ("prompt", "a", "one"),
            ("session.delete", "a", "one"),
        ]
        assert "secret" not in str(log)


async def test_names_and_first_messages_are_those_of_the_lines(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        lines = [
            b'{"type":"message","id":"1","message":{"role":"user","content":"Fix \\u0000 the \\ud83d bug"}}',
            b'{"type":"session_info","id":"2","parentId":"1","name":"First"}',
            b'{"type":"session_info","id":"3","parentId":"2","name":"Second"}',
        ]
        await store.append("a", lines, epoch=lease.epoch, position=0)
        found = (await store.search("second"))[0]
        assert (found.name, found.entries, found.cwd, found.owner) == ("Second", 3, "/work", "one")
        assert found.first_message.startswith("Fix")
        assert [row.session_id for row in await store.find_by_prefix("a", 5)] == ["a"]


async def test_a_word_is_found_by_its_beginning_in_any_case_and_script(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        text = "Ärger in src/app/main.py, Straße, 天気予報, don't_stop"
        line = f'{{"type":"message","id":"1","parentId":null,"message":{{"role":"user","content":"{text}"}}}}'.encode()
        await store.append("a", [line], epoch=lease.epoch, position=0)
        for wanted in ("ärger", "ÄRG", "app main", "strasse", "天気", "STOP", "main.py", "src/app"):
            assert len(await store.search(wanted)) == 1, wanted
        for other in ("rger", "ärger absent", "!!", "' | 'x"):
            assert await store.search(other) == [], other


async def test_a_huge_message_is_stored_and_found(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        lease = await begin(store)
        words = " ".join(f"word{number}" for number in range(200_000))
        line = f'{{"type":"message","id":"1","parentId":null,"message":{{"role":"user","content":"{words}"}}}}'.encode()
        await store.append("a", [line], epoch=lease.epoch, position=0)
        assert await store.read("a") == [HEADER, line]
        assert len(await store.search("word77")) == 1


async def test_a_statement_that_is_refused_is_one_sentence(postgres_url: str) -> None:
    async with await make_store(postgres_url) as store:
        with pytest.raises(Refusal, match="The session store refuses"):
            await store.list(cursor="nonsense/x")


async def test_the_embedded_server_is_used_by_its_address_and_needs_no_init(postgres_url: str) -> None:
    """All tests of a run share the server, which `postgres_url` has started in the same way."""
    async with PostgresStore(f"pgserver:{postgres_url.partition('host=')[2]}") as store:
        name = f"embedded-{uuid4()}"
        await begin(store, name)
        assert await store.read(name) == [HEADER]
