"""What .gitignore and its relatives leave out, judged as ripgrep judges files: for what ripgrep itself never lists."""

from __future__ import annotations

import os
import re

from pigeon.system.files import read_whole
from pigeon.system.globs import LONGEST, path_expression

_BIGGEST = 1 << 20
_MOST_RULES = 10_000
# The files that say what is ignored, the most important kind first, and whether they reach into repositories below.
_KINDS = ((".rgignore", True), (".ignore", True), (".gitignore", False), (".git/info/exclude", False))
_EXCLUDES_FILE = re.compile(r'^\s*excludesfile\s*=\s*"?\s*(\S+?)\s*"?\s*$', re.IGNORECASE | re.MULTILINE)


class _Rules:
    """The lines of one file; the last that matches decides."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")[:_MOST_RULES]
        self._rules = [rule for line in reversed(lines) if (rule := _rule(line)) is not None]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True if the path is ignored, false if it is kept, nothing if no line names it."""
        for expression, ignores, folders_only in self._rules:
            if (is_folder or not folders_only) and expression.fullmatch(path):
                return ignores
        return None


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
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
        return re.compile(path_expression(glob), re.DOTALL), pattern == line, path != pattern
    except re.error:
        return None


class Ignored:
    """A test for paths below one directory, which reads each file of rules once."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root).rstrip("/")
        self._files: dict[str, _Rules] = {}
        self._in_repository = in_repository(self._root or "/")
        self._repositories: dict[str, bool] = {}
        self._global: _Rules | None = None

    def __call__(self, path: str, is_folder: bool) -> bool:
        """Whether a path relative to the directory is left out; what is above it must have been asked before."""
        full = f"{self._root}/{path}"
        for kind, reaches_in in _KINDS:
            folder = full
            while folder:
                folder = folder.rpartition("/")[0]
                verdict = self._rules(f"{folder}/{kind}").verdict(full[len(folder) + 1 :], is_folder)
                if verdict is not None:
                    return verdict
                if not reaches_in and self._in_repository and self._is_repository(folder):
                    break
        if self._global is None:
            self._global = _rules_in(_global_file())
        return self._global.verdict(path, is_folder) or False

    def _rules(self, file: str) -> _Rules:
        rules = self._files.get(file)
        if rules is None:
            rules = self._files[file] = _rules_in(file)
        return rules

    def _is_repository(self, folder: str) -> bool:
        known = self._repositories.get(folder)
        if known is None:
            known = self._repositories[folder] = os.path.exists(f"{folder}/.git")
        return known


def _rules_in(file: str) -> _Rules:
    return _Rules(_text(file))


def _text(file: str) -> str:
    try:
        return read_whole(file, _BIGGEST).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _global_file() -> str:
    """The user's own list for all repositories."""
    home = os.path.expanduser("~")
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for file in (f"{home}/.gitconfig", f"{settings}/git/config"):
        if named := _EXCLUDES_FILE.search(_text(file)):
            return os.path.expanduser(named.group(1))
    return f"{settings}/git/ignore"


def in_repository(folder: str) -> bool:
    """Whether a directory belongs to a git repository."""
    folder = os.path.realpath(folder)
    while not os.path.exists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return False
    return True
