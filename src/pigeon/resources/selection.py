"""The lists of skills and templates in settings: paths and globs to add, `!glob` and `-path` to leave out, `+path` to
keep in spite of those."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct


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
        from fnmatch import fnmatchcase

        forms = (path, os.path.relpath(path, self.base), os.path.basename(path))
        return any(fnmatchcase(form, pattern) for pattern in self.patterns for form in forms)


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
