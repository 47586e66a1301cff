"""Where skills and prompt templates are looked for, in order of rank.

What was named on the command line comes first, because somebody named it; then the project (if it is trusted) before
the user, and in each what settings name before what lies in the usual folders; last what extensions bring.

The lists of skills and templates in settings: paths and globs to add, `!glob` and `-path` to leave out, `+path` to
keep in spite of those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from pigeon.config.paths import project_dirs
from pigeon.wire.answers import SlashCommand, SourceInfo


class Selection(Struct, frozen=True):
    """One such list, with its paths made absolute."""

    named: tuple[str, ...]
    kept: frozenset[str]
    dropped: frozenset[str]
    patterns: tuple[str, ...]
    base: str

    def takes(self, path: str) -> bool:
        """Whether a file that was found stays; a skill answers to the name of its folder, too."""
        names = {path, os.path.dirname(path)} if os.path.basename(path) == "SKILL.md" else {path}
        if names & self.kept:
            return True
        return not names & self.dropped and not any(self._matches(name) for name in names)

    def _matches(self, path: str) -> bool:
        from pigeon.system.globs import text_matcher

        forms = (path, os.path.relpath(path, self.base), os.path.basename(path))
        return any(text_matcher(pattern)(form) for pattern in self.patterns for form in forms)


def selection_of(entries: Sequence[str], base: str) -> Selection:
    """The list as it stands in settings whose paths are meant from `base`."""
    named: list[str] = []
    kept, dropped, patterns = set(), set(), []
    for entry in entries:
        mark, rest = (entry[0], entry[1:]) if entry[:1] in ("!", "+", "-") else ("", entry)
        if not rest:
            continue
        if mark == "!":
            patterns.append(rest)
            continue
        path = os.path.normpath(os.path.join(base, os.path.expanduser(rest)))
        if mark == "-":
            dropped.add(path)
        elif mark == "+":
            kept.add(path)
            named.append(path)
        else:
            named.extend(_expanded(path))
    return Selection(tuple(dict.fromkeys(named)), frozenset(kept), frozenset(dropped), tuple(patterns), base)


def _expanded(path: str) -> list[str]:
    if not any(sign in path for sign in "*?["):
        return [path]
    from glob import glob

    return sorted(glob(path, recursive=True))


Location = Literal["user", "project", "path"]
Kind = Literal["skills", "prompts"]


class Root(Struct, frozen=True):
    """A file or folder to load from, and what is said about the origin of what it holds."""

    path: str
    location: Location
    source: Literal["auto", "local"]
    base_dir: str
    loose: Literal["at the top", "below"] = "at the top"
    selection: Selection | None = None

    def takes(self, path: str) -> bool:
        """False for what the settings exclude."""
        return self.selection is None or self.selection.takes(path)

    def command(self, kind: Literal["prompt", "skill"], name: str, description: str, path: str) -> SlashCommand:
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


class Wishes(Struct, frozen=True, kw_only=True):
    """What options, settings and extensions say about one kind of resource."""

    explicit: Sequence[str] = ()
    only_explicit: bool = False
    of_project: Sequence[str] = ()
    of_user: Sequence[str] = ()
    added: Sequence[str] = ()


class Surroundings(Struct, frozen=True, kw_only=True):
    """The folders that matter to this process."""

    agent_dir: str
    cwd: str
    home: str
    trusted: bool


def roots_of(kind: Kind, around: Surroundings, wishes: Wishes, report: Callable[[str], None]) -> list[Root]:
    """All places in order of rank; a named one that is not there is reported."""
    roots = _named(wishes.explicit, report)
    if not wishes.only_explicit:
        if around.trusted:
            roots += _of_project(kind, around, wishes.of_project)
        roots += _of_user(kind, around, wishes.of_user)
        roots += _named(wishes.added, report)
    return roots


def _named(paths: Sequence[str], report: Callable[[str], None]) -> list[Root]:
    """A relative path is meant from where the process was started, wherever the session is."""
    roots = []
    for asked in paths:
        path = os.path.abspath(os.path.expanduser(asked))
        if not os.path.exists(path):
            report(f"{asked} does not exist: no skill or template is loaded from it")
            continue
        roots.append(Root(path, "path", "local", path if os.path.isdir(path) else os.path.dirname(path)))
    return roots


def _of_project(kind: Kind, around: Surroundings, entries: Sequence[str]) -> list[Root]:
    folders = project_dirs(around.cwd)
    selections = [selection_of(entries, folder) for folder in folders]
    roots = [
        Root(path, "project", "local", folder, selection=selection)
        for folder, selection in zip(folders, selections, strict=True)
        for path in selection.named
        if os.path.exists(path)
    ]
    for folder, selection in zip(folders, selections, strict=True):
        roots.append(Root(os.path.join(folder, kind), "project", "auto", folder, selection=selection))
    if kind == "skills":
        own = os.path.realpath(os.path.join(around.home, ".agents", "skills"))
        for folder in _up_to_repository(around.cwd):
            shared = os.path.join(folder, ".agents")
            path = os.path.join(shared, kind)
            if os.path.realpath(path) != own:
                roots.append(Root(path, "project", "auto", shared, "below", selections[0]))
    return roots


def _of_user(kind: Kind, around: Surroundings, entries: Sequence[str]) -> list[Root]:
    selection = selection_of(entries, around.agent_dir)
    roots = [
        Root(path, "user", "local", around.agent_dir, selection=selection)
        for path in selection.named
        if os.path.exists(path)
    ]
    roots.append(Root(os.path.join(around.agent_dir, kind), "user", "auto", around.agent_dir, selection=selection))
    if kind == "skills":
        shared = os.path.join(around.home, ".agents")
        roots.append(Root(os.path.join(shared, kind), "user", "auto", shared, "below", selection))
    return roots


def _up_to_repository(cwd: str) -> list[str]:
    """The folder and its parents up to the root of the repository; outside of one, the folder alone."""
    folders = ancestors(cwd)
    for count, folder in enumerate(folders, 1):
        if os.path.exists(os.path.join(folder, ".git")):
            return folders[:count]
    return folders[:1]


def ancestors(cwd: str) -> list[str]:
    """The folder, its parent, and so on to the root of the file system."""
    folders = [cwd]
    while (parent := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(parent)
    return folders
