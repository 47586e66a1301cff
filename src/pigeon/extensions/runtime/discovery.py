"""Where extensions are: looked for, not opened. Every start runs this, so it imports nothing else of extensions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from pigeon.system.paths import absolute
from pigeon.wire.errors import StartupError

FOLDER = "extensions"
ENTRY_POINTS = "pigeon.extensions"
_FIRST = "__init__.py"
Scope = Literal["temporary", "project", "user"]
_ORDER: tuple[Scope, ...] = ("temporary", "project", "user")


class Source(Struct, frozen=True):
    """One extension to load: a file, or the name of an entry point."""

    path: str
    scope: Scope
    origin: Literal["cli", "auto", "local", "package"]

    @property
    def rank(self) -> int:
        """Extensions of a lower rank come first."""
        return _ORDER.index(self.scope)


def named(paths: Iterable[str], cwd: str, home: str) -> list[Source]:
    """Those named on the command line; raises `StartupError` for a path that leads to none."""
    found: list[Source] = []
    for path in paths:
        target = absolute(path, cwd, home)
        if not os.path.exists(target):
            raise StartupError(f'Failed to load extension "{path}": there is no such file')
        here = _at(target, "temporary", "cli")
        if not here:
            raise StartupError(f'Failed to load extension "{path}": there is no extension in this folder')
        found += here
    return _once(found)


def user_sources(agent_dir: str, listed: Sequence[str], home: str) -> list[Source]:
    """The user's own: those listed in the settings (paths, or names of entry points), then those in the folder."""
    found: list[Source] = []
    for item in listed:
        path = absolute(item, agent_dir, home)
        if os.path.exists(path):
            found += _at(path, "user", "local")
        elif item.isidentifier() or "-" in item:
            found.append(Source(f"{ENTRY_POINTS}:{item}", "user", "package"))
        else:
            found.append(Source(path, "user", "local"))
    return _once(found + _in_folder(os.path.join(agent_dir, FOLDER), "user"))


def project_sources(folders: Iterable[str]) -> list[Source]:
    """Those of a project, from its `.pigeon` and `.pi`; only to be called for a project that is trusted."""
    found: list[Source] = []
    for folder in folders:
        found += _in_folder(os.path.join(folder, FOLDER), "project")
    return _once(found)


def _at(path: str, scope: Scope, origin: Literal["cli", "local"]) -> list[Source]:
    """A file, a package, or a folder full of them."""
    if not os.path.isdir(path):
        return [Source(path, scope, origin)]
    first = os.path.join(path, _FIRST)
    if os.path.isfile(first):
        return [Source(first, scope, origin)]
    return [Source(one.path, scope, origin) for one in _in_folder(path, scope)]


def _in_folder(folder: str, scope: Scope) -> list[Source]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
            return []
        # What is there and cannot be looked into may hold a gate: loading it fails, and is reported with the reason.
        return [Source(os.path.join(folder, _FIRST), scope, "auto")]
    found = []
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith((".", "_")):
            continue
        if name.endswith(".py"):
            found.append(Source(path, scope, "auto"))
        elif os.path.isfile(os.path.join(path, _FIRST)):
            found.append(Source(os.path.join(path, _FIRST), scope, "auto"))
    return found


def _once(sources: list[Source]) -> list[Source]:
    """Each file once, whatever the ways to it."""
    kept: dict[str, Source] = {}
    for source in sources:
        kept.setdefault(os.path.realpath(source.path), source)
    return list(kept.values())
