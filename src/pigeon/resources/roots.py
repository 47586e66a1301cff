"""Where skills and prompt templates are found, in order of rank.

Paths on the command line come first, because they were requested; then the project (if it is trusted) before the user,
and in each, paths in settings before the usual folders; last the paths of extensions. A list of skills or templates in
settings has paths and globs to add, `!glob` and `-path` to leave out, and `+path` to keep a path despite those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from pigeon.config.paths import project_dirs
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.globs import compile_text_glob
from pigeon.system.paths import absolute_path
from pigeon.wire.answers import SlashCommand, SourceInfo

_DEEPEST = 12


class Selection(Struct, frozen=True):
    """A list of skills or templates in settings, with its paths made absolute."""

    named: tuple[str, ...]
    kept: frozenset[str]
    dropped: frozenset[str]
    patterns: tuple[str, ...]
    base: str

    def is_selected(self, path: str) -> bool:
        """Whether a found file is kept; a skill also matches by the name of its folder."""
        names = {path, os.path.dirname(path)} if os.path.basename(path) == "SKILL.md" else {path}
        if names & self.kept:
            return True
        return not names & self.dropped and not any(self._is_excluded_by_pattern(name) for name in names)

    def _is_excluded_by_pattern(self, path: str) -> bool:
        forms = (path, os.path.relpath(path, self.base), os.path.basename(path))
        return any(compile_text_glob(pattern)(form) for pattern in self.patterns for form in forms)


def selection_of(entries: Sequence[str], base: str, home: str, view: FileView = LOCAL_FILES) -> Selection:
    """The list of a settings file whose relative paths begin at `base`."""
    named: list[str] = []
    kept, dropped, patterns = set(), set(), []
    for entry in entries:
        mark, rest = (entry[0], entry[1:]) if entry[:1] in ("!", "+", "-") else ("", entry)
        if not rest:
            continue
        if mark == "!":
            patterns.append(rest)
            continue
        path = absolute_path(rest, base, home)
        if mark == "-":
            dropped.add(path)
        elif mark == "+":
            kept.add(path)
            named.append(path)
        else:
            named.extend(_expand_glob(path, view))
    return Selection(tuple(dict.fromkeys(named)), frozenset(kept), frozenset(dropped), tuple(patterns), base)


def _expand_glob(path: str, view: FileView) -> list[str]:
    if not _is_glob(path):
        return [path]
    if not view.is_local:
        return sorted(_expand_names("/", path.strip("/").split("/"), view))
    from glob import glob

    return sorted(glob(path, recursive=True))


def _is_glob(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _expand_names(folder: str, names: list[str], view: FileView, depth: int = 0) -> list[str]:
    """The existing paths below a folder that a glob covers, name by name."""
    if not names:
        return [folder] if view.exists(folder) else []
    first, rest = names[0], names[1:]
    if not _is_glob(first):
        return _expand_names(os.path.join(folder, first), rest, view, depth)
    from fnmatch import fnmatchcase

    try:
        entries = [entry for entry in view.list_folder(folder) if not entry.name.startswith(".")]
    except OSError:
        return []
    if first == "**":
        below = [entry.name for entry in entries if entry.is_folder and depth < _DEEPEST]
        found = _expand_names(folder, rest, view, depth)
        for name in below:
            found += _expand_names(os.path.join(folder, name), names, view, depth + 1)
        return found
    matching = [entry.name for entry in entries if fnmatchcase(entry.name, first)]
    return [one for name in matching for one in _expand_names(os.path.join(folder, name), rest, view, depth)]


Location = Literal["user", "project", "path"]
Kind = Literal["skills", "prompts"]


class ResourceRoot(Struct, frozen=True):
    """A file or folder to load from, with the declared origin of its contents; `view` shows the machine it is on."""

    path: str
    location: Location
    source: Literal["auto", "local"]
    base_dir: str
    loose: Literal["at the top", "below"] = "at the top"
    selection: Selection | None = None
    view: FileView = LOCAL_FILES

    def is_selected(self, path: str) -> bool:
        """False for files that the settings exclude."""
        return self.selection is None or self.selection.is_selected(path)

    def to_command(self, kind: Literal["prompt", "skill"], name: str, description: str, path: str) -> SlashCommand:
        """The entry of `get_commands`, with both forms of provenance."""
        info = SourceInfo(
            path=path,
            source=self.source,
            scope="temporary" if self.location == "path" else self.location,
            origin="top-level",
            base_dir=self.base_dir,
        )
        return SlashCommand(
            name=name, description=description, source=kind, location=self.location, path=path, source_info=info
        )


class RequestedPaths(Struct, frozen=True, kw_only=True):
    """Paths that options, settings and extensions name for one kind of resource."""

    explicit: Sequence[str] = ()
    only_explicit: bool = False
    of_project: Sequence[str] = ()
    of_user: Sequence[str] = ()
    added: Sequence[str] = ()


class ResourceFolders(Struct, frozen=True, kw_only=True):
    """The folders that resources come from; relative paths of options and extensions begin at `base`. `view` shows the
    machine that the project is on."""

    agent_dir: str
    cwd: str
    home: str
    base: str
    trusted: bool
    view: FileView = LOCAL_FILES


def collect_roots(
    kind: Kind, folders: ResourceFolders, requested: RequestedPaths, report: Callable[[str], None]
) -> list[ResourceRoot]:
    """All places in order of rank; a named one that does not exist is reported."""
    roots = _named_roots(requested.explicit, folders, report)
    if not requested.only_explicit:
        if folders.trusted:
            roots += _project_roots(kind, folders, requested.of_project)
        roots += _user_roots(kind, folders, requested.of_user)
        roots += _named_roots(requested.added, folders, report)
    return roots


def _named_roots(paths: Sequence[str], folders: ResourceFolders, report: Callable[[str], None]) -> list[ResourceRoot]:
    roots = []
    for asked in paths:
        path = absolute_path(asked, folders.base, folders.home)
        if not os.path.exists(path):
            report(f"{asked} does not exist: no skill or template is loaded from it")
            continue
        roots.append(ResourceRoot(path, "path", "local", path if os.path.isdir(path) else os.path.dirname(path)))
    return roots


def _project_roots(kind: Kind, folders: ResourceFolders, entries: Sequence[str]) -> list[ResourceRoot]:
    view = folders.view
    selections = {folder: selection_of(entries, folder, folders.home, view) for folder in project_dirs(folders.cwd)}
    roots = [
        ResourceRoot(path, "project", "local", folder, selection=selection, view=view)
        for folder, selection in selections.items()
        for path in selection.named
        if view.exists(path)
    ]
    for folder, selection in selections.items():
        roots.append(
            ResourceRoot(os.path.join(folder, kind), "project", "auto", folder, selection=selection, view=view)
        )
    if kind == "skills":
        own = os.path.realpath(os.path.join(folders.home, ".agents", "skills")) if view.is_local else None
        first = next(iter(selections.values()))
        for folder in _folders_to_repository(folders.cwd, view):
            shared = os.path.join(folder, ".agents")
            path = os.path.join(shared, kind)
            if view.real_path(path) != own:
                roots.append(ResourceRoot(path, "project", "auto", shared, "below", first, view))
    return roots


def _user_roots(kind: Kind, folders: ResourceFolders, entries: Sequence[str]) -> list[ResourceRoot]:
    agent_dir = folders.agent_dir
    selection = selection_of(entries, agent_dir, folders.home)
    roots = [
        ResourceRoot(path, "user", "local", agent_dir, selection=selection)
        for path in selection.named
        if os.path.exists(path)
    ]
    roots.append(ResourceRoot(os.path.join(agent_dir, kind), "user", "auto", agent_dir, selection=selection))
    if kind == "skills":
        shared = os.path.join(folders.home, ".agents")
        roots.append(ResourceRoot(os.path.join(shared, kind), "user", "auto", shared, "below", selection))
    return roots


def _folders_to_repository(cwd: str, view: FileView) -> list[str]:
    """The folder and its parents up to the root of the repository; outside of one, only the folder."""
    folders = ancestors(cwd)
    for count, folder in enumerate(folders, 1):
        if view.exists(os.path.join(folder, ".git")):
            return folders[:count]
    return folders[:1]


def ancestors(cwd: str) -> list[str]:
    """The folder, its parent, and so on to the root of the file system."""
    folders = [cwd]
    while (parent := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(parent)
    return folders
