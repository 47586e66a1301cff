"""Ignore files (`.gitignore` and its relatives), as far as a search for skills needs them."""

from __future__ import annotations

import os
import re

from msgspec import Struct

from pigeon.resources.texts import read_beginning

NAMES = (".gitignore", ".ignore", ".fdignore")
LARGEST = 65_536


class Rule(Struct, frozen=True):
    """One line of an ignore file."""

    pattern: re.Pattern[str]
    ignores: bool
    folders_only: bool
    base: str

    def applies(self, path: str, is_folder: bool) -> bool:
        """Whether the line speaks of this path."""
        if self.folders_only and not is_folder:
            return False
        return self.pattern.fullmatch(os.path.relpath(path, self.base).replace(os.sep, "/")) is not None


def rules_in(folder: str) -> list[Rule]:
    """The lines of the folder's ignore files; one that cannot be read says nothing."""
    rules = []
    for name in NAMES:
        try:
            text, _ = read_beginning(os.path.join(folder, name), LARGEST)
        except OSError:
            continue
        rules += [rule for line in text.splitlines() if (rule := _rule(line, folder)) is not None]
    return rules


def ignored(path: str, is_folder: bool, rules: list[Rule]) -> bool:
    """What the last line that speaks of the path says."""
    return next((rule.ignores for rule in reversed(rules) if rule.applies(path, is_folder)), False)


def _rule(line: str, folder: str) -> Rule | None:
    line = line.rstrip()
    if not line or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    if not line:
        return None
    anchored = "/" in line
    line = line.lstrip("/")
    try:
        pattern = re.compile(("" if anchored else "(?:.*/)?") + _expression(line), re.DOTALL)
    except re.error:
        return None
    return Rule(pattern, ignores, folders_only, folder)


def _expression(glob: str) -> str:
    made, at = "", 0
    while at < len(glob):
        if glob.startswith("**/", at):
            made, at = made + "(?:.*/)?", at + 3
        elif glob.startswith("**", at):
            made, at = made + ".*", at + 2
        elif glob[at] == "*":
            made, at = made + "[^/]*", at + 1
        elif glob[at] == "?":
            made, at = made + "[^/]", at + 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end].replace("\\", "\\\\")
            made, at = made + "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]", end + 1
        else:
            at += glob[at] == "\\" and at + 1 < len(glob)
            made, at = made + re.escape(glob[at]), at + 1
    return made
