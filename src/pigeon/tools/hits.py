"""The matches of a search for text, as `grep` shows them, until there are enough."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct, field

from pigeon.workspaces.records import Match

_MARKS = {"match": ":", "context": "-"}


class Hits(Struct):
    """Collects matches of wanted files until the limits are reached."""

    limit: int
    width: int
    most_characters: int
    wanted: Callable[[str], bool] | None = None
    lines: list[str] = field(default_factory=list)
    stopped_in: list[str] = field(default_factory=list)
    matches: int = 0
    size: int = 0
    cut: bool = False
    limited: bool = False
    _path: str | None = None
    _shown_path: str = ""
    _skipped: bool = False

    def add_until_full(self, found: list[Match]) -> bool:
        """Returns True once there is enough."""
        for match in found:
            self._enter_file(match.path)
            if self._skipped:
                continue
            if match.kind == "binary":
                self.stopped_in.append(self._shown_path)
            elif self._add_line(match):
                return True
        return False

    def _enter_file(self, path: str) -> None:
        if path != self._path:
            self._path = path
            self._shown_path = os.fsencode(path).decode("utf-8", "replace")
            self._skipped = self.wanted is not None and not self.wanted(path)

    def _add_line(self, match: Match) -> bool:
        if match.kind == "match":
            if self.matches == self.limit:
                self.limited = True
                return True
            self.matches += 1
        text = match.text
        if len(text) > self.width:
            text = f"{text[: self.width]}... [truncated]"
            self.cut = True
        mark = _MARKS[match.kind]
        line = f"{self._shown_path}{mark}{match.line}{mark} {text}"
        self.lines.append(line)
        self.size += len(line)
        return self.size > self.most_characters
