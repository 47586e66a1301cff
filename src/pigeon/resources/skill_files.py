"""Finding the files of skills below a folder, however the folder is shaped."""

from __future__ import annotations

import os
from collections.abc import Callable

from pigeon.resources.ignoring import Rule, ignored, rules_in
from pigeon.resources.places import Root

FILE = "SKILL.md"
MOST_FOLDERS = 2_000
DEEPEST = 12
_SKIPPED = ("node_modules",)


def skill_files(root: Root, report: Callable[[str], None]) -> list[str]:
    """The files in a fixed order; a folder with `SKILL.md` is one skill, whatever else is in it."""
    if os.path.isfile(root.path):
        return [root.path]
    return _Search(root, report).found()


class _Search:
    def __init__(self, root: Root, report: Callable[[str], None]) -> None:
        self._root = root
        self._report = report
        self._seen: set[str] = set()
        self._files: list[str] = []

    def found(self) -> list[str]:
        self._enter(self._root.path, 0, [])
        if len(self._seen) > MOST_FOLDERS:
            self._report(f"{self._root.path} has more than {MOST_FOLDERS} folders: not all were searched for skills")
        return self._files

    def _enter(self, folder: str, depth: int, rules: list[Rule]) -> None:
        if depth > DEEPEST or len(self._seen) > MOST_FOLDERS:
            return
        true_name = os.path.realpath(folder)
        if true_name in self._seen:
            return
        self._seen.add(true_name)
        own = os.path.join(folder, FILE)
        if os.path.isfile(own):
            self._files.append(own)
            return
        try:
            with os.scandir(folder) as entries:
                listed = sorted((entry for entry in entries), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._report(f"{folder} cannot be searched for skills: {error.strerror}")
            return
        self._look_at(listed, depth, [*rules, *rules_in(folder)])

    def _look_at(self, listed: list[os.DirEntry[str]], depth: int, rules: list[Rule]) -> None:
        loose = (depth == 0) == (self._root.loose == "at the top")
        for entry in listed:
            is_folder = _is_folder(entry)
            if entry.name.startswith(".") or entry.name in _SKIPPED or ignored(entry.path, is_folder, rules):
                continue
            if is_folder:
                self._enter(entry.path, depth + 1, rules)
            elif loose and entry.name.endswith(".md"):
                self._files.append(entry.path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
