"""Globs for paths, matched in linear time so that no pattern can hang the search.

`*` and `?` stay within a name, `**` crosses names, `[a-z]` and `[!a-z]` are classes, `{a,b}` are alternatives and `\\`
takes the meaning from the next character. A pattern without an upper-case letter ignores case.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pigeon.wire.errors import ToolFailed

LONGEST = 1000
MOST_ALTERNATIVES = 256
_ANY_NAMES = "(?:[^/]+/)*?"


def matcher(pattern: str) -> Callable[[str], bool]:
    """A test for paths with forward slashes: a pattern without a slash is tried on the last name only."""
    whole_path = "/" in pattern
    if whole_path and not pattern.startswith(("/", "**/")):
        pattern = f"**/{pattern}"
    any_case = not any(character.isupper() for character in pattern)
    return _test(pattern, whole_path, re.IGNORECASE if any_case else re.NOFLAG)


def rooted_matcher(pattern: str) -> Callable[[str], bool]:
    """The same, but case counts, a pattern with a slash is the whole path, and with a slash at its end all below it."""
    whole_path = "/" in pattern
    rooted = pattern.removeprefix("./").removeprefix("/")
    return _test(f"{rooted}**" if rooted.endswith("/") else rooted, whole_path, re.NOFLAG)


def path_expression(pattern: str) -> str:
    """A regular expression for the whole of a path; `{a,b}` has no meaning in it.

    It is made of atomic steps: the first way to get past a wildcard is as good as any.
    """
    blocks: list[list[str]] = [[]]
    for name in pattern.split("/"):
        if name == "**":
            blocks.append([])
        else:
            blocks[-1].append(_name(name))
    if len(blocks) == 1:
        return "/".join(blocks[0])
    first, *middle, last = blocks
    expression = "".join(f"{name}/" for name in first)
    for block in middle:
        if block:
            expression += f"(?>{_ANY_NAMES}{''.join(f'{name}/' for name in block)})"
    return expression + (_ANY_NAMES + "/".join(last) if last else ".+")


def _test(pattern: str, whole_path: bool, case: re.RegexFlag) -> Callable[[str], bool]:
    if not pattern or len(pattern) > LONGEST:
        raise ToolFailed(f"Invalid pattern: it must have between 1 and {LONGEST} characters.")
    try:
        tests = [re.compile(path_expression(one), re.DOTALL | case).fullmatch for one in _alternatives(pattern)]
    except re.error as error:
        raise ToolFailed(f"Invalid pattern: {pattern} ({error})") from error

    def matches(path: str) -> bool:
        subject = path if whole_path else path.rpartition("/")[2]
        return any(test(subject) for test in tests)

    return matches


def _alternatives(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > MOST_ALTERNATIVES:
            raise ToolFailed(f"Invalid pattern: more than {MOST_ALTERNATIVES} alternatives.")
        current = waiting.pop()
        brace = _brace(current)
        if brace is None:
            done.append(current)
            continue
        start, end, options = brace
        waiting.extend(current[:start] + option + current[end:] for option in options)
    return list(dict.fromkeys(done))


def _brace(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first complete `{a,b}` of a pattern."""
    start = depth = 0
    cuts: list[int] = []
    escaped = False
    for at, character in enumerate(pattern):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "{":
            if depth == 0:
                start, cuts = at, [at]
            depth += 1
        elif character == "," and depth == 1:
            cuts.append(at)
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                ends = [*cuts[1:], at]
                return start, at + 1, [pattern[a + 1 : b] for a, b in zip(cuts, ends, strict=True)]
    return None


def _name(pattern: str) -> str:
    pieces: list[str] = [""]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
        elif character == "[":
            piece, at = _class(pattern, at)
            pieces[-1] += piece
        elif character == "\\" and at < len(pattern):
            pieces[-1] += re.escape(pattern[at])
            at += 1
        else:
            pieces[-1] += re.escape(character)
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle) + f"[^/]*{last}"


def _class(pattern: str, at: int) -> tuple[str, int]:
    end = pattern.find("]", at + 2 if pattern[at : at + 1] in ("!", "^") else at + 1)
    if end < 0:
        return r"\[", at
    body = pattern[at:end]
    negated = body[:1] in ("!", "^")
    members = re.findall(r"(.)-(.)|(.)", body[1:] if negated else body, re.DOTALL)
    inside = "".join(f"{_quoted(a)}-{_quoted(b)}" if a else _quoted(single) for a, b, single in members)
    return f"(?!/)[{'^' if negated else ''}{inside}]", end + 1


def _quoted(character: str) -> str:
    return character if character.isalnum() else f"\\{character}"
