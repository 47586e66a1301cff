"""Where keys come from: `auth.json`, and values that point elsewhere. The registry uses both for each request.

`AuthFile` reads stored credentials, keeps their file readable only by its owner, and writes it after a sign-in to a
tool server. It is read again when its revision changes, so that a new key is seen without a restart.

`Values` resolves `$NAME`, `${NAME}` and `!command` in `auth.json` and `models.json` (`$$` and `$!` stand for the signs
themselves). A missing variable or a failing command leaves the value unresolved. The output of a command is kept for a
while; its failures never are, so the next request tries again.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pigeon.config.json_file import read_json
from pigeon.system.append_file import make_private_folder
from pigeon.system.clock import monotonic_ms
from pigeon.system.paths import keep_absolute_entries
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment, persons_environment
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

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
        self.read_all()
        return self._problem

    def read_all(self) -> dict[str, Credential]:
        """All credentials, read again if the file has changed; empty, with `problem` set, if it is unusable."""
        try:
            state = os.stat(self.path)
        except OSError as error:
            self._revision, self._entries, self._problem = None, {}, None
            if not isinstance(error, FileNotFoundError) or os.path.lexists(self.path):
                self._problem = f"{self.path}: {error.strerror}; stored credentials are ignored until this is fixed"
            return self._entries
        revision = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if revision != self._revision:
            self._revision = revision
            self._load()
            self._restrict_mode(state.st_mode)
        return self._entries

    def store_credential(self, name: str, entry: Credential) -> str | None:
        """Store a credential; returns why it could not be stored, or None. Waits for other processes that write the
        file."""
        import fcntl

        from pigeon.config.json_file import has_comments
        from pigeon.system.files import replace_file_atomically

        folder = os.path.dirname(self.path)
        try:
            make_private_folder(folder)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    entries = _read_file(self.path)
                    if has_comments(self.path):
                        return f"{self.path} has comments, which would be lost; the sign-in was not saved"
                except FileNotFoundError:
                    entries = {}
                replace_file_atomically(
                    os.path.realpath(self.path), codec.encode({**entries, name: entry}) + b"\n", 0o600
                )
            finally:
                os.close(lock)
        except (OSError, BadRecord) as error:
            return f"{self.path}: {error}; the sign-in was not saved"
        return None

    def _restrict_mode(self, mode: int) -> None:
        if mode & 0o077 and stat.S_ISREG(mode):
            try:
                os.chmod(self.path, 0o600)
            except OSError:
                self._problem = f"{self.path}: other users can read this file; run chmod 600 on it"

    def _load(self) -> None:
        try:
            entries = _read_file(self.path)
        except (BadRecord, OSError) as error:
            self._entries = {}
            self._problem = f"{self.path}: {error}; stored credentials are ignored until this is fixed"
            return
        self._problem = None
        self._entries = {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _read_file(path: str) -> dict[str, Any]:
    value = read_json(path, may_be_blank=True)
    if not isinstance(value, dict):
        raise BadRecord("must be an object of providers")
    return value


COMMAND_TIMEOUT_S = 10.0
KEEP_MS = 300_000
MOST_OUTPUT = 64 * 1024
_REFERENCE = r"\$(?:\$|!|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))"


class Values:
    """Resolves values against an environment; commands run in `cwd` as processes of `owner`, and not without one.

    `search_path` derives the PATH of commands from the existing one. Commands see the variables that they name and all
    others but those that `list_secret_variables` returns, which hold keys of model providers.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        owner: ProcessOwner | None,
        cwd: str = "/",
        keep_ms: int = KEEP_MS,
        search_path: Callable[[str | None], str] = keep_absolute_entries,
        list_secret_variables: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._environ = environ
        self._owner = owner
        self._cwd = cwd
        self._keep_ms = keep_ms
        self._search_path = search_path
        self._list_secret_variables = list_secret_variables
        self._kept: dict[str, tuple[int, str]] = {}

    def is_configured(self, value: str, own: Mapping[str, str] | None = None) -> bool:
        """True if the value can be expected to resolve; no command is run to find out."""
        if value.startswith("!"):
            return bool(value[1:].strip())
        return bool(self.interpolate_value(value, own))

    def interpolate_value(self, value: str, own: Mapping[str, str] | None = None) -> str | None:
        """The text with its variables filled in; None if one is missing. `own` wins over the environment."""
        missing = False

        def fill_in_variable(found: re.Match[str]) -> str:
            nonlocal missing
            name = found[1] or found[2]
            if not name:
                return found[0][1]
            text = (own or {}).get(name) or self._environ.get(name)
            if not text:
                missing = True
            return text or ""

        text = re.sub(_REFERENCE, fill_in_variable, value)
        return None if missing else text

    def resolve_without_running(self, value: str, own: Mapping[str, str] | None = None) -> str | None:
        """The value as far as it is known without running a command: for `!command`, its last output."""
        if not value.startswith("!"):
            return self.interpolate_value(value, own)
        kept = self._kept.get(value[1:].strip())
        return kept[1] if kept else None

    def find_variables(self, value: str) -> set[str]:
        """The variables that a value or its command names."""
        return {name for found in re.findall(_REFERENCE, value) for name in found if name}

    async def resolve(self, value: str, own: Mapping[str, str] | None = None) -> str | None:
        """The value to use, or None if it cannot be resolved."""
        if not value.startswith("!"):
            return self.interpolate_value(value, own) or None
        command = value[1:].strip()
        kept = self._kept.get(command)
        if kept and monotonic_ms() - kept[0] < self._keep_ms:
            return kept[1]
        # The command may run in the folder of a project, which must not replace the intended program, and what that
        # reads there must not see the keys of others.
        path = {"PATH": self._search_path((own or {}).get("PATH") or self._environ.get("PATH"))}
        variables = persons_environment(self._environ, self._list_secret_variables(), self.find_variables(value))
        printed = await self._run_command(command, variables.with_added({**(own or {}), **path}))
        if printed:
            self._kept[command] = (monotonic_ms(), printed)
        return printed or None

    async def _run_command(self, command: str, environment: ProgramEnvironment) -> str:
        """What the shell command wrote to its output, trimmed; empty on failure."""
        if not command or self._owner is None:
            return ""
        from pigeon.system.process.run_program import run_program

        try:
            result = await run_program(
                self._owner,
                ["/bin/sh", "-c", command],
                cwd=self._cwd,
                environment=environment,
                timeout=COMMAND_TIMEOUT_S,
                limit=MOST_OUTPUT,
                term_grace=0,
                sealed=True,
            )
        except (OSError, ValueError):
            return ""
        return result.stdout.decode("utf-8", "replace").strip() if result.code == 0 and not result.killed else ""
