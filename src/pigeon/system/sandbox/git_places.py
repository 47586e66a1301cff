"""Where git keeps what it knows about a repository, and what in there makes it run programs.

A command behind the wall may commit, so most of it is written; hooks and configuration are not. `.git` may be a folder,
or a file that names one elsewhere (work trees, submodules). Such a file counts only if what it names points back: else
a file that a command wrote could open any folder to the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from pigeon.system.files import read_beginning
from pigeon.system.sandbox.policy import Unprotectable

_LONGEST_FILE = 64 * 1024
_MOST_FOLDERS = 500
_MOST_HOOKS = 10
_NO_HOOKS = (".git", "config", "gitdir")
# Files by which git would take its configuration from elsewhere, and what they hold where they change nothing.
HARMLESS = {"commondir": b".\n", "config.worktree": b""}


class GitPlaces(Struct, frozen=True):
    """What of a repository is written by commits outside its folder, and what must stay as it is."""

    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def never_made(self) -> list[str]:
        """Of what is kept, what no command may make: folders of hooks, and files that lead git elsewhere."""
        return [path for path in self.kept if _is_never_made(os.path.basename(path))]


def git_places(folder: str) -> GitPlaces:
    """Those of the repository whose top is this folder; nothing where there is none. Looks at the disk.

    Raises `Unprotectable` where there is more than can be looked after.
    """
    dot_git = os.path.join(folder, ".git")
    if os.path.islink(dot_git):
        return GitPlaces(kept=(dot_git,))
    if os.path.isdir(dot_git):
        return GitPlaces(kept=(*_kept_in(dot_git), *hooks_named(dot_git, folder)))
    if not os.path.isfile(dot_git):
        return GitPlaces()
    data = linked_folder(dot_git)
    if data is None or not _points_back(data, folder):
        return GitPlaces(kept=(dot_git,))
    shared = shared_folder(data)
    if shared is not None and os.path.dirname(data) != os.path.join(shared, "worktrees"):
        # A work tree is known to its repository. A command could write one that names any other.
        return GitPlaces(kept=(dot_git,))
    if shared is None:
        kept = (dot_git, *_kept_in(data), *hooks_named(data, folder))
        return GitPlaces(written=(data,), kept=kept)
    parts = (os.path.join(shared, name) for name in ("objects", "refs", "logs"))
    kept = (dot_git, *_kept_in(data), *hooks_named(shared, folder))
    return GitPlaces(written=(data, *filter(os.path.isdir, parts)), kept=kept)


def linked_folder(dot_git: str) -> str | None:
    """The folder that a `.git` file names."""
    text = text_of(dot_git)
    named = text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else ""
    return os.path.realpath(os.path.join(os.path.dirname(dot_git), named)) if named and "\0" not in named else None


def shared_folder(data: str) -> str | None:
    """The folder that a work tree shares with its repository; none for a repository of its own."""
    named = text_of(os.path.join(data, "commondir")).strip()
    return os.path.realpath(os.path.join(data, named)) if named and "\0" not in named else None


def hooks_named(data: str, folder: str) -> Iterator[str]:
    """The folders of hooks that the configuration names, if they are in the repository's folder."""
    settings = (line.partition("=") for line in text_of(os.path.join(data, "config")).splitlines())
    named = [value.strip().strip('"') for key, _, value in settings if key.strip().lower() == "hookspath"]
    for hooks in named[-_MOST_HOOKS:]:
        path = os.path.normpath(os.path.join(folder, hooks)) if hooks and "\0" not in hooks else folder
        if path.startswith(folder.rstrip("/") + "/"):
            yield path


def text_of(path: str) -> str:
    """The beginning of a file; nothing where there is none."""
    try:
        return read_beginning(path, _LONGEST_FILE)[0]
    except (OSError, ValueError):
        return ""


def _points_back(data: str, folder: str) -> bool:
    back = text_of(os.path.join(data, "gitdir")).strip()
    if back:
        return os.path.realpath(os.path.join(data, back)) == os.path.join(os.path.realpath(folder), ".git")
    for line in text_of(os.path.join(data, "config")).splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() == "worktree":
            return os.path.realpath(os.path.join(data, value.strip().strip('"'))) == os.path.realpath(folder)
    return False


def _kept_in(data: str) -> Iterator[str]:
    """Hooks and configuration of a repository, of its submodules and of its work trees."""
    for repository in (data, *_repositories_below(os.path.join(data, "modules"))):
        yield from (os.path.join(repository, name) for name in ("hooks", "config", *HARMLESS))
        yield from _existing(repository, "gitdir")
    work_trees = _folders_in(os.path.join(data, "worktrees"))
    _check_number(len(work_trees), os.path.join(data, "worktrees"))
    for entry in work_trees:
        yield os.path.join(entry, "config.worktree")
        yield from _existing(entry, "commondir", "gitdir")


def _is_never_made(name: str) -> bool:
    return name not in _NO_HOOKS


def _existing(folder: str, *names: str) -> Iterator[str]:
    yield from (path for name in names if os.path.lexists(path := os.path.join(folder, name)))


def _check_number(number: int, folder: str) -> None:
    if number > _MOST_FOLDERS:
        raise Unprotectable(
            f"{folder} holds more than {_MOST_FOLDERS} folders, too many to be looked after. "
            "Remove what is not needed, or start without the sandbox"
        )


def _repositories_below(folder: str) -> Iterator[str]:
    waiting, seen = [folder], 0
    while waiting:
        entries = _folders_in(waiting.pop())
        seen += len(entries)
        _check_number(seen, folder)
        for entry in entries:
            if os.path.lexists(os.path.join(entry, "HEAD")):
                yield entry
                waiting.append(os.path.join(entry, "modules"))
            else:
                waiting.append(entry)


def _folders_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
