"""What a client of `pigeon serve` may do: the scope of its token, and the folders and files that it may name.

Each command declares in its record (`wire/commands/`) the scope that it needs and which of its fields are paths.
Whatever the scope, paths must be below the roots.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import get_args

from msgspec.structs import replace

from pigeon.session.history.listing import header_of
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.paths import absolute_path
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import Absent
from pigeon.wire.commands import NAMES, Command, Scope
from pigeon.wire.errors import Refusal
from pigeon.workspaces.url import parse_workspace_url

SCOPES: tuple[Scope, ...] = get_args(Scope)
MOST_FOLDERS = 1_000


class FolderRefused(Refusal):
    """A folder or a file outside the roots."""


class FolderMissing(Refusal):
    """There is no such folder, or it cannot be read."""


class AllowedPaths:
    """The folders and files that clients may name: those below the `roots`, and stored sessions that belong to these
    folders."""

    def __init__(
        self, roots: Sequence[str], store: SessionFolders, agent_dir: str, home: str, allow_exec: bool = False
    ) -> None:
        """With `allow_exec` clients may name workspaces by a command."""
        self._allow_exec = allow_exec
        self.roots = [os.path.realpath(root) for root in roots]
        self._store = store
        self._agent_dir = agent_dir
        self._home = home

    def can_open(self, path: str) -> bool:
        """True for a root, and for anything below one."""
        return self.root_of(path) is not None

    def root_of(self, path: str) -> str | None:
        """The first root that is, or contains, a path; None if there is none."""
        try:
            real = os.path.realpath(path)
        except ValueError:
            # Not a path: it contains NUL or a lone surrogate.
            return None
        return next((root for root in self.roots if (real + os.sep).startswith(root.rstrip(os.sep) + os.sep)), None)

    def can_open_session(self, row: SessionRow) -> bool:
        """Whether the folder of a stored session may be worked in; one on another machine is below no root."""
        return self.can_open(row.cwd) if isinstance(row.workspace, Absent) else True

    def check_workspace(self, url: str) -> str:
        """Return the folder of a workspace elsewhere; raises `WrongWorkspace`, and `FolderRefused` for a command that
        would run on this machine."""
        wanted = parse_workspace_url(url)
        if wanted.kind == "exec" and not self._allow_exec:
            raise FolderRefused(
                "A workspace that is reached by a command (exec:) is not allowed by this server; see --allow-exec"
            )
        return wanted.path

    def check_below_roots(self, cwd: str) -> None:
        """Raise `FolderRefused` if a folder may not be worked in; it need not exist."""
        if not os.path.isabs(cwd) or not self.can_open(cwd):
            raise FolderRefused(f"{cwd} is not below a folder that may be opened: {', '.join(self.roots)}")

    def check_folder(self, cwd: str) -> str:
        """Return the folder if it may be worked in; raises `FolderRefused` or `FolderMissing`."""
        self.check_below_roots(cwd)
        if not os.path.isdir(cwd):
            raise FolderMissing(f"{cwd} is not a folder")
        return cwd

    def list_folders(self, path: str) -> list[str]:
        """The names of the folders in an allowed folder, without hidden ones; raises `Refusal`."""
        try:
            with os.scandir(self.check_folder(path)) as found:
                inside = [item for item in found if not item.name.startswith(".") and item.is_dir()]
        except OSError as error:
            raise FolderMissing(f"{path} cannot be read: {error.strerror}") from None
        # A link may lead out of the roots.
        names = [item.name for item in inside if not item.is_symlink() or self.can_open(item.path)]
        return sorted(names, key=str.casefold)[:MOST_FOLDERS]

    def resolve_session_path(self, path: str, cwd: str) -> str:
        """The session file or session folder that a client named, relative to a folder; raises `Refusal`.

        The folder in which the session works must be allowed too.
        """
        real = self._resolve_path(path, cwd)
        own = self._is_in_agent_folder(real)
        if not (self.can_open(real) and not own) and not self._store.contains(real):
            raise FolderRefused(f"{path} is outside the folders that may be opened")
        file = self._store.find_newest_with_message(real) if os.path.isdir(real) else real
        header = header_of(file) if file is not None else None
        where = header.get("cwd") if header is not None else None
        if isinstance(where, str) and where and not self.can_open(os.path.join(cwd, where)):
            raise FolderRefused(f"{path} is the session of a folder that may not be opened: {where}")
        if own and file is not None and header is None:
            raise Refusal(f"There is no session in {path}")
        return real

    def resolve_output_path(self, path: str, cwd: str) -> str:
        """The output file that a client named, relative to a folder; raises `Refusal`."""
        real = self._resolve_path(path, cwd)
        if not self.can_open(real) or self._is_in_agent_folder(real):
            raise FolderRefused(f"{path} is outside the folders that may be opened")
        return real

    def _resolve_path(self, path: str, cwd: str) -> str:
        try:
            return os.path.realpath(absolute_path(path, cwd, self._home))
        except ValueError:
            raise Refusal("A path cannot contain a NUL character or half of a surrogate pair") from None

    def _is_in_agent_folder(self, real: str) -> bool:
        return (real + os.sep).startswith(os.path.realpath(self._agent_dir) + os.sep)


def has_needed_scope(scope: Scope, needed: Scope) -> bool:
    """Whether a scope includes the one that is needed."""
    return SCOPES.index(scope) >= SCOPES.index(needed)


def check_command(command: Command, scope: Scope, paths: AllowedPaths, cwd: str) -> Command:
    """Return the command with its paths resolved and checked; raises `Refusal` if it may not be sent.

    Relative paths begin in `cwd`, the folder of the conversation.
    """
    needed = command.find_needed_scope()
    if not has_needed_scope(scope, needed):
        name = NAMES[type(command)]
        raise Refusal(f"{name} needs the scope {needed}, and this token has the scope {scope}")
    checks = (
        (command.session_paths, paths.resolve_session_path),
        (command.output_paths, paths.resolve_output_path),
    )
    for fields, check in checks:
        for field in fields:
            path = getattr(command, field)
            if isinstance(path, str) and path:
                command = replace(command, **{field: check(path, cwd)})
    return command
