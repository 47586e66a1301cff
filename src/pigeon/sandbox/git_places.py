"""Where git stores the data of a repository, and which files there can make git run programs.

A command in the sandbox may commit, so most of the data is writable; hooks, configuration and what these name in the
folder are not. `.git` may be a folder, or a file that names one elsewhere (work trees, submodules). Instructions in
that other folder are always protected, but the folder is writable only if it points back: otherwise a file that one
command wrote could make any folder writable for the next.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

from pigeon.sandbox.git_config import GitConfigReader, GitFile
from pigeon.sandbox.policy import Unprotectable
from pigeon.sandbox.survey import FolderSurvey
from pigeon.system.files import read_beginning

_LONGEST_FILE = 64 * 1024
_MOST_FOLDERS = 500
_MOST_WORDS, _MOST_PARTS = 200, 8
# A run of characters that are not special to a shell.
_PATH_RUN = r"""[^\s;&|()<>"'`$={},]+"""
# Files that would redirect git's configuration, and the content with which they change nothing.
HARMLESS = {"commondir": b".\n", "config.worktree": b""}
# Sections and keys whose values never name a program or a file that git acts on.
_NO_PROGRAMS = frozenset(
    {
        *("branch", "user", "author", "committer", "color", "column", "safe", "push", "pull", "advice", "extensions"),
        *("remote.url", "remote.pushurl", "remote.fetch", "remote.push", "url.insteadof", "url.pushinsteadof"),
        *("submodule.url", "submodule.active", "submodule.branch", "init.defaultbranch", "core.worktree"),
        *("core.excludesfile", "core.attributesfile", "include.path", "includeif.path", "core.hookspath"),
    }
)


class GitPlaces(Struct, frozen=True):
    """What commits write outside the folder of a repository, and what must stay as it is.

    `never_made` is what no command may create if it is missing: the content of its stand-in file, or None for a folder.
    """

    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    never_made: dict[str, bytes | None] = {}


def find_git_places(folder: str, survey: FolderSurvey) -> GitPlaces:
    """The places of the repository at this folder, read from the disk; empty if there is none.

    Raises `Unprotectable` if there are too many places.
    """
    dot_git = os.path.join(folder, ".git")
    if os.path.islink(dot_git):
        return GitPlaces(kept=(dot_git,))
    if os.path.isdir(dot_git):
        inner = find_data_places(dot_git, folder, survey)
        beside: dict[str, bytes | None] = dict.fromkeys(_list_bare_repository_paths(folder))
        return GitPlaces(kept=(*inner.kept, *beside), never_made={**inner.never_made, **beside})
    if not os.path.isfile(dot_git):
        return GitPlaces()
    data = linked_folder(dot_git)
    if data is None or not os.path.isdir(data):
        return GitPlaces(kept=(dot_git,))
    shared = find_main_data_folder(data)
    found = [find_data_places(place, folder, survey) for place in ((data,) if shared is None else (data, shared))]
    kept = (dot_git, *(path for places in found for path in places.kept))
    never_made = {path: content for places in found for path, content in places.never_made.items()}
    if not _points_back(data, folder, survey.reader):
        return GitPlaces(kept=kept, never_made=never_made)
    if shared is None:
        return GitPlaces(written=(data,), kept=kept, never_made=never_made)
    if os.path.dirname(data) != os.path.join(shared, "worktrees"):
        # A real work tree is listed in its repository. A command could write a `.git` file that names any repository.
        return GitPlaces(kept=kept, never_made=never_made)
    parts = (os.path.join(shared, name) for name in ("objects", "refs", "logs"))
    return GitPlaces(written=(data, *filter(os.path.isdir, parts)), kept=kept, never_made=never_made)


def _list_bare_repository_paths(folder: str) -> Iterator[str]:
    """Names that would make git treat the folder itself as a repository, without a `.git`.

    A command can spoil `.git`, since commits write it; git then looks for `HEAD`, `objects` and `refs` beside it, the
    latter two also where `commondir` leads. `HEAD` itself cannot be kept from being made: with something of that name
    in the folder git no longer knows what `HEAD` means.
    """
    missing = [path for name in ("refs", "objects") if _is_free_place(path := os.path.join(folder, name))]
    yield from (*missing[:1], os.path.join(folder, "commondir"))


def _is_free_place(path: str) -> bool:
    """Whether there is nothing, or only a stand-in."""
    with suppress(OSError):
        return not os.listdir(path)
    return not os.path.lexists(path)


def find_data_places(data: str, folder: str, survey: FolderSurvey) -> GitPlaces:
    """The places in a repository's data folder, in its submodules and work trees, and what their configuration names.

    `folder` is the work tree, which relative names of hooks start from.
    """
    never_made: dict[str, bytes | None] = {}
    kept: list[str] = []
    for repository in (data, *_repositories_below(os.path.join(data, "modules"))):
        never_made[os.path.join(repository, "hooks")] = None
        never_made.update((os.path.join(repository, name), content) for name, content in HARMLESS.items())
        if os.path.lexists(os.path.join(repository, "HEAD")):
            never_made[os.path.join(repository, "config")] = b""
        kept += [os.path.join(repository, "config"), *_existing_paths(repository, "gitdir")]
    for entry in _work_trees(data):
        never_made[os.path.join(entry, "config.worktree")] = HARMLESS["config.worktree"]
        kept += _existing_paths(entry, "commondir", "gitdir")
    configured = [path for path in (*kept, *never_made) if os.path.basename(path) in ("config", "config.worktree")]
    files = list(survey.reader.read_with_includes(configured))
    never_made.update((file.path, b"") for file in files if file.path not in configured)
    for hooks in _find_hook_folders((*files, *survey.read_shared_config()), folder, survey.reader):
        never_made[hooks] = None
    kept += _find_program_files(files, folder, survey.reader)
    kept += _find_program_files(survey.read_shared_config(), folder, survey.reader, whole=False)
    return GitPlaces(kept=(*dict.fromkeys((*kept, *never_made)),), never_made=never_made)


def find_shared_places(survey: FolderSurvey) -> GitPlaces:
    """The configuration files that apply to every repository, and what they name by absolute path.

    This only matters for files in a writable folder, such as a repository of dotfiles.
    """
    kept: list[str] = []
    never_made: dict[str, bytes | None] = {}
    for file in survey.read_shared_config():
        if file.path:
            never_made[os.path.realpath(file.path)] = b""
        never_made.update((path, b"") for path in file.includes)
        for setting in file.settings:
            if setting.key == "core.hookspath" and setting.value.startswith(("/", "~")):
                never_made.update((path, None) for path in survey.reader.resolve_value(setting.value, "/"))
            else:
                whole = (word for word in find_possible_paths(setting.value) if word.startswith(("/", "~")))
                kept += [
                    path for word in whole for path in survey.reader.resolve_value(word, "/") if os.path.isfile(path)
                ]
    return GitPlaces(kept=(*dict.fromkeys((*kept, *never_made)),), never_made=never_made)


def linked_folder(dot_git: str) -> str | None:
    """The folder that a `.git` file names."""
    text = read_start(dot_git)
    named = text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else ""
    return os.path.realpath(os.path.join(os.path.dirname(dot_git), named)) if named and "\0" not in named else None


def find_main_data_folder(data: str) -> str | None:
    """The data folder of the repository that a work tree belongs to; None if it is not a work tree."""
    named = read_start(os.path.join(data, "commondir")).strip()
    found = os.path.realpath(os.path.join(data, named)) if named and "\0" not in named else None
    return None if found == os.path.realpath(data) else found


def read_start(path: str) -> str:
    """The beginning of a file; empty if there is none."""
    try:
        return read_beginning(path, _LONGEST_FILE)[0]
    except (OSError, ValueError):
        return ""


def _find_hook_folders(files: Iterable[GitFile], folder: str, reader: GitConfigReader) -> Iterator[str]:
    """The hook folders that the configuration names; never the repository's folder itself, which must stay writable."""
    for file in files:
        for setting in file.settings:
            if setting.key == "core.hookspath":
                yield from (path for path in reader.resolve_value(setting.value, folder) if path != folder)


def _find_program_files(
    files: Iterable[GitFile], folder: str, reader: GitConfigReader, whole: bool = True
) -> Iterator[str]:
    """Files in the repository's folder that the configuration names, such as filters, which git runs.

    Without `whole`, names that have no slash are left out: in a configuration for all repositories, they mean programs
    on the `PATH`.
    """
    for file in files:
        for setting in file.settings:
            section = setting.key.partition(".")[0]
            if section not in _NO_PROGRAMS and setting.key not in _NO_PROGRAMS:
                words = [word for word in find_possible_paths(setting.value) if whole or "/" in word]
                there = {
                    path for word in words for path in reader.paths_of_value(word, folder) if os.path.lexists(path)
                }
                inside = [path for path in map(os.path.realpath, there) if path.startswith(f"{folder}/")]
                # The command may change into a folder before it runs the program.
                inside += [f"{path}/{word}" for path in inside if os.path.isdir(path) for word in words]
                found = (path for path in (*there, *inside) if os.path.lexists(path) and not os.path.isdir(path))
                yield from map(os.path.normpath, found)


@lru_cache(maxsize=1024)
def find_possible_paths(value: str) -> tuple[str, ...]:
    """Possible paths in a value that a shell runs: its words, the words without shell characters, and what follows an
    expansion."""
    line = value.removeprefix("!")
    try:
        words = shlex.split(line, comments=False)
    except ValueError:
        words = line.split()
    runs = re.findall(_PATH_RUN, line)
    if "$" in line or "`" in line:
        parts = [run.split("/") for run in runs if "/" in run]
        runs += ["/".join(names[index:]) for names in parts for index in range(1, min(len(names), _MOST_PARTS))]
    found = [word for word in dict.fromkeys((*words, *runs)) if word and "\0" not in word and not word.isdigit()]
    return tuple(found[:_MOST_WORDS])


def _points_back(data: str, folder: str, reader: GitConfigReader) -> bool:
    back = read_start(os.path.join(data, "gitdir")).strip()
    if back:
        return os.path.realpath(os.path.join(data, back)) == os.path.join(os.path.realpath(folder), ".git")
    for file in reader.read_with_includes([os.path.join(data, "config")]):
        for setting in file.settings:
            if setting.key == "core.worktree":
                return os.path.realpath(os.path.join(data, setting.value)) == os.path.realpath(folder)
    return False


def _existing_paths(folder: str, *names: str) -> Iterator[str]:
    yield from (path for name in names if os.path.lexists(path := os.path.join(folder, name)))


def _work_trees(data: str) -> list[str]:
    found = _folders_in(os.path.join(data, "worktrees"))
    _check_folder_count(len(found), os.path.join(data, "worktrees"))
    return found


def _check_folder_count(number: int, folder: str) -> None:
    if number > _MOST_FOLDERS:
        raise Unprotectable(
            f"{folder} contains more than {_MOST_FOLDERS} folders, too many to protect. "
            "Remove what is not needed, or start without the sandbox"
        )


def _repositories_below(folder: str) -> Iterator[str]:
    waiting, seen = [folder], 0
    while waiting:
        entries = _folders_in(waiting.pop())
        seen += len(entries)
        _check_folder_count(seen, folder)
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
