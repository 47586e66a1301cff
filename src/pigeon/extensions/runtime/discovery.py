"""Where extensions are: files are found, not opened. Every start runs this, so it imports nothing else of extensions.

Extensions of other agents of the family, in TypeScript or JavaScript or in packages, are in the same places. They are
found too, so that the user learns what is missing, and never loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from pigeon.system.paths import absolute_path
from pigeon.wire.errors import StartupError

FOLDER = "extensions"
ENTRY_POINTS = "pigeon.extensions"
_FIRST = "__init__.py"
_OF_OTHERS = (".ts", ".tsx", ".mts", ".cts", ".js", ".mjs", ".cjs", "package.json")
_FIRST_OF_OTHERS = ("index.ts", "index.js", "package.json")
_PACKAGES = ("npm:", "git:", "git@", "https://", "http://", "ssh://", "builtin:")
Scope = Literal["temporary", "project", "user"]
_ORDER: tuple[Scope, ...] = ("temporary", "project", "user")


class Source(Struct, frozen=True):
    """One extension to load: a file, or the name of an entry point."""

    path: str
    scope: Scope
    origin: Literal["cli", "auto", "local", "package"]

    @property
    def is_foreign(self) -> bool:
        """True for an extension of another agent, which cannot be loaded."""
        return is_foreign(self.path)

    @property
    def rank(self) -> int:
        """Extensions of a lower rank come first."""
        return _ORDER.index(self.scope)


def is_foreign(path: str) -> bool:
    """True for the path of an extension of another agent, or the name of a package or a built-in one."""
    return path.endswith(_OF_OTHERS) or path.startswith(_PACKAGES)


def find_named_sources(paths: Iterable[str], cwd: str, home: str) -> list[Source]:
    """The extensions named on the command line; raises `StartupError` for a path that leads to none."""
    found: list[Source] = []
    for path in paths:
        if path.startswith(_PACKAGES):
            found.append(Source(path, "temporary", "cli"))
            continue
        target = absolute_path(path, cwd, home)
        if not os.path.exists(target):
            raise StartupError(f'Failed to load extension "{path}": there is no such file')
        here = _sources_at(target, "temporary", "cli")
        if not here:
            raise StartupError(f'Failed to load extension "{path}": there is no extension in this folder')
        found += here
    return _drop_duplicates(found)


def find_user_sources(agent_dir: str, listed: Sequence[str], home: str) -> list[Source]:
    """The user's own: those listed in the settings (paths, or names of entry points), then those in the folder."""
    found: list[Source] = []
    for entry in listed:
        if entry.startswith(("!", "-")) and not entry.endswith(".py"):  # what other agents of the family leave out
            continue
        item = entry.removeprefix("+")
        if item.startswith(_PACKAGES):
            found.append(Source(item, "user", "package"))
            continue
        path = absolute_path(item, agent_dir, home)
        if os.path.exists(path):
            found += _sources_at(path, "user", "local")
        elif item.isidentifier() or "-" in item:
            found.append(Source(f"{ENTRY_POINTS}:{item}", "user", "package"))
        else:
            found.append(Source(path, "user", "local"))
    return _drop_duplicates(found + _sources_in_folder(os.path.join(agent_dir, FOLDER), "user"))


def find_extension_paths(named: Sequence[str], agent_dir: str, home: str, listed: Sequence[str]) -> list[str]:
    """The places of the named extensions, of those that the user's settings list, and of those in the user's folder."""
    own = (path.removeprefix("+") for path in listed)
    found = [absolute_path(path, agent_dir, home) for path in own if not is_foreign(path)]
    return [*named, *found, os.path.join(agent_dir, FOLDER)]


def find_project_sources(folders: Iterable[str]) -> list[Source]:
    """The extensions in a project's `.pigeon` and `.pi`; only to be called for a trusted project."""
    found: list[Source] = []
    for folder in folders:
        found += _sources_in_folder(os.path.join(folder, FOLDER), "project")
    return _drop_duplicates(found)


def _sources_at(path: str, scope: Scope, origin: Literal["cli", "local"]) -> list[Source]:
    """The extensions at a path: a file, a package, or a folder full of them."""
    if not os.path.isdir(path):
        return [Source(path, scope, origin)]
    for first in (_FIRST, *_FIRST_OF_OTHERS):
        if os.path.isfile(os.path.join(path, first)):
            return [Source(os.path.join(path, first), scope, origin)]
    return [Source(one.path, scope, origin) for one in _sources_in_folder(path, scope)]


def _sources_in_folder(folder: str, scope: Scope) -> list[Source]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
            return []
        # An unreadable folder may contain a gate: loading it fails, and the reason is reported.
        return [Source(os.path.join(folder, _FIRST), scope, "auto")]
    found = []
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith((".", "_")):
            continue
        if name.endswith(".py") or (is_foreign(name) and not name.endswith((".d.ts", "package.json"))):
            found.append(Source(path, scope, "auto"))
        else:
            first = next((one for one in (_FIRST, *_FIRST_OF_OTHERS) if os.path.isfile(os.path.join(path, one))), None)
            if first is not None:
                found.append(Source(os.path.join(path, first), scope, "auto"))
    return found


def _drop_duplicates(sources: list[Source]) -> list[Source]:
    """Each file once, whatever the paths to it."""
    kept: dict[str, Source] = {}
    for source in sources:
        kept.setdefault(os.path.realpath(source.path), source)
    return list(kept.values())
