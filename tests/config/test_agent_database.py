"""Keys that oh-my-pi keeps in its database."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from pigeon.config.agent_database import AgentDatabase, StoredCredentials
from pigeon.config.credentials import Values

TABLE = """CREATE TABLE auth_credentials (id INTEGER PRIMARY KEY AUTOINCREMENT, provider TEXT NOT NULL,
    credential_type TEXT NOT NULL, data TEXT NOT NULL, {disabled})"""
NOW = "disabled_cause TEXT DEFAULT NULL"


def make(folder: Path, *rows: tuple[str, str, Any, Any], disabled: str = NOW) -> sqlite3.Connection:
    """The database of a folder with these rows, in the mode that oh-my-pi uses; the connection stays open."""
    database = sqlite3.connect(folder / "agent.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(TABLE.format(disabled=disabled))
    add(database, *rows, name=disabled.split(maxsplit=1)[0])
    return database


def add(database: sqlite3.Connection, *rows: tuple[str, str, Any, Any], name: str = "disabled_cause") -> None:
    for provider, kind, data, off in rows:
        text = data if isinstance(data, str) else json.dumps(data)
        database.execute(
            f"INSERT INTO auth_credentials (provider, credential_type, data, {name}) VALUES (?, ?, ?, ?)",
            (provider, kind, text, off),
        )


def test_the_first_usable_credential_of_a_provider_counts(tmp_path: Path) -> None:
    made = make(
        tmp_path,
        ("anthropic", "api_key", {"key": "off"}, "revoked"),
        ("anthropic", "api_key", {"key": "sk-a$b", "source": "login"}, None),
        ("anthropic", "api_key", {"key": "second"}, None),
        ("openai-codex", "oauth", {"access": "token", "refresh": "r", "expires": 5}, None),
        ("broken", "api_key", "{", None),
        ("empty", "api_key", [], None),
        ("strange", "magic", {"key": "x"}, None),
    )
    database = AgentDatabase(str(tmp_path))
    assert database.problem is None
    found = database.read_all()
    assert set(found) == {"anthropic", "openai-codex"}
    assert Values({"b": "no"}, None).interpolate_value(found["anthropic"]["key"]) == "sk-a$b"
    assert found["openai-codex"] == {"type": "oauth", "access": "token", "refresh": "r", "expires": 5}
    add(made, ("zai", "api_key", {"key": "!not a command"}, None))
    key = database.read_all()["zai"]["key"]
    assert not key.startswith("!")
    assert Values({}, None).interpolate_value(key) == "!not a command"
    made.close()


def test_a_database_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    rows = [("a", "api_key", {"key": "off"}, 1), ("b", "api_key", {"key": "on"}, 0)]
    make(tmp_path, *rows, disabled="disabled INTEGER NOT NULL DEFAULT 0").close()
    assert set(AgentDatabase(str(tmp_path)).read_all()) == {"b"}


def test_a_database_without_keys_or_in_a_read_only_folder_is_read(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "agent.db").execute("CREATE TABLE other (x)")
    assert AgentDatabase(str(tmp_path)).problem is None
    locked = tmp_path / "locked"
    locked.mkdir()
    make(locked, ("a", "api_key", {"key": "k"}, None)).close()
    locked.chmod(0o500)
    try:
        assert set(AgentDatabase(str(locked)).read_all()) == {"a"}
    finally:
        locked.chmod(0o700)


def test_what_is_no_database_is_a_problem_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_bytes(b"nothing of the kind" * 100)
    problem = AgentDatabase(str(tmp_path)).problem
    assert problem is not None
    assert problem.startswith(str(tmp_path / "agent.db"))


def test_without_a_database_sqlite_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    database = AgentDatabase(str(tmp_path))
    assert (database.read_all(), database.problem) == ({}, None)
    assert not (tmp_path / "agent.db").exists()


def test_the_file_of_a_credential_is_the_one_that_counts(tmp_path: Path) -> None:
    key = {"type": "api_key", "key": "k"}
    make(tmp_path, ("anthropic", "api_key", {"key": "k"}, None), ("openai", "api_key", {"key": "k"}, None)).close()
    (tmp_path / "auth.json").write_text(json.dumps({"openai": key}))
    stored = StoredCredentials(str(tmp_path))
    assert [stored.name_file(one) for one in ("anthropic", "openai", "zai")] == ["agent.db", "auth.json", "auth.json"]
