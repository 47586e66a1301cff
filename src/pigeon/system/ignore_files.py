"""Ignore files (`.gitignore` and its relatives): which paths their lines exclude. The only reader of such files.

`Ignored` applies ripgrep's rules, for files that ripgrep itself never lists (`workspaces/ripgrep`); `IgnoreLines` is a
single file, for searches that collect such files themselves (`resources/skills`). The lines are translated by
`system/globs` because a project's own file must not be able to hang the process; that module explains why `pathspec` is
not used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.globs import LONGEST, glob_to_regex
from pigeon.system.paths import expand_home

_BIGGEST = 1 << 20
_MOST_LINES = 10_000
# The kinds of ignore files, the most important first, and whether they apply inside repositories below.
_KINDS = ((".rgignore", True), (".ignore", True), (".gitignore", False), (".git/info/exclude", False))
_EXCLUDES_FILE = r'(?im)^\s*excludesfile\s*=\s*"?\s*(\S+?)\s*"?\s*$'


class IgnoreLines:
    """The lines of one file; the last that matches decides."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")[:_MOST_LINES]
        self._lines = [line for text in reversed(lines) if (line := _parse_line(text)) is not None]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True if a path relative to the file's folder is ignored, False if it is kept, None if no line matches it."""
        for expression, ignores, folders_only in self._lines:
            if (is_folder or not folders_only) and expression.fullmatch(path):
                return ignores
        return None


def read_ignore_file(file: str, view: FileView = LOCAL_FILES) -> IgnoreLines:
    """The lines of a file; empty if it is missing or cannot be read."""
    return IgnoreLines(_read_text(file, view))


def _parse_line(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    line = line.removesuffix("\r")
    if not line.endswith("\\ "):
        line = line.rstrip()
    if not line or line.startswith("#") or len(line) > LONGEST:
        return None
    pattern = line.removeprefix("!")
    path = pattern.removesuffix("/")
    rooted = "/" in path
    glob = path.removeprefix("/") if rooted else f"**/{path}"
    try:
        return re.compile(glob_to_regex(glob), re.DOTALL), pattern == line, path != pattern
    except re.error:
        return None


class Ignored:
    """A test for paths below one directory; each file is read once, `user_file` is the list for all repositories."""

    def __init__(self, root: str, user_file: str) -> None:
        self._root = os.path.realpath(root).rstrip("/")
        self._user_file = user_file
        self._files: dict[str, IgnoreLines] = {}
        self._in_repository = is_in_repository(self._root or "/")
        self._repositories: dict[str, bool] = {}

    def __call__(self, path: str, is_folder: bool) -> bool:
        """Whether a path relative to the directory is excluded; its parents must have been tested before."""
        full = f"{self._root}/{path}"
        for kind, reaches_in in _KINDS:
            folder = full
            while folder:
                folder = folder.rpartition("/")[0]
                verdict = self._read_lines(f"{folder}/{kind}").verdict(full[len(folder) + 1 :], is_folder)
                if verdict is not None:
                    return verdict
                if not reaches_in and self._in_repository and self._is_repository(folder):
                    break
        return self._read_lines(self._user_file).verdict(path, is_folder) or False

    def _read_lines(self, file: str) -> IgnoreLines:
        lines = self._files.get(file)
        if lines is None:
            lines = self._files[file] = read_ignore_file(file)
        return lines

    def _is_repository(self, folder: str) -> bool:
        known = self._repositories.get(folder)
        if known is None:
            known = self._repositories[folder] = os.path.exists(f"{folder}/.git")
        return known


def user_ignore_file(variables: Mapping[str, str], home: str) -> str:
    """The user's own list for all repositories, from git's configuration."""
    settings = variables.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for file in (f"{home}/.gitconfig", f"{settings}/git/config"):
        if named := re.search(_EXCLUDES_FILE, _read_text(file)):
            return expand_home(named.group(1), home)
    return f"{settings}/git/ignore"


def is_in_repository(folder: str) -> bool:
    """Whether a directory belongs to a git repository."""
    folder = os.path.realpath(folder)
    while not os.path.exists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return False
    return True


def _read_text(file: str, view: FileView = LOCAL_FILES) -> str:
    try:
        return view.read(file, _BIGGEST).decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    except OSError:
        return ""
