"""What Tab and typing offer: commands behind a slash, files behind an at sign."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from pigeon.system.ignore_files import Ignored, user_ignore_file

MOST_FILES = 20_000
FRESH_SECONDS = 5.0
OFFERED = 50
# Commands that take the name of a file.
OF_FILES = ("image", "export")
_ARGUMENT = re.compile(r"/(\S+) +([^\s@]*)")
_AT_WORD = re.compile(r"(?:^|\s)@(\"[^\"]*|[^\s\"]*)$")


class ChatCompleter(Completer):
    """Completes a command at the beginning, what stands behind it, and a file name behind `@` anywhere.

    `names` are commands with their help, `arguments` what some of them may be given.
    """

    def __init__(self, names: Mapping[str, str], files: ProjectFiles, arguments: Mapping[str, Sequence[str]]) -> None:
        self._names = names
        self._files = files
        self._arguments = arguments

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What could stand at the cursor."""
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before and "\n" not in before:
            yield from self._commands(before[1:])
        elif argument := _ARGUMENT.fullmatch(before):
            yield from self._values(*argument.groups())
        elif word := _AT_WORD.search(before):
            yield from self._paths(word[1])

    def _commands(self, typed: str) -> Iterable[Completion]:
        for name, about in self._names.items():
            if name.startswith(typed):
                yield Completion(f"{name} " if typed != name else name, -len(typed), f"/{name}", about[:80])

    def _values(self, name: str, typed: str) -> Iterable[Completion]:
        values = self._files.matching(typed.lower(), OFFERED) if name in OF_FILES else self._arguments.get(name, ())
        for value in values:
            if name in OF_FILES or typed.lower() in value.lower():
                yield Completion(value, -len(typed))

    def _paths(self, typed: str) -> Iterable[Completion]:
        wanted = typed.removeprefix('"').lower()
        for path in self._files.matching(wanted, OFFERED):
            text = f'"{path}"' if " " in path else path
            yield Completion(text, -len(typed), path)


class ProjectFiles:
    """The files below a folder that git would not ignore, read again when they were read long ago."""

    def __init__(self, root: str, variables: Mapping[str, str], home: str) -> None:
        self._root = root
        self._user_file = user_ignore_file(variables, home)
        self._paths: list[str] = []
        self._read = float("-inf")

    def matching(self, wanted: str, most: int) -> list[str]:
        """Paths that have the letters in this order; those that have them together, and in the name, come first."""
        if time.monotonic() - self._read > FRESH_SECONDS:
            self._paths = self._found()
            self._read = time.monotonic()
        ranked = sorted(
            (rank, len(path), path) for path in self._paths if (rank := _rank(path.lower(), wanted)) is not None
        )
        return [path for _, _, path in ranked[:most]]

    def _found(self) -> list[str]:
        ignored = Ignored(self._root, self._user_file)
        found: list[str] = []
        folders = [""]
        while folders and len(found) < MOST_FILES:
            folder = folders.pop(0)
            try:
                entries = sorted(os.scandir(os.path.join(self._root, folder)), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                path = os.path.join(folder, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name == ".git" or ignored(path, is_folder):
                    continue
                if is_folder:
                    folders.append(path)
                    found.append(path + os.sep)
                else:
                    found.append(path)
        return found


def _rank(path: str, wanted: str) -> int | None:
    if not wanted:
        return path.count(os.sep)
    if os.path.basename(path.rstrip(os.sep)).startswith(wanted):
        return 0
    if path.startswith(wanted):
        return 1
    if wanted in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in wanted) else None
