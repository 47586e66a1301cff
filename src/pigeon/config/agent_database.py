"""The credentials of an agent's folder: those in `auth.json`, and below them the keys and sign-ins that oh-my-pi keeps
in `agent.db`, which is only read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pigeon.config.credentials import AuthFile, Credential
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

if TYPE_CHECKING:
    from sqlite3 import Connection

BUSY_SECONDS = 0.2
_Revision = tuple[tuple[int, int, int] | None, ...]


class StoredCredentials:
    """What is stored in an agent's folder; `auth.json` counts more than the database."""

    def __init__(self, folder: str) -> None:
        self._file = AuthFile(os.path.join(folder, "auth.json"))
        self._database = AgentDatabase(folder)

    def read_all(self) -> dict[str, Credential]:
        kept, own = self._database.read_all(), self._file.read_all()
        return {**kept, **own} if kept else own

    def name_file(self, provider: str) -> str:
        """The name of the file with the credential that counts for a provider."""
        is_ours = provider in self._file.read_all() or provider not in self._database.read_all()
        return os.path.basename(self._file.path if is_ours else self._database.path)

    def find_problems(self) -> list[str]:
        return [problem for problem in (self._file.problem, self._database.problem) if problem is not None]


class AgentDatabase:
    """The credentials in the database of an agent's folder, if there is one, in the form of `auth.json`."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "agent.db")
        self._revision: _Revision = (None, None)
        self._entries: dict[str, Credential] = {}
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the database cannot be used; None while it can."""
        self.read_all()
        return self._problem

    def read_all(self) -> dict[str, Credential]:
        """The first usable credential of each provider, read again if the database has changed."""
        # What was written last may only be in the log beside it.
        revision = (_revision_of(self.path), _revision_of(f"{self.path}-wal"))
        if revision != self._revision:
            self._revision = revision
            self._entries, self._problem = {}, None
            if revision[0] is not None:
                self._load()
        return self._entries

    def _load(self) -> None:
        import sqlite3

        try:
            self._entries = self._read_entries("ro")
        except sqlite3.Error:
            try:
                # A folder that cannot be written takes no file for what several readers must agree on.
                self._entries = self._read_entries("ro&immutable=1")
            except sqlite3.Error as error:
                self._problem = f"{self.path}: {error}; the keys that oh-my-pi keeps there are not used"

    def _read_entries(self, mode: str) -> dict[str, Credential]:
        import sqlite3
        from urllib.parse import quote

        place = f"file:{quote(self.path)}?mode={mode}"
        connection = sqlite3.connect(place, uri=True, timeout=BUSY_SECONDS)
        try:
            found: dict[str, Credential] = {}
            for provider, credential in _find_credentials(connection):
                found.setdefault(provider, credential)
            return found
        finally:
            connection.close()


def _revision_of(path: str) -> tuple[int, int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def _find_credentials(connection: Connection) -> Iterator[tuple[str, Credential]]:
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'auth_credentials'")
    if tables.fetchone() is None:
        return
    rows = connection.execute("SELECT * FROM auth_credentials ORDER BY id")
    names = [column[0] for column in rows.description]
    for values in rows:
        row = dict(zip(names, values, strict=True))
        credential = _credential_of(row)
        if credential is not None and isinstance(row.get("provider"), str):
            yield row["provider"], credential


def _credential_of(row: dict[str, Any]) -> Credential | None:
    if row.get("disabled_cause") is not None or row.get("disabled"):
        return None
    try:
        data = codec.decode(str(row.get("data")).encode())
    except BadRecord:
        return None
    if not isinstance(data, dict):
        return None
    if row.get("credential_type") == "api_key" and isinstance(data.get("key"), str):
        from pigeon.config.oh_my_pi import to_literal

        return {"type": "api_key", "key": to_literal(data["key"])}
    return {**data, "type": "oauth"} if row.get("credential_type") == "oauth" else None
