"""Globs: the one translation of wildcard patterns into regular expressions, matched in linear time.

For `find`, `grep`, permission rules, ignore files, lists of models, stream rules and the lists of skills in settings:
each has a function here that decides which characters are special. The patterns come from models, projects and hosts,
and a match holds the interpreter's lock, so none may take long. That is why this is not done with `pathspec`: its
expressions backtrack (`*a*a*a*a*ab` on a name of 200 characters takes 56 seconds), it knows no smart case and no
braces, and its import takes longer than most searches. Globs whose `*` crosses slashes are those of the standard
library.

How a path glob becomes an expression: `*` stays within a name, `**` crosses names, and everything between two of them
is a piece of fixed length. A piece is searched from left to right and its first place is kept (an atomic group): a
later one could not make more of the rest match. After `**` the search restarts at each name, for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

from pigeon.wire.errors import ToolFailed

Matcher = Callable[[str], bool]
LONGEST = 1000
SHOWN = 100
MOST_ALTERNATIVES = 256
_NAME, _NAMES, _DEEP = "*", "**/", "**"
_CROSSING = (_NAMES, _DEEP)
_MEMBERS = re.compile("(.)-(.)|(.)", re.DOTALL)


class GlobSyntax(Struct, frozen=True):
    """Which characters besides `*`, `?` and a `**` that is a whole name are special.

    `deep` lets `**` cross slashes inside a name, too; `itself` lets `x/**` also mean `x`.
    """

    classes: bool = True
    escapes: bool = True
    deep: bool = False
    itself: bool = False


_PLAIN = GlobSyntax()
_RULES = GlobSyntax(classes=False, escapes=False, deep=True, itself=True)
_MODELS = GlobSyntax(escapes=False, deep=True)


def compile_find_glob(pattern: str) -> Matcher:
    """Globs of `find`: with braces; a pattern without a slash matches the last name, one with a slash at any depth.

    A pattern without an upper-case letter ignores case.
    """
    _require_valid(pattern)
    whole_path = "/" in pattern
    if whole_path and not pattern.startswith(("/", "**/")):
        pattern = f"**/{pattern}"
    any_case = not any(character.isupper() for character in pattern)
    return _compile_brace_matcher(pattern, whole_path, re.IGNORECASE if any_case else re.NOFLAG)


def compile_grep_glob(pattern: str) -> Matcher:
    """The same for `grep`: case counts, a pattern with a slash matches the whole path, and one that ends in a slash
    everything below."""
    _require_valid(pattern)
    whole_path = "/" in pattern
    rooted = pattern.removeprefix("./").removeprefix("/")
    return _compile_brace_matcher(f"{rooted}**" if rooted.endswith("/") else rooted, whole_path, re.NOFLAG)


@lru_cache(maxsize=4096)
def compile_rule_glob(pattern: str) -> Matcher:
    """Paths of permission rules: only `*`, `?` and `**` are special."""
    return _compile_matcher(glob_to_regex(pattern, _RULES))


def compile_model_glob(pattern: str) -> Matcher:
    """References of models: with classes, ignoring case; a pattern with an invalid class is a plain text."""
    try:
        return _compile_matcher(glob_to_regex(pattern, _MODELS), re.IGNORECASE)
    except re.error:
        return _compile_matcher(re.escape(pattern), re.IGNORECASE)


@lru_cache(maxsize=4096)
def compile_text_glob(pattern: str, classes: bool = True) -> Matcher:
    """Any text, such as a command: `*` and `?` match slashes too. These are the globs of `fnmatch`, which are
    linear."""
    from fnmatch import translate

    return _compile_matcher(translate(pattern if classes else pattern.replace("[", "[[]")))


@lru_cache(maxsize=16384)
def compile_any_text_glob(pattern: str) -> Matcher:
    """The same for any of several texts, joined with two NULs between them; only `*` and `?` are special.

    One search over all of them is much faster than a match of each. Most patterns never need it, because a literal
    part of them is in none of the texts, so the expression is made when it is needed first.
    """
    literals = [literal for literal in re.split(r"[*?]+", pattern) if literal]
    search: Callable[[str], object] | None = None

    def matches(texts: str) -> bool:
        nonlocal search
        if not all(literal in texts for literal in literals):
            return False
        if search is None:
            search = _compile_any_text(pattern)
        return search(texts) is not None

    return matches


def _compile_any_text(pattern: str) -> Callable[[str], object]:
    pieces = ["".join("[^\0]" if sign == "?" else re.escape(sign) for sign in piece) for piece in pattern.split("*")]
    if len(pieces) == 1:
        expression = f"\0{pieces[0]}\0"
    else:
        middle = "".join(f"(?>[^\0]*?{piece})" for piece in pieces[1:-1] if piece)
        expression = f"\0{pieces[0]}{middle}[^\0]*{pieces[-1]}\0"
    return re.compile(expression, re.DOTALL).search


def glob_to_regex(pattern: str, syntax: GlobSyntax = _PLAIN) -> str:
    """A regular expression for a whole path, to be compiled with `DOTALL`; braces are not special."""
    below = pattern == "**" or pattern.endswith("/**")
    itself = below and syntax.itself and pattern != "**"
    pieces = _split_pieces(pattern[: -3 if itself else -2] if below else pattern, syntax)
    blocks: list[list[tuple[str, str]]] = []
    for wildcard, piece in pieces:
        if not blocks or wildcard in _CROSSING:
            blocks.append([])
        blocks[-1].append((wildcard, piece))
    ends = not below or itself
    expression = "".join(_block_to_regex(block) for block in (blocks[:-1] if ends else blocks))
    if not ends:
        return expression + (".*" if syntax.deep else ".+")
    return expression + _last_block_to_regex(blocks[-1]) + ("(?:/.*)?" if itself else "")


def _block_to_regex(block: list[tuple[str, str]]) -> str:
    """The pieces up to the next wildcard that crosses names: their first place is the best one."""
    steps = "".join(f"(?>[^/]*?{piece})" for _, piece in block[1:])
    start = _block_start_to_regex(*block[0], alone=not steps)
    return f"(?>{start}{steps})" if block[0][0] in _CROSSING else start + steps


def _last_block_to_regex(block: list[tuple[str, str]]) -> str:
    """The pieces after the last wildcard that crosses names: the last of them is at the end of the path."""
    start = _block_start_to_regex(*block[0], alone=len(block) == 1)
    if len(block) == 1:
        return start
    return start + "".join(f"(?>[^/]*?{piece})" for _, piece in block[1:-1]) + f"[^/]*{block[-1][1]}"


def _block_start_to_regex(wildcard: str, piece: str, alone: bool) -> str:
    """The beginning of a block. If the text after a piece in the middle of a name fails, it also fails after any later
    one there."""
    if wildcard == _DEEP:
        return f"(?:[^/]*/)*?{f'[^/]*?{piece}' if alone else f'(?>[^/]*?{piece})'}"
    return f"(?:[^/]+/)*?{piece}" if wildcard == _NAMES else piece


def _split_pieces(pattern: str, syntax: GlobSyntax) -> list[tuple[str, str]]:
    """The pattern as pieces of fixed length, each an expression with the wildcard before it."""
    pieces = [("", "")]
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        begins_name = at == 0 or pattern[at - 1] == "/"
        if begins_name and pattern.startswith(_NAMES, at):
            pieces.append((_NAMES, ""))
            at += len(_NAMES)
        elif sign == "*":
            end = len(pattern) - len(pattern[at:].lstrip("*"))
            pieces.append((_DEEP if syntax.deep and end - at > 1 else _NAME, ""))
            at = end
        else:
            piece, at = _parse_single(pattern, at, syntax)
            wildcard, before = pieces[-1]
            pieces[-1] = (wildcard, before + piece)
    return pieces


def _parse_single(pattern: str, at: int, syntax: GlobSyntax) -> tuple[str, int]:
    """The expression for one character, and the next position in the pattern."""
    sign = pattern[at]
    at += 1
    if sign == "?":
        return "[^/]", at
    if sign == "[" and syntax.classes:
        return _parse_class(pattern, at)
    if sign == "\\" and syntax.escapes and at < len(pattern):
        return re.escape(pattern[at]), at + 1
    return re.escape(sign), at


def _parse_class(pattern: str, at: int) -> tuple[str, int]:
    end = _class_end(pattern, at)
    if end < 0 or "/" in pattern[at:end]:
        return r"\[", at
    body = pattern[at:end]
    negated = body[:1] in ("!", "^")
    members = _MEMBERS.findall(body[1:] if negated else body)
    inside = "".join(
        f"{_escape_for_regex(a)}-{_escape_for_regex(b)}" if a else _escape_for_regex(single) for a, b, single in members
    )
    return f"(?!/)[{'^' if negated else ''}{inside}]", end + 1


def _class_end(pattern: str, at: int) -> int:
    """The end of the class that begins here; a bracket at its start belongs to it."""
    return pattern.find("]", at + 2 if pattern[at : at + 1] in ("!", "^") else at + 1)


def _escape_for_regex(character: str) -> str:
    return character if character.isalnum() else f"\\{character}"


def _compile_matcher(expression: str, case: re.RegexFlag = re.NOFLAG) -> Matcher:
    fullmatch = re.compile(expression, re.DOTALL | case).fullmatch
    return lambda text: fullmatch(text) is not None


def _compile_brace_matcher(pattern: str, whole_path: bool, case: re.RegexFlag) -> Matcher:
    alternatives = _expand_braces(pattern)
    for one in alternatives:
        _refuse_mistake(one)  # characters that are adjacent now may form a reversed range
    tests = [_compile_matcher(glob_to_regex(one), case) for one in alternatives]

    def matches(path: str) -> bool:
        subject = path if whole_path else path.rpartition("/")[2]
        return any(test(subject) for test in tests)

    return matches


def _require_valid(pattern: str) -> None:
    if not pattern or len(pattern) > LONGEST:
        raise ToolFailed(f"Invalid glob: it must have between 1 and {LONGEST} characters.")
    _refuse_mistake(pattern)


def _refuse_mistake(pattern: str) -> None:
    wrong = _describe_mistake(pattern)
    if wrong:
        shown = pattern if len(pattern) <= SHOWN else f"{pattern[:SHOWN]}..."
        raise ToolFailed(f"Invalid glob {shown}: {wrong}.")


def _describe_mistake(pattern: str) -> str:
    """The mistake in a pattern with classes and braces; empty if it is valid."""
    open_braces: list[int] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            if at + 1 == len(pattern):
                return "nothing follows the backslash at its end; a backslash itself is written \\\\"
            at += 1
        elif sign == "[":
            end = _class_end(pattern, at + 1)
            if end < 0:
                return f"the [ at character {at + 1} has no ]; a bracket itself is written \\["
            backwards = [f"{a}-{b}" for a, b in _ranges(pattern[at + 1 : end]) if a > b]
            if backwards:
                return f"the range {backwards[0]} runs backwards"
            at = end
        elif sign == "{":
            open_braces.append(at)
        elif sign == "}":
            if not open_braces:
                return f"the }} at character {at + 1} has no {{; a brace itself is written \\}}"
            open_braces.pop()
        at += 1
    return f"the {{ at character {open_braces[-1] + 1} has no }}; a brace itself is written \\{{" if open_braces else ""


def _ranges(members: str) -> list[tuple[str, str]]:
    return [(a, b) for a, b, _ in _MEMBERS.findall(members.lstrip("!^")) if a]


def _expand_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > MOST_ALTERNATIVES:
            raise ToolFailed(f"Invalid glob: more than {MOST_ALTERNATIVES} alternatives.")
        current = waiting.pop()
        brace = _find_brace(current)
        if brace is None:
            done.append(current)
            continue
        start, end, options = brace
        waiting.extend(current[:start] + option + current[end:] for option in options)
    return list(dict.fromkeys(done))


def _find_brace(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first complete `{a,b}` of a pattern; braces in a class are ordinary characters."""
    start = depth = 0
    cuts: list[int] = []
    passed = 0
    for at, character in enumerate(pattern):
        if at < passed:
            continue
        if character == "\\":
            passed = at + 2
        elif character == "[" and "/" not in pattern[at : (end := _class_end(pattern, at + 1))] and end > 0:
            passed = end + 1
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
