"""Finds what in the writable folders makes other programs act: repositories and agents' files, at any depth.

A folder is walked once, when it is first asked about: what exists then is the user's, and stays protected for as long
as the agent runs. What appears later was most likely created by a command, which could have put anything into it; it is
protected only at the top of a folder (`plan`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from pigeon.sandbox.git_config import GitConfigReader, GitFile, GitSetting
from pigeon.sandbox.policy import Unprotectable, is_inside, resolve_link_steps

MOST_FOLDERS = 200_000
MOST_FINDINGS = 200
# Files that agents take instructions from, in the folder they are started in.
AGENT_NAMES = frozenset((".pigeon", ".pi", ".mcp.json", ".omp", ".xcsh"))
_LOOKED_FOR = frozenset((".git", "HEAD", "commondir", "objects", "refs", *AGENT_NAMES))
# Not searched inside a repository's data: the only repositories there are submodules, which `git_places` finds.
_OF_GIT = frozenset(("objects", "refs", "logs", "hooks", "info", "modules", "worktrees", "lfs", "annex"))


class Findings(Struct, frozen=True):
    """What was found: tops of repositories, folders of data that no `.git` leads to, and files of agents."""

    repositories: tuple[str, ...] = ()
    data_folders: tuple[str, ...] = ()
    agent_files: tuple[str, ...] = ()


class FolderSurvey:
    """Remembers what was found in each folder; reads git's configuration.

    `~` may mean any of `homes` there; `shared_files` apply to every repository of the user, and `given` are settings
    from variables instead of files.
    """

    def __init__(
        self, homes: Sequence[str] = (), shared_files: Sequence[str] = (), given: Sequence[GitSetting] = ()
    ) -> None:
        self.reader = GitConfigReader(homes)
        self._shared_files = tuple(shared_files)
        self._given = GitFile("", tuple(given), ())
        self._found: dict[str, Findings] = {}
        self._linked: dict[str, tuple[int, tuple[str, ...]]] = {}

    def read_shared_config(self) -> list[GitFile]:
        """The configuration that applies to every repository."""
        return [self._given, *self.reader.read_with_includes(self._shared_files)]

    def survey_folders(self, folders: Iterable[str]) -> list[Findings]:
        """The findings in these folders when each was first surveyed; raises `Unprotectable` if there are too many."""
        return [self._found.get(folder) or self._found.setdefault(folder, survey_folder(folder)) for folder in folders]

    def link_targets(self, folder: str) -> tuple[str, ...]:
        """The targets of all links in a folder, at any depth, and links on the way; re-read when it changes.

        A kept file may just be a link to a file that is not kept: hooks often are.
        """
        with suppress(OSError):
            status = os.lstat(folder)
            if stat.S_ISDIR(status.st_mode):
                known = self._linked.get(folder)
                if known is None or known[0] != status.st_mtime_ns:
                    known = self._linked[folder] = status.st_mtime_ns, tuple(dict.fromkeys(_find_link_targets(folder)))
                return known[1]
        return ()


def _find_link_targets(top: str) -> Iterator[str]:
    waiting, number = [top], 0
    while waiting:
        number += 1
        if number > MOST_FOLDERS:
            raise _too_much_error(top, f"{MOST_FOLDERS:,} folders")
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    # A folder that contains the folder itself cannot be kept.
                    yield from (step for step in resolve_link_steps(entry.path)[1:] if not is_inside(top, step))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def shared_git_files(homes: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The files in which git looks for configuration for every repository of the user."""
    found = [variables.get("GIT_CONFIG_SYSTEM", ""), "/etc/gitconfig", "/usr/local/etc/gitconfig"]
    found.append(variables.get("GIT_CONFIG_GLOBAL", ""))
    if folder := variables.get("XDG_CONFIG_HOME"):
        found.append(os.path.join(folder, "git", "config"))
    for home in homes:
        found += [os.path.join(home, ".config", "git", "config"), os.path.join(home, ".gitconfig")]
    return [path for path in dict.fromkeys(found) if os.path.isabs(path)]


def git_settings_in(variables: Mapping[str, str]) -> list[GitSetting]:
    """The git settings that variables contain."""
    found = []
    for name, key in variables.items():
        if name.startswith("GIT_CONFIG_KEY_"):
            value = variables.get(f"GIT_CONFIG_VALUE_{name.removeprefix('GIT_CONFIG_KEY_')}", "")
            section, _, rest = key.lower().partition(".")
            found.append(GitSetting(f"{section}.{rest.rpartition('.')[2]}", value))
    return found


def survey_folder(top: str) -> Findings:
    """What a folder contains now; links are not followed. Raises `Unprotectable`."""
    repositories: list[str] = []
    data_folders: list[str] = []
    agent_files: list[str] = []
    waiting, number = [top], 0
    while waiting:
        folder = waiting.pop()
        number += 1
        if number > MOST_FOLDERS:
            raise _too_much_error(top, f"{MOST_FOLDERS:,} folders")
        names, below = _scan_folder(folder)
        if names:
            if ".git" in names:
                repositories.append(folder)
            if "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names):
                data_folders.append(folder)
                below = [name for name in below if name not in _OF_GIT]
            agent_files += [f"{folder}/{name}" for name in AGENT_NAMES & names]
            if len(repositories) + len(data_folders) + len(agent_files) > MOST_FINDINGS:
                raise _too_much_error(top, f"{MOST_FINDINGS} repositories and folders of agents")
        waiting += [f"{folder}/{name}" for name in below if name not in names or name not in _NOT_ENTERED]
    return Findings(tuple(repositories), tuple(data_folders), tuple(sorted(agent_files)))


_NOT_ENTERED = frozenset((".git", *AGENT_NAMES))


def _scan_folder(folder: str) -> tuple[set[str], list[str]]:
    """Which of the relevant names a folder has, and its subfolders."""
    names: set[str] = set()
    below: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name in _LOOKED_FOR:
                    names.add(name)
                if entry.is_dir(follow_symlinks=False):
                    below.append(name)
    except OSError:
        # A folder that we cannot read, git cannot read either.
        return set(), []
    return names, below


def _too_much_error(top: str, what: str) -> Unprotectable:
    return Unprotectable(
        f"{top} contains more than {what}, too many to protect. "
        "Work in the folder of one project, or start without the sandbox"
    )
