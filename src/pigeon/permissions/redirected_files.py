"""The files that redirections of a shell command may write or read, whatever folder the command is in by then.

The order of `cd` commands, and their end at a bracket, is not tracked: each may start where any other ended. If a name
begins or ends with an unknown value (`$1`), each word of the command may be that value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice

from pigeon.permissions.allowed_commands import REDIRECTION_SIGNS
from pigeon.permissions.shell_words import ASSIGNMENT, ShellScript, ShellWord
from pigeon.system.paths import expand_home

MOST_FOLDERS = 64
MOST_FILES = 2000
_READING = ("<", "<>", "<&")
_WRITING = tuple(operator for operator in REDIRECTION_SIGNS if operator != "<")
_NO_FILES = ("/dev/null", "/dev/stdout", "/dev/stderr")
# A value of a variable or of a substitution that a word begins or ends with.
_FIRST_VALUE = re.compile(r"\"?(?:\$\(|`|\$(\w+|[@*])|\$\{(\w+|[@*])\})")
_LAST_VALUE = re.compile(r"(?:\)|`|\$(\w+|[@*])|\$\{(\w+|[@*])\})\"?$")
_TILDE = re.compile(r"~[\w.+-]*(?=/|$)")
_PROCESS_FOLDER = re.compile(r"/+proc/+(?:(?:self|thread-self|\d+)/+)?cwd(?=/|$)")  # `$$` counts as empty


class RedirectedFiles:
    """The files that the redirections of a command and of the scripts in it may open."""

    def __init__(self, scripts: Sequence[ShellScript], cwd: str, home: str) -> None:
        self._scripts = scripts
        self._cwd = cwd
        self._home = home

    def find_paths(self, access: str) -> list[str] | None:
        wanted = _READING if access == "read" else _WRITING
        targets = {
            (redirection.target.raw, redirection.target.value): (redirection.target, script)
            for script in self._scripts
            for redirection in script.redirections
            if redirection.operator in wanted and redirection.target.value not in _NO_FILES
        }
        folders = self._find_folders() if targets else []
        if folders is None or any(_can_expand_by_glob(target) for target, _ in targets.values()):
            return None
        found: dict[str, None] = {}
        left = MOST_FILES // len(folders or (self._cwd,))
        for target, script in targets.values():
            possible = chain(self._possible_paths_of(target, script), self._guess_names(target, script))
            names = list(islice(possible, left + 1))
            left -= len(names)
            if left < 0:
                return None
            found.update(dict.fromkeys(os.path.join(folder, name) for folder in folders for name in names if name))
        return list(found)

    def _guess_names(self, target: ShellWord, script: ShellScript) -> Iterator[str]:
        """The possible names if a name begins or ends with an unknown value."""
        first, last = _FIRST_VALUE.match(target.raw), _LAST_VALUE.search(target.raw)
        for found, begins in ((first, True), (last, False)):
            variable = "" if found is None else found[1] or found[2] or ""
            if found is None or (variable in script.variables and variable not in self._loop_variables):
                continue
            known = script.variables.get(variable, "")
            rest = target.value.removeprefix(known) if begins else target.value.removesuffix(known)
            yield from (word + rest if begins else rest + word for word in self._path_words)

    @cached_property
    def _loop_variables(self) -> set[str]:
        """The loop variables that have several values."""
        loops = (words for script in self._scripts for words in script.commands if words[0].raw == "for")
        return {words[1].value for words in loops if len(words) > 4}

    @cached_property
    def _path_words(self) -> list[str]:
        """Every word of the command that could be part of a path, and the text behind `=` in words."""
        found: dict[str, None] = {}
        for script in self._scripts:
            texts = [word.value for words in script.commands for word in words]
            texts += [word for document in script.documents if "\n" not in document for word in document.split()]
            found.update(dict.fromkeys(text for text in texts if text[:1] not in ("", "-") and "\n" not in text))
        found.update(dict.fromkeys(text.partition("=")[2] for text in tuple(found) if "=" in text))
        return list(found)

    def _find_folders(self) -> list[str] | None:
        """The folders that the command may be in at any time; None if there are too many."""
        folders = {self._cwd: None}
        for script in self._scripts:
            search = [entry for entry in script.variables.get("CDPATH", "").split(":") if entry]
            for words in script.commands:
                at = next((at for at, word in enumerate(words) if word.value in ("cd", "pushd")), None)
                if at is None or not all(_precedes_builtin(word) for word in words[:at]):
                    continue
                target = words[-1]
                if _can_expand_by_glob(target):
                    return None
                names = [self._home, script.variables.get("HOME", self._home)]
                if target.value == "-":
                    names = [script.variables.get("OLDPWD", self._cwd)]
                elif len(words) > at + 1:
                    names = self._possible_paths_of(target, script)
                    names += [os.path.join(entry, name) for entry in search for name in names]
                below = (os.path.join(folder, name) for folder in tuple(folders) for name in names)
                folders.update(dict.fromkeys(map(os.path.normpath, below)))
                if len(folders) > MOST_FOLDERS:
                    return None
        return list(folders)

    def _possible_paths_of(self, word: ShellWord, script: ShellScript) -> list[str]:
        """The paths that a word may name; relative if they depend on the current folder at that time."""
        value, tilde, cwd = word.value, _TILDE.match(word.raw), self._cwd.rstrip("/")
        if tilde is not None:
            rest = value[tilde.end() :]
            if tilde[0] in ("~+", "~-"):
                return [f".{rest}"]
            if tilde[0] == "~":
                return list(dict.fromkeys((self._home + rest, script.variables.get("HOME", self._home) + rest)))
            return [expand_home(tilde[0], self._home) + rest]
        names = [value]
        if "PWD" in word.raw and (value == self._cwd or value.startswith(f"{cwd}/")):
            names.append(f".{value[len(cwd) :]}")
        process = _PROCESS_FOLDER.match(value)
        if process is not None:
            names.append(f".{value[process.end() :]}")
        return names


def _precedes_builtin(word: ShellWord) -> bool:
    """Whether a word before `cd` does not change its meaning."""
    return ASSIGNMENT.match(word.raw) is not None or word.value in ("command", "builtin", "--", "-p")


def _can_expand_by_glob(word: ShellWord) -> bool:
    """Whether the shell may expand it to other names, depending on existing files."""
    return word.globs and any(sign in word.raw for sign in "*?[{")
