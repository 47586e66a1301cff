"""Whether allowing rules cover everything that a shell command does, as far as `shell_syntax` read it exactly.

Everything that is not understood counts as not covered: a name that is not written out, a program that runs others and
is not named in the rule, a variable that may decide what runs.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from pigeon.permissions.shell_programs import (
    DECLARING,
    FINDING,
    FINDING_OPTIONS,
    HARMLESS_DECLARING_OPTIONS,
    HARMLESS_VARIABLES,
    PREFIX_OPTIONS,
    RUNNERS,
    SETTING_VARIABLES,
)
from pigeon.permissions.shell_words import ASSIGNMENT, Redirection, ShellScript, ShellWord
from pigeon.system.globs import compile_text_glob

MOST_PREFIXES = 8
_PROGRAM = re.compile(r"[\w.+@%:,/-]+")
_ARGUMENT = re.compile(r"[^\s'\"\\\0]+")
# Options with the name of a variable in the same word.
_ATTACHED_VARIABLE = {"read": re.compile(r"-[a-zA-Z]*?a(\w+)"), "wait": re.compile(r"-[a-zA-Z]*?p(\w+)")}
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?:(\+?=)|$)")
_NUMBERS = ("$#", "$?", "$!", "$$")
_ONE_WORD = re.compile(r'"[^"@*]*"')
_COMPARING = ("=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef")
_XARGS_FLAGS = ("-0", "-r", "-t", "-x", "--null", "--no-run-if-empty")
# The mark of a rule for a redirection, by the shell's operator.
REDIRECTION_SIGNS = {">": ">", ">|": ">", "&>": ">", ">&": ">", ">>": ">>", "&>>": ">>", "<>": "<>", "<": "<"}


@lru_cache(maxsize=4096)
def normalize_pattern(pattern: str) -> str:
    """The pattern of a command rule in its form for matching: runs of blanks count as one."""
    return unicodedata.normalize("NFC", " ".join(pattern.split()))


def is_covered(script: ShellScript, patterns: Sequence[str]) -> bool:
    """Whether patterns of allowing rules cover everything that a command does."""
    patterns = [normalize_pattern(pattern) for pattern in patterns]
    if script.doubt or not (script.commands or script.redirections):
        return False
    return all(_is_command_covered(words, patterns) for words in script.commands) and all(
        _is_redirection_covered(redirection, patterns) for redirection in script.redirections
    )


def _is_command_covered(words: list[ShellWord], patterns: Sequence[str], prefixes: int = 0) -> bool:
    first, text = words[0], _text_for_allow_rules(words)
    if ASSIGNMENT.match(first.raw):
        return any(_are_assignments_covered(words, pattern) for pattern in patterns)
    if first.raw == "[":
        return _is_harmless_test(words) and _is_allowed(patterns, text)
    name = first.value
    if not first.is_exact or not _PROGRAM.fullmatch(name) or ".." in name.split("/"):
        return False
    if name in SETTING_VARIABLES:
        variables = _find_influential_variables(words)
        return variables is not None and _is_allowed(patterns, text, name, variables)
    inner = _command_behind_prefix(words) if prefixes < MOST_PREFIXES else None
    if inner is not None and _is_command_covered(inner, patterns, prefixes + 1):
        return True
    if name == "let" or (name == "test" and not _is_harmless_test(words)):
        return False
    if name == "printf" and (len(words) == 1 or not words[1].is_exact or words[1].value.startswith("-v")):
        return False  # sets a variable
    program = os.path.basename(name)
    if program in FINDING | {"xargs"} and prefixes < MOST_PREFIXES:
        return _is_allowed(patterns, text, name) and all(
            _is_command_covered(run, patterns, prefixes + 1) for run in _commands_run_by(program, words)
        )
    return _is_allowed(patterns, text, name if program in RUNNERS else "")


def _is_allowed(patterns: Sequence[str], piece: str, beginning: str = "", variables: Sequence[str] = ()) -> bool:
    """Whether a pattern with this beginning, and with these names in it, matches a piece."""
    return any(
        pattern.startswith(beginning)
        and all(re.search(rf"\b{name}\b", pattern) for name in variables)
        and compile_text_glob(pattern, classes=False)(piece)
        for pattern in patterns
    )


def _are_assignments_covered(words: list[ShellWord], pattern: str) -> bool:
    """Whether one pattern covers assignments and the command behind them, each assignment with a separate word."""
    for at, word in enumerate(words):
        assigned = ASSIGNMENT.match(word.raw)
        if assigned is None:
            return _is_command_covered(words[at:], [pattern], 1)
        wanted, _, pattern = pattern.partition(" ")
        if not wanted.startswith(assigned[0]) or not compile_text_glob(wanted, classes=False)(
            _text_for_allow_rules([word])
        ):
            return False
    return not pattern


def _find_influential_variables(words: list[ShellWord]) -> list[str] | None:
    """The variables set by a command that may affect what programs do; None if it is uncertain which are set."""
    found = []
    attached = _ATTACHED_VARIABLE.get(words[0].value)
    for word in words[1:2] if words[0].value == "for" else words[1:]:
        named = attached.match(word.value) if attached is not None else None
        if named is not None and not HARMLESS_VARIABLES.fullmatch(named[1]):
            found.append(named[1])
        variable = _VARIABLE.match(word.raw)
        if variable is not None and (word.is_exact or variable[2]):
            if not HARMLESS_VARIABLES.fullmatch(variable[1]):
                found.append(variable[1])
        elif words[0].value in DECLARING:
            if not HARMLESS_DECLARING_OPTIONS.fullmatch(word.raw):
                return None
        elif word.raw not in _NUMBERS and (not word.is_exact or "[" in word.value or word.quoted):
            # A variable with a computed name or a subscript, which the shell evaluates.
            return None
    return found


def _is_harmless_test(words: list[ShellWord]) -> bool:
    """False if a word could name a variable with a subscript, which the shell evaluates."""
    given = words[1:-1] if words[0].value == "[" else words[1:]
    if any("[" in word.value and ("$" in word.value or "`" in word.value) for word in given):
        return False
    unknown = [word for word in given if not word.is_exact and word.raw not in _NUMBERS]
    if not unknown:
        return True
    # One word each, if the meaning of the others is certain.
    single = all(_ONE_WORD.fullmatch(word.raw) for word in unknown)
    if len(given) == 2:
        return single and given[0].is_exact and given[0].value not in ("-v", "-R")
    return single and (len(given) == 1 or (len(given) == 3 and given[1].is_exact and given[1].value in _COMPARING))


def _text_for_allow_rules(words: list[ShellWord]) -> str:
    """A command in the form for allowing rules: simple words without quotes, others as written."""
    return " ".join(word.value if word.is_exact and _ARGUMENT.fullmatch(word.value) else word.raw for word in words)


def _command_behind_prefix(words: list[ShellWord]) -> list[ShellWord] | None:
    """The command behind a prefix with known options, if the prefix does not change the meaning of its name."""
    name, rest = words[0].value, words[1:]
    option = PREFIX_OPTIONS.get(name)
    if option is None:
        return None
    given = re.match(option, " ".join(word.raw for word in rest[:2]) + " ")
    if given is not None:
        rest = rest[given[0].count(" ") :]
    elif name in ("timeout", "stdbuf"):
        return None
    if not rest or rest[0].value.startswith("-") or ASSIGNMENT.match(rest[0].value):
        return None
    return rest


def _commands_run_by(program: str, words: list[ShellWord]) -> Iterator[list[ShellWord]]:
    """The commands in the words of `find` and `xargs`; one that nothing matches if they are not known."""
    unknown = [ShellWord("\0", "\0", "*", expands=True)]
    if program == "xargs":
        rest = words[1:]
        while rest and rest[0].raw in _XARGS_FLAGS:
            rest = rest[1:]
        added = ShellWord("{}", "{}", "{}")  # represents the words that are read from the input
        yield [*rest, added] if rest and not rest[0].value.startswith("-") else unknown
        return
    if program == "fd" or any(word.expands or (word.globs and word.raw != "{}") for word in words):
        yield from [unknown] if program == "find" or any(word.raw[:1] == "-" for word in words) else []
        return
    for index, word in enumerate(words):
        if word.value in FINDING_OPTIONS:
            rest = words[index + 1 :]
            end = next((at for at, later in enumerate(rest) if later.value in (";", "+")), len(rest))
            yield rest[:end] or unknown


def _is_redirection_covered(redirection: Redirection, patterns: Sequence[str]) -> bool:
    sign, target = REDIRECTION_SIGNS.get(redirection.operator), redirection.target
    if sign is None:
        return False
    if target.is_exact and target.value == "/dev/null":
        return True
    if not target.is_exact or not target.value:
        # Only `> *` covers a file with an unknown name.
        return _is_allowed(patterns, f"{sign} \0{target.raw}", sign)
    return _is_allowed(patterns, f"{sign} {os.path.normpath(target.value)}", sign)
