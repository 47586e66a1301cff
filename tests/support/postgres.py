"""A real PostgreSQL for tests: one server for all workers of a run, started by the first test that needs it, and an
empty database for each test."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from pigeon.store.embedded import start_embedded_server, stop_embedded_server
from pigeon.store.postgres import PostgresStore

_started: list[str] = []
_numbers = count(1)


def make_database() -> str:
    """The address of a new database."""
    if not _started:
        address = start_embedded_server(str(_data_folder()))
        with psycopg.connect(address, autocommit=True) as connection:
            # Tests do not wait for the disk; what a crash of the machine would lose is not their subject.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        _started.append(address)
    name = f"test_{uuid4().hex[:8]}_{next(_numbers)}"
    with psycopg.connect(_started[0], autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return _started[0].replace("/postgres?", f"/{name}?")


def _data_folder() -> Path:
    """The same for all workers of a run. Not below a test's folders: the server has a user of its own."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return Path(tempfile.gettempdir(), f"pigeon-tests-pg-{run[:12]}")


def run_sql(url: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement, over a connection of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query, values)
        return cursor.fetchall() if cursor.description is not None else []


async def make_store(url: str, **options: Any) -> PostgresStore:
    """The store in an empty database, ready for use."""
    store = PostgresStore(url, **options)
    await store.migrate(create=True)
    return store


def stop_postgres() -> None:
    """Stop the server, if this is the last process that uses it."""
    if _started:
        stop_embedded_server(str(_data_folder()))
        if not (_data_folder() / "postmaster.pid").exists():
            shutil.rmtree(_data_folder(), ignore_errors=True)
        _started.clear()
