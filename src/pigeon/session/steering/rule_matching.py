"""Does what the model writes match a rule: regular expressions on a window that moves along with each block.

The work per delta is bounded: a window of fixed size, and a limit on processor time after which the caller switches the
rule off. Arguments of tools are looked at as their JSON with the escapes resolved, so that a line break in a file to be
written is a line break here.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from pigeon.system.time_box import TimeBox, TookTooLong
from pigeon.wire.base import Absent
from pigeon.wire.rules import Rule

Kind = Literal["text", "thinking", "toolCall"]
WINDOW = 1000
HEAD = 4000
SECONDS = 0.05
_SCOPE = re.compile(r"(text|thinking|tool|toolcall)(?::([^()\s]+))?(?:\((.+)\))?")
_WHOLE_ESCAPES = re.compile(r"(?:[^\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_PATH = re.compile(r'"(?:path|file_path|filePath|file)"\s*:\s*"((?:[^"\\]|\\.)*+)"')
_OTHER_GROUP = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z_])")


class Scope:
    """One thing that a rule looks at."""

    def __init__(self, kind: Kind, tool: str | None = None, glob: str | None = None) -> None:
        self.kind: Kind = kind
        self.tool = tool
        self.glob = glob


class CompiledRule:
    """A rule that is ready to be held against text; raises `ValueError` if it cannot be."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name = rule.name
        self.mode = "always" if isinstance(rule.interrupt_mode, Absent) else rule.interrupt_mode
        self.gap = 0 if isinstance(rule.repeat, Absent) else rule.repeat
        self._patterns = [_compiled(text) for text in rule.condition or []]
        self._scopes = list(_scopes(rule))

    def looks_at(self, kind: Kind, tool: str) -> bool:
        """True if this kind of block can match at all."""
        return any(scope.kind == kind and scope.tool in (None, tool) for scope in self._scopes)

    def matches(self, window: Window) -> bool:
        """True if the end of a block matches; a match that could still change waits for more."""
        return any(window.has(pattern) for pattern in self._patterns) and self._in_place(window)

    def interrupts(self, kind: Kind) -> bool:
        """True if a match in this kind of block cuts the answer."""
        return self.mode in ("always", "tool-only" if kind == "toolCall" else "prose-only")

    def _in_place(self, window: Window) -> bool:
        fitting = [scope for scope in self._scopes if scope.kind == window.kind and scope.tool in (None, window.tool)]
        return any(scope.glob is None or _fits(window.path(), scope.glob) for scope in fitting)


class Window:
    """The end of one block, as much of it as rules look at."""

    def __init__(self, kind: Kind, tool: str = "") -> None:
        self.kind: Kind = kind
        self.tool = tool
        self._text = ""
        self._start = 0
        self._head = ""
        self._broken = ""
        self._closed = False

    def pieces(self, delta: str) -> Iterator[None]:
        """Take more text, in steps that fit; look at the window after each."""
        if self.kind == "toolCall":
            delta = self._resolved(delta)
        for at in range(0, len(delta), WINDOW):
            self._take(delta[at : at + WINDOW])
            yield

    def close(self) -> None:
        """Nothing more comes."""
        self._closed = True

    def has(self, pattern: re.Pattern[str]) -> bool:
        """True if the pattern is in the window, and more text could not undo that."""
        found = pattern.search(self._text, self._start)
        if found is None:
            return False
        return self._closed or found.end() < len(self._text) or found.end() - found.start() > WINDOW // 2

    def path(self) -> str:
        """The file that a tool call is about, as far as it is known."""
        found = _PATH.search(self._head)
        return _unescaped(found[1]) if found else ""

    def _take(self, piece: str) -> None:
        text = self._text + piece
        if len(text) > 2 * WINDOW:
            # One character more than is searched, so that ^ and \b do not mistake the cut for a beginning.
            text = text[-WINDOW - len(piece) - 1 :]
            self._start = 1
        self._text = text

    def _resolved(self, delta: str) -> str:
        if len(self._head) < HEAD:
            self._head += delta[: HEAD - len(self._head)]
        text = self._broken + delta
        whole = _WHOLE_ESCAPES.match(text)
        end = whole.end() if whole else 0
        if len(text) - end > 6:
            end = len(text)
        self._broken = text[end:]
        return _unescaped(text[:end])


def matching(rules: Iterable[CompiledRule], window: Window) -> tuple[list[CompiledRule], list[CompiledRule]]:
    """The rules that match, and those that took too long to find out."""
    matched: list[CompiledRule] = []
    slow: list[CompiledRule] = []
    for rule in rules:
        try:
            with TimeBox(SECONDS):
                found = rule.matches(window)
        except TookTooLong:
            slow.append(rule)
            continue
        if found:
            matched.append(rule)
    return matched, slow


def _compiled(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(_OTHER_GROUP.sub("(?P<", text), re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the condition {text!r} is not a regular expression: {error}") from None
    if pattern.search("") is not None:
        raise ValueError(f"the condition {text!r} matches everything, because it matches an empty text")
    return pattern


def _scopes(rule: Rule) -> Iterator[Scope]:
    globs: list[str | None] = [None] if isinstance(rule.globs, Absent) or not rule.globs else list(rule.globs)
    if isinstance(rule.scope, Absent) or not rule.scope:
        yield Scope("text")
        yield from (Scope("toolCall", None, glob) for glob in globs)
        return
    for text in rule.scope:
        found = _SCOPE.fullmatch(text)
        if found is None or (found[1] in ("text", "thinking") and (found[2] or found[3])):
            raise ValueError(f"scope {text!r} must be text, thinking, tool, tool:NAME or tool:NAME(GLOB)")
        if found[1] == "text":
            yield Scope("text")
        elif found[1] == "thinking":
            yield Scope("thinking")
        else:
            yield from (Scope("toolCall", found[2], glob) for glob in ([found[3]] if found[3] else globs))


def _fits(path: str, glob: str) -> bool:
    if not path:
        return False
    if "/" not in glob:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], glob)
    return fnmatch.fnmatchcase(path, glob) or fnmatch.fnmatchcase(f"/{path.lstrip('/')}", glob)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _PLAIN.get(found[2], found[2]), text)
