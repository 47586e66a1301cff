"""`auth.json`: stored credentials, readable by their owner alone.

Reads are cached by the file's revision. Writes happen under a lock that other agents of the family respect, replace the
file in one step and keep every entry they do not know. A file that cannot be read is never overwritten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from pigeon.config.json_file import read_json_with_comments
from pigeon.system.files import swap_file
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord, StartupError

LOCK_TRIES = 50
LOCK_PAUSE_S = 0.02
LOCK_STALE_S = 15.0
Credential = dict[str, Any]
_Revision = tuple[int, int, int, int, int]


class AuthFile:
    """The credentials of one agent directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._problem: str | None = None
        self._revision: _Revision | None = None
        self._entries: dict[str, Credential] = {}

    @property
    def problem(self) -> str | None:
        """Why the file cannot be used; None while it can."""
        self.all()
        return self._problem

    def get(self, provider: str) -> Credential | None:
        """The stored credential of a provider, as it stands in the file."""
        return self.all().get(provider)

    def all(self) -> dict[str, Credential]:
        """All credentials; empty, with `problem` set, when the file is unusable."""
        try:
            state = os.stat(self.path)
        except OSError:
            self._revision, self._entries, self._problem = None, {}, None
            return self._entries
        revision = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if revision != self._revision:
            self._revision = revision
            self._load()
            self._tighten(state.st_mode)
        return self._entries

    def put(self, provider: str, credential: Credential) -> None:
        """Store a credential."""
        self._change(lambda entries: entries.update({provider: credential}))

    def remove(self, provider: str) -> None:
        """Forget a credential."""
        self._change(lambda entries: entries.pop(provider, None))

    def _tighten(self, mode: int) -> None:
        if mode & 0o077:
            try:
                os.chmod(self.path, 0o600)
            except OSError:
                self._problem = f"{self.path}: others can read this file; run chmod 600 on it"

    def _load(self) -> None:
        try:
            entries = _read(self.path)
        except (BadRecord, OSError) as error:
            self._entries = {}
            self._problem = f"{self.path}: {error}; no stored credential is used until this is corrected"
            return
        self._problem = None
        self._entries = {name: entry for name, entry in entries.items() if isinstance(entry, dict)}

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        folder = os.path.dirname(self.path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with _Lock(self.path + ".lock"):
            try:
                entries = _read(self.path)
            except FileNotFoundError:
                entries = {}
            except BadRecord as error:
                raise StartupError(f"{self.path}: {error}; correct or remove the file first") from None
            change(entries)
            swap_file(self.path, codec.encode(entries) + b"\n", 0o600)
        self._revision = None


def _read(path: str) -> dict[str, Any]:
    value = read_json_with_comments(path)
    if not isinstance(value, dict):
        raise BadRecord("must be an object of providers")
    return value


class _Lock:
    """A directory beside the file, which only one process can make."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        for _ in range(LOCK_TRIES):
            try:
                os.mkdir(self._path, 0o700)
            except FileExistsError:
                self._break_stale()
                time.sleep(LOCK_PAUSE_S)
            else:
                return
        raise StartupError(f"{self._path} is held by another process; try again, or remove it if none is running")

    def __exit__(self, *_: object) -> None:
        try:
            os.rmdir(self._path)
        except OSError:
            return

    def _break_stale(self) -> None:
        try:
            if time.time() - os.stat(self._path).st_mtime > LOCK_STALE_S:
                os.rmdir(self._path)
        except OSError:
            return
